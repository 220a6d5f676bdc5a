"""gpuopt.dask: lazy in, lazy out, and what the operator in memory gives.

`make test-torch` runs it, in an environment of its own; `make beyond` runs five hundred calls
with worker processes.
Order: drawn calls, names and what is known before anything is computed, workers, accuracy,
bad input.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import distributed
import lazy
import numpy as np
import pytest
from conftest import Child
from test_docs import problems, wrong_examples

import gpuopt
import gpuopt.dask as gd

pytestmark = pytest.mark.filterwarnings("ignore:Sending large graph:UserWarning")

DRAWN = 990  # thirty of each operator
FIRST = 50_000


def bits(y: Any) -> bytes:
    return bytes(np.asarray(y).tobytes())


def scheduler(name: str, found: list[Any] | None = None) -> Callable[[Any], Any]:
    """What computes a Dask array, and keeps the result in `found`."""

    def compute(y: Any) -> Any:
        got = y.compute(scheduler=name)
        if found is not None:
            found.append(got)
        return got

    return compute


# ---- drawn calls ----


@pytest.mark.parametrize("number", range(len(gd.__all__)), ids=lambda n: gd.__all__[n])
def test_drawn_calls_are_those_in_memory(number: int) -> None:
    """And have the same bits from one thread and from several."""
    first = FIRST - FIRST % len(gd.__all__) + number
    cut = 0
    for seed in range(first, first + DRAWN, len(gd.__all__)):
        case = lazy.drawn(seed)
        assert case.op == gd.__all__[number]
        found: list[Any] = []
        for name in ("synchronous", "threads"):
            assert lazy.problem(case, scheduler(name, found)) is None, f"{seed} {case}"
        assert len({bits(y) for y in found}) <= 1, f"{seed} {case}"
        cut += case.expected.error is None and len(case.lazy().dask) > 4
    assert cut >= 3, "hardly any call has several blocks"


def test_a_wrong_block_is_noticed() -> None:
    """Among calls whose first Dask array lacks a block, most are wrong."""

    def blank(x: Any) -> Any:
        return x.map_blocks(np.zeros_like, dtype=x.dtype, meta=x._meta)

    wrong = [
        lazy.problem(lazy.drawn(seed, blank), scheduler("synchronous")) is not None
        for seed in range(FIRST, FIRST + 200)
    ]
    assert sum(wrong) > 100


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_the_number_of_threads_changes_no_bit(threads: int) -> None:
    """gpuopt's own threads, inside of a block."""
    x = np.random.default_rng(0).standard_normal((64, 40_000)).astype(np.float32)
    y = da.from_array(x, chunks=(40, 30_001))
    calls = (
        gd.reduce(y, "mean"),
        gd.scan(y),
        gd.gelu(y),
        gd.convolve(y.rechunk({1: -1}), x[0, :9]),
    )
    first = [bits(c.compute(scheduler="synchronous")) for c in calls]
    gpuopt.set_num_threads(threads)
    assert [bits(c.compute(scheduler="threads")) for c in calls] == first


# ---- names, and what is known before anything is computed ----


def fail(block: Any) -> Any:
    raise AssertionError("a block was computed")


def never(shape: tuple[int, ...], chunks: Any, dtype: str = "float32") -> Any:
    """A Dask array that cannot be computed."""
    empty = da.zeros(shape, chunks=chunks, dtype=dtype)
    return empty.map_blocks(fail, dtype=dtype, meta=np.empty((0,) * len(shape), dtype))


