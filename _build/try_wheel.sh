#!/bin/sh
# Installs the wheel and the sdist of dist/, each in a clean environment, and uses them.
# Usage: try_wheel.sh PYTHON
set -eu
python=$1
for package in dist/*.whl dist/*.tar.gz; do
    place=$(mktemp -d)
    "$python" -m venv "$place/venv"
    "$place/venv/bin/pip" install --quiet "$package"
    (cd "$place" && venv/bin/python -m gpuopt test && venv/bin/python -m gpuopt info | tail -n 1)
    rm -rf "$place"
    echo "$package: installed and tested"
done
