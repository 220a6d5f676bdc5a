"""Rewrites the glibc versions that a library needs, so that it runs with an older glibc.

The linker binds each function of glibc to its newest version: pthread_create to that of
2.34, where it moved to another library, exp to that of 2.29, which does not set errno.
glibc keeps the first versions as well, and for gpuopt they do the same: this module
rewrites the library's table of needed versions in place.  A name of C23, such as
__isoc23_strtol, becomes the older one at its end.  Functions that the older glibc lacks are
left as they are.
Usage: glibc.py LIBRARY...     shows the newest version that each one needs
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from pathlib import Path

OLDEST = (2, 28)  # of RHEL 8, the oldest system with a driver for CUDA 13: manylinux_2_28
X86_64, AARCH64 = 62, 183
FIRST = {X86_64: "GLIBC_2.2.5", AARCH64: "GLIBC_2.17"}
LATER = {"dlmopen": "GLIBC_2.3.4"}  # where the first version has no such function
# What headers of glibc 2.38 make of strtol; the two differ in binary numbers alone, "0b1".
C23 = "__isoc23_"
# What has been there from the first version on.
OLD_FUNCTIONS = {
    "dladdr", "dlclose", "dlerror", "dlmopen", "dlopen", "dlsym", "dlvsym",
    "exp", "expf", "exp2", "fmod", "hypot", "hypotf", "log", "logf", "log2", "pow",
    "shm_open", "shm_unlink", "strtol", "strtoll", "strtoul", "strtoull",
    "sem_destroy", "sem_init", "sem_post", "sem_timedwait", "sem_trywait", "sem_wait",
    "__pthread_key_create", "pthread_condattr_setpshared", "pthread_create",
    "pthread_detach", "pthread_getspecific", "pthread_join", "pthread_key_create",
    "pthread_key_delete", "pthread_kill", "pthread_mutex_trylock",
    "pthread_mutexattr_destroy", "pthread_mutexattr_init", "pthread_mutexattr_setpshared",
    "pthread_mutexattr_settype", "pthread_once", "pthread_rwlock_destroy",
    "pthread_rwlock_init", "pthread_rwlock_rdlock", "pthread_rwlock_timedrdlock",
    "pthread_rwlock_timedwrlock", "pthread_rwlock_tryrdlock", "pthread_rwlock_trywrlock",
    "pthread_rwlock_unlock", "pthread_rwlock_wrlock", "pthread_rwlockattr_destroy",
    "pthread_rwlockattr_init", "pthread_rwlockattr_setpshared", "pthread_setspecific",
    "pthread_sigmask", "pthread_spin_destroy", "pthread_spin_init", "pthread_spin_lock",
    "pthread_spin_trylock", "pthread_spin_unlock",
}  # fmt: skip

SYMTAB, DYNSYM, VERNEED, VERSYM = 2, 11, 0x6FFFFFFE, 0x6FFFFFFF


def elf_hash(name: str) -> int:
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        value = (value ^ (value & 0xF0000000) >> 24) & 0x0FFFFFFF
    return value


def number(version: str) -> tuple[int, ...]:
    """(2, 34) for "GLIBC_2.34"; empty for another library's versions."""
    digits = version.removeprefix("GLIBC_")
    return tuple(map(int, digits.split("."))) if digits[:1].isdigit() else ()


class Library:
    """The dynamic symbols of an ELF file, and the versions they need."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.image = bytearray(path.read_bytes())
        if self.image[:6] != b"\x7fELF\x02\x01":
            raise SystemExit(f"gpuopt: {path} is no 64-bit ELF file")
        (self.machine,) = struct.unpack_from("<H", self.image, 18)
        (table,) = struct.unpack_from("<Q", self.image, 40)
        size, count = struct.unpack_from("<HH", self.image, 58)
        self.sections = {}
        offsets = []
        for i in range(count):
            _, kind, _, _, offset, length, link = struct.unpack_from(
                "<IIQQQQI", self.image, table + i * size
            )
            offsets.append(offset)
            self.sections[kind] = (offset, length, link)
        self.strings = offsets[self.sections[DYNSYM][2]]

    def text(self, at: int) -> str:
        begin = self.strings + at
        return self.image[begin : self.image.index(0, begin)].decode()

    def versions(self) -> Iterator[tuple[int, str, int]]:
        """Each needed version: its offset, its name, its number in this file."""
        if VERNEED not in self.sections:
            return
        need, length, _ = self.sections[VERNEED]
        end = need + length
        while need < end:
            _, count, _, first, step = struct.unpack_from("<HHIII", self.image, need)
            at = need + first
            for _ in range(count):
                _, _, index, name, following = struct.unpack_from("<IHHII", self.image, at)
                yield at, self.text(name), index
                at += following
            need += step if step else length

    def symbols(self) -> Iterator[tuple[int, str, int]]:
        """Each dynamic symbol: the offset of its version, its name, its version's number."""
        offset, length, _ = self.sections[DYNSYM]
        versions = self.sections[VERSYM][0]
        for i in range(length // 24):
            (name,) = struct.unpack_from("<I", self.image, offset + 24 * i)
            (index,) = struct.unpack_from("<H", self.image, versions + 2 * i)
            yield versions + 2 * i, self.text(name), index & 0x7FFF

    def older_names(self) -> None:
        """Gives names of C23 their older form: the end of a string is a string as well."""
        offset = self.sections[DYNSYM][0]
        for i, (_, name, _) in enumerate(list(self.symbols())):
            if name.startswith(C23) and name.removeprefix(C23) in OLD_FUNCTIONS:
                (text,) = struct.unpack_from("<I", self.image, offset + 24 * i)
                struct.pack_into("<I", self.image, offset + 24 * i, text + len(C23))

    def newest(self) -> tuple[int, ...]:
        return max((number(name) for _, name, _ in self.versions()), default=())

    def lower(self) -> list[str]:
        """Rebinds what needs a glibc later than OLDEST; returns what has no older version.

        A wheel for other systems must have none of those; on this machine they do no harm.
        """
        found = {index: (at, name) for at, name, index in self.versions()}
        new = {index for index, (_, name) in found.items() if number(name) > OLDEST}
        first = FIRST.get(self.machine, "")
        offsets = {  # of the names of versions in the table of strings
            name: struct.unpack_from("<I", self.image, at + 8)[0] for at, name in found.values()
        }
        numbers = {name: index for index, (_, name) in found.items()}
        kept = set()
        self.older_names()
        for at, name, index in self.symbols():
            if index not in new:
                continue
            wanted = LATER.get(name, first) if self.machine == X86_64 else first
            if name not in OLD_FUNCTIONS or wanted not in numbers:
                kept.add(index)
            else:
                struct.pack_into("<H", self.image, at, numbers[wanted])
        for index in new - kept:
            at = found[index][0]
            struct.pack_into("<I", self.image, at, elf_hash(first))
            struct.pack_into("<I", self.image, at + 8, offsets[first])
        self.path.write_bytes(self.image)
        return sorted(found[index][1] for index in kept)


def main(paths: list[str]) -> int:
    for path in paths:
        print(f"{path}: glibc {'.'.join(map(str, Library(Path(path)).newest()))}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
