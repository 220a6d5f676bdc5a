"""Mutants of causal_conv1d's v6 (tensor cores) and v7 (spectra), with what belongs to them.

Order: equivalent mutants, operators, the room, what a mutant is tried on.  See mutants.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from mutation import (
    ROOT,
    SETTINGS,
    Equivalent,
    Mutant,
    Operator,
    Room,
    barriers,
    code_lines,
    comparisons,
)

EQUIVALENT: Equivalent = {
    (
        "ops/causal_conv1d/toeplitz_lags.cuh",
        "if (STAGED && SCALED) {",
        "drop an edge test",
    ): "16-bit rows then have an mbarrier that nobody uses, in memory of its own",
    (
        "ops/causal_conv1d/toeplitz.cuh",
        "const bool is_scaled = top >= 16;",
        "< to <=",
    ): "rows of the smallest size that can be scaled are then summed directly",
    (
        "ops/causal_conv1d/toeplitz_item.cuh",
        "if (begin > 0) {",
        "drop a guard",
    ): "the first taps are loaded a second time",
    (
        "ops/causal_conv1d/toeplitz.cuh",
        "if (p > 0) {",
        "drop a guard",
    ): "the first entry is then stored in the padding before the second copy, too",
    (
        "ops/causal_conv1d/ladder/v7_spectra_lags.cu",
        "GPO_SHARED(row_range, slots, [2 * block_type::WARPS]);",
        "index off by one",
    ): "the array is longer than needed",
    (
        "ops/causal_conv1d/ladder/v7_spectra_gradients.cu",
        "if (factor.x != 1.0f) {",
        "drop a guard",
    ): "a product with 1 changes nothing",
    (
        "ops/causal_conv1d/ladder/v7_spectra.cu",
        "const unsigned begins_late = threadIdx.x == 0 && x[0] == 0.0f;",
        "drop an edge test",
    ): "the first step that is not 0 is then looked for, and found to be step 0",
    (
        "ops/causal_conv1d/ladder/v7_spectra.cu",
        "if (MANY && i + 1 < n) {",
        "< to <=",
    ): "the spectrum of a row's last block is stored, in the place for it, and never read",
    (
        "ops/causal_conv1d/spectral_lags.cuh",
        "power_of_two(above < 0 ? above : 0)};",
        "< to <=",
    ): "both are 2^0",
    # barriers that are not needed
    (
        "ops/causal_conv1d/toeplitz_results.cuh",
        "const int NB = item.NB, G = item.G, c = item.c, first_batch = item.first_batch; "
        "__syncthreads(); "
        "const unsigned rows = (1u << min(NB, item.batches - first_batch)) - 1;",
        "drop a barrier",
    ): "put_results has one after the last mark; rows are summed again after another one",
    (
        "ops/causal_conv1d/ladder/v7_spectra.cu",
        "block.load(row, i, x); __syncthreads(); }",
        "drop a barrier",
    ): "a thread writes what it alone has read since the barrier of the inverse",
    (
        "ops/causal_conv1d/ladder/v7_spectra_lags.cu",
        "put_direct_lags<FFT>(cut, v, split, c, first, last); __syncthreads(); continue;",
        "drop a barrier",
    ): "the next row has one before its transforms; this row's ranges were read before its own",
    (
        "ops/causal_conv1d/early_steps.cu",
        "} __syncwarp(); }",  # after the heads, and at the end of add_own()
        "drop a barrier",
    ): "what follows begins with __syncthreads_or(), or with the one in inverse_begin()",
    (
        "ops/causal_conv1d/early_steps.cu",
        "} __syncwarp(); fft.inverse_begin(f);",
        "drop a barrier",
    ): "inverse_begin() has one before it writes",
    (
        "device/fft.cuh",
        "turn_back(f, power); __syncwarp(); #pragma unroll",
        "drop a barrier",
    ): "a thread writes what it alone has read in forward(), or its caller has had a barrier",
}

# The rung of each file that is mutated.
FILES = {
    "v6": ("ladder/v6_toeplitz.cu", "ladder/v6_toeplitz_lags.cu", "toeplitz.cuh",
           "toeplitz_item.cuh", "toeplitz_lags.cuh", "toeplitz_results.cuh"),
    "v7": ("ladder/v7_spectra.cu", "ladder/v7_spectra_gradients.cu",
           "ladder/v7_spectra_lags.cu", "spectral_cut.cuh", "spectral_rows.cuh",
           "spectral_lags.cuh", "early_steps.cu", "../../device/fft.cuh",
           "../../device/spectral.cuh"),
}  # fmt: skip


# ---- operators ----


def calls(*names: str) -> Operator:
    """Drops a call that is a statement."""

    def operator(line: str) -> Iterator[str]:
        for name in names:
            if match := re.search(rf"(?<![\w.]){re.escape(name)}\([^;]*\);", line):
                yield line[: match.start()] + ";" + line[match.end() :]

    return operator


def phases(line: str) -> Iterator[str]:
    """The other parity or buffer; half of the bytes of a phase."""
    for match in re.finditer(r"\bturn & 1", line):
        yield f"{line[: match.start()]}(turn + 1) & 1{line[match.end() :]}"
    for match in re.finditer(r"\b2 \* rows \* bytes", line):
        yield line[: match.start()] + "rows * bytes" + line[match.end() :]


def indices(line: str) -> Iterator[str]:
    """An index that is a sum or a product, plus 1; not the size of an array."""
    if re.match(
        r"\s*(static |const |constexpr |float |int |uint32_t |T |c64 )*\w+ \w+\[", line
    ):
        return
    for match in re.finditer(r"\[([^\[\]]* [+*] [^\[\]]*)\]", line):
        yield line[: match.end(1)] + " + 1" + line[match.end(1) :]


def conjuncts(line: str) -> Iterator[str]:
    """Drops what follows an `&&`, up to the end of the condition."""
    for match in re.finditer(r" && ", line):
        depth, end = 0, match.end()
        while end < len(line):
            depth += {"(": 1, ")": -1}.get(line[end], 0)
            if depth < 0 or (depth == 0 and re.match(r" (&&|\|\||\?)|;|,", line[end:])):
                break
            end += 1
        yield line[: match.start()] + line[end:]


def guards(line: str) -> Iterator[str]:
    """if (true), where the condition is on one line."""
    if match := re.match(r"(\s*(?:else )?if \()(?!constexpr)(.*)(\) \{)$", line):
        yield match[1] + "true" + match[3]


def constants(line: str) -> Iterator[str]:
    """A factor, divisor or modulus, plus 1."""
    for match in re.finditer(r"(?<=[*/%] )\d+\b(?!\.)|\b\d+(?= \* )", line):
        yield f"{line[: match.start()]}{int(match[0]) + 1}{line[match.end() :]}"


# ---- the room ----


class CausalConv1d(Room):
    name = "causal_conv1d"
    count = 100
    equivalent = EQUIVALENT
    operators: ClassVar[dict[str, Operator]] = {
        "drop a barrier": barriers,
        "drop a wait": calls("copy_async_wait", "bulk_barrier_wait", "bulk_wait",
                             "bulk_wait_read", "wgmma_wait<0>", "wgmma_wait<1>"),
        "drop a fence": calls("fence_async_shared", "wgmma_fence", "wgmma_commit"),
        "wrong phase": phases,
        "< to <=": comparisons,
        "index off by one": indices,
        "drop an edge test": conjuncts,
        "drop a guard": guards,
        "change a constant": constants,
    }  # fmt: skip

    def all_mutants(self) -> list[Mutant]:
        mutants = []
        csrc = ROOT / "csrc"
        for rung, files in FILES.items():
            for file in files:
                path = (ROOT / self.folder / file).resolve()
                name = str(path.relative_to(csrc))
                for number, line in code_lines(path):
                    for operator, mutate in self.operators.items():
                        mutants += [
                            Mutant(name, number, operator, line.strip(), after, (rung,), False)
                            for after in mutate(line)
                        ]
        return mutants

    def group(self, mutant: Mutant) -> str:
        return f"{mutant.operator}, {mutant.rungs[0]}"

    def shrink(self, csrc: Path, rungs: tuple[str, ...]) -> None:
        """Two dtypes, these rungs, and four of seven sizes of a transform."""
        room = csrc / "ops" / "causal_conv1d"
        others = "|".join({"v6", "v7"} - set(rungs))
        changes: list[tuple[Path, str, str]] = [
            (room / "cuda.cu", r"gpo_types<f16, bf16, float>", "gpo_types<f16, float>"),
            (room / "cuda.cu", r"gpo_row<float_types>", "gpo_row<gpo_types<>>"),
            (room / "cuda.cu", rf'gpo_row<float32_types>(\(\s*"(?:{others})")',
             r"gpo_row<gpo_types<>>\1"),
            (room / "rows.cuh", r"Macro\(bf16, launcher\) ", ""),
            *((path, r" +case SPECTRUM_(?:2048|4096|16384):\n(?: {8} .*\n)+", "")
              for path in room.glob("ladder/v7_*.cu")),
        ]  # fmt: skip
        for path, pattern, other in changes:
            text = path.read_text(encoding="utf-8")
            path.write_text(re.sub(pattern, other, text), encoding="utf-8")

    def sources(self, place: Path, rungs: tuple[str, ...]) -> list[Path]:
        room = place / self.folder
        early = ["early_steps.cu"] if "v7" in rungs else []
        files = [room / name for name in ("cuda.cu", "common.cu", *early)]
        return files + [s for r in rungs for s in sorted(room.glob(f"ladder/{r}_*.cu"))]

    def oracle(self, rungs: list[str], large: bool) -> None:
        for rung in rungs:
            _check_samples(rung)
            check_causality(rung)


# ---- what a mutant is tried on ----

Size = tuple[int, int, int, int]

# (B, C, T, K) and whether in every schedule.  v6: one and several items of 8 and 16 batches,
# rows that fit a chunk and that do not, that packs divide and do not, more channels than
# blocks run at once.  v7: transforms of 512, 1024, 8192 and blocks of 4096 steps, several
# channels or splits of the batch per block, more heads than warps.
SIZES: dict[str, tuple[tuple[Size, bool], ...]] = {
    "v6": (
        ((2, 2, 37, 37), True),
        ((9, 1, 200, 67), True),
        ((17, 5, 64, 64), True),
        ((3, 5, 256, 130), False),
        ((17, 1, 800, 130), False),
        ((1, 1, 1600, 1600), False),
        ((17, 2, 768, 768), False),
        ((33, 5, 128, 3), False),
    ),
    "v7": (
        ((3, 2, 300, 300), True),
        ((2, 3, 129, 4), True),
        ((2, 1, 1000, 40), True),
        ((70, 1, 520, 513), False),
        ((140, 1, 66, 5), False),
        ((9, 1, 4200, 300), False),
        ((2, 1, 8300, 4200), False),
        ((2, 1, 12_400, 4), False),
    ),
}
OPTIONS: dict[str, tuple[tuple[tuple[str, Any], ...], ...]] = {
    "v6": ((), (("precision", "fast"),), (("precision", "half"),)),
    "v7": ((),),
}


def _check_samples(rung: str) -> None:
    """Against NumPy, within the bounds of the tests."""
    from cases import causal_conv1d as cases

    import gpuopt
    from gpuopt import _core

    def check(sample: Any, backward: bool, settings: Any) -> None:
        arrays = [spec.build() for spec in sample.arrays]
        op = gpuopt.causal_conv1d_backward if backward else gpuopt.causal_conv1d
        got = op(*arrays, variant=rung, backend="sim", **dict(sample.options))
        wrong = cases.expect(backward, rung, sample).compare(
            tuple(got[: len(arrays) - 1]) if backward else got
        )
        if wrong:
            raise SystemExit(f"{rung} {sample} {settings}: {wrong}")

    for number, settings in enumerate(SETTINGS):
        _core._sim_configure(**settings)
        for size, always in SIZES[rung]:
            for backward in (False, True):
                for turn, dtype in enumerate(("float32", "float16")):
                    if number > 0 and not (always and turn == number % 2):
                        continue
                    turned = dtype == "float32" and number == 0 and always
                    many = OPTIONS[rung] if turned else ((),)
                    for options in many:
                        check(cases.sample(backward, size, dtype, options=options), backward,
                              settings)  # fmt: skip
        if number == 0:
            size = (10, 3, 72, 70)
            for backward in (False, True):
                for turn, (bias, options) in enumerate(cases.TURNS):
                    layouts = (("C",), ("step2", "C", "offset"), ("negative", "step2"))[
                        turn % 3
                    ]
                    check(cases.sample(backward, size, "float32", layouts, bias=bias,
                                       options=options), backward, settings)  # fmt: skip
                check(cases.sample(backward, size, "float32", fill="special"), backward,
                      settings)  # fmt: skip


def check_causality(rung: str) -> None:
    """Rows whose parts differ much in size, with nan, inf and zeros: the causal bound."""
    import causality
    import numpy as np

    import gpuopt
    from gpuopt import _core

    _core._sim_configure(schedule="shuffle", seed=2, checks=True)
    how: dict[str, Any] = {"backend": "sim", "variant": rung}
    names = list(causality.rows(300))
    finite = [name for name, row in causality.rows(300).items() if np.isfinite(row).all()]

    def check(x: Any, taps: int) -> Any:
        w = causality.filters(x.shape[1], taps, x.dtype)
        y = gpuopt.causal_conv1d(x, w, **how)
        causality.check_causal_bound(x, w, y, causality.sums(x, w))
        return w

    for steps, taps, channels in ((300, 300, 2), (700, 70, 1), (1000, 1000, 1)):
        w = check(causality.stack(names, channels, steps, np.float32), taps)
        kinds = ((finite, 2.0**-60), (["an inf", "last nan"], 1.0), (["first inf"], 1.0))
        for rows, scale in kinds:
            hard = causality.stack(rows, channels, steps, np.float32)
            like = causality.stack(["normal"], channels, steps, np.float32, 5)
            like = np.repeat(like, len(rows), 0) * np.float32(scale)
            for dy, other in ((like, hard), (hard[..., ::-1], like)):
                want = causality.gradients(dy, other, w)
                dx, dw = gpuopt.causal_conv1d_backward(dy, other, w, **how)[:2]
                causality.check_gradients(dy, other, w, dx, dw, want)
    if rung == "v6":  # only the later batches, in the second of two blocks, are not finite
        check(causality.stack(["normal"] * 8 + ["last nan"] * 8, 1, 128, np.float16), 20)
    else:  # more blocks of a wide row, and of the filter, than warps; more rows than threads
        check(causality.stack(["growth", "normal", "any size", "an inf"], 1, 4700, "f4"), 1100)
        x = causality.stack(["normal"], 1, 70, np.float32).repeat(2100, 0)
        x[0, 0, :64] *= np.float32(2.0**-60)
        check(x, 3)
