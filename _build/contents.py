"""How many bytes a built library stores for each GPU architecture.

Parses the section .nv_fatbin of the ELF file: containers of entries, each with PTX or
machine code for one architecture, compressed or not.
Usage: contents.py LIBRARY [LIMIT_OF_EACH_IN_MB]     exit 1 above the limit
"""

from __future__ import annotations

import struct
import sys
from collections import Counter
from pathlib import Path

CONTAINER = struct.Struct("<IHHQ")  # magic, version, bytes of header, bytes after it
MAGIC = 0xBA55ED50
# kind, -, bytes of header, bytes after it, packed bytes, -, minor, major, architecture
ENTRY = struct.Struct("<HHIQIIHHI")
PTX, MACHINE_CODE = 1, 2


def section(image: bytes, wanted: bytes) -> bytes:
    """The contents of a section of a 64-bit ELF file; b"" if there is none."""
    if image[:5] != b"\x7fELF\x02":
        raise SystemExit("gpuopt: not a 64-bit ELF file")
    (table,) = struct.unpack_from("<Q", image, 40)
    size, count, names_at = struct.unpack_from("<HHH", image, 58)

    def header(i: int) -> tuple[int, int, int]:
        name, _, _, _, offset, length = struct.unpack_from("<IIQQQQ", image, table + i * size)
        return name, offset, length

    _, names, _ = header(names_at)
    for i in range(count):
        name, offset, length = header(i)
        if image.startswith(wanted + b"\0", names + name):
            return image[offset : offset + length]
    return b""


def architectures(library: Path) -> dict[str, int]:
    """Bytes for each of "sm_90a", "compute_120" and so on in a built library."""
    data = section(library.read_bytes(), b".nv_fatbin")
    sums: Counter[str] = Counter()
    at = 0
    while at + CONTAINER.size <= len(data):
        magic, _, head, length = CONTAINER.unpack_from(data, at)
        if magic != MAGIC:  # alignment between two containers
            at += 8
            continue
        end = at + head + length
        at += head
        while at < end:
            kind, _, head, length, _, _, _, _, arch = ENTRY.unpack_from(data, at)
            sums[f"{'compute' if kind == PTX else 'sm'}_{arch}"] += head + length
            at += head + length
    return dict(sums)


def main(arguments: list[str]) -> int:
    library = Path(arguments[0])
    limit = float(arguments[1]) if len(arguments) > 1 else float("inf")
    found = architectures(library)
    for name, size in found.items():
        print(f"{size / 1e6:8.2f} MB  {name}")
    too_large = [name for name, size in found.items() if size > limit * 1e6]
    for name in too_large:
        print(f"{library}: {name} takes more than {limit:g} MB", file=sys.stderr)
    return 1 if too_large else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
