#!/bin/sh
# Makes sure that the system has what this project does not bring along, and is silent where it has:
#
#     scripts/system_packages.sh compiler python gtest curl npm fuzzer
#
# What is missing is named. Where apt is there, and this user is root or needs no password for sudo, it
# is installed; elsewhere one line says what to install, and the exit code is 1. With
# ELIZA_INSTALL_PACKAGES=0 nothing is ever installed.
#
# PYTHON names the Python that is asked for, python3 by default. Needs no Python itself.
set -u
cd "$(dirname "$0")/.." || exit 1

PYTHON=${PYTHON:-python3}
has() { command -v "$1" > /dev/null 2>&1; }
can_install=no
if has apt-get && has dpkg; then can_install=apt; fi

has_compiler() {
    has "${CXX:-c++}" || has g++ || has clang++
}

has_python() {
    [ -x .venv/bin/python ] || "$PYTHON" -c 'import ensurepip, venv' > /dev/null 2>&1
}

# Where apt is not there CMake finds GoogleTest, or says that it does not; a user's own comes first.
has_gtest() {
    [ "$can_install" = no ] || [ -n "${CMAKE_PREFIX_PATH:-}${GTest_DIR:-}${GTEST_ROOT:-}" ] ||
        [ -f /usr/include/gtest/gtest.h ] || [ -f /usr/local/include/gtest/gtest.h ]
}

has_npm() {
    has npm
}

# clang, with the library that its option -fsanitize=fuzzer links.
has_fuzzer() {
    ls "$(clang++ -print-resource-dir 2> /dev/null)"/lib/*/libclang_rt.fuzzer* > /dev/null 2>&1
}

# Debian 12's clang is 14, and only recommends the package that libFuzzer is in.
fuzzer_package() {
    version=$(apt-cache depends clang 2> /dev/null | sed -n 's/.*Depends: clang-\([0-9]*\)$/\1/p' | head -n 1)
    echo "libclang-rt-${version:-14}-dev"
}

missing= # as Debian's packages
words=   # as somebody without these packages would look for them
check() {
    missing= words=
    for need; do
        case $need in
            compiler) has_compiler || lacks g++ "a C++ compiler" ;;
            python) has_python || lacks python3-venv "Python 3.10 or newer with its module venv" ;;
            gtest) has_gtest || lacks libgtest-dev GoogleTest ;;
            curl) has curl || lacks curl curl ;;
            npm) has_npm || lacks npm npm ;;
            fuzzer) has_fuzzer || lacks "clang $(fuzzer_package)" "clang with libFuzzer" ;;
            *) echo "system_packages.sh: \"$need\" is not compiler, python, gtest, curl, npm or fuzzer" >&2; exit 2 ;;
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

python_is_too_old() {
    has "$PYTHON" && ! "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 10))' > /dev/null 2>&1
}

check "$@"
case " $* " in
    *" python "*)
        if [ ! -x .venv/bin/python ] && python_is_too_old; then
            fail "$("$PYTHON" --version 2>&1) is too old: PYTHON=... names a Python 3.10 or newer"
        fi
        ;;
esac
[ -n "$missing" ] || exit 0

if [ "$can_install" = no ]; then
    fail "$words: missing here; please install (Debian and Ubuntu call it: $missing)"
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
apt() {
    $as_root env DEBIAN_FRONTEND=noninteractive LC_ALL=C apt-get -qq -o DPkg::Lock::Timeout=300 "$@" \
        >> "$log" 2>&1 < /dev/null
}
apt update # where it fails, the lists that are there may do
# shellcheck disable=SC2086 # one word each
if ! apt install -y --no-install-recommends $missing; then
    tail -n 5 "$log" >&2
    fail "apt-get could not install $missing; $by_hand"
fi
hash -r
check "$@"
[ -z "$missing" ] || fail "$words: missing still, though apt-get has installed it; PYTHON=... or PATH may name another"
