"""gpuopt.stream: any source, any cut, any place for the result, nothing left by an error.

Order: sources, operators, results, what goes wrong, memory, the report.  Blocks are a few
hundred bytes here, so that every call has many.  Whole numbers are compared exactly; floats
by the bound of the operator, written out where it is not that of tests/test_chunks.py.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Child

import gpuopt
from gpuopt import _core, _stream, ref

Array = np.ndarray[Any, Any]
BACKENDS = [name for name, missing in gpuopt.backends().items() if missing is None]
EPS = 2.0**-24


def numbers(shape: Any, dtype: Any = np.float32, seed: int = 0) -> Array:
    draw = np.random.default_rng(seed)
    if np.dtype(dtype).kind in "iu":
        return draw.integers(0, 100, shape).astype(dtype)
    return draw.standard_normal(shape).astype(dtype)


class Dataset:
    """What h5py and Zarr have in common."""

    def __init__(self, x: Array, on_write: Callable[[], None] | None = None) -> None:
        self.x, self.shape, self.dtype, self.on_write = x, x.shape, x.dtype, on_write

    def __getitem__(self, key: Any) -> Array:
        return self.x[key]

    def __setitem__(self, key: Any, value: Array) -> None:
        if self.on_write is not None:
            self.on_write()
        self.x[key] = value


def raw(x: Array, folder: Path) -> Any:
    x.tofile(folder / "raw")
    return folder / "raw", x.dtype, x.shape


def npy(x: Array, folder: Path) -> Any:
    np.save(folder / "x.npy", x)
    return folder / "x.npy"


def memmap(x: Array, folder: Path) -> Any:
    """A part of a map that begins past the first page of the file."""
    with open(folder / "map", "wb") as file:
        file.write(bytes(5000))
        file.write(x[:1].tobytes() + x.tobytes())
    shape = (len(x) + 1, *x.shape[1:])
    return np.memmap(folder / "map", x.dtype, "r", 5000, shape)[1:]


def strided(x: Array, folder: Path) -> Any:
    np.save(folder / "t.npy", np.asfortranarray(x))
    return np.load(folder / "t.npy", mmap_mode="r")


def private(x: Array, folder: Path) -> Any:
    """Changes of a copy-on-write map are not in the file."""
    np.save(folder / "c.npy", np.zeros_like(x))
    found = np.load(folder / "c.npy", mmap_mode="c")
    found[...] = x
    return found


def swapped(x: Array, folder: Path) -> Any:
    return raw(x.astype(x.dtype.newbyteorder(">")), folder)


SOURCES = [raw, npy, memmap, strided, private, swapped]
SOURCES += [lambda x, folder: x, lambda x, folder: x[::-1][::-1], lambda x, folder: Dataset(x)]
SOURCES += [lambda x, folder: (x[k : k + 7] for k in range(0, len(x), 7))]
NAMES = ["raw", "npy", "memmap", "strided", "private", "swapped", "array", "view", "dataset"]
NAMES += ["iterator"]


# ---- sources ----


@pytest.mark.parametrize("source", SOURCES, ids=NAMES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_source_gives_its_elements(source: Any, backend: str, tmp_path: Path) -> None:
    x = numbers((60, 11), np.int32)
    for options in ({}, {"axis": 0}, {"axis": 1}, {"op": "argmax"}, {"op": "max", "axis": 1}):
        where = {"block": 400, "backend": backend}
        found = gpuopt.stream("reduce", source(x, tmp_path), **where, **options)
        np.testing.assert_array_equal(found, ref.reduce(x, **options))
    found = gpuopt.stream("scan", source(x, tmp_path), axis=0, block=400, backend=backend)
    np.testing.assert_array_equal(found, ref.scan(x, axis=0))
    found = gpuopt.stream("negative", source(x, tmp_path), block=400, backend=backend)
    np.testing.assert_array_equal(found, -x)


@pytest.mark.parametrize("along", [None, 0, 1, -1])
@pytest.mark.parametrize("source", SOURCES[:-1], ids=NAMES[:-1])
def test_any_axis_may_be_cut(source: Any, along: int | None, tmp_path: Path) -> None:
    x = numbers((23, 4, 31), np.int64)
    for options in (
        *({}, {"axis": 0}, {"axis": (0, 2)}, {"axis": 1, "keepdims": True}),
        *({"op": "argmin"}, {"op": "argmax", "axis": 2}, {"op": "any", "axis": -1}),
    ):
        found = gpuopt.stream("reduce", source(x, tmp_path), along=along, block=6000, **options)
        np.testing.assert_array_equal(found, ref.reduce(x, **options))
    for options in ({"axis": 2}, {"axis": 0, "reverse": True}, {"axis": 1, "exclusive": True}):
        found = gpuopt.stream("scan", source(x, tmp_path), along=along, block=6000, **options)
        np.testing.assert_array_equal(found, ref.scan(x, **options))
    for out in (None, tmp_path / "out.npy"):
        y = gpuopt.stream(
            *("add", source(x, tmp_path), x[0, 0]), along=along, block=6000, out=out
        )
        np.testing.assert_array_equal(y if out is None else np.load(out), x + x[0, 0])


def test_a_map_that_is_written_is_read_as_it_is(tmp_path: Path) -> None:
    x = np.memmap(tmp_path / "x", np.int64, "w+", shape=(1000,))
    x[...] = np.arange(1000)
    assert gpuopt.stream("reduce", x, block=512) == 499500


def test_a_file_larger_than_memory_leaves_the_page_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[tuple[int, int]] = []

    def advise(_: int, begin: int, length: int, advice: int) -> None:
        if advice == os.POSIX_FADV_DONTNEED:
            left.append((begin, length))

    monkeypatch.setattr(os, "posix_fadvise", advise)
    x = numbers(1000, np.float64)
    for memory, expected in ((16000, []), (15998, [(at, 1600) for at in range(0, 8000, 1600)])):
        monkeypatch.setattr("gpuopt._sources._memory", lambda memory=memory: memory)
        gpuopt.stream("reduce", raw(x, tmp_path), block=1600)
        assert sorted(left) == expected


def test_blocks_of_a_dataset_are_whole_chunks() -> None:
    class Chunked(Dataset):
        def __init__(self, x: Array, chunks: tuple[int, ...]) -> None:
            super().__init__(x)
            self.chunks = chunks
            self.read: list[int] = []

        def __getitem__(self, key: Any) -> Array:
            self.read.append(key[0].start)
            return super().__getitem__(key)

    x = numbers(100, np.int64)
    for size, chunk, other, step in (
        *((250, 10, 1, 30), (250, 40, 1, 31), (250, 4, 6, 24), (250, 7, 30, 28)),
    ):
        source, out = Chunked(x, (chunk,)), Chunked(np.zeros_like(x), (other,))
        gpuopt.stream("negative", source, out=out, block=size)
        np.testing.assert_array_equal(out.x, -x)
        assert sorted(source.read) == list(range(0, 100, step))


@pytest.mark.parametrize("shape", [(0,), (1,), (5, 0), (0, 5)])
def test_few_elements(shape: tuple[int, ...], tmp_path: Path) -> None:
    x = np.ones(shape)
    for source in (x, raw(x, tmp_path)):
        assert gpuopt.stream("reduce", source) == x.sum()
        np.testing.assert_array_equal(gpuopt.stream("scan", source), x.cumsum(-1))
        np.testing.assert_array_equal(gpuopt.stream("negative", source), -x)
    if not x.size:
        with pytest.raises(ValueError, match=r"zero-size|empty"):
            gpuopt.stream("reduce", x, op="max")


def test_iterators_and_files_come_side_by_side(tmp_path: Path) -> None:
    x, y = numbers(100, np.int64), numbers(100, np.int64, 1)

    def blocks(a: Array, step: int) -> Iterator[Array]:
        return (a[k : k + step] for k in range(0, len(a), step))

    for second in (y, raw(y, tmp_path), blocks(y, 9), Dataset(y)):
        assert gpuopt.stream("dot", blocks(x, 9), second) == x @ y
    np.testing.assert_array_equal(gpuopt.stream("subtract", y, blocks(x, 9)), y - x)
    np.testing.assert_array_equal(gpuopt.stream("subtract", 3, blocks(x, 9)), 3 - x)
    with pytest.raises(ValueError, match="blocks of different lengths"):
        gpuopt.stream("dot", blocks(x, 9), blocks(y, 10))
    with pytest.raises(ValueError, match="blocks of different lengths"):
        gpuopt.stream("dot", blocks(x, 10), blocks(y[:90], 10))
    with pytest.raises(ValueError, match="ended after 100 of 200"):
        gpuopt.stream("dot", blocks(x, 9), np.append(y, y))
    with pytest.raises(ValueError, match="more than the 50 elements"):
        gpuopt.stream("dot", blocks(x, 9), y[:50])


# ---- operators ----


@pytest.mark.parametrize("backend", BACKENDS)
def test_totals_of_two_sources(backend: str, tmp_path: Path) -> None:
    x, y = numbers(1000), numbers(1000, seed=1)
    where = {"block": 512, "backend": backend}
    found = gpuopt.stream("dot", raw(x, tmp_path), y, **where)
    a, b = x.astype(np.float64), y.astype(np.float64)
    assert abs(found - a @ b) <= (7 + 15) * EPS * abs(a) @ abs(b) + EPS * abs(a @ b)
    index = np.random.default_rng(2).integers(0, 9, 1000)
    found = gpuopt.stream("scatter_add", x, Dataset(index), size=9, **where)
    exact = ref.scatter_add(a, index, 9)
    assert (abs(found - exact) <= EPS * abs(exact) + 1000 * 2.0**-53 * 5000).all()
    rows, source = numbers((9, 6)), numbers((1000, 6), seed=3)
    for alpha in (1, -0.5):
        found = gpuopt.stream("index_add", rows, index, source, alpha=alpha, **where)
        exact = ref.index_add(rows.astype(np.float64), index, source, alpha=alpha)
        assert found.dtype == np.float32
        assert (abs(found - exact) <= EPS * abs(exact) + 1000 * 2.0**-53 * 5000).all()
    found = gpuopt.stream("index_add", rows.T, index, source.T, axis=1, **where)
    np.testing.assert_array_equal(
        found, gpuopt.stream("index_add", rows, index, source, **where).T
    )
    with pytest.raises(IndexError, match="index 9 at position 999 is out of bounds"):
        gpuopt.stream("scatter_add", x, np.append(index[:-1], 9), size=9, **where)
    with pytest.raises(ValueError, match="different lengths along the axis that is cut: 7, 9"):
        gpuopt.stream("dot", x[:7], y[:9])


@pytest.mark.parametrize("backend", BACKENDS)
def test_partitions(backend: str, tmp_path: Path) -> None:
    x = numbers(1024, np.int64)
    for bits in ((0, 9), (5,), (9, 8, 7, 1)):
        for source in (raw(x, tmp_path), (x[k : k + 100] for k in range(0, 1024, 100))):
            found = gpuopt.stream(
                "partition_reduce", source, bits=bits, block=999, backend=backend
            )
            np.testing.assert_array_equal(found, ref.partition_reduce(x, bits))
    with pytest.raises(ValueError, match="not a power of two"):
        gpuopt.stream("partition_reduce", x[:1000], bits=1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_elementwise(backend: str, tmp_path: Path) -> None:
    x, y = numbers((50, 9)), numbers((50, 1), seed=1)
    where = {"block": 300, "backend": backend}
    source = raw(x, tmp_path)
    for found, exact in (
        (gpuopt.stream("multiply", source, y, **where), x * y),
        (gpuopt.stream("multiply", x[0], source, **where), x[0] * x),
        (gpuopt.stream("maximum", source, 0.5, **where), np.maximum(x, np.float32(0.5))),
        (gpuopt.stream("where", x > 0, source, x[:1], **where), np.where(x > 0, x, x[:1])),
        (gpuopt.stream("clip", source, min=-1, max=1.0, **where), np.clip(x, -1, 1)),
        (gpuopt.stream("cast", source, dtype="float16", **where), x.astype(np.float16)),
        (gpuopt.stream("abs", source, **where), abs(x)),
        (gpuopt.stream("add", x[:, :1], y[0], **where), x[:, :1] + y[0]),
    ):
        assert found.dtype == exact.dtype
        np.testing.assert_array_equal(found, exact)
    with pytest.raises(ValueError, match="broadcast"):
        gpuopt.stream("add", x, np.ones(4, np.float32))


def test_a_file_of_one_number(tmp_path: Path) -> None:
    x, one, swapped = numbers((50, 9)), tmp_path / "one.npy", tmp_path / "one"
    np.save(one, np.float32(2.5))
    np.array(2.5, ">f4").tofile(swapped)
    for source in (one, (swapped, ">f4", ())):
        np.testing.assert_array_equal(gpuopt.stream("multiply", x, source, block=300), x * 2.5)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("layout", ["BCT", "BTC"])
@pytest.mark.parametrize("taps", [1, 3, 40])
def test_a_convolution_goes_on(backend: str, layout: str, taps: int, tmp_path: Path) -> None:
    x, w = numbers((4, 3, 90), np.float64), numbers((3, taps), np.float64, 1)
    bias = numbers(3, np.float64, 2)
    time = 2 if layout == "BCT" else 1
    x = x if layout == "BCT" else np.ascontiguousarray(x.swapaxes(1, 2))
    options = {"layout": layout, "activation": "silu"}
    exact = ref.causal_conv1d(x, w, bias, **options)
    for along in (None, 0, time):
        found = gpuopt.stream(
            *("causal_conv1d", raw(x, tmp_path), w, bias),
            **{"along": along, "block": 2400, "backend": backend, **options},
        )
        np.testing.assert_allclose(found, exact, rtol=0, atol=1e-12)
    one = gpuopt.stream("causal_conv1d", x[:1], w, block=400, layout=layout, backend=backend)
    np.testing.assert_allclose(one, ref.causal_conv1d(x[:1], w, layout=layout), atol=1e-12)
    state = numbers((4, 3, taps - 1), np.float64, 3)
    state = state if layout == "BCT" else np.ascontiguousarray(state.swapaxes(1, 2))
    found = gpuopt.stream(
        *("causal_conv1d", x, w),
        **{"along": time, "block": 2400, "initial_state": state, "layout": layout},
    )
    exact = ref.causal_conv1d(x, w, layout=layout, initial_state=state)
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match="along time, not along the batch"):
        gpuopt.stream("causal_conv1d", x, w, initial_state=state, layout=layout)


@pytest.mark.parametrize("backend", BACKENDS)
def test_windows_along_the_batch(backend: str, tmp_path: Path) -> None:
    x = numbers((6, 2, 4, 6))
    where = {"block": 300, "backend": backend}
    found = gpuopt.stream("max_pool2d", raw(x, tmp_path), kernel_size=2, **where)
    np.testing.assert_array_equal(found, ref.max_pool2d(x, 2))
    found = gpuopt.stream("upsample_nearest", raw(x, tmp_path), scale=1.5, **where)
    np.testing.assert_array_equal(found, ref.upsample_nearest(x, scale=1.5))


def test_a_float_scan_carries_more_than_its_results_hold() -> None:
    x = np.full(20000, 0.1, np.float32)
    found = gpuopt.stream("scan", x, block=64)
    exact = np.cumsum(x.astype(np.float64))
    assert (abs(found - exact) <= (4 + 32 + 3) * EPS * exact).all()


@pytest.mark.parametrize("op", ["sum", "max"])
def test_a_scan_of_short_floats_goes_through_float32(op: str) -> None:
    x = np.array([60000, 60000, -60000, -50000, 1] * 20, np.float16)
    found = gpuopt.stream("scan", x, op=op, block=6)
    np.testing.assert_array_equal(found, ref.scan(x, op))


def test_half_precision_is_summed_in_float32_within_a_block() -> None:
    """Longer than the piece in which a block is converted."""
    x = numbers((1 << 21) + 77, np.float16)
    for op in ("sum", "mean"):
        found = gpuopt.stream("reduce", x, op=op, block=1 << 30)
        exact = x.astype(np.float64).sum() / (x.size if op == "mean" else 1)
        size = abs(x.astype(np.float64)).sum() / (x.size if op == "mean" else 1)
        assert abs(float(found) - exact) <= 34 * EPS * size + 2.0**-11 * abs(exact)
    factors = np.full(1 << 21, 1 + 2.0**-22, np.float32)
    found = gpuopt.stream("reduce", factors, op="prod", block=1 << 30)
    exact = np.exp((1 << 21) * np.log1p(2.0**-22))
    assert abs(found - exact) <= (EPS + 2.0**-30) * exact


@pytest.mark.concurrent
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_bits_do_not_depend_on_the_readers(backend: str, tmp_path: Path) -> None:
    x = numbers((4000,))
    for op in ("reduce", "scan", "tanh"):
        found = [
            gpuopt.stream(op, raw(x, tmp_path), block=640, backend=backend, readers=n).tobytes()
            for n in (1, 2, 3, 8)
        ]
        assert len(set(found)) == 1


# ---- results ----


def test_results_go_where_out_says(tmp_path: Path) -> None:
    x = numbers((40, 5))
    exact = ref.scan(x, axis=0)
    for along in (0, 1):
        options = {"axis": 0, "along": along, "block": 220}
        array = np.zeros((40, 5), np.float32)
        assert gpuopt.stream("scan", x, out=array, **options) is array
        mapped = np.lib.format.open_memmap(tmp_path / "m.npy", "w+", np.float32, (40, 5))
        assert gpuopt.stream("scan", x, out=mapped, **options) is mapped
        data = Dataset(np.zeros((40, 5), np.float32))
        assert gpuopt.stream("scan", x, out=data, **options) is data
        assert gpuopt.stream("scan", x, out=tmp_path / "y", **options) == tmp_path / "y"
        gpuopt.stream("scan", x, out=str(tmp_path / "y.npy"), **options)
        for found in (
            *(array, mapped, data.x, np.load(tmp_path / "y.npy")),
            *(np.load(tmp_path / "m.npy"), np.fromfile(tmp_path / "y", np.float32)),
        ):
            np.testing.assert_allclose(found.reshape(40, 5), exact, rtol=1e-5, atol=1e-5)
    assert sorted(os.listdir(tmp_path)) == ["m.npy", "y", "y.npy"]


def test_totals_go_where_out_says(tmp_path: Path) -> None:
    x = numbers((40, 5), np.int64)
    out = np.zeros(5, np.int64)
    assert gpuopt.stream("reduce", x, axis=0, block=220, out=out) is out
    np.testing.assert_array_equal(out, x.sum(0))
    gpuopt.stream("reduce", x, axis=0, block=220, out=tmp_path / "sum.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "sum.npy"), x.sum(0))
    gpuopt.stream("reduce", x, block=220, out=tmp_path / "all")
    assert np.fromfile(tmp_path / "all", np.int64) == x.sum()
    gpuopt.stream("reduce", x, block=220, out=tmp_path / "all.npy")
    assert np.load(tmp_path / "all.npy") == x.sum()


def test_results_in_place() -> None:
    x = numbers(1000, np.int64)
    for op, exact in (("negative", -x), ("scan", x.cumsum())):
        y = x.copy()
        assert gpuopt.stream(op, y, out=y, block=160) is y
        np.testing.assert_array_equal(y, exact)
        with pytest.raises(ValueError, match="out shares memory with a source"):
            gpuopt.stream(op, y[1:], out=y[:-1])
    out = np.zeros((4, 2, 6))
    with pytest.raises(ValueError, match="out shares memory with a source"):
        gpuopt.stream("max_pool1d", out, kernel_size=1, out=out)


@pytest.mark.concurrent
@pytest.mark.parametrize("readers", [None, 3])
def test_datasets_are_used_by_one_thread_unless_readers_are_named(readers: int | None) -> None:
    """Threads that may read side by side meet at a barrier; others wait for one in vain."""
    barrier, met = threading.Barrier(readers or 2), False

    class Meeting(Dataset):
        def meet(self) -> None:
            nonlocal met
            try:
                barrier.wait(None if readers else 0.2)
                met = True
            except threading.BrokenBarrierError:
                pass

        def __getitem__(self, key: Any) -> Array:
            if key[0].start < 300:
                self.meet()
            return super().__getitem__(key)

        def __setitem__(self, key: Any, value: Array) -> None:
            if not readers:
                self.meet()
            super().__setitem__(key, value)

    x = numbers(3000, np.int64)
    out = Meeting(np.zeros_like(x))
    gpuopt.stream("negative", Meeting(x), out=out, block=800, readers=readers)
    np.testing.assert_array_equal(out.x, -x)
    assert met == bool(readers)


def test_a_mask_of_a_dataset_is_not_lost() -> None:
    data = Dataset(np.ma.array([1.0, 2.0], mask=[True, False]))
    with pytest.raises(TypeError, match="mask"):
        gpuopt.stream("reduce", data)


def test_results_of_unknown_length(tmp_path: Path) -> None:
    x = numbers((300, 3), np.int64)

    def blocks() -> Iterator[Array]:
        return (x[k : k + 17] for k in range(0, 300, 17))

    exact = x.cumsum(0)
    for path in (tmp_path / "y.npy", tmp_path / "y"):
        gpuopt.stream("scan", blocks(), axis=0, out=path)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), exact)
    np.testing.assert_array_equal(np.fromfile(tmp_path / "y", np.int64), exact.ravel())
    out = np.zeros((300, 3), np.int64)
    assert gpuopt.stream("scan", blocks(), axis=0, out=out) is out
    np.testing.assert_array_equal(out, exact)
    for length, words in ((299, "out has length 299, the result at least 300"), (301, "301")):
        with pytest.raises(ValueError, match=words):
            gpuopt.stream("scan", blocks(), axis=0, out=np.zeros((length, 3), np.int64))
    with pytest.raises(ValueError, match="to a file along axis 0 alone"):
        gpuopt.stream("negative", (b.T for b in blocks()), along=1, out=tmp_path / "z")
    assert sorted(os.listdir(tmp_path)) == ["y", "y.npy"]


def test_a_file_may_replace_its_own_source(tmp_path: Path) -> None:
    x = numbers(500, np.int64)
    np.save(tmp_path / "x.npy", x)
    os.symlink(tmp_path / "x.npy", tmp_path / "link.npy")
    link = tmp_path / "link.npy"
    gpuopt.stream("scan", link, block=128, out=link)
    assert link.is_symlink()
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), x.cumsum())
    assert sorted(os.listdir(tmp_path)) == ["link.npy", "x.npy"]


# ---- what goes wrong ----


def test_a_source_that_shrinks_is_noticed(tmp_path: Path) -> None:
    x = numbers(4000, np.float64)
    x.tofile(tmp_path / "x")
    shrink = Dataset(np.zeros(4000), lambda: os.truncate(tmp_path / "x", 8 * 3000))
    with pytest.raises(ValueError, match="shrank while it was read: from 32000 bytes to 24000"):
        gpuopt.stream("negative", (tmp_path / "x", "f8"), block=800, out=shrink)
    x.tofile(tmp_path / "x")
    mapped = np.memmap(tmp_path / "x", np.float64, "r")
    with pytest.raises(ValueError, match="shrank while it was read"):
        gpuopt.stream("negative", mapped, block=800, out=shrink)
    data = Dataset(x)

    def halve() -> None:
        data.x = x[:2000]

    with pytest.raises(ValueError, match="it changed while it was read"):
        gpuopt.stream("negative", data, block=800, out=Dataset(np.zeros(4000), halve))


def failing(x: Array, error: BaseException) -> Iterator[Array]:
    yield x
    yield x
    raise error


@pytest.mark.parametrize("error", [KeyError("x"), KeyboardInterrupt(), MemoryError()])
@pytest.mark.parametrize("name", ["y", "y.npy"])
def test_an_error_leaves_no_file(error: BaseException, name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"before")
    threads = threading.active_count()
    for op in ("negative", "reduce"):
        with pytest.raises(type(error)):
            gpuopt.stream(op, failing(numbers(100), error), out=tmp_path / name)
    assert (tmp_path / name).read_bytes() == b"before"
    assert os.listdir(tmp_path) == [name]
    assert threading.active_count() == threads


@pytest.mark.concurrent
def test_ctrl_c_leaves_no_file(child: Child, tmp_path: Path) -> None:
    code = """
