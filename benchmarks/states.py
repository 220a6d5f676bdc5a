"""`python -m benchmarks.states`: causal_conv1d with states, decoding, packed sequences.

Order: the rows, the cases, the peers, the tables.  Filters of 4 taps with a bias and SiLU, as
language models have them, in bfloat16 and float32.  Beside torch's conv1d, on x behind its
state, on a padded batch and on a row with zeros between the sequences, and beside the package
causal-conv1d.  Padding and gaps are made before the clock starts.
"""

from __future__ import annotations

import functools
import importlib
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gpuopt._table import Table
from gpuopt.benchmarks import beside
from gpuopt.benchmarks.sweep import peers
from gpuopt.benchmarks.sweep.causal_conv1d import TIME_LAST, Update
from gpuopt.lab import sweep
from gpuopt.lab.arrays import Arrays
from gpuopt.lab.drawing import Case, Dice

LABELS = ("call", "shape", "layout", "dtype")
TAPS = 4
#: Batch, channels, steps: a layer in training, a long prompt, a large model.
ROWS = ((8, 1024, 2048), (2, 4096, 4096), (1, 8192, 4096))
#: Batch, channels: decoding many sequences, some, one.
STEPS = ((256, 1024), (64, 4096), (1, 8192))
#: Sequences, channels, steps in all: lengths between one and three times the shortest.
PACKED = ((32, 1024, 32768), (16, 4096, 16384), (8, 8192, 8192))
FEW = {"rows": ((2, 8, 64),), "steps": ((4, 16),), "packed": ((5, 8, 200),)}


# ---- the rows ----


def items(dice: Dice) -> Iterator[beside.Item]:
    """Yield every row."""
    rows, steps, packed = FEW.values() if dice.small else (ROWS, STEPS, PACKED)
    for dtype in ("float32",) if dice.small else ("bfloat16", "float32"):
        for batch, channels, length in rows:
            for layout in ("BCT", "BTC"):
                shape = f"B{batch} C{channels} T{length}"
                make = functools.partial(behind, dice, batch, channels, length, layout, dtype)
                yield item("state in and out", shape, layout, dtype, make)
        for batch, channels in steps:
            for length in (1, 4):
                for indexed in (False, True):
                    call = f"update{', state_index' if indexed else ''}"
                    shape = f"B{batch} C{channels} T{length}"
                    make = functools.partial(
                        decode, dice, batch, channels, length, indexed, dtype
                    )
                    yield item(call, shape, "BCT", dtype, make)
        for count, channels, length in packed:
            for layout in ("BCT", "BTC"):
                for way in ("forward", "backward"):
                    shape = f"C{channels} T{length}, {count} sequences"
                    make = functools.partial(pack, dice, count, channels, length, layout, dtype,
                                             way == "backward")  # fmt: skip
                    yield item(f"segments, {way}", shape, layout, dtype, make)


def item(
    call: str, shape: str, layout: str, dtype: str, make: Callable[[], Case]
) -> beside.Item:
    """Return a row."""
    return beside.Item(dict(zip(LABELS, (call, shape, layout, dtype), strict=True)), make)


# ---- the cases ----


def filters(lib: Arrays, channels: int, dtype: str) -> tuple[Any, Any]:
    """Return filters and a bias."""
    w = lib.astype(lib.normal((channels, TAPS), "float32") / math.sqrt(TAPS), dtype)
    return w, lib.normal((channels,), dtype)


def turned(lib: Arrays, x: Any, layout: str) -> Any:
    """Return B, C, T as our call takes it, or a result of ours as B, C, T."""
    return lib.permute(x, TIME_LAST) if layout == "BTC" else x


def stored(lib: Arrays, x: Any, layout: str) -> Any:
    """Return B, C, T with the steps, or the channels, as neighbours in memory."""
    return turned(lib, lib.contiguous(turned(lib, x, layout)), layout)


def silu(lib: Arrays, v: Any) -> Any:
    """Return v sigmoid(v)."""
    return v / (1 + lib.xp.exp(-v))


def products(lib: Arrays, row: Any, w: Any, steps: int) -> Any:
    """Return the sums of products of the last steps of a row, without bias, in float64."""
    row, w = lib.wide(row), lib.wide(w)
    first = row.shape[2] - steps - TAPS + 1
    parts = (row[..., first + k : first + k + steps] * w[:, k : k + 1] for k in range(TAPS))
    return functools.reduce(lambda a, b: a + b, parts)


