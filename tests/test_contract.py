"""Every operator, variant, backend and dtype of the registry, compared with its oracle.

Order: running one case, the groups, the matrix, determinism, instruction sets, accuracy.
Cases come from cases/; one test function runs a whole group of them and counts them.
Run as a program, this file calls the CPU backend under the GPUOPT_CPU of its environment and
prints digests of the results as JSON; of a named group, what is wrong.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import sys
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cases import ENTRIES, Sample, dtype_of, each
from conftest import Count, Figure, run_child

import gpuopt
from gpuopt import _core

# ---- one case ----


def keywords(sample: Sample) -> dict[str, Any]:
    options = dict(sample.options)
    if "dtype" in options:
        options["dtype"] = dtype_of(options["dtype"])
    return options


def row_of(op: str, backend: str, variant: str) -> dict[str, Any]:
    return next(
        row for row in _core.variants(op) if (row["backend"], row["name"]) == (backend, variant)
    )


def taken(op: str, samples: Iterable[Sample], backend: str, variant: str) -> list[Sample]:
    """The samples that a variant takes: all, except for a shape kernel."""
    if row_of(op, backend, variant)["shape"] is None:
        return list(samples)
    kept = []
    for sample in samples:
        arrays = [spec.build() for spec in sample.arrays]
        where = {"backend": backend, "variant": variant}
        try:
            _core.plan(op, *arrays, **keywords(sample), **where)
        except gpuopt.VariantError as refusal:
            assert f"{op}(variant='{variant}') takes " in str(refusal)
            with pytest.raises(gpuopt.VariantError):
                getattr(gpuopt, op)(*arrays, **keywords(sample), **where)
            continue
        except Exception:
            pass  # run_case compares the exception with the expected one
        kept.append(sample)
    return kept


def run_case(op: str, sample: Sample, backend: str, variant: str) -> str | None:
    """None if the call does what cases/ expects, else the difference."""
    expected = ENTRIES[op].expected(sample, variant)
    arrays = [spec.build() for spec in sample.arrays]
    before = [x.tobytes() for x in arrays] if sample.elements <= 4097 else []
    options = keywords(sample)
    try:
        plan = _core.plan(op, *arrays, **options, backend=backend, variant=variant)
        got = getattr(gpuopt, op)(*arrays, **options, backend=backend, variant=variant)
    except Exception as error:
        if expected.error is None:
            return f"raised {type(error).__name__}: {error}"
        if not isinstance(error, expected.error):
            return f"raised {type(error).__name__}, not {expected.error.__name__}"
        if str(error) != expected.message:
            return f"said {str(error)!r}, not {expected.message!r}"
        return None
    if expected.error is not None:
        return f"returned {got!r} instead of raising {expected.error.__name__}"
    if plan["outputs"] != expected.outputs:
        return f"planned {plan['outputs']}"
    if (plan["backend"], plan["variant"]) != (backend, variant):
        return f"planned for {plan['backend']} {plan['variant']}"
    if any(x.tobytes() != old for x, old in zip(arrays, before, strict=False)):
        return "changed its input"
    return expected.compare(got)


def run_cases(
    op: str, samples: Iterable[Sample], backend: str, variant: str
) -> tuple[int, list[str]]:
    cases, failures = 0, []
    for sample in samples:
        problem = run_case(op, sample, backend, variant)
        cases += 1
        if problem:
            failures.append(f"{op} {backend} {variant}: {sample}: {problem}")
    return cases, failures


# Ten orders in which the simulator may run threads, warps and blocks.
SCHEDULES: tuple[tuple[str, int], ...] = (
    ("ascending", 0),
    ("descending", 0),
    *(("shuffle", seed) for seed in range(4)),
    *(("preempt", seed) for seed in range(4)),
)


@contextlib.contextmanager
def simulated(schedule: str, seed: int) -> Iterator[None]:
    old = _core._sim_configure(schedule=schedule, seed=seed)
    try:
        yield
    finally:
        _core._sim_configure(**old)


LEAST = 50  # cases of a group


def shared_out(samples: list[Sample], op: str, variant: str, dtype: str) -> list[Sample]:
    """A third of the samples in the simulator, others for each dtype; all for float32."""
    shares = min(3, len(samples) // LEAST)
    if dtype == "float32" or shares < 2:
        return samples
    order = random.Random(f"{op} {variant}").sample(range(len(samples)), len(samples))
    turn = row_of(op, "sim", variant)["dtypes"].index(dtype)
    return [samples[i] for i in sorted(order[turn % shares :: shares])]


def run_group(op: str, backend: str, variant: str, dtype: str) -> tuple[int, list[str]]:
    """The cases of a group; the simulator runs a tenth of its own in each schedule.

    Under GPUOPT_SHARE=k one case in k, others in each group (`make sanitize`).
    """
    share = int(os.environ.get("GPUOPT_SHARE", "1"))
    first = zlib.crc32(f"{op} {backend} {variant} {dtype}".encode()) % share
    samples = taken(op, group_samples(op, backend, variant, dtype), backend, variant)
    if backend != "sim":
        return run_cases(op, samples[first::share], backend, variant)
    samples = shared_out(samples, op, variant, dtype)[first::share]
    cases, failures = 0, []
    for turn, (schedule, seed) in enumerate(SCHEDULES):
        with simulated(schedule, seed):
            part = samples[turn :: len(SCHEDULES)]
            n, bad = run_cases(op, part, backend, variant)
        cases += n
        failures += [f"{schedule} {seed}: {problem}" for problem in bad]
    return cases, failures


def report(cases: int, failures: list[str]) -> None:
    shown = "\n".join(failures[:20])
    assert not failures, f"{len(failures)} of {cases} cases are wrong:\n{shown}"


# ---- the groups ----


def rows(*backends: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every variant of the registry that can run here, with its operator."""
    usable = {name for name, reason in _core.backends().items() if reason is None}
    for op in _core.ops():
        for row in _core.variants(op):
            wanted = not backends or row["backend"] in backends
            if wanted and row["backend"] in usable and row["available"]:
                yield op, row