def calls() -> dict[str, Callable[[], Any]]:
    """A call of each operator on arrays that cannot be computed."""
    row, pair = never((64,), 20), never((64,), 20, "int64")
    image, batch = never((2, 3, 32, 32), (1, 3, 16, 16)), never((5, 6, 7), (2, 6, 7))
    steps, w = never((2, 6, 50), (1, 3, 20)), np.ones((6, 4), np.float32)
    whole: dict[str, Callable[[], Any]] = {
        "where": lambda: gd.where(row > 0, row, 1.0),
        "fma": lambda: gd.fma(row, row, 2.0),
        "clip": lambda: gd.clip(row, 0, 1),
        "cast": lambda: gd.cast(row, "float16"),
        "reduce": lambda: gd.reduce(image, "mean", (0, 2), keepdims=True),
        "scan": lambda: gd.scan(row, reverse=True, initial=2),
        "dot": lambda: gd.dot(row, row),
        "partition_reduce": lambda: gd.partition_reduce(row, (0, 5)),
        "scatter_add": lambda: gd.scatter_add(row, pair, 9),
        "index_add": lambda: gd.index_add(np.zeros(9, np.float32), pair, row),
        "causal_conv1d": lambda: gd.causal_conv1d(steps, w, w[:, 0], activation="silu"),
        "max_pool1d": lambda: gd.max_pool1d(steps.rechunk({2: 20}), 3, 2, 1),
        "max_pool2d": lambda: gd.max_pool2d(image, 3, 2, 1),
        "max_pool3d": lambda: gd.max_pool3d(image, 2),
        "upsample_nearest": lambda: gd.upsample_nearest(image, scale=2),
        "mean_matvec": lambda: gd.mean_matvec(batch, np.ones((4, 6), np.float32)),
        "convolve": lambda: gd.convolve(batch, np.ones(3, np.float32), "same"),
    }
    for op in gd.ELEMENTWISE:
        args = len(gpuopt.describe(op)["args"])
        whole.setdefault(op, lambda op=op, args=args: getattr(gd, op)(*[row] * args))
    return whole


@pytest.mark.parametrize("op", gd.__all__)
def test_nothing_is_computed_before_it_is_asked_for(op: str) -> None:
    y = calls()[op]()
    assert isinstance(y, da.Array)
    assert type(y._meta) is np.ndarray and y._meta.dtype == y.dtype
    assert y._meta.shape == (0,) * y.ndim
    assert all(isinstance(n, int) for axis in y.chunks for n in axis)
    assert y.name.startswith(f"gpuopt-{op}-")
    with pytest.raises(AssertionError, match="a block was computed"):
        y.compute(scheduler="synchronous")


@pytest.mark.parametrize("op", gd.__all__)
def test_a_call_has_its_name_whenever_it_is_made(op: str) -> None:
    with dask.config.set({"tokenize.ensure-deterministic": True}):
        first, again = calls()[op](), calls()[op]()
    assert first.name == again.name
    assert first.dask.keys() == again.dask.keys()


def test_options_and_inputs_are_in_a_name() -> None:
    x = da.arange(12, chunks=5)
    same = [gd.reduce(x, "sum"), gd.reduce(x), gd.reduce(x, op="sum", axis=None)]
    assert len({y.name for y in same}) == 1
    other = [
        gd.reduce(x),
        gd.reduce(x, "max"),
        gd.reduce(x, keepdims=True),
        gd.reduce(x, initial=1),
        gd.reduce(x, dtype="float32"),
        gd.reduce(x, variant="simd"),
        gd.reduce(x.rechunk(4)),
        gd.reduce(da.arange(13, chunks=5)),
        gd.scan(x),
        gd.scan(x, reverse=True),
        gd.add(x, 1),
        gd.add(x, 1.0),
        gd.add(x, 2),
        gd.add(1, x),
        gd.subtract(x, 1),
    ]
    assert len({y.name for y in other}) == len(other)


def test_names_are_the_same_in_another_process(child: Child) -> None:
    code = (
        "import dask.array as da, numpy as np, gpuopt.dask as gd\n"
        "x = da.ones((2, 3, 30), chunks=(1, 3, 8))\n"
        "w = np.arange(12.0).reshape(3, 4)\n"
        "made = [gd.add(x, 2.5), gd.reduce(x), gd.causal_conv1d(x, w), gd.max_pool1d(x, 2)]\n"
        "print(*(y.name for y in made))"
    )
    assert child(code).stdout == child(code, env={"PYTHONHASHSEED": "7"}).stdout


def test_a_graph_may_be_pickled_and_fused() -> None:
    x = da.random.default_rng(0).random((40, 40), chunks=(13, 40))
    y = gd.reduce(gd.multiply(gd.scan(x, axis=0), 2.0), "max", axis=1)
    again = pickle.loads(pickle.dumps(y))
    assert bits(again.compute(scheduler="synchronous")) == bits(y.compute(scheduler="threads"))
    (fused,) = dask.optimize(y)
    assert bits(fused.compute(scheduler="synchronous")) == bits(y.compute())


