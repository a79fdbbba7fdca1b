#!/usr/bin/env bash
# Builds the wheel, installs it, and uses it without a compiler and without this checkout.
set -euo pipefail
cd "$(dirname "$0")/.."

make wheel
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
.venv/bin/python -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check dist/*.whl

cd "$folder"
mkdir bin
ln -s "$folder/venv/bin/eliza-ffi" bin/
env -i HOME="$folder" PATH="$folder/bin" eliza-ffi doctor
answer=$(env -i HOME="$folder" PATH="$folder/bin" eliza-ffi choose \
    --prompt "Reply or ignore?" --choice REPLY --choice IGNORE)
case "$answer" in
    REPLY | IGNORE) echo "wheel: chose $answer" ;;
    *) echo "wheel: expected REPLY or IGNORE, got \"$answer\"" >&2; exit 1 ;;
esac