def groups(*backends: str) -> list[tuple[str, str, str, str]]:
    return [
        (op, row["backend"], row["name"], dtype)
        for op, row in rows(*backends)
        for dtype in row["dtypes"]
    ]


def for_the(op: str, backend: str, variant: str, samples: Iterable[Sample]) -> list[Sample]:
    """The samples, with fewer blocks where a rung runs in the simulator."""
    entry = ENTRIES[op]
    by_row = row_of(op, backend, variant)["shape"] is None or variant in entry.like_rungs
    if backend != "sim" or not by_row:
        return list(samples)
    return list(dict.fromkeys(entry.fewer(sample) for sample in samples))


def group_samples(op: str, backend: str, variant: str, dtype: str) -> list[Sample]:
    entry = ENTRIES[op]
    if backend != "sim":
        return [*entry.samples(dtype, "full"), *entry.large(dtype)]
    samples = list(entry.samples(dtype, "small"))
    if dtype == "float32":
        samples.append(next(entry.large(dtype)))
    return for_the(op, backend, variant, samples)


# ---- the matrix ----


def test_every_operator_and_variant_is_in_the_matrix() -> None:
    assert set(_core.ops()) == set(ENTRIES)
    matrix = set(groups())
    for op in _core.ops():
        ladder = _core.describe(op)["ladder"]
        names = {row["name"] for row in _core.variants(op)}
        assert names, f"{op} has no variant"
        for row in _core.variants(op):
            assert row["dtypes"], f"{op} {row['name']} has no dtype"
            assert row["determinism"] in ("run-to-run", "no")
            if row["available"] and _core.backends()[row["backend"]] is None:
                for dtype in row["dtypes"]:
                    group = (op, row["backend"], row["name"], dtype)
                    assert group in matrix
                    samples = group_samples(op, row["backend"], row["name"], dtype)
                    members = sum(_core.describe(o)["ladder"] == ladder for o in _core.ops())
                    assert len(samples) * members >= LEAST, group
                    if row["shape"]:
                        samples = taken(op, samples, row["backend"], row["name"])
                        assert len(samples) * members >= 20, group
                    assert len(set(samples)) == len(samples), group
            else:
                assert row["reason"] or _core.backends()[row["backend"]]


@pytest.mark.parametrize(("op", "backend", "variant", "dtype"), groups())
def test_matrix(op: str, backend: str, variant: str, dtype: str, count: Count) -> None:
    cases, failures = run_group(op, backend, variant, dtype)
    count(cases)
    report(cases, failures)


@pytest.mark.parametrize("op", _core.ops())
def test_every_dtype_of_the_operator_has_an_automatic_variant(op: str) -> None:
    """`auto` covers each dtype that any variant covers."""
    listed = {dtype for row in _core.variants(op) for dtype in row["dtypes"]}
    for backend, reason in _core.backends().items():
        if reason is None:
            for dtype in sorted(listed):
                sample = next(iter(ENTRIES[op].large(dtype)))
                if backend == "sim":
                    sample = next(iter(ENTRIES[op].samples(dtype, "small")))
                arrays = [spec.build() for spec in sample.arrays]
                options = keywords(sample)
                variant = _core.plan(op, *arrays, **options, backend=backend)["variant"]
                expected = ENTRIES[op].expected(sample, variant)
                got = getattr(gpuopt, op)(*arrays, **options, backend=backend)
                assert expected.compare(got) is None, (backend, dtype)


