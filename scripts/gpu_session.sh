#!/usr/bin/env bash
# Checks and measures eliza-ffi on a GPU, beside llama-server, in at most eight minutes. Writes one folder of results,
# from which docs/guides/gpus.md is made.
#
#     scripts/gpu_session.sh [FOLDER]              # build/gpu-session by default
#     scripts/gpu_session.sh --rehearse [FOLDER]   # on the CPU, with tiny models and loads
#
# Nothing is fetched. A machine without a network needs, besides this checkout:
#
# - the cache of fetch_llama_cpp.py, or a folder for it that ELIZA_FFI_CACHE names, with llama.cpp-bNNNNN; and in its
#   folder real, smollm2 and gemma3-270m. Without these two, models with random weights stand in for them.
# - build/cpu and build/peers-cuda, and best also build/cuda, built for its card in advance; what is missing is built
#   first. To build CUDA on a machine without a GPU, see docs/guides/gpus.md, and set CUDA_ARCHITECTURES and ELIZA_NATIVE=0.
# - the Python packages of the extras serve and dev that the steps import: cffi, gguf, jinja2, jsonschema-rs,
#   llguidance, numpy, prometheus-client, pydantic, starlette, uvicorn, brotli and zstd. PYTHON names their interpreter.
#
# A step that fails, or is cut at its time limit, does not stop the others. BUDGET=480 sets the seconds of the session.
set -uo pipefail
cd "$(dirname "$0")/.."

BACKEND=${BACKEND:-cuda}
load_limit=80
if [ "${1:-}" = --rehearse ]; then
    BACKEND=cpu
    export REHEARSAL=1
    load_limit=240  # CPUs that other programs use, too, are slow
    BUDGET=${BUDGET:-1800}
    shift
fi
out=$(realpath -m "${1:-build/gpu-session}")
python=${PYTHON:-$PWD/.venv/bin/python}
end=$((SECONDS + ${BUDGET:-480}))
export PYTHONPATH=$PWD PYTHONUNBUFFERED=1 PYTHONHASHSEED=0
export ELIZA_FFI_LIBRARY=$PWD/build/$BACKEND/libelizainference.so
[ "$BACKEND" = cpu ] && peers=build/peers || peers=build/peers-$BACKEND
export LLAMA_SERVER=${LLAMA_SERVER:-$PWD/$peers/bin/llama-server}
mkdir -p "$out"
rm -f "$out"/{loads.json,steps.jsonl,models.txt,log.txt,*.md}

# step NAME SECONDS FILE COMMAND...: runs a command for at most SECONDS, and writes its output to FILE.
step() {
    local name=$1 limit=$2 file=$out/$3 begin=$SECONDS left=$((end - SECONDS)) code status
    shift 3
    [ "$left" -lt "$limit" ] && limit=$left
    echo "== $name" >> "$out/log.txt"
    : > "$out/output"
    code=124
    [ "$limit" -gt 0 ] && { timeout -k 10 "$limit" "$@" > "$out/output" 2>> "$out/log.txt"; code=$?; }
    [ -s "$out/output" ] && mv "$out/output" "$file"  # otherwise, the tables of earlier steps remain
    case $code in 0) status=ran ;; 124 | 137) status=cut ;; *) status="failed with code $code" ;; esac
    echo "{\"step\": \"$name\", \"status\": \"$status\", \"seconds\": $((SECONDS - begin))}" >> "$out/steps.jsonl"
    printf '%-24s %s, %d s\n' "$name" "$status" $((SECONDS - begin))
}

# The commands of `make build` and `make peers`, which would also install Python packages.
build_missing() {
    for each in cpu "$BACKEND"; do
        [ -e "build/$each/libelizainference.so" ] && continue
        "$python" scripts/check_toolchain.py "$each" &&
            cmake -S native -B "build/$each" -G Ninja -DPython3_EXECUTABLE="$python" -DELIZA_BACKEND="$each" \
                "-DELIZA_CUDA_ARCHITECTURES=${CUDA_ARCHITECTURES:-}" &&
            cmake --build "build/$each" --parallel || return
    done
    [ -x "$LLAMA_SERVER" ] && return
    cmake -S "$("$python" scripts/fetch_llama_cpp.py)" -B "build/peers-$BACKEND" -G Ninja -DCMAKE_BUILD_TYPE=Release \
        -DGGML_CUDA=ON "-DCMAKE_CUDA_ARCHITECTURES=${CUDA_ARCHITECTURES:-native}" -DLLAMA_OPENSSL=OFF \
        -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF &&
        cmake --build "build/peers-$BACKEND" --target llama-server --parallel
}
export -f build_missing
export BACKEND python

step build 300 build.txt bash -c 'build_missing >&2'
step models 90 models.txt "$python" scripts/gpu_session.py
check=("$python" scripts/check_backend.py "$BACKEND" --vocabulary 32k)
[ -n "${REHEARSAL:-}" ] && check+=(--quick)
step check 60 check.md "${check[@]}"
step check-exact 60 check-exact.md env GGML_CUDA_CUBLAS_COMPUTE_TYPE=f32 "${check[@]}"

measure=("$python" -m bench.serving.loads --out "$out" --merge)
while read -r name model; do
    given=("$model")
    case $model in *-random.gguf | *-tiny.gguf) given+=(--no-grammar) ;; esac
    step "loads of $name" $load_limit loads.md "${measure[@]}" "${given[@]}" --name "$name"
    if [ "$name" = 1B-f16 ]; then
        step "loads of $name, exact" $load_limit loads.md \
            env GGML_CUDA_CUBLAS_COMPUTE_TYPE=f32 "${measure[@]}" "${given[@]}" --name "$name, exact"
    fi
done < "$out/models.txt"

{
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2> /dev/null || echo "No NVIDIA GPU."
    printf '\nllama-server: %s\n\n' "$("$LLAMA_SERVER" --list-devices 2>&1 | tail -n +2 | xargs)"
    cat "$out/loads.md"
    for each in check check-exact; do printf '\n%s:\n\n' "$each"; cat "$out/$each.md"; done
    printf '\n| step | result | seconds |\n| :-- | :-- | --: |\n'
    sed 's/^{"step": "\(.*\)", "status": "\(.*\)", "seconds": \(.*\)}$/| \1 | \2 | \3 |/' "$out/steps.jsonl"
} > "$out/results.md"
rm -f "$out"/{output,loads.md,check.md,check-exact.md}