def test_its_functions_are_those_of_the_module() -> None:
    assert set(gd.__all__) <= set(gpuopt.ops())
    assert dir(gd) == sorted(gd.__all__)
    assert all(getattr(gd, op).__doc__ for op in gd.__all__)
    assert str(inspect.signature(gd.clip)) == "(x, min=None, max=None, **options)"
    with pytest.raises(AttributeError, match=r"gpuopt\.max_pool2d_backward takes arrays in"):
        _ = gd.max_pool2d_backward
    with pytest.raises(AttributeError, match="has no attribute 'no_such_thing'"):
        _ = gd.no_such_thing


# ---- workers ----


@contextlib.contextmanager
def two_workers() -> Iterator[Any]:
    """A client of two worker processes."""
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with two_workers() as client:
        yield client


def test_two_worker_processes_give_the_same_bits(client: Any) -> None:
    for seed in range(FIRST, FIRST + len(gd.__all__)):
        case = lazy.drawn(seed)
        found: list[Any] = []

        def compute(y: Any, found: list[Any] = found) -> Any:
            found += [y.compute(scheduler="synchronous"), client.compute(y).result()]
            return found[-1]

        assert lazy.problem(case, compute) is None, f"{seed} {case}"
        assert len({bits(y) for y in found}) <= 1, f"{seed} {case}"


KILLED: dict[str, Callable[[Any], Any]] = {
    "reduce": lambda x: gd.reduce(x, "mean", axis=0),
    "scan": lambda x: gd.scan(x, axis=0),
}


@pytest.mark.parametrize("name", KILLED)
def test_a_worker_killed_in_mid_run_changes_no_bit(name: str, tmp_path: Path) -> None:
    """Each has its own workers: one that is killed while it starts again may stay away."""
    x = da.random.default_rng(1).standard_normal((600, 400), chunks=(100, 130))
    wanted = bits(KILLED[name](x).compute(scheduler="synchronous"))
    marker = tmp_path / "killed"
    with two_workers() as client:
        got = client.compute(KILLED[name](lazy.dying(marker)(x))).result()
    assert marker.exists()
    assert bits(got) == wanted


# ---- accuracy ----


def test_many_blocks_add_no_error() -> None:
    """The states of 1,000 blocks combine exactly, up to the bound of one block."""
    x = np.random.default_rng(2).standard_normal(100_000).astype(np.float32)
    exact = np.sum(x.astype(np.longdouble))
    found = gd.reduce(da.from_array(x, chunks=100)).compute()
    bound = (7 + 14) * 2.0**-24 * np.abs(x).sum(dtype=np.longdouble) + 2.0**-24 * abs(exact)
    assert found.dtype == np.float32
    assert abs(found - exact) <= bound
    whole = gd.scan(da.from_array(x, chunks=100)).compute()[-1]
    assert abs(whole - exact) <= bound + 2.0**-22 * abs(exact)


def test_numpy_blocks_run_on_a_cpu_unless_told_otherwise() -> None:
    x = da.ones(9, chunks=4)
    for call in (gd.reduce, gd.scan, gd.exp):
        with gpuopt.use("sim"):
            call(x).compute(scheduler="synchronous")
        assert gpuopt.last_call()["backend"] == "cpu"  # type: ignore[index]
    gd.reduce(x, backend="sim").compute(scheduler="synchronous")
    assert gpuopt.last_call()["backend"] == "sim"  # type: ignore[index]