import os, signal, sys, threading
import numpy as np
import gpuopt
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
class Dataset:
    shape, dtype = (1000000,), np.dtype(np.int64)
    def __getitem__(self, key):
        if key[0].start == 500000:
            os.kill(os.getpid(), signal.SIGINT)
        return np.ones(key[0].stop - key[0].start, np.int64)
try:
    gpuopt.stream("scan", Dataset(), block=80000, out=sys.argv[1] + "/y.npy")
except KeyboardInterrupt:
    print(os.listdir(sys.argv[1]), threading.active_count())
"""
    assert child(code, arguments=(str(tmp_path),)).stdout == "[] 1\n"


def test_a_full_disk_is_noticed_before_and_while_writing(
    child: Child, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """
import errno, os, resource, sys
import numpy as np
import gpuopt
resource.setrlimit(resource.RLIMIT_FSIZE, (40000, 40000))
for source in (np.ones(10000), (np.ones(1000) for _ in range(10))):
    try:
        gpuopt.stream("negative", source, block=4000, out=sys.argv[1] + "/y")
    except OSError as error:
        print(errno.errorcode[error.errno], os.listdir(sys.argv[1]))
"""
    assert child(code, arguments=(str(tmp_path),)).stdout == "EFBIG []\n" * 2
    usage = shutil.disk_usage(tmp_path)._replace(free=79999)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(OSError, match="the result has 80000 bytes, the disk 79999") as caught:
        gpuopt.stream("negative", np.ones(10000), out=tmp_path / "y")
    assert caught.value.errno == errno.ENOSPC
    assert os.listdir(tmp_path) == []


def of(*blocks: Any) -> Iterator[Any]:
    return iter(blocks)


REFUSED: list[tuple[str, tuple[Any, ...], dict[str, Any], type[Exception], str]] = [
    ("convolve", ([1.0], [1.0]), {}, ValueError, "does not take 'convolve'; it takes reduce"),
    ("reduce", (), {}, TypeError, "missing the array 'x'"),
    ("reduce", ([1.0], "max"), {}, TypeError, "takes 1 arrays"),
    ("reduce", ([1.0],), {"x": [1.0]}, TypeError, "multiple values for 'x'"),
    ("reduce", (3.0,), {}, TypeError, "takes an array, not 3.0"),
    ("reduce", (np.float64(3),), {}, TypeError, "takes an array"),
    ("reduce", (np.array(3.0),), {}, ValueError, "one dimension or more"),
    ("add", (1, 2), {}, TypeError, "takes an array"),
    ("reduce", ("x.bin",), {}, TypeError, r"not an .npy file: give \(path, dtype\)"),
    ("reduce", (("/nowhere/x", "f4"),), {}, FileNotFoundError, "nowhere"),
    ("reduce", (object(),), {}, TypeError, "a source is an array, .* not object"),
    ("reduce", (np.ma.array([1.0]),), {}, TypeError, "mask"),
    ("reduce", (["a"],), {}, TypeError, "dtype"),
    ("reduce", (of(),), {}, ValueError, "the iterator gave no block"),
    (
        "reduce",
        (of([1.0], [1]),),
        {},
        TypeError,
        "block 1 has dtype int64, those before float64",
    ),
    (
        "reduce",
        (of([1.0], [[1.0]]),),
        {},
        ValueError,
        r"block 1 has shape \(1, 1\), which does",
    ),
    ("reduce", ([1.0],), {"stream": 1}, TypeError, "streams of its own"),
    ("reduce", ([1.0],), {"block": 0}, ValueError, "must be positive"),
    ("reduce", ([1.0],), {"readers": 0}, ValueError, "must be positive"),
    ("reduce", ([1.0],), {"backend": "tpu"}, ValueError, "'tpu'"),
    ("reduce", ([1.0],), {"along": 1}, ValueError, "axis 1 is out of bounds"),
    ("reduce", ([1.0],), {"where": 1}, TypeError, "where"),
    (
        "reduce",
        (np.ones((2, 9)),),
        {"block": 10},
        ValueError,
        "has 16 bytes, more than a block",
    ),
    ("reduce", (of(np.ones((1, 2))),), {"along": 1, "op": "argmax"}, ValueError, "need axis="),
    ("scan", (of([1.0]),), {"reverse": True}, ValueError, "an iterator does not"),
    ("partition_reduce", (np.ones(4),), {"along": 1, "bits": 0}, ValueError, "out of bounds"),
    (
        "causal_conv1d",
        (np.ones((1, 2, 3)), np.ones((2, 2))),
        {"along": 1},
        ValueError,
        "0 or 2",
    ),
    (
        *("causal_conv1d", (np.ones((1, 2, 3)), of(np.ones((2, 2))))),
        *({}, TypeError, "cannot stand for a whole array"),
    ),
    (
        *("max_pool1d", (np.ones((1, 2, 4)),), {"kernel_size": 2, "return_indices": True}),
        *(ValueError, "takes no return_indices="),
    ),
    ("negative", ([1.0],), {"out": 3}, TypeError, "out is an array, a path, or a dataset"),
    ("negative", ([1.0],), {"out": np.ones(2)}, ValueError, r"out must have shape \(1,\)"),
    ("negative", ([1.0],), {"out": np.ones(1, int)}, ValueError, "and dtype float64"),
    ("negative", ([1.0],), {"out": "/nowhere/x"}, FileNotFoundError, "nowhere"),
    ("negative", ([1.0],), {"out": "/tmp"}, IsADirectoryError, "tmp"),
]


@pytest.mark.parametrize(("op", "sources", "options", "error", "words"), REFUSED)
def test_what_a_stream_cannot_do_is_refused(
    op: str, sources: Any, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        gpuopt.stream(op, *sources, **options)


def test_files_that_do_not_hold_the_array_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(bytes(10))
    for source, error, words in (
        ((tmp_path / "x", "f4"), ValueError, "has 10 bytes, which are no whole elements of 4"),
        ((tmp_path / "x", "f4", (3,)), ValueError, r"shape \(3,\) and dtype float32 need 12"),
        ((tmp_path / "x", object), TypeError, "cannot hold elements of dtype object"),
    ):
        with pytest.raises(error, match=words):
            gpuopt.stream("reduce", source)
    read_only = np.zeros(4)
    read_only.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        gpuopt.stream("negative", np.ones(4), out=read_only)
    with pytest.raises(TypeError, match=r"no name for bfloat16"):
        dtype = pytest.importorskip("ml_dtypes").bfloat16
        gpuopt.stream("negative", np.ones(4, dtype), out=tmp_path / "y.npy")
    assert os.listdir(tmp_path) == ["x"]


def test_an_import_loads_nothing_of_this(child: Child) -> None:
    code = """
