#!/bin/sh
# Builds module and simulator with AddressSanitizer and UndefinedBehaviorSanitizer in a
# copy of the tree and runs the contract, the binding and the simulator tests there.
# Usage: sanitize.sh PYTHON
set -eu
python=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
git ls-files -z | xargs -0 cp -P --parents -t "$place"
cd "$place"
export GPUOPT_CUDA=0 GPUOPT_SANITIZE=1
CFLAGS="-fsanitize=address,undefined -fno-sanitize-recover=undefined -g" \
    LDFLAGS="-fsanitize=address,undefined" \
    "$python" setup.py --quiet build_ext --inplace
run() {
    LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)" \
        ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 PYTHONMALLOC=malloc \
        PYTHONPATH="$place" "$python" "$@"
}
run -c "import gpuopt; gpuopt.use('sim')"  # raises if its library does not load
run -m pytest -q -n 2 -p no:cacheprovider tests/test_contract.py tests/ops
