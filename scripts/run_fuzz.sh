#!/bin/sh
# Runs fuzz targets, JOBS at a time, and prints a line for each. The targets must be built:
#
#     scripts/run_fuzz.sh SECONDS JOBS TARGET...
#
# Exit code 1 if a target found an error. Its log and the input are in build/fuzz.
set -u
cd "$(dirname "$0")/../build/fuzz" || exit 2
seconds=$1 jobs=$2
shift 2

run_one() {
    mkdir -p "corpus/$1"
    if "tests/fuzz/fuzz_$1" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -malloc_limit_mb=1024 \
        -print_final_stats=1 -artifact_prefix="$1-" "corpus/$1" "../../native/tests/fuzz/corpus/$1" > "$1.log" 2>&1; then
        runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$1.log")
        covered=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$1.log" | tail -n 1)
        printf '%-14s %12s runs, %5s edges covered, no errors\n' "$1" "$runs" "$covered"
    else
        printf '%-14s found an error: build/fuzz/%s.log\n' "$1" "$1"
        grep -E 'ERROR|SUMMARY|Test unit written' "$1.log" | head -n 5
        return 1
    fi
}

if [ "$#" -eq 1 ]; then
    run_one "$1"
else
    printf '%s\n' "$@" | xargs -P "$jobs" -n 1 sh ../../scripts/run_fuzz.sh "$seconds" 1
fi