import sys
import gpuopt
later = ("gpuopt._stream", "gpuopt.chunks", "concurrent.futures")
print([name for name in later if name in sys.modules])
print(gpuopt.stream("reduce", [1.0, 2.0]), gpuopt.chunks.__name__)
try:
    gpuopt.streams
except AttributeError as error:
    print(error)
"""
    assert child(code).stdout.splitlines() == [
        *("[]", "3.0 gpuopt.chunks", "module 'gpuopt' has no attribute 'streams'"),
    ]


# ---- memory ----


def test_memory_is_bounded_by_the_blocks(child: Child, tmp_path: Path) -> None:
    """A sparse file of 512 MiB with planted values, in blocks of 4 MiB: four of a source."""
    code = """
import sys
import numpy as np
import gpuopt
def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
path, out = sys.argv[1] + "/x", sys.argv[1] + "/y"
with open(path, "wb") as file:
    file.truncate(512 << 20)
    for place in (0, 77777777, 134217727):
        file.seek(4 * place)
        file.write(np.float32(place + 1).tobytes())
small = {"block": 4 << 20, "readers": 2, "backend": "cpu"}
gpuopt.stream("reduce", np.ones(1 << 20, np.float32), **small)
before = peak()
total = gpuopt.stream("reduce", (path, "f4"), **small)
place = gpuopt.stream("reduce", (path, "f4"), op="argmax", **small)
assert total == np.float32(1 + 77777778 + 134217728), total
assert place == 134217727 or np.float32(77777778) == np.float32(134217728), place
print(peak() - before)
gpuopt.stream("maximum", (path, "f4", (1 << 24,)), 0.0, out=out, **small)
source, mapped = np.memmap(path, "f4", "r", shape=1 << 24), np.memmap(out, "f4", "r+")
gpuopt.stream("maximum", source, 0.0, out=mapped, **small)
assert mapped[0] == 1
print(peak() - before)
"""
    reduce, elementwise = map(int, child(code, arguments=(str(tmp_path),)).stdout.split())
    slack = 16 << 10  # KiB: threads, and what the allocator keeps
    assert reduce <= 4 * (4 << 10) + slack
    assert elementwise <= 7 * (4 << 10) + slack


# ---- the report ----


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_report_says_what_was_moved(backend: str, tmp_path: Path) -> None:
    x = numbers((1000,))
    reports: list[gpuopt.Report] = []
    options = {"block": 400, "backend": backend, "report": reports.append}
    gpuopt.stream("negative", raw(x, tmp_path), out=tmp_path / "y", **options)
    (found,) = reports
    assert (found.op, found.backend, found.blocks, found.block_bytes) == (
        *("negative", backend, 10, 400),
    )
    moved = 0 if backend == "cpu" else 8000
    assert found.bytes == {"read": 4000, "bus": moved, "compute": 4000, "write": 4000}
    assert found.seconds[found.bound] == max(found.seconds.values())
    assert 0 < found.seconds["compute"] <= found.elapsed
    assert len(found.marks) == 10
    assert sorted(found.marks) == list(found.marks)
    assert found.rate("read") == 4000 / found.seconds["read"]
    text = repr(found)
    assert text.startswith(f"stream('negative') on {backend}: ")
    assert f"bound by '{found.bound}'" in text
    assert ("\n  bus " in text) == (backend != "cpu")


def test_progress_is_shown_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    gpuopt.stream("reduce", np.ones(100), block=80, progress=True)
    shown = capsys.readouterr().err
    assert "reduce" in shown
    assert "/10" in shown
    gpuopt.stream("reduce", np.ones(100), block=80)
    gpuopt.stream("reduce", iter([np.ones(100)]), progress=True)
    assert capsys.readouterr().err == ""


# ---- taken by itself ----

LARGE = {"free": 100_000, "pool": 0, "total": 1 << 30}


@pytest.mark.parametrize(
    ("op", "args", "kwargs"),
    [
        ("reduce", (numbers((300, 40)),), {"op": "max", "axis": 0}),
        ("reduce", (numbers(12000, np.int64), "sum"), {}),
        ("scan", (numbers((40, 300), np.int32),), {"axis": 1}),
        ("multiply", (numbers((300, 40)), 2.0), {}),
        ("multiply", (numbers((300, 40)), numbers(40)), {"out": np.empty((300, 40), "f4")}),
        ("max_pool1d", (numbers((30, 4, 100)), 2), {"stride": 2}),
    ],
)
def test_an_array_too_large_for_the_device_comes_in_blocks(
    op: str, args: Any, kwargs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_core, "memory_info", lambda device, backend: LARGE)
    monkeypatch.setitem(_stream.BLOCK, "sim", 10_000)
    found = _stream.in_blocks(op, args, kwargs, 0, backend="sim")
    plain = {name: value for name, value in kwargs.items() if name != "out"}
    np.testing.assert_array_equal(found, getattr(gpuopt, op)(*args, backend="cpu", **plain))
    assert "out" not in kwargs or found is kwargs["out"]


@pytest.mark.parametrize(
    ("op", "args", "kwargs", "free"),
    [
        ("reduce", (numbers(12000),), {}, 120_000),  # 40 %
        ("mean_matvec", (numbers((30, 40, 50)), numbers((40, 40))), {}, 100_000),
        ("max_pool1d", (numbers((30, 4, 200)), 2), {"return_indices": True}, 100_000),
        ("max_pool1d", (numbers((1, 1, 24000)), 2), {}, 100_000),  # one long step
    ],
)
def test_what_fits_or_cannot_be_cut_goes_to_the_device_whole(
    op: str, args: Any, kwargs: Any, free: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = {**LARGE, "free": free}
    monkeypatch.setattr(_core, "memory_info", lambda device, backend: memory)
    monkeypatch.setitem(_stream.BLOCK, "sim", 10_000)
    assert _stream.in_blocks(op, args, kwargs, 0, backend="sim") is NotImplemented


@pytest.mark.skipif("cuda" not in BACKENDS, reason="no GPU")
def test_cuda_takes_an_array_beyond_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    stream = _stream.stream

    def seen(op: str, **options: Any) -> Any:
        calls.append(op)
        return stream(op, **options)

    x = np.ones(3 << 25, np.float32)
    monkeypatch.setattr(_stream, "stream", seen)
    assert gpuopt.reduce(x, backend="cuda") == x.size and not calls
    memory = {**LARGE, "free": x.nbytes}
    monkeypatch.setattr(_core, "memory_info", lambda device, backend: memory)
    assert gpuopt.reduce(x, backend="cuda") == x.size
    y = gpuopt.multiply(x, 3.0, backend="cuda")
    assert y.dtype == np.float32 and (y == 3).all()
    assert gpuopt.dot(x, y, backend="cuda") == 3 * x.size
    assert calls == ["reduce", "multiply", "dot"]