# ---- determinism ----


def bits(op: str, sample: Sample, backend: str, variant: str) -> bytes:
    arrays = [spec.build() for spec in sample.arrays]
    call = getattr(gpuopt, op)
    got = call(*arrays, **keywords(sample), backend=backend, variant=variant)
    return b"".join(np.asarray(a).tobytes() for a in each(got))


def promising(*backends: str) -> list[tuple[str, str, str]]:
    """Variants whose determinism is run-to-run."""
    return [
        (op, row["backend"], row["name"])
        for op, row in rows(*backends)
        if row["determinism"] == "run-to-run"
    ]


def floats(op: str, variant: str, backend: str, limit: int) -> list[Sample]:
    """The samples that reveal a changed order of additions, in the variant's dtypes."""
    row = row_of(op, backend, variant)
    by = _core.describe(op)["by"]
    samples = [
        sample
        for sample in ENTRIES[op].floats()
        if sample.arrays[by].dtype in row["dtypes"] and sample.elements <= limit
    ]
    return taken(op, for_the(op, backend, variant, samples), backend, variant)


@pytest.mark.parametrize(("op", "backend", "variant"), promising("cpu", "cuda"))
def test_same_bits_in_100_runs(op: str, backend: str, variant: str) -> None:
    samples = floats(op, variant, backend, limit=200_000)
    assert samples
    for sample in samples:
        first = bits(op, sample, backend, variant)
        arrays = [spec.build() for spec in sample.arrays]
        options = {**keywords(sample), "backend": backend, "variant": variant}
        for _ in range(99):
            got = each(getattr(gpuopt, op)(*arrays, **options))
            assert b"".join(np.asarray(a).tobytes() for a in got) == first, str(sample)


@pytest.mark.parametrize(("op", "backend", "variant"), promising("sim"))
def test_same_bits_in_ten_schedules(op: str, backend: str, variant: str) -> None:
    """All samples of float32, one in three of the other dtypes."""
    by = _core.describe(op)["by"]
    samples = floats(op, variant, backend, limit=4097)
    samples = [
        s for k, s in enumerate(samples) if k % 3 == 0 or s.arrays[by].dtype == "float32"
    ]
    assert samples
    for sample in samples:
        found = set()
        for schedule, seed in SCHEDULES:
            with simulated(schedule, seed):
                found.add(bits(op, sample, backend, variant))
        assert len(found) == 1, str(sample)


THREADS = (1, 2, 3, 8)


def large_floats(op: str, dtypes: Iterable[str]) -> list[Sample]:
    """The large cases, which are split among threads, with sums that round.

    Sums of their whole numbers are equal in any order, so normal numbers replace them.
    """
    return [
        replace(
            sample,
            arrays=tuple(
                replace(spec, fill="normal") if spec.fill == "whole" else spec
                for spec in sample.arrays
            ),
        )
        for dtype in dtypes
        if dtype in ("float32", "float64")
        for sample in ENTRIES[op].large(dtype)
    ]


def digest(op: str, variant: str, extra: Iterable[Sample] = ()) -> list[str]:
    """One digest of all float results of a CPU variant per thread count."""
    samples = [*floats(op, variant, "cpu", limit=200_000), *extra]
    found = []
    for threads in THREADS:
        _core.set_num_threads(threads)
        total = hashlib.sha256()
        for sample in samples:
            total.update(bits(op, sample, "cpu", variant))
        found.append(total.hexdigest())
    _core.set_num_threads(0)
    return found


@pytest.mark.parametrize(("op", "backend", "variant"), promising("cpu"))
def test_same_bits_for_any_number_of_threads(op: str, backend: str, variant: str) -> None:
    row = row_of(op, backend, variant)
    assert len(set(digest(op, variant, large_floats(op, row["dtypes"])))) == 1


def promises_determinism(op: str) -> bool:
    return any(arg["name"] == "deterministic" for arg in _core.describe(op)["args"])


