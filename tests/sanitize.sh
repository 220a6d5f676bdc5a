#!/bin/sh
# Builds module and simulator with AddressSanitizer and UndefinedBehaviorSanitizer in a copy
# of the tree and runs the tests of the rooms there, and of each group of the contract's
# matrix one case in GPUOPT_SHARE (default 8).
# Usage: sanitize.sh PYTHON
set -eu
python=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
git ls-files -z | xargs -0 cp -P --parents -t "$place"
cd "$place"
export GPUOPT_CUDA=0 GPUOPT_SANITIZE=1 GPUOPT_SHARE="${GPUOPT_SHARE:-8}"
CFLAGS="-fsanitize=address,undefined -fno-sanitize-recover=undefined -g1" \
    LDFLAGS="-fsanitize=address,undefined" \
    "$python" setup.py --quiet build_ext --inplace
run() {
    LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)" \
        ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 PYTHONMALLOC=malloc \
        PYTHONPATH="$place" "$python" "$@"
}
run -c "import gpuopt; gpuopt.use('sim')"  # raises if its library does not load
# Reproducibility over a hundred runs is not a question of memory errors.
run -m pytest -q -n "$(nproc)" -p no:cacheprovider -k "not same_bits and not instruction_set" \
    tests/test_contract.py tests/ops
