#!/usr/bin/env bash
# Installs a wheel in a new environment and uses it. Without an argument, builds the wheel first.
#
#     scripts/check_wheel.sh dist/eliza_ffi-*.whl
set -euo pipefail
cd "$(dirname "$0")/.."

if [ $# = 0 ]; then
    make wheel
    set -- "$(ls -t dist/*.whl | head -n 1)"  # dist may also have wheels for other systems
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
.venv/bin/python -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "$@"
"$folder/venv/bin/python" tests/release/check_installed.py
