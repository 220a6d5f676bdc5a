"""Shows each compile step of the last build: CPU seconds, bytes, name."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def table(folder: Path) -> list[tuple[float, int, str]]:
    rows = []
    for stamp in folder.rglob("*.cmd"):
        output = stamp.with_suffix("")
        seconds = stamp.read_text().rpartition("\n")[2]
        if output.exists() and re.fullmatch(r"[\d.]+", seconds):
            name = "/".join(output.relative_to(folder).parts[1:])
            rows.append((float(seconds), output.stat().st_size, name))
    return sorted(rows, reverse=True)


def main() -> int:
    rows = table(ROOT / "build")
    for seconds, size, name in rows:
        if seconds >= 0.5:
            print(f"{seconds:8.1f} s {size / 1e6:8.2f} MB  {name}")
    for part in ("cuda/", "sim/", "c/", ""):
        sums = [(s, b) for s, b, name in rows if name.startswith(part)]
        print(f"{sum(s for s, _ in sums):8.1f} s {'':11}  all of {part or 'the build'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