if gpuopt.backends()["cuda"] is None and importlib.util.find_spec("cupy"):

    @pytest.mark.parametrize("op", gd.__all__)
    def test_blocks_of_cupy_stay_there(op: str) -> None:
        """A call has the meta, the dtype and within rounding the values of NumPy's blocks."""
        import cupy

        random = np.random.default_rng(3)
        x = da.from_array(random.uniform(1, 2, (4, 6, 32)).astype(np.float32), chunks=(2, 3, 8))
        y = x.map_blocks(cupy.asarray, dtype=x.dtype, meta=cupy.empty((0, 0, 0), x.dtype))
        more: dict[str, Callable[[Any], Any]] = {
            "cast": lambda a: gd.cast(a, np.float64),
            "clip": lambda a: gd.clip(a, 1.2, 1.5),
            "causal_conv1d": lambda a: gd.causal_conv1d(a, np.ones((6, 5), np.float32)),
            "convolve": lambda a: gd.convolve(a.rechunk({2: -1}), np.ones(3, np.float32)),
            "dot": lambda a: gd.dot(a[0, 0], a[1, 1]),
            "fma": lambda a: gd.fma(a, a, 1.0),
            "index_add": lambda a: gd.index_add(
                np.zeros((4, 6, 5), np.float32), np.arange(32) % 5, a, axis=2
            ),
            "max_pool1d": lambda a: gd.max_pool1d(a, 3, 2, 1),
            "max_pool2d": lambda a: gd.max_pool2d(a.rechunk({1: 4}), 2),
            "max_pool3d": lambda a: gd.max_pool3d(a[None].rechunk({2: 4}), 2),
            "mean_matvec": lambda a: gd.mean_matvec(
                a.rechunk({1: -1, 2: -1}), np.ones((3, 6), np.float32)
            ),
            "partition_reduce": lambda a: gd.partition_reduce(a[0, 0], (0, 4)),
            "reduce": lambda a: gd.reduce(a, axis=2),
            "scan": gd.scan,
            "scatter_add": lambda a: gd.scatter_add(a, np.full((4, 6, 32), 3), 9),
            "upsample_nearest": lambda a: gd.upsample_nearest(a, scale=2),
            "where": lambda a: gd.where(a > 1.5, a, 0.0),
        }
        args = len(gpuopt.describe(op)["args"])
        call = more.get(op, lambda a: getattr(gd, op)(*[a] * args))
        found, wanted = call(y), call(x)
        assert type(found._meta) is cupy.ndarray and found.dtype == wanted.dtype
        got = found.compute(scheduler="synchronous")
        assert type(got) is cupy.ndarray and found.chunks == wanted.chunks
        wanted = wanted.compute(scheduler="synchronous")
        # Sums of at most 768 terms between 1 and 2: (10 + 14) roundings on either side.
        np.testing.assert_allclose(got.get(), wanted, rtol=48 * 2.0**-24)


# ---- bad input ----

ROW = np.arange(12.0)


def lazy_row(chunks: Any = 5) -> Any:
    return da.from_array(ROW, chunks=chunks)


def image(chunks: Any) -> Any:
    return da.ones((1, 1, 12, 12), chunks=chunks, dtype=np.float32)


