#!/bin/bash
# Everything that waits for a CUDA GPU, in one go: tests, the GPU check with its planted failures, both benchmarks.
#   tests/gpu/all.sh OUT [PYTHON]
# PYTHON (default python3) brings torch and triton for the GPU, numpy, pytest, hypothesis; for `decode` also tokenizers and
# safetensors. Nothing is installed. Each step's output goes to OUT/STEP.log, its exit status and seconds to the table at the
# end. The plug-in inside SGLang has a plan of its own: plugin_plan.py.
set -u
cd "$(dirname "$0")/../.."
out=${1:?usage: tests/gpu/all.sh OUT [PYTHON]} python=${2:-python3}
mkdir -p "$out"
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
step versions "$python" -c 'import torch, triton; print(torch.__version__, triton.__version__, torch.cuda.get_device_name())'
step check "$python" -m ddtree_kernels.gpu_check
step planted "$python" -m pytest -q -s -p no:cacheprovider tests/kernels/test_gpu_check_on_gpu.py
step tests "$python" -m pytest -q -p no:cacheprovider tests/kernels tests/decode tests/models
step ops "$python" -m ddtree_kernels.bench run --csv "$out/ops.csv"
step decode "$python" -m ddtree_kernels.bench decode
echo "$table"
