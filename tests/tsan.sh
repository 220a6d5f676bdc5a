#!/bin/sh
# Runs tests/tsan.c under clang's ThreadSanitizer.  On Debian: apt-get install clang.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
clang -std=c11 -O1 -g -pthread -fsanitize=thread -ffp-contract=off \
    tests/tsan.c csrc/core/*.c csrc/backend/cpu.c csrc/backend/team.c csrc/ops/reduce/*.c \
    -lm -o "$place/tsan"
TSAN_OPTIONS=exitcode=66 "$place/tsan"
