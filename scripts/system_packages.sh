#!/bin/sh
# Checks that the system has the given tools, and installs missing ones:
#
#     scripts/system_packages.sh compiler python gtest curl npm fuzzer
#
# Prints nothing if all tools are there. If some are missing, apt installs them, provided that the user
# is root or sudo needs no password. Otherwise the script prints one line with the packages to install,
# and exits with code 1. With ELIZA_INSTALL_PACKAGES=0 it never installs anything.
#
# PYTHON is the Python to check, python3 by default. The script itself needs no Python.
set -u
cd "$(dirname "$0")/.." || exit 1

PYTHON=${PYTHON:-python3}
has() { command -v "$1" > /dev/null 2>&1; }
can_install=no
if has apt-get && has dpkg; then can_install=apt; fi

# Without apt, CMake searches for GoogleTest and reports if it is missing. A GoogleTest that the user has
# set in a variable takes precedence.
has_gtest() {
    [ "$can_install" = no ] || [ -n "${CMAKE_PREFIX_PATH:-}${GTest_DIR:-}${GTEST_ROOT:-}" ] ||
        [ -f /usr/include/gtest/gtest.h ] || [ -f /usr/local/include/gtest/gtest.h ]
}

# The package that contains libFuzzer. Debian's clang only recommends it. Debian 12 has clang 14.
fuzzer_package() {
    version=$(apt-cache depends clang 2> /dev/null | sed -n 's/.*Depends: clang-\([0-9]*\)$/\1/p' | head -n 1)
    echo "libclang-rt-${version:-14}-dev"
}

missing= # names of Debian packages
words=   # names for systems without these packages
check() {
    missing= words=
    for need; do
        case $need in
            compiler) has "${CXX:-c++}" || has g++ || has clang++ || lacks g++ "a C++ compiler" ;;
            python)
                if [ ! -x .venv/bin/python ]; then
                    ! has "$PYTHON" || "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 10))' > /dev/null 2>&1 ||
                        fail "$("$PYTHON" --version 2>&1) is too old: set PYTHON to Python 3.10 or newer"
                    "$PYTHON" -c 'import ensurepip, venv' > /dev/null 2>&1 ||
                        lacks python3-venv "Python 3.10 or newer with its module venv"
                fi
                ;;
            gtest) has_gtest || lacks libgtest-dev GoogleTest ;;
            curl | npm) has "$need" || lacks "$need" "$need" ;;
            fuzzer) # clang with libFuzzer, which -fsanitize=fuzzer links
                ls "$(clang++ -print-resource-dir 2> /dev/null)"/lib/*/libclang_rt.fuzzer* > /dev/null 2>&1 ||
                    lacks "clang $(fuzzer_package)" "clang with libFuzzer"
                ;;
            *) echo "system_packages.sh: expected compiler, python, gtest, curl, npm or fuzzer, got \"$need\"" >&2; exit 2 ;;
        esac
    done
}
lacks() {
    missing="$missing${missing:+ }$1"
    words="$words${words:+, }$2"
}

fail() {
    echo "make: $1" >&2
    exit 1
}

check "$@"
[ -n "$missing" ] || exit 0

if [ "$can_install" = no ]; then
    fail "missing: $words; please install (on Debian and Ubuntu: $missing)"
fi
by_hand="please run: sudo apt-get install $missing"
if [ "${ELIZA_INSTALL_PACKAGES:-1}" = 0 ]; then
    fail "missing: $missing; $by_hand"
elif [ "$(id -u)" = 0 ]; then
    as_root=
elif has sudo && sudo -n true > /dev/null 2>&1; then
    as_root="sudo -n"
else
    fail "missing: $missing; $by_hand"
fi

echo "Installing $missing with apt-get"
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
# Once installed, the downloaded files of packages take room for nothing.
apt() {
    $as_root env DEBIAN_FRONTEND=noninteractive LC_ALL=C apt-get -qq -o DPkg::Lock::Timeout=300 \
        -o APT::Keep-Downloaded-Packages=false "$@" >> "$log" 2>&1 < /dev/null
}
apt update # if this fails, the existing package lists may suffice
# shellcheck disable=SC2086 # split into one word per package
if ! apt install -y --no-install-recommends $missing; then
    tail -n 5 "$log" >&2
    fail "apt-get could not install $missing; $by_hand"
fi
hash -r
check "$@"
[ -z "$missing" ] || fail "missing: $words, although apt-get installed it; check PYTHON and PATH"
