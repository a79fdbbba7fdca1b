#!/usr/bin/env bash
# Tries a release in a Debian 12, a Debian 13 and an Ubuntu 24.04 that have only Python: runs csv.sh and openai_client.sh of
# tests/release there. c.sh runs with the C archive beside the wheel, in systems with a C compiler and without Python.
#
#     scripts/check_bare_debian.sh dist/eliza_ffi-*-manylinux*.whl
#
# SYSTEMS='bookworm noble' selects systems. Needs root and debootstrap. For Ubuntu, Debian also needs the package
# ubuntu-keyring, which exists since Debian 13; UBUNTU_MIRROR=URL selects a mirror. A wheel for 64-bit Arm needs
# qemu-user-static, registered with the kernel. Each system is installed once into build/bare-debian. pip downloads the
# other wheels outside of it, so the systems need no network. build/release/tried.txt lists what has passed.
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

# The chroot of a system with these packages: install_system NAME PACKAGES
install_system() {
    root=build/bare-debian/$system-$debian-$1
    if ! [ -e "$root/complete" ]; then
        rm -rf "$root"
        mkdir -p "$root"
        origin=()
        if [ "$system" = noble ]; then origin=("${UBUNTU_MIRROR:-}" gutsy); fi  # Debian 12 has no script named noble
        debootstrap --arch="$debian" --variant=minbase --components="$components" --include="$2" "$system" "$root" \
            "${origin[@]}" > "$root.log" || { tail -n 5 "$root.log" >&2; exit 1; }
        touch "$root/complete"
    fi
    rm -rf "$root/check"
    mkdir "$root/check"
    mount -t proc proc "$root/proc"
    mounted+=("$root/proc")
    mount -t devpts devpts "$root/dev/pts"
    mounted+=("$root/dev/pts")
}

# Runs a script in the chroot's folder /check, and notes that it has passed: try FILE SCRIPT
try() {
    what="$(basename "$1") in $name: ${2##*/}"
    echo "$what"
    start=$SECONDS
    chroot "$root" env --ignore-environment HOME=/root PATH=/usr/bin:/bin LANG=C.UTF-8 sh -euc "cd /check; $2 ."
    echo "$what ($((SECONDS - start)) s)" >> build/release/tried.txt
}

mkdir -p build/release
for wheel in "$@"; do
    case $wheel in
        *linux*_x86_64.whl) processor=x86_64 debian=amd64 ;;
        *linux*_aarch64.whl) processor=aarch64 debian=arm64 ;;
        *)
            echo "check_bare_debian: expected a wheel for Linux on x86_64 or aarch64, got $wheel" >&2
            exit 2
            ;;
    esac
    for system in ${SYSTEMS:-bookworm trixie noble}; do
        components=main
        case $system in
            bookworm) name="Debian 12" python=3.11 glibc=36 ;;
            trixie) name="Debian 13" python=3.13 glibc=41 ;;
            noble) name="Ubuntu 24.04" python=3.12 glibc=39 components=main,universe ;;
            *)
                echo "check_bare_debian: expected SYSTEMS of bookworm, trixie and noble, got $system" >&2
                exit 2
                ;;
        esac
        install_system python python3,python3-venv
        platforms=(--platform="manylinux2014_$processor")
        for minor in $(seq 17 $glibc); do platforms+=(--platform="manylinux_2_${minor}_$processor"); done
        .venv/bin/python -m pip download --quiet --disable-pip-version-check --only-binary=:all: \
            --python-version=$python "${platforms[@]}" --dest "$root/check/wheels" "${wheel}[serve]" openai
        cp tests/release/*.* "$root/check/"
        try "$wheel" ./csv.sh
        try "$wheel" ./openai_client.sh
        unmount

        for archive in "$(dirname "$wheel")"/eliza-ffi-c-*linux-"$processor".tar.gz; do
            [ -e "$archive" ] || continue
            install_system c gcc,libc6-dev,make,cmake,musl-tools,pkg-config
            cp "$archive" tests/release/c.sh "$root/check/"
            try "$archive" ./c.sh
            unmount
        done
    done
done