def steps(chunks: Any) -> Any:
    return da.ones((2, 6, 20), chunks=chunks)


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "in memory": (lambda: gd.reduce(ROW), TypeError,
        r"^gpuopt\.dask\.reduce\(\) takes a Dask array as x, not ndarray; gpuopt\.reduce\(\) "),
    "two in memory": (lambda: gd.add(ROW, 1), TypeError, r"^gpuopt\.dask\.add\(\) takes "),
    "a number": (lambda: gd.exp(1.0), TypeError, r"^gpuopt\.dask\.exp\(\) takes a Dask array"),
    "dot in memory": (lambda: gd.dot(ROW, ROW), TypeError, "takes a Dask array as x"),
    "convolve": (lambda: gd.convolve(ROW, ROW), TypeError, "takes a Dask array as a"),
    "out": (lambda: gd.reduce(lazy_row(), out=ROW), TypeError,
        r"^gpuopt\.dask\.reduce\(\) has no out=: its result is computed later; "),
    "out of add": (lambda: gd.add(lazy_row(), 1, out=ROW), TypeError, "has no out="),
    "third of add": (lambda: gd.add(lazy_row(), 1, ROW), TypeError, "has no out="),
    "out of a pool": (lambda: gd.max_pool2d(image(12), 2, out=ROW), TypeError, "has no out="),
    "stream": (lambda: gd.scan(lazy_row(), stream=0), TypeError, "has no stream="),
    "keyword": (lambda: gd.scan(lazy_row(), size=0), TypeError,
        r"^scan\(\) got an unexpected keyword argument 'size'$"),
    "twice": (lambda: gd.add(lazy_row(), 1, x=2), TypeError, "multiple values for "),
    "missing": (lambda: gd.add(lazy_row()), TypeError, "missing required argument 'y'"),
    "unknown chunks": (lambda: gd.reduce(lazy_row()[lazy_row() > 3]), ValueError,
        r"^x has chunks of unknown size; call x\.compute_chunk_sizes\(\) first$"),
    "op": (lambda: gd.reduce(lazy_row(), "median"), ValueError, "'median'"),
    "axis": (lambda: gd.reduce(lazy_row(), axis=1), np.exceptions.AxisError, "axis 1 is out"),
    "scan of a number": (lambda: gd.scan(da.ones(())), np.exceptions.AxisError, "axis -1"),
    "strings": (lambda: gd.reduce(da.from_array(np.array(["a"]))), TypeError, "dtype"),
    "shapes": (lambda: gd.add(lazy_row(), np.ones(5)), ValueError, "broadcast"),
    "lengths": (lambda: gd.dot(lazy_row(), np.ones(5)), ValueError, "5"),
    "chunks of dot": (lambda: gd.dot(lazy_row(), lazy_row(4)), ValueError,
        r"^x has chunks \(\(5, 5, 2\),\), y has \(\(4, 4, 4\),\); "
        r"call y\.rechunk\(x\.chunks\)$"),
    "chunks of scatter_add": (lambda: gd.scatter_add(lazy_row(), da.arange(12, chunks=6), 20),
        ValueError, r"call index\.rechunk\(values\.chunks\)$"),
    "bits": (lambda: gd.partition_reduce(da.ones(16, chunks=5), 4), ValueError, "bit 4"),
    "power": (lambda: gd.partition_reduce(lazy_row(), 0), ValueError, "power of"),
    "chunks of index": (lambda: gd.index_add(ROW, da.arange(12, chunks=6), lazy_row()),
        ValueError, r"call index\.rechunk\(\{0: \(5, 5, 2\)\}\)$"),
    "chunks of x": (lambda: gd.index_add(lazy_row(), np.arange(12), lazy_row()), ValueError,
        r"^x must be one chunk along axis 0 .*; call x\.rechunk\(\{0: -1\}\)$"),
    "stride": (lambda: gd.max_pool2d(image((1, 1, 12, 5)), 2), ValueError,
        r"^chunks of x along axis 3 must begin at multiples of the stride, 2; "
        r"call x\.rechunk\(\{3: 4\}\)$"),
    "ceil_mode": (lambda: gd.max_pool2d(image((1, 1, 12, 6)), 2, ceil_mode=True), ValueError,
        r"call x\.rechunk\(\{3: -1\}\)$"),
    "indices": (lambda: gd.max_pool2d(image(12), 2, return_indices=True), ValueError,
        "^return_indices is not for Dask arrays"),
    "size": (lambda: gd.upsample_nearest(image((1, 1, 12, 6)), size=24), ValueError,
        r"call x\.rechunk\(\{3: -1\}\)$"),
    "scale": (lambda: gd.upsample_nearest(image((1, 1, 12, 6)), scale=1.5), ValueError,
        r"use a whole number; or call x\.rechunk\(\{3: -1\}\)$"),
    "filters": (lambda: gd.causal_conv1d(steps((1, 3, 9)), da.ones((6, 4), chunks=2)),
        ValueError, r"call w\.rechunk\(\{0: \(3, 3\), 1: -1\}\)$"),
    "channels": (lambda: gd.causal_conv1d(steps((1, 3, 9)), np.ones((5, 4))), ValueError,
        "^w has 5 channels, x has 6$"),
    "state": (lambda: gd.causal_conv1d(steps(9), np.ones((6, 4)), return_state=True),
        ValueError, "^return_state is not for Dask arrays"),
    "segments": (lambda: gd.causal_conv1d(steps(9), np.ones((6, 4)), segments=[0, 20]),
        ValueError, "^segments is not for Dask arrays"),
    "rows": (lambda: gd.mean_matvec(steps((2, 6, 9)), np.ones((3, 6))), ValueError,
        r"^mean_matvec needs x in one chunk along axis 2, which it combines; "
        r"call x\.rechunk\(\{2: -1\}\)$"),
    "matrix": (lambda: gd.mean_matvec(steps((2, 6, 20)), da.ones((3, 6), chunks=2)), ValueError,
        r"call matrix\.rechunk\(\{0: -1, 1: -1\}\)$"),
    "rows of convolve": (lambda: gd.convolve(steps(9), np.ones(3)), ValueError,
        r"^convolve needs a in one chunk along axis 2, its rows; "),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused_before_anything_is_computed(name: str) -> None:
    call, raises, match = REFUSED[name]
    with pytest.raises(raises, match=match):
        call()


