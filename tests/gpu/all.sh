#!/bin/bash
# Everything that waits for a CUDA GPU, in one go: tests, the GPU check with its planted failures, both benchmarks.
#   tests/gpu/all.sh OUT [PYTHON]
# PYTHON (default python3) brings torch and triton for the GPU, numpy, pytest, hypothesis; for `equality` and `decode` also
# tokenizers and safetensors. With pytest-xdist the tests run in eight processes. Nothing is installed, and nothing else may
# use the GPU: `planted` compares what is in use before and after. Each step's output goes to OUT/STEP.log, its exit status and
# seconds to the table at the end. The plug-in inside SGLang has a plan of its own: plugin_plan.py.
#
# Seen on an H200 with 16 cores, kernels compiled anew: check 61 s, planted 125 s, tests 48 s (kernels) and 34 s (the rest) in
# two calls of eight processes, equality 30 s, decode 47 to 54 s; ops was not timed in this order.
set -u
cd "$(dirname "$0")/../.."
out=${1:?usage: tests/gpu/all.sh OUT [PYTHON]} python=${2:-python3}
mkdir -p "$out"
out=$(cd "$out" && pwd)
export PYTHONPATH="$PWD/kernels:$PWD/console:$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
table=$(printf '%-10s %6s %8s' step status seconds)
step() {
    local name=$1 began=$SECONDS status=0
    shift
    echo "== $name: $*"
    "$@" >"$out/$name.log" 2>&1 || status=$?
    tail -n 40 "$out/$name.log"
    table+=$(printf '\n%-10s %6s %8s' "$name" "$status" "$((SECONDS - began))")
}
alone=() many=()
if "$python" -c 'import xdist' 2>/dev/null; then alone=(-n 0) many=(-n 8); fi
test=("$python" -m pytest -q -p no:cacheprovider)
planted=tests/kernels/test_gpu_check_on_gpu.py
step versions "$python" -c 'import torch, triton; print(torch.__version__, triton.__version__, torch.cuda.get_device_name())'
step check "$python" -m ddtree_kernels.gpu_check
step planted "${test[@]}" "${alone[@]}" -s "$planted"
step tests "${test[@]}" "${many[@]}" --ignore "$planted" tests/kernels tests/decode tests/models
step equality "$python" -m tests.decode.equality --samples 0
step ops "$python" -m ddtree_kernels.bench run --csv "$out/ops.csv"
step decode "$python" -m ddtree_kernels.bench decode --profile --out "$out/decode.md"
echo "$table"
