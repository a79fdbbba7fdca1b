#!/usr/bin/env bash
# Installs Linux wheels in a Debian 12 that has only Python, and runs `eliza-ffi doctor` and `choose` there.
#
#     scripts/check_bare_debian.sh dist/eliza_ffi-*-manylinux*.whl
#
# Needs root and debootstrap. A wheel for 64-bit Arm also needs qemu-user-static, registered with the kernel. Debian is
# installed once into build/bare-debian. pip runs outside of it, so it needs no network.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ $# = 0 ]; then
    echo "check_bare_debian: expected wheels for Linux, such as dist/eliza_ffi-*-manylinux*.whl" >&2
    exit 2
fi

mounted=()
unmount() {
    for folder in "${mounted[@]}"; do umount "$folder"; done
    mounted=()
}
trap unmount EXIT

for wheel in "$@"; do
    case $wheel in
        *linux*_x86_64.whl) processor=x86_64 debian=amd64 ;;
        *linux*_aarch64.whl) processor=aarch64 debian=arm64 ;;
        *)
            echo "check_bare_debian: expected a wheel for Linux on x86_64 or aarch64, got $wheel" >&2
            exit 2
            ;;
    esac
    root=build/bare-debian/$debian
    if ! [ -e "$root/complete" ]; then
        rm -rf "$root"
        mkdir -p "$root"
        debootstrap --arch="$debian" --variant=minbase --include=python3,python3-venv bookworm "$root" > "$root.log" ||
            { tail -n 5 "$root.log" >&2; exit 1; }
        touch "$root/complete"
    fi
    rm -rf "$root/check"
    mkdir "$root/check"

    # Debian 12 has Python 3.11 and glibc 2.36.
    platforms=(--platform="manylinux2014_$processor")
    for minor in {17..36}; do platforms+=(--platform="manylinux_2_${minor}_$processor"); done
    .venv/bin/python -m pip download --quiet --disable-pip-version-check --only-binary=:all: --python-version=3.11 \
        "${platforms[@]}" --dest "$root/check/wheels" "$wheel"
    cp scripts/check_installed.py "$root/check/"

    mount -t proc proc "$root/proc"
    mounted+=("$root/proc")
    mount -t devpts devpts "$root/dev/pts"
    mounted+=("$root/dev/pts")
    echo "$(basename "$wheel") in a bare Debian 12"
    chroot "$root" env --ignore-environment HOME=/root PATH=/usr/bin:/bin LANG=C.UTF-8 bash -euo pipefail -c '
        cd /check
        python3 -m venv venv
        venv/bin/pip install --quiet --disable-pip-version-check --no-index wheels/*.whl
        venv/bin/python check_installed.py'
    unmount
done