def behind(dice: Dice, batch: int, channels: int, steps: int, layout: str, dtype: str) -> Case:
    """Return a case of causal_conv1d that begins and ends with a state."""
    lib = dice.lib
    w, bias = filters(lib, channels, dtype)
    x = stored(lib, lib.normal((batch, channels, steps), dtype), layout)
    state = stored(lib, lib.normal((batch, channels, TAPS - 1), dtype), layout)

    def reference() -> tuple[Any, Any]:
        row = lib.xp.concatenate((lib.wide(state), lib.wide(x)), 2)
        y = silu(lib, products(lib, row, w, steps) + lib.wide(bias)[:, None])
        return turned(lib, y, layout), turned(lib, row[..., steps:], layout)

    return Case(
        name=f"B{batch} C{channels} T{steps} {layout}",
        dtype=dtype,
        function="causal_conv1d",
        args=(turned(lib, x, layout), w, bias),
        options={
            "activation": "silu",
            "layout": layout,
            "initial_state": turned(lib, state, layout),
            "return_state": True,
        },
        peer="behind",
        given={"x": x, "state": state, "w": w, "bias": bias},
        reference=reference,
        nbytes=2 * (x.nbytes + state.nbytes) + w.nbytes,
        axes=TIME_LAST if layout == "BTC" else None,
    )


