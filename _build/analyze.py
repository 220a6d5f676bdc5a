"""Runs gcc's static analyzer over the C files with the flags they are compiled with."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from steps import jobs
from tidy import FLAGS, sources


def analyze(source: Path) -> str:
    command = ["gcc", "-fanalyzer", "-O1", "-Wall", "-Wextra", "-DGPO_ANALYZE", *FLAGS]
    command += ["-c", str(source), "-o", "/dev/null"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


def main() -> int:
    with ThreadPoolExecutor(jobs()) as pool:
        texts = list(pool.map(analyze, sources()))
    print("".join(texts), end="")
    print(f"{len(texts)} files, {sum(map(bool, texts))} with findings")
    return 1 if any(texts) else 0


if __name__ == "__main__":
    sys.exit(main())
