#!/bin/sh
# Everything that needs a GPU, in one go: tests, sanitizers, benchmarks.
# Usage: tests/gpu/all.sh PYTHON RESULTS NAME [PART...]    writes RESULTS/NAME-*.{log,json}
# PART: tests, hopper (the simulator's kernels of sm_90a), torch (tests with torch and JAX),
# sanitize, faults (planted, under compute-sanitizer), counts (beside ncu's), host, first_calls,
# overhead, model, or an operator's benchmarks; all without one.
# Builds in place first if the module is not there.  Exit 1 if a part failed.
set -u
python=$1
results=$2
name=$3
status=0
export PYTHONPATH="$PWD" GPUOPT_CUDA_ARCHS="${GPUOPT_CUDA_ARCHS:-90a}"
mkdir -p "$results"
ls gpuopt/_core*.so >/dev/null 2>&1 || "$python" setup.py --quiet build_ext --inplace || exit 1
"$python" -m gpuopt info

shift 3
[ $# -gt 0 ] || set -- tests hopper torch sanitize faults counts host first_calls overhead model \
    $("$python" -c "from gpuopt.lab import workloads; print(*workloads.rooms())")

for part in "$@"; do
    case $part in
    tests)
        log="$results/$name-tests.log"
        "$python" -m pytest -q tests/test_contract.py tests/ops -k cuda -p no:cacheprovider >"$log" 2>&1 || status=1
        "$python" -m pytest -q tests/test_device_gpu.py tests/test_device.py -p no:cacheprovider >>"$log" 2>&1 || status=1
        tail -n 60 "$log"
        ;;
    hopper)
        "$python" tests/gpu/hopper.py >"$results/$name-hopper.log" 2>&1 || status=1
        cat "$results/$name-hopper.log"
        ;;
    sanitize)
        log="$results/$name-sanitizer.log"
        : >"$log"
        for tool in memcheck racecheck initcheck synccheck; do
            echo "==== compute-sanitizer --tool $tool" >>"$log"
            timeout 500 compute-sanitizer --tool $tool --error-exitcode 9 \
                "$python" tests/one_case_each.py >>"$log" 2>&1 || status=1
            tail -n 2 "$log"
        done
        ;;
    torch)
        log="$results/$name-torch.log"
        "$python" -m pytest -q tests/test_torch*.py tests/test_jax.py tests/test_examples.py -p no:cacheprovider >"$log" 2>&1 || status=1
        tail -n 20 "$log"
        ;;
    faults | counts)
        "$python" "tests/gpu/$part.py" --out "$results/$name-$part.json" || status=1
        ;;
    host | first_calls | overhead | model)
        "$python" "tests/gpu/$part.py" >"$results/$name-$part.json" || status=1
        cat "$results/$name-$part.json"
        ;;
    *)
        "$python" -m benchmarks --backend cuda --ops "$part" --variants all \
            --out "$results/$name-$part.json" || status=1
        ;;
    esac
done
exit $status
