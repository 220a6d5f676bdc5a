"""Indices that an earlier call found right: csrc/bind/known.c.

A torch tensor that has not changed is not waited for again.  Here on the simulator, where
a bad index is told at once, and on a GPU where there is one, where a later call tells it.
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

import gpuopt

PLACES = [("cpu", "sim")] + ([("cuda", "cuda")] if torch.cuda.is_available() else [])


@pytest.fixture(params=PLACES, ids=[backend for _, backend in PLACES])
def place(request: pytest.FixtureRequest) -> tuple[str, str]:
    return request.param


def tensors(device: str, rows: int = 300, length: int = 50) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(3)
    x = torch.zeros(length)
    index = torch.randint(-length, length, (rows,), generator=generator)
    source = torch.randint(-9, 9, (rows,), generator=generator).float()
    return x.to(device), index.to(device), source.to(device)


def right(x: torch.Tensor, index: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    return x.index_add(0, index % len(x), source)


def variant(backend: str, *arrays: torch.Tensor) -> str:
    return str(gpuopt.plan("index_add", *arrays, backend=backend)["variant"])


def test_a_tensor_found_right_is_known_until_it_changes(place: tuple[str, str]) -> None:
    device, backend = place
    x, index, source = tensors(device)
    assert variant(backend, x, index, source) == "one_launch"
    for _ in range(3):
        got = gpuopt.index_add(x, index, source, backend=backend)
        torch.testing.assert_close(got, right(x, index, source), rtol=0, atol=0)
        assert variant(backend, x, index, source) == "one_by_one"
        chosen = gpuopt.plan("index_add", x, index, source, backend=backend, out=x)
        assert chosen["variant"] == "one_by_one"
    index.add_(0)  # torch counts a write, whatever it writes
    assert variant(backend, x, index, source) == "one_launch"


def test_what_is_known_is_of_one_tensor_view_and_length(place: tuple[str, str]) -> None:
    device, backend = place
    x, index, source = tensors(device)
    pair = torch.stack([index, index.flip(0)])
    gpuopt.index_add(x, pair[0], source, backend=backend)
    assert variant(backend, x, pair[0], source) == "one_by_one"  # another object, the same view
    assert variant(backend, x, pair[1], source) == "one_launch"
    assert variant(backend, x, pair[0].clone(), source) == "one_launch"
    assert variant(backend, x[:40], pair[0], source) == "one_launch"
    assert variant(backend, torch.zeros(60, device=device), pair[0], source) == "one_by_one"
    pair[1].fill_(0)  # views share the count
    assert variant(backend, x, pair[0], source) == "one_launch"


def test_a_tensor_at_the_place_of_another_is_not_known(place: tuple[str, str]) -> None:
    device, backend = place
    x, index, source = tensors(device)
    for bad in (False, True, False, True):
        values = index.clone()
        if bad:
            values[7] = 50
            with pytest.raises(IndexError, match="index 50"):
                gpuopt.index_add(x, values, source, backend=backend)
        else:
            gpuopt.index_add(x, values, source, backend=backend)
        del values  # its memory is used again


@pytest.mark.parametrize("rows", [100, 3000, 9000])
@pytest.mark.parametrize("op", ["index_add", "scatter_add"])
@pytest.mark.parametrize("in_place", [False, True])
def test_what_torch_does_not_see_is_told(
    place: tuple[str, str], op: str, rows: int, in_place: bool
) -> None:
    device, backend = place
    x, index, source = tensors(device, rows)
    out = torch.empty_like(x) if in_place else None

    def call() -> torch.Tensor:
        if op == "index_add":
            return gpuopt.index_add(x, index, source, backend=backend, out=out)
        return gpuopt.scatter_add(source, index, len(x), backend=backend, out=out)

    want = right(x, index, source)
    for _ in range(3):  # the second one looks at the rows of each destination
        torch.testing.assert_close(call(), want, rtol=0, atol=0)
    good = index[5].item()
    index.data[5] = 1_000_000  # torch counts no write through .data
    if backend == "sim":
        with pytest.raises(IndexError):
            call()
    else:
        call()
        torch.cuda.synchronize()
        with pytest.raises(IndexError, match=f"earlier call of {op}.. met .* position 5:"):
            gpuopt.negative(x)
    index.data[5] = good
    torch.testing.assert_close(call(), want, rtol=0, atol=0)


def test_many_rows_of_one_destination_are_still_summed_in_float64(
    place: tuple[str, str],
) -> None:
    """Half of the rows go to one place: no rung that adds them one by one is chosen."""
    device, backend = place
    x, index, source = tensors(device, 40_000, 40_000)
    index[::2] = 7
    source = source + 0.1
    for _ in range(3):
        got = gpuopt.index_add(x, index, source, backend=backend)
        want = right(x.double(), index, source.double())
        bound = 2**-23 * right(x.double(), index, source.double().abs())
        assert bool(((got.double() - want).abs() <= bound).all())
        assert variant(backend, x, index, source) in ("v5", "joined_sums", "one_element")


def test_few_warps_add_in_float32_what_their_lanes_joined(place: tuple[str, str]) -> None:
    """No place gets more than a sum of each warp."""
    device, backend = place
    x, index, source = tensors(device, 30_000, 40_000)
    index[::2] = 7
    source = source + 0.1
    for _ in range(3):
        got = gpuopt.index_add(x, index, source, backend=backend)
        want = right(x.double(), index, source.double())
        bound = 1000 * 2**-24 * right(x.double(), index, source.double().abs()) + 2**-20
        assert bool(((got.double() - want).abs() <= bound).all())
    assert variant(backend, x, index, source) == "short_rows"


def test_few_rows_of_each_destination_are_added_one_by_one(place: tuple[str, str]) -> None:
    device, backend = place
    x, index, source = tensors(device, 9000, 40_000)
    seen = []
    for _ in range(3):
        got = gpuopt.index_add(x, index, source, backend=backend)
        torch.testing.assert_close(got, right(x, index, source), rtol=0, atol=0)
        seen.append(variant(backend, x, index, source))
    assert seen == ["v5", "one_by_one", "one_by_one"]


def test_skewed_rows_are_gathered_in_blocks(place: tuple[str, str]) -> None:
    device, backend = place
    generator = torch.Generator().manual_seed(5)
    x = torch.zeros(20_000, 20)
    index = torch.randint(0, 20_000, (9000,), generator=generator)
    index[::4] = 7
    source = torch.randint(-9, 9, (9000, 20), generator=generator).float()
    x, index, source = x.to(device), index.to(device), source.to(device)
    for _ in range(2):
        got = gpuopt.index_add(x, index, source, backend=backend)
        torch.testing.assert_close(got, right(x, index, source), rtol=0, atol=0)
    assert variant(backend, x, index, source) == "gathered_rows"


HALVES = (torch.float16, torch.bfloat16)
ROUNDED_ONCE = (
    "one_launch",
    "own_places",
    "own_rows",
    "sorted_rows",
    "one_element",
    "v4",
    "v5",
    "few_rows",
    "joined_sums",
)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    ("rows", "length", "width", "first", "later", "placed"),
    [
        (27, 9000, 1, "one_launch", "one_launch", "one_by_one"),
        (300, 9000, 1, "one_launch", "one_by_one", "one_by_one"),
        (300, 400, 40, "one_launch", "one_by_one", "one_by_one"),
        (5000, 5001, 1, "v5", "one_by_one", "one_by_one"),
        (9000, 9000, 1, "v5", "one_by_one", "one_by_one"),
        (9000, 9001, 16, "v5", "v1", "v1"),
        (5000, 30_000, 3, "v5", "one_by_one", "one_by_one"),
        (132_000, 133_000, 1, "v5", "short_rows", "short_rows"),
    ],
)
def test_halves_are_added_at_once_where_no_destination_has_two_rows(
    place: tuple[str, str],
    dtype: torch.dtype,
    rows: int,
    length: int,
    width: int,
    first: str,
    later: str,
    placed: str,
) -> None:
    device, backend = place
    generator = torch.Generator().manual_seed(rows)
    index = torch.randperm(length, generator=generator)[:rows]
    index[::2] -= length
    index = index.to(device)
    x = torch.randn(length, width, generator=generator).to(device, dtype)
    source = torch.randn(rows, width, generator=generator).to(device, dtype)
    want = right(x.double(), index, source.double()).to(dtype)
    seen = []
    for turn in range(4):
        seen.append(variant(backend, x, index, source))
        into = x.clone() if turn % 2 else None
        got = gpuopt.index_add(x if into is None else into, index, source, out=into,
                               backend=backend)  # fmt: skip
        assert torch.equal(got, want)
    assert seen[0] == first
    assert seen[1] in ROUNDED_ONCE
    assert seen[2] == seen[3] == later
    chosen = gpuopt.plan("index_add", x, index, source, backend=backend, out=x)["variant"]
    assert chosen == placed
    for options in ({"alpha": 3.0}, {"mode": "clip"}, {"deterministic": True}):
        chosen = gpuopt.plan("index_add", x, index, source, backend=backend, **options)
        assert chosen["variant"] in (first, *ROUNDED_ONCE)
    index[0] = index[1]  # torch counts the write
    assert variant(backend, x, index, source) == first


@pytest.mark.parametrize("dtype", HALVES)
def test_halves_with_one_destination_of_two_rows_are_rounded_once(
    place: tuple[str, str], dtype: torch.dtype
) -> None:
    device, backend = place
    index = torch.randperm(9000, generator=torch.Generator().manual_seed(1)).to(device)
    index[8999] = index[4] - 9000
    x = torch.ones(9000, dtype=dtype, device=device)
    source = torch.full((9000,), 1.5 * 2.0 ** (-9 if dtype == torch.bfloat16 else -12))
    source = source.to(device, dtype)
    want = right(x.double(), index, source.double()).to(dtype)
    assert want[index[4]] > 1
    for _ in range(3):
        assert torch.equal(gpuopt.index_add(x, index, source, backend=backend), want)
        assert variant(backend, x, index, source) in ("v5", "joined_sums")


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(("width", "kind"), [(1, "uniform"), (3, "sorted"), (17, "uniform"),
                                             (24, "sorted")])  # fmt: skip
def test_halves_of_few_rows_each_are_summed_in_float32(
    place: tuple[str, str], dtype: torch.dtype, width: int, kind: str
) -> None:
    """More rows than own_places takes, some with one destination: rounded once."""
    device, backend = place
    rows, length = 34_000, 20_000
    generator = torch.Generator().manual_seed(width)
    index = torch.randint(length, (rows,), generator=generator)
    index = (index.sort().values // 8 if kind == "sorted" else index).to(device)
    x = torch.randn(length, width, generator=generator).to(device, dtype)
    source = torch.randn(rows, width, generator=generator).to(device, dtype)
    exact = right(x.double(), index, source.double())
    total = right(x.double().abs(), index, source.double().abs())
    for _ in range(3):
        got = gpuopt.index_add(x, index, source, backend=backend)
        step = 2.0 ** (-9 if dtype == torch.bfloat16 else -12)
        bound = exact.abs() * step * 2 + total * 2.0**-19 + 2.0**-24
        assert bool(((got.double() - exact).abs() <= bound).all())
    few = ("sorted_rows",) if kind == "sorted" else ("joined_sums", "v4", "v5")
    assert variant(backend, x, index, source) in few
    if width == 1:
        assert variant(backend, x, index, source) == "joined_sums"


def test_neighbours_of_one_destination_join(place: tuple[str, str]) -> None:
    """Sorted rows whose destinations are few enough to be waited for."""
    device, backend = place
    index = torch.arange(300_000, device=device) // 300
    x, source = torch.zeros(1000).to(device), torch.ones(300_000).to(device)
    for _ in range(2):
        got = gpuopt.index_add(x, index, source, backend=backend)
        assert bool((got == 300).all())
    assert variant(backend, x, index, source) == "short_rows"
    mixed = index[torch.randperm(300_000).to(device)]
    for _ in range(2):
        gpuopt.index_add(x, mixed, source, backend=backend)
    assert variant(backend, x, mixed, source) == "v2"


def test_a_second_row_that_torch_does_not_see_is_added(place: tuple[str, str]) -> None:
    """The sums are then rounded after each addition."""
    device, backend = place
    index = torch.arange(40_000, device=device)
    x = torch.zeros(40_000, dtype=torch.float16, device=device)
    source = torch.ones(40_000, dtype=torch.float16, device=device)
    for _ in range(2):
        gpuopt.index_add(x, index, source, backend=backend)
    index.data[:] = 7
    assert variant(backend, x, index, source) == "one_by_one"
    got = gpuopt.index_add(x, index, source, backend=backend)
    assert 2000 <= got[7].item() <= 40_000
    assert got.count_nonzero() == 1


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    ("rows", "length", "width", "kind", "fresh", "placed"),
    [
        (40, 70_000, 32, "uniform", "own_rows", "one_launch"),
        (1000, 700, 169, "uniform", "own_rows", "own_rows"),
        (1000, 90_000, 30, "uniform", "own_rows", "own_rows"),  # x is copied before
        (3000, 5000, 1, "uniform", "own_places", "own_places"),
        (4200, 100, 1, "uniform", "few_destinations", "few_destinations"),
        (1500, 2000, 2, "sorted", "own_places", "sorted_rows"),
        (1500, 530_000, 4, "sorted", "sorted_rows", "sorted_rows"),
        (9000, 4000, 1, "sorted", "sorted_rows", "sorted_rows"),
        (6000, 3000, 34, "sorted", "sorted_rows", "sorted_rows"),
        (6000, 3000, 34, "from the end", "", ""),
        (9000, 50, 1, "sorted", "few_destinations", "few_destinations"),
    ],
)
def test_known_rows_that_are_summed_in_registers(
    place: tuple[str, str],
    dtype: torch.dtype,
    rows: int,
    length: int,
    width: int,
    kind: str,
    fresh: str,
    placed: str,
) -> None:
    device, backend = place
    generator = torch.Generator().manual_seed(rows)
    index = torch.randint(length, (rows,), generator=generator)
    if kind != "uniform":
        index = index.sort().values
    index[1] = index[0]
    if kind == "from the end":
        index[3] -= length
    index = index.to(device)
    x = torch.randn(length, width, generator=generator).to(device, dtype)
    source = torch.randn(rows, width, generator=generator).to(device, dtype)
    exact = right(x.double(), index, source.double())
    total = right(x.double().abs(), index, source.double().abs())
    step = 2.0 ** (-9 if dtype == torch.bfloat16 else -12)
    for turn in range(4):
        into = x.clone() if turn % 2 else None
        got = gpuopt.index_add(x if into is None else into, index, source, out=into,
                               backend=backend)  # fmt: skip
        bound = exact.abs() * step * 2 + total * 2.0**-19 + 2.0**-24
        assert bool(((got.double() - exact).abs() <= bound).all())
    seen = gpuopt.plan("index_add", x, index, source, backend=backend)["variant"]
    into = gpuopt.plan("index_add", x, index, source, backend=backend, out=x)["variant"]
    if kind == "from the end":  # not sorted: the least estimate, which counts the SMs
        assert {seen, into} <= {*ROUNDED_ONCE}
    else:
        assert (seen, into) == (fresh, placed)


@pytest.mark.parametrize(("run", "chosen"), [(1.2, True), (32, True), (33, False)])
def test_sorted_rows_take_no_long_run(place: tuple[str, str], run: float, chosen: bool) -> None:
    """A run is bounded by the entry 32 before, not by the rows of a group of destinations."""
    device, backend = place
    rows = 1_200_000 if run < 2 else 9000
    index = torch.arange(rows).div(run, rounding_mode="floor").long()
    index = (index // 3 * 3 if run < 2 else index).to(device)
    x = torch.zeros(int(index[-1]) + 1, dtype=torch.float16, device=device)
    source = torch.ones(rows, dtype=torch.float16, device=device)
    want = torch.bincount(index, minlength=len(x)).half()
    for _ in range(3):
        assert torch.equal(gpuopt.index_add(x, index, source, backend=backend), want)
    assert (variant(backend, x, index, source) == "sorted_rows") == chosen


def test_sums_are_right_if_a_sorted_index_changes_unseen(place: tuple[str, str]) -> None:
    device, backend = place
    index = torch.arange(9000, device=device) // 3
    x = torch.zeros(3000, dtype=torch.float16, device=device)
    source = torch.ones(9000, dtype=torch.float16, device=device)
    for _ in range(2):
        gpuopt.index_add(x, index, source, backend=backend)
    assert variant(backend, x, index, source) == "sorted_rows"
    index.data[:] = torch.arange(9000, device=device) % 3000
    got = gpuopt.index_add(x, index, source, backend=backend)
    assert bool((got == 3).all())


def test_a_count_of_rows_is_not_that_of_clipped_ones(place: tuple[str, str]) -> None:
    """'clip' sends every negative entry to the first destination."""
    device, backend = place
    x, index, source = torch.zeros(9000), torch.arange(-9000, 0), torch.ones(9000)
    x, index, source = x.to(device), index.to(device), source.to(device)
    for _ in range(2):
        gpuopt.index_add(x, index, source, backend=backend)
    assert variant(backend, x, index, source) == "one_by_one"
    clipped = gpuopt.plan("index_add", x, index, source, backend=backend, mode="clip")
    assert clipped["variant"] == "v5"


def test_a_known_state_index_is_checked_as_the_state_moves_on(place: tuple[str, str]) -> None:
    """Rows from 0 on, each once: what index_add found of the tensor does not do."""
    device, backend = place
    pool = torch.arange(60, dtype=torch.float32).reshape(5, 4, 3).to(device)
    x, w = torch.ones(3, 4, device=device), torch.ones(4, 4, device=device)
    index = torch.tensor([3, 0, 4], device=device)

    def call(state: torch.Tensor) -> torch.Tensor:
        kept = state.clone()
        y, _ = gpuopt.causal_conv1d_update(
            kept, x, w, state_index=index, out=(None, kept), backend=backend
        )
        torch.testing.assert_close(
            kept[index], torch.cat((state[index], x[..., None]), 2)[..., 1:]
        )
        return y

    for _ in range(3):
        torch.testing.assert_close(call(pool), pool[index].sum(2) + 1, rtol=0, atol=0)
    with pytest.raises(IndexError, match="index 4 is out of bounds for axis 0 with size 4"):
        call(pool[:4])
    index[0] = -1
    gpuopt.index_add(torch.zeros(5, device=device), index, torch.ones(3, device=device))
    with pytest.raises(IndexError, match="index -1 is out of bounds"):
        call(pool)
    index[0] = 3
    call(pool)
    index.data[2] = 5
    if backend == "sim":
        with pytest.raises(IndexError, match="index 5 is out of bounds"):
            gpuopt.causal_conv1d_update(pool, x, w, state_index=index, backend=backend)
    else:
        gpuopt.causal_conv1d_update(pool, x, w, state_index=index, backend=backend)
        torch.cuda.synchronize()
        with pytest.raises(
            IndexError, match=r"earlier call of causal_conv1d_update.. met .* 2:"
        ):
            gpuopt.negative(pool)


if torch.cuda.is_available():

    def test_a_known_state_index_may_be_captured() -> None:
        pool = torch.ones(5, 4, 3, device="cuda")
        x, w = torch.ones(3, 4, device="cuda"), torch.ones(4, 4, device="cuda")
        index = torch.tensor([3, 0, 4], device="cuda")
        gpuopt.causal_conv1d_update(pool, x, w, state_index=index)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y, _ = gpuopt.causal_conv1d_update(pool, x, w, state_index=index)
        graph.replay()
        torch.testing.assert_close(y, torch.full((3, 4), 4.0, device="cuda"), rtol=0, atol=0)

    def test_what_no_call_has_told_is_a_warning_at_exit() -> None:
        script = (
            "import torch, gpuopt\n"
            "i = torch.zeros(9, dtype=torch.int64, device='cuda')\n"
            "x = torch.zeros(5, device='cuda'); s = torch.ones(9, device='cuda')\n"
            "gpuopt.index_add(x, i, s); i.data[2] = 77; gpuopt.index_add(x, i, s)\n"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        assert done.returncode == 0
        assert "RuntimeWarning: an earlier call of index_add() met" in done.stderr


def test_numpy_arrays_are_never_known() -> None:
    """NumPy counts no writes."""
    x, index, source = (t.numpy() for t in tensors("cpu"))
    gpuopt.index_add(x, index, source, backend="sim")
    index[3] = 1_000
    with pytest.raises(IndexError, match="index 1000"):
        gpuopt.index_add(x, index, source, backend="sim")
    assert np.count_nonzero(x) == 0
