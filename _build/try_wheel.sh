#!/bin/sh
# Installs the wheel of dist/ into a clean environment of each Python, and the sdist into
# one of the first, and uses them.
# Usage: try_wheel.sh PYTHON...
set -eu
try() {
    place=$(mktemp -d)
    "$2" -m venv "$place/venv"
    GPUOPT_CUDA_ARCHS="${GPUOPT_CUDA_ARCHS:-90a}" \
        "$place/venv/bin/pip" install --quiet --disable-pip-version-check "$1"
    (cd "$place" && venv/bin/python -m gpuopt test && venv/bin/python -m gpuopt info | tail -n 1)
    rm -rf "$place"
    echo "$1: installed and tested with $("$2" --version)"
}
for python in "$@"; do
    try dist/*.whl "$python"
done
try dist/*.tar.gz "$1"