def test_a_call_that_a_sentence_names_works() -> None:
    x = image((1, 1, 12, 5))
    np.testing.assert_array_equal(gd.max_pool2d(x.rechunk({3: 4}), 2), np.ones((1, 1, 6, 6)))
    w = da.ones((6, 4), chunks=2).rechunk({0: (3, 3), 1: -1})
    y = gd.causal_conv1d(steps((1, 3, 9)), w)
    np.testing.assert_array_equal(y, gpuopt.causal_conv1d(np.ones((2, 6, 20)), np.ones((6, 4))))


def mixed(shape_of: Callable[[int], int], dtype_of: Callable[[int], str]) -> Any:
    """Two blocks of five elements of float64, as the Dask array says."""

    def make(block: Any, block_info: Any = None) -> Any:
        i = block_info[0]["chunk-location"][0]
        return np.ones(shape_of(i), dtype_of(i))

    return da.zeros(10, chunks=5).map_blocks(make, dtype="float64", meta=np.empty(0))


COMPUTED: dict[str, Callable[[Any], Any]] = {
    "reduce": gd.reduce,
    "scan": gd.scan,
    "dot": lambda x: gd.dot(x, np.ones(10)),
    "scatter_add": lambda x: gd.scatter_add(x, np.arange(10), 10),
    "exp": gd.exp,
    "partition_reduce": lambda x: gd.partition_reduce(x[:8], 0),
}


@pytest.mark.parametrize("name", COMPUTED)
def test_a_block_of_another_dtype_is_refused(name: str) -> None:
    x = mixed(lambda i: 5, lambda i: ("float64", "float32")[i])
    with pytest.raises(TypeError, match=r"block .* has dtype float32, but the Dask "):
        COMPUTED[name](x).compute(scheduler="synchronous")


@pytest.mark.parametrize("name", ["reduce", "scan", "dot", "scatter_add"])
def test_a_block_of_another_shape_is_refused(name: str) -> None:
    x = mixed(lambda i: (5, 4)[i], lambda i: "float64")
    with pytest.raises(ValueError, match=r"^block \(1,\) of .* has shape \(4,\), but the Dask"):
        COMPUTED[name](x).compute(scheduler="synchronous")


def test_masks_are_refused() -> None:
    masked = np.ma.masked_less(ROW, 3)
    with pytest.raises(TypeError, match="filled"):
        gd.reduce(da.from_array(masked, chunks=5))
    hidden = lazy_row().map_blocks(np.ma.masked_less, 3, dtype=ROW.dtype, meta=np.empty(0))
    with pytest.raises(TypeError, match="filled"):
        gd.reduce(hidden).compute(scheduler="synchronous")


def test_an_index_out_of_range_names_its_place() -> None:
    index = da.from_array(np.array([0, 1, 2, 3, 4, 5, 6, 99, 8, 9, 10, 11]), chunks=5)
    with pytest.raises(IndexError, match=r"^index 99 at position 7 .*, in block \(1,\) of"):
        gd.scatter_add(lazy_row(), index, 20).compute(scheduler="synchronous")
    with pytest.raises(IndexError, match=r"^index 99 at position 7 .*, in block \(1,\) of "):
        gd.index_add(np.zeros(20), index, lazy_row()).compute(scheduler="synchronous")


def test_the_extremes_of_nothing() -> None:
    with pytest.raises(ValueError, match=r"zero-size|empty"):
        gd.reduce(da.ones((0,), chunks=1), "max").compute(scheduler="synchronous")


# ---- documents ----


def test_the_document_shows_what_the_code_prints() -> None:
    text = (Path(__file__).parents[1] / "docs" / "dask.md").read_text(encoding="utf-8")
    assert list(problems(text)) == []


def test_the_example_of_the_module() -> None:
    assert not wrong_examples("gpuopt.dask", gd.__doc__ or "")
