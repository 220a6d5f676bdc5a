#!/bin/sh
# Runs tests/tsan.c under clang's ThreadSanitizer, with the OpenMP runtime's own race
# annotations (archer).  On Debian: apt-get install clang libomp-dev.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
clang -std=c11 -O1 -g -fopenmp -fsanitize=thread -ffp-contract=off \
    tests/tsan.c csrc/core/*.c csrc/backend/cpu.c csrc/ops/reduce/*.c -lm -o "$place/tsan"
archer=$(dirname "$(readlink -f "$(command -v clang)")")/../lib/libarcher.so
test -f "$archer" || { echo "tsan.sh: there is no libarcher.so"; exit 1; }
OMP_TOOL_LIBRARIES="$archer" \
    TSAN_OPTIONS="ignore_noninstrumented_modules=1 exitcode=66" "$place/tsan"