def decode(
    dice: Dice, batch: int, channels: int, steps: int, indexed: bool, dtype: str
) -> Case:
    """Return a case of causal_conv1d_update; with an index half of the states take part."""
    lib = dice.lib
    w, bias = filters(lib, channels, dtype)
    held = 2 * batch if indexed else batch
    state = lib.normal((held, channels, TAPS - 1), dtype)
    x = lib.normal((batch, channels, steps) if steps > 1 else (batch, channels), dtype)
    index = lib.permutation(held)[:batch] if indexed else None
    options = {"activation": "silu"} | ({"state_index": index} if indexed else {})

    def reference() -> tuple[Any, Any]:
        before = lib.wide(state) if index is None else lib.wide(state)[index]
        row = lib.xp.concatenate((before, lib.wide(x).reshape(batch, channels, steps)), 2)
        y = silu(lib, products(lib, row, w, steps) + lib.wide(bias)[:, None])
        after = lib.wide(lib.copy(state))
        after[slice(None) if index is None else index] = row[..., steps:]
        return y.reshape(x.shape), after

    return Update(
        name=f"B{batch} C{channels} T{steps}",
        dtype=dtype,
        function="causal_conv1d_update",
        args=(state, x, w, bias),
        options=options,
        peer="decode",
        given={"x": x, "state": state, "w": w, "bias": bias, "index": index},
        reference=reference,
        nbytes=2 * (x.nbytes + batch * (state.nbytes // held)) + w.nbytes,
    )


def pack(
    dice: Dice, count: int, channels: int, steps: int, layout: str, dtype: str, back: bool
) -> Case:
    """Return a case of sequences in one row, forward or backward."""
    lib = dice.lib
    w, bias = filters(lib, channels, dtype)
    shape = (1, channels, steps)
    x, dy = (stored(lib, lib.normal(shape, dtype), layout) for _ in range(2))
    ends = cut(dice, count, steps)
    given = {"x": x, "w": w, "bias": bias, "ends": ends}
    args = (turned(lib, x, layout), w, bias)
    return Case(
        name=f"C{channels} T{steps} {count} sequences {layout}",
        dtype=dtype,
        function="causal_conv1d_backward" if back else "causal_conv1d",
        args=(turned(lib, dy, layout), *args) if back else args,
        options={
            "activation": "silu",
            "layout": layout,
            "segments": lib.take(np.asarray(ends, np.int32)),
        },
        peer="packed_backward" if back else "packed",
        given={**given, "dy": dy} if back else given,
        reference=lambda: packed_result(lib, x, dy if back else None, w, bias, ends, layout),
        nbytes=(3 if back else 2) * x.nbytes + w.nbytes,
        axes=TIME_LAST if layout == "BTC" else None,
    )


def cut(dice: Dice, count: int, steps: int) -> tuple[int, ...]:
    """Return the ends of sequences in a row, from 0 on."""
    parts = np.cumsum(dice.rng.uniform(1, 3, count))
    return (0, *(int(steps * part / parts[-1]) for part in parts[:-1]), steps)


def packed_result(
    lib: Arrays, x: Any, dy: Any, w: Any, bias: Any, ends: Sequence[int], layout: str
) -> Any:
    """Return the right result, or with dy the right gradients of x, w and bias."""
    row, taps, steps = lib.wide(x), lib.wide(w), x.shape[2]
    number = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
    same = [lib.take(number[k:] == number[: steps - k]) for k in range(TAPS)]
    v = 0 * row + lib.wide(bias)[:, None]
    for k in range(TAPS):
        v[..., k:] += taps[:, TAPS - 1 - k, None] * row[..., : steps - k] * same[k]
    if dy is None:
        return turned(lib, silu(lib, v), layout)
    s = 1 / (1 + lib.xp.exp(-v))
    g = lib.wide(dy) * s * (1 + v * (1 - s))
    dx, dw = 0 * row, 0 * taps
    for k in range(TAPS):
        later = g[..., k:] * same[k]
        dx[..., : steps - k] += taps[:, TAPS - 1 - k, None] * later
        dw[:, TAPS - 1 - k] = (later * row[..., : steps - k]).sum(2)[0]
    return turned(lib, dx, layout), dw, g.sum(2)[0]


# ---- the peers ----

Ways = Mapping[str, tuple[Callable[[], Any], Callable[[Any], Any]]]


def rivals(names: Sequence[str]) -> sweep.Rivals:
    """Return the function that gives a case's calls of torch and of causal-conv1d."""

    def of_case(case: Case, lib: Arrays, row: beside.Row) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in names:
            library = peers.peer(name)
            given = {key: peers.taken(library, value) for key, value in case.given.items()}
            try:
                ways = WAYS[name][case.peer](**given)
            except Exception as refusal:  # a library that cannot take a case is noted
                row["peers_failed"][name] = sweep.sentence(refusal)
                continue
            for way, (call, read) in ways.items():
                found[f"{name}-{way}" if way else name] = call, in_layout(lib, case, read)
        return found

    return of_case


def in_layout(lib: Arrays, case: Case, read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return what makes a peer's result look like ours."""

    def seen(result: Any) -> Any:
        result = read(result)
        if case.peer == "behind" and case.axes:  # the state that is returned, too
            return tuple(lib.permute(lib.take(part), case.axes) for part in result)
        return sweep.seen(lib, result, case.axes)

    return seen


def as_is(result: Any) -> Any:
    """Return the result."""
    return result


def torch() -> Any:
    """Return the module torch."""
    return importlib.import_module("torch")


def conv(row: Any, w: Any, bias: Any, padding: int = 0) -> Any:
    """Call conv1d with a group per channel, and silu."""
    functional = torch().nn.functional
    y = functional.conv1d(row, w.unsqueeze(1), bias, padding=padding, groups=w.shape[0])
    return functional.silu(y)


def torch_behind(x: Any, state: Any, w: Any, bias: Any) -> Ways:
    """Call conv1d on x behind its state."""

    def call() -> Any:
        row = torch().cat((state, x), 2)
        return conv(row, w, bias), row[..., x.shape[2] :].clone()

    return {"": (call, as_is)}


def torch_decode(x: Any, state: Any, w: Any, bias: Any, index: Any) -> Ways:
    """Multiply one step by the filters, call conv1d for several, and move the state on."""
    kept, xs = state.clone(), x if x.dim() == 3 else x.unsqueeze(2)

    def call() -> Any:
        row = torch().cat((kept if index is None else kept[index], xs), 2)
        if x.dim() == 3:
            y = conv(row, w, bias)
        else:
            y = torch().nn.functional.silu((row * w).sum(2) + bias)
        after = row[..., xs.shape[2] :]
        if index is None:
            kept.copy_(after)
        else:
            kept.index_copy_(0, index, after)
        return y, kept

    return {"": (call, as_is)}


def torch_forms(x: Any, ends: Sequence[int]) -> dict[str, tuple[Any, Callable[[Any], Any]]]:
    """Return the forms that conv1d takes sequences in, and what makes a row of them again."""
    lengths = np.diff(ends)
    number = torch().as_tensor(np.repeat(np.arange(len(lengths)), lengths), device=x.device)
    within = np.arange(ends[-1]) - np.repeat(ends[:-1], lengths)
    step = torch().as_tensor(within, device=x.device)
    padded = x.new_zeros((len(lengths), x.shape[1], int(lengths.max())))
    padded[number, :, step] = x[0].t()
    at = torch().arange(x.shape[2], device=x.device) + (TAPS - 1) * number
    gapped = x.new_zeros((1, x.shape[1], x.shape[2] + (TAPS - 1) * (len(lengths) - 1)))
    gapped[..., at] = x
    return {
        "padded": (padded, lambda y: y[number, :, step].t()[None]),
        "gaps": (gapped, lambda y: y[..., at]),
    }


def torch_packed(x: Any, w: Any, bias: Any, ends: Sequence[int]) -> Ways:
    """Call conv1d on a padded batch, and on a row with zeros between the sequences."""

    def call(form: Any) -> Any:
        return conv(form, w, bias, TAPS - 1)[..., : form.shape[2]]

    return {
        way: (functools.partial(call, form), row)
        for way, (form, row) in torch_forms(x, ends).items()
    }


def torch_packed_backward(x: Any, w: Any, bias: Any, ends: Sequence[int], dy: Any) -> Ways:
    """Differentiate those calls."""
    of_dy = torch_forms(dy, ends)
    ways = {}
    for way, (form, row) in torch_forms(x, ends).items():
        leaves = [a.clone().requires_grad_() for a in (form, w, bias)]
        y = conv(leaves[0], leaves[1], leaves[2], TAPS - 1)[..., : form.shape[2]]
        call = functools.partial(
            torch().autograd.grad, y, leaves, of_dy[way][0], retain_graph=True
        )
        ways[way] = call, functools.partial(rest_as_is, row)
    return ways


def rest_as_is(row: Callable[[Any], Any], result: Any) -> Any:
    """Return gradients with that of x as a row."""
    return (row(result[0]), *result[1:])


def package() -> Any:
    """Return the module causal_conv1d."""
    return importlib.import_module("causal_conv1d")


def package_behind(x: Any, state: Any, w: Any, bias: Any) -> Ways:
    """Call causal_conv1d_fn, which takes states if channels are neighbours in memory."""
    options = {"initial_states": state, "return_final_states": True, "activation": "silu"}
    return {"": (functools.partial(package().causal_conv1d_fn, x, w, bias, **options), as_is)}


def package_decode(x: Any, state: Any, w: Any, bias: Any, index: Any) -> Ways:
    """Call causal_conv1d_update on a state of its own."""
    kept = state.clone()
    index = None if index is None else index.int()
    options = {"activation": "silu", "conv_state_indices": index}
    update = functools.partial(package().causal_conv1d_update, x, kept, w, bias, **options)
    return {"": (lambda: (update(), kept), as_is)}


def numbered(x: Any, ends: Sequence[int]) -> Any:
    """Return the number of the sequence of each step."""
    number = np.repeat(np.arange(len(ends) - 1, dtype=np.int32), np.diff(ends))
    return torch().as_tensor(number, device=x.device)[None]


def package_packed(x: Any, w: Any, bias: Any, ends: Sequence[int]) -> Ways:
    """Call causal_conv1d_fn with the number of the sequence of each step."""
    options = {"seq_idx": numbered(x, ends), "activation": "silu"}
    return {"": (functools.partial(package().causal_conv1d_fn, x, w, bias, **options), as_is)}


def package_packed_backward(x: Any, w: Any, bias: Any, ends: Sequence[int], dy: Any) -> Ways:
    """Differentiate that call."""
    kept = torch().preserve_format
    leaves = [x.clone(memory_format=kept).requires_grad_(),
              *(a.clone().requires_grad_() for a in (w, bias))]  # fmt: skip
    options = {"seq_idx": numbered(x, ends), "activation": "silu"}
    y = package().causal_conv1d_fn(*leaves, **options)
    call = functools.partial(torch().autograd.grad, y, leaves, dy, retain_graph=True)
    return {"": (call, as_is)}


WAYS: dict[str, dict[str, Callable[..., Ways]]] = {
    "torch": {
        "behind": torch_behind,
        "decode": torch_decode,
        "packed": torch_packed,
        "packed_backward": torch_packed_backward,
    },
    "causal-conv1d": {
        "behind": package_behind,
        "decode": package_decode,
        "packed": package_packed,
        "packed_backward": package_packed_backward,
    },
}

BENCH = beside.Benchmark("states", LABELS, items, ("torch", "causal-conv1d"), rivals)


# ---- the tables ----

HEADING = """\
## States, decoding and packed sequences
causal_conv1d with 4 taps, a bias and SiLU, as `python -m benchmarks.states` times it. torch is
the faster of its ways: conv1d on x behind its state; for sequences in one row, conv1d on a
padded batch and on a row with zeros between them, both made before the clock starts. An empty
cell is a call that the library does not take."""


def section() -> str:
    """Return the table; nothing before a whole run is committed."""
    return beside.section(HEADING, beside.kept(BENCH.name), parts)


def parts(run: beside.Run) -> Iterator[str]:
    """Yield a line per call, then all rows."""
    calls = beside.grouped(run["rows"], "call").items()
    yield Table(
        {"call": call, **beside.totals("rows", rows)} for call, rows in calls
    ).markdown()
    yield from beside.folded(f"{len(run['rows'])} rows", Table(map(line, run["rows"])))


def line(row: beside.Row) -> dict[str, Any]:
    """Return a row of the table."""
    return {
        **{label: row[label] for label in LABELS},
        "ours ms": row.get("ms"),
        **{f"{name} ms": beside.best_of(row, name) for name in BENCH.peers},
        "times as fast": beside.ratio(row),
    }


def main(arguments: list[str] | None = None) -> int:
    """Measure every row."""
    return beside.main(BENCH, __doc__, arguments)


if __name__ == "__main__":
    sys.exit(main())