@pytest.mark.parametrize("op", [op for op in _core.ops() if promises_determinism(op)])
def test_deterministic_gives_same_bits_for_any_number_of_threads(op: str) -> None:
    """The number of threads may change the variant, but no bit of the result."""
    samples = [*ENTRIES[op].floats(), *large_floats(op, ("float32", "float64"))]
    for sample in samples:
        options = (*sample.options, ("deterministic", True))
        asked = replace(sample, options=options)
        found = set()
        for threads in THREADS:
            _core.set_num_threads(threads)
            found.add(bits(op, asked, "cpu", "auto"))
        _core.set_num_threads(0)
        assert len(found) == 1, str(sample)


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("op", _core.ops())
def test_matrix_for_each_number_of_threads(op: str, threads: int, count: Count) -> None:
    """The large cases, where the work is split, in every CPU variant."""
    _core.set_num_threads(threads)
    assert _core.get_num_threads() == threads
    for name, row in rows("cpu"):
        if name == op:
            for dtype in row["dtypes"]:
                samples = list(ENTRIES[op].floats()) if dtype == "float32" else []
                by = _core.describe(op)["by"]
                samples = [s for s in samples if s.arrays[by].dtype in row["dtypes"]]
                samples.append(next(iter(ENTRIES[op].large(dtype))))
                cases, failures = run_cases(op, samples, "cpu", row["name"])
                count(cases)
                report(cases, failures)


# ---- instruction sets ----


Group = tuple[str, str, str, str]


def results(group: Group) -> tuple[int, str]:
    """The number of cases of a group, and a digest of their results and refusals."""
    op, backend, variant, dtype = group
    total = hashlib.sha256()
    samples = taken(op, group_samples(op, backend, variant, dtype), backend, variant)
    for sample in samples:
        try:
            total.update(bits(op, sample, backend, variant))
        except Exception as error:
            total.update(f"{type(error).__name__}: {error}".encode())
    return len(samples), total.hexdigest()


def under_this_isa() -> dict[str, Any]:
    """The results of every CPU variant with loops of its own for an instruction set, and of
    each for any number of threads."""
    vectors = [group for group in groups("cpu") if group[2] != "scalar"]
    steady = [(op, name) for op, _, name in promising("cpu") if name != "scalar"]
    return {
        "isa": _core.cpu_isa(),
        "groups": {" ".join(group): results(group) for group in vectors},
        "threads": {f"{op} {name}": digest(op, name) for op, name in steady},
    }


def in_a_child(isa: str, *arguments: str) -> Any:
    done = run_child(__file__, *arguments, env={"GPUOPT_CPU": isa})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_each_instruction_set(count: Count, figure: Figure) -> None:
    """The CPU matrix, but for `scalar`, under each GPUOPT_CPU; the bits do not depend on it.

    test_matrix compares those of this process's own with the oracle, so other bits alone
    have to be compared again.
    """
    others = [isa for isa in _core.cpu_isas() if isa != _core.cpu_isa()]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(in_a_child, others))
    own = json.loads(json.dumps(under_this_isa()))
    for isa, result in zip(others, found, strict=True):
        assert result["isa"] == isa
        assert result["groups"].keys() == own["groups"].keys()
        count(sum(cases for cases, _ in result["groups"].values()))
        for group, (cases, digest_of) in result["groups"].items():
            if [cases, digest_of] != own["groups"][group]:
                report(*in_a_child(isa, *group.split()))
        assert result["threads"] == own["threads"], f"{isa} gives other bits"
    figure("instruction sets", ", ".join([own["isa"], *others]))


def test_an_unknown_instruction_set_is_refused() -> None:
    code = "import gpuopt; gpuopt.reduce([1.0], backend='cpu')"
    done = run_child("-c", code, env={"GPUOPT_CPU": "x86-64-v9"})
    assert done.returncode == 1
    assert "x86-64-v9" in done.stderr
    assert all(isa in done.stderr for isa in _core.cpu_isas())


# ---- accuracy ----


def test_error_bound_is_printed(figure: Figure) -> None:
    """A figure for the summary: the largest error of float32 sums, relative to the bound."""
    worst, where = 0.0, ""
    for op, row in rows():
        if op != "reduce" or "float32" not in row["dtypes"]:
            continue
        top = 1025 if row["backend"] == "sim" else 2**20 + 3
        for n in (31, 1025, 2**20 + 3):
            if n > top:
                continue
            x = np.random.default_rng(n).uniform(0.5, 1.5, n).astype(np.float32)
            where = {"backend": row["backend"], "variant": row["name"]}
            try:
                _core.plan("reduce", x, **where)
            except gpuopt.VariantError:
                assert row["shape"]  # a shape kernel of other calls
                continue
            got = gpuopt.reduce(x, **where)
            exact = x.astype(np.float64).sum()
            log = (n - 1).bit_length()
            share = abs(float(got) - exact) / ((log + 12) * 2.0**-24 * exact)
            assert share <= 1, (row["backend"], row["name"], n)
            if not share <= worst:
                worst, where = share, f"{row['backend']} {row['name']}, n = {n}"
    figure("largest float32 sum error", f"{worst:.0%} of the bound ({where})")


if __name__ == "__main__":
    json.dump(run_group(*sys.argv[1:]) if sys.argv[1:] else under_this_isa(), sys.stdout)
