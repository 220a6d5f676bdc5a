"""What only a GPU can test: copies, order between streams, other libraries, broken contexts.

Collected if there is a GPU.  Order: copies, streams, determinism, torch, CuPy, JAX, other
producers, memory, processes.  A library that is not installed has no cases here.
"""

from __future__ import annotations

import importlib.util
import threading
import time
import warnings
from typing import Any

import numpy as np
import pytest
from conftest import Child, Figure, run_child

import gpuopt

N = (1 << 22) + 3


def have(*names: str) -> list[str]:
    return [name for name in names if importlib.util.find_spec(name)]


TORCH = pytest.mark.parametrize("torch", have("torch"), indirect=True)
CUPY = pytest.mark.parametrize("cupy", have("cupy"), indirect=True)
JAX = pytest.mark.parametrize("jax", have("jax"), indirect=True)


@pytest.fixture
def torch(request: pytest.FixtureRequest) -> Any:
    return pytest.importorskip(request.param)


@pytest.fixture
def cupy(request: pytest.FixtureRequest) -> Any:
    return pytest.importorskip(request.param)


@pytest.fixture
def jax(request: pytest.FixtureRequest) -> Any:
    return pytest.importorskip(request.param)


def some(shape: int | tuple[int, ...], dtype: str = "float32") -> Any:
    return np.random.default_rng(0).integers(0, 100, shape).astype(dtype)


# ---- copies ----


@pytest.mark.parametrize("size", [0, 1, 1000, (1 << 20) - 1, 1 << 20, N, 3 * N])
def test_round_trip(size: int) -> None:
    """4 MiB and more are copied through the ring of pinned buffers."""
    x = some(size)
    d = gpuopt.asdevice(x)
    np.testing.assert_array_equal(d.numpy(), x)
    np.testing.assert_array_equal(d[::-3].numpy(), x[::-3])


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "float64", "complex64"])
def test_results_on_device_and_from_host_agree(dtype: str) -> None:
    x = some((64, 1000), dtype)
    d = gpuopt.asdevice(x)
    for view in (np.s_[:], np.s_[::2, ::-3]):
        for axis in (None, 0, 1):
            got = gpuopt.reduce(d[view], axis=axis)
            assert got.backend == "cuda"
            want = gpuopt.reduce(np.ascontiguousarray(x[view]), axis=axis, backend="cuda")
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-3)


def test_pinned_arrays_go_straight() -> None:
    x = gpuopt.empty_pinned((N,), "float32")
    assert type(x) is np.ndarray and x.flags.c_contiguous and x.flags.writeable
    x[:] = some(N)
    np.testing.assert_array_equal(gpuopt.asdevice(x).numpy(), x)
    assert gpuopt.reduce(x, backend="cuda") == gpuopt.reduce(x.copy(), backend="cuda")


def test_without_pinned_memory_it_warns_and_works(child: Child) -> None:
    child("""
import resource
import warnings
import numpy as np
import gpuopt
x = np.ones(1 << 21, np.float32)
gpuopt.reduce(x[:1], backend="cuda")
with open("/proc/self/statm") as f:
    mapped = int(f.read().split()[0]) * resource.getpagesize()
before = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (mapped + (4 << 20), before[1]))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    assert gpuopt.reduce(x, backend="cuda") == 1 << 21
assert [w.category for w in caught] == [gpuopt.PerformanceWarning]
assert gpuopt.last_call()["pageable"]
resource.setrlimit(resource.RLIMIT_AS, before)
assert gpuopt.reduce(x, backend="cuda") == 1 << 21
assert not gpuopt.last_call()["pageable"]
""")


def test_bus_speed(figure: Figure) -> None:
    """A figure for the summary, not a condition: it depends on the machine's load."""
    x = np.ones(1 << 28, np.float32)
    gpuopt.reduce(x, backend="cuda")
    before = gpuopt.measure_calls(True)
    try:
        start = time.perf_counter()
        assert gpuopt.reduce(x, backend="cuda") == 1 << 28
        whole = time.perf_counter() - start
        last = gpuopt.last_call()
    finally:
        gpuopt.measure_calls(before)
    assert last is not None
    figure(
        "1 GiB from host memory",
        f"{x.nbytes / whole / 1e9:.1f} GB/s in all, copy "
        f"{x.nbytes / last['upload_ms'] / 1e6:.1f} GB/s, kernel {last['kernel_ms']:.3f} ms",
    )


# ---- streams ----


def test_calls_do_not_wait(child: Child) -> None:
    """The stream waits for a word that the host writes after all calls have returned.

    A call that waits for its result would hang.
    """
    child("""
import ctypes
import numpy as np
import gpuopt
d = gpuopt.asdevice(np.ones(1 << 20, np.float32))
gpuopt.reduce(d, variant="v0")
gpuopt.synchronize()
driver = ctypes.CDLL("libcuda.so.1")
word = gpuopt.empty_pinned(1, np.uint32)
word[0] = 0
address, geq = ctypes.c_uint64(word.ctypes.data), ctypes.c_uint(0)
with gpuopt.Stream() as s, gpuopt.Event() as done:
    stream = ctypes.c_void_p(s.handle)
    assert driver.cuStreamWaitValue32_v2(stream, address, ctypes.c_uint32(1), geq) == 0
    for _ in range(20):
        last = gpuopt.reduce(d, variant="v0", stream=s)
    done.record(s)
    assert not done.done
    word[0] = 1
    assert last.numpy() == 1 << 20
    done.synchronize()
    assert done.done
""")


@pytest.mark.parametrize("swap", [False, True])
def test_streams_are_ordered_by_events(swap: bool) -> None:
    """A producer that is busy for a while, and an immediate reader on another stream."""
    streams = [gpuopt.Stream(), gpuopt.Stream(priority=-1)]
    producer, consumer = streams[::-1] if swap else streams
    x = gpuopt.asdevice(np.ones((1 << 12, 1 << 14), np.float32), stream=producer)
    busy = gpuopt.asdevice(np.ones(1 << 27, np.float32), stream=producer)
    for _ in range(20):
        gpuopt.reduce(busy, variant="v0", stream=producer)
    rows = gpuopt.reduce(x, axis=1, stream=producer)
    total = gpuopt.reduce(rows, stream=consumer)
    assert total.stream == consumer.handle
    assert total.numpy() == 1 << 26


def test_elapsed_time_of_events() -> None:
    d = gpuopt.asdevice(np.ones(1 << 26, np.float32))
    with gpuopt.Stream() as s, gpuopt.Event() as first, gpuopt.Event() as last:
        first.record()
        assert gpuopt.reduce(d).stream == s.handle
        last.record()
        assert first.elapsed(last) > 0


# ---- determinism ----


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_same_bits_in_100_runs(axis: int | None) -> None:
    x = np.random.default_rng(1).standard_normal((1 << 10, 1 << 12)).astype(np.float32)
    d = gpuopt.asdevice(x)
    bits = {gpuopt.reduce(d, axis=axis).numpy().tobytes() for _ in range(100)}
    assert len(bits) == 1


def test_same_bits_on_two_streams_at_once() -> None:
    """The last block of v9 finds its own stream's counters, not the other one's."""
    x = np.random.default_rng(1).standard_normal(1 << 24).astype(np.float32)
    d = gpuopt.asdevice(x)
    want = gpuopt.reduce(d).numpy().tobytes()
    gpuopt.synchronize()
    streams = [gpuopt.Stream(), gpuopt.Stream()]
    results = [gpuopt.reduce(d, stream=streams[i % 2]) for i in range(200)]
    assert {r.numpy().tobytes() for r in results} == {want}


def test_threads_with_their_own_streams() -> None:
    x = some((256, 4096))
    d = gpuopt.asdevice(x)
    wrong: list[int] = []

    def work() -> None:
        with gpuopt.Stream():
            for axis in (0, 1) * 10:
                if not np.array_equal(gpuopt.reduce(d, axis=axis).numpy(), x.sum(axis)):
                    wrong.append(axis)

    workers = [threading.Thread(target=work) for _ in range(8)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert wrong == []


# ---- torch ----


@TORCH
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int64", "bool"])
def test_torch_round_trip(torch: Any, dtype: str) -> None:
    x = torch.randint(0, 2, (30, 50), device="cuda").to(getattr(torch, dtype))
    for view in (x, x.T, x[::2, 1::3], x[:0]):
        got = gpuopt.reduce(view, "max" if view.numel() and dtype != "bool" else "any", axis=1)
        assert isinstance(got, torch.Tensor) and got.device == x.device
        want = view.amax(1) if got.dtype != torch.bool else view.any(1)
        assert torch.equal(got, want)
    total = gpuopt.reduce(x.float())
    assert total.shape == () and total.item() == x.float().sum().item()
    out = torch.empty(30, device="cuda")
    assert gpuopt.reduce(x.float(), axis=1, out=out) is out
    assert torch.equal(out, x.float().sum(1))


@TORCH
@pytest.mark.parametrize("swap", [False, True])
def test_torch_streams(torch: Any, swap: bool) -> None:
    """A producer that spins for 50 ms or more, then an immediate reader: in both directions."""
    x = torch.zeros(1 << 20, device="cuda")
    ours = gpuopt.Stream()
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(200_000_000)
        x += 1
        if swap:
            total = gpuopt.reduce(x, stream=ours)
            x += 1  # after our read, though it is on another stream
        else:
            total = gpuopt.reduce(x)
        answer = (total + 0).item()  # waits for the side stream, which waited for ours
    assert answer == 1 << 20
    d = gpuopt.asdevice(np.ones(1 << 26, np.float32), stream=ours)
    for _ in range(20):
        r = gpuopt.reduce(d, variant="v0", stream=ours)
    assert torch.from_dlpack(r).item() == 1 << 26


@TORCH
def test_a_device_array_is_torchs(torch: Any) -> None:
    x = some((5, 6))
    d = gpuopt.asdevice(x)
    t = torch.from_dlpack(d)
    assert t.data_ptr() == d.__cuda_array_interface__["data"][0]
    t += 1
    torch.cuda.synchronize()
    np.testing.assert_array_equal(d.numpy(), x + 1)
    with pytest.raises(BufferError, match="another library uses its memory"):
        d.free()
    assert torch.equal(torch.as_tensor(d[:, ::2], device="cuda"), t[:, ::2])
    shared = gpuopt.asdevice(t)
    assert shared.__cuda_array_interface__["data"] == d.__cuda_array_interface__["data"]
    with pytest.raises(TypeError, match=r"different libraries|is on cuda:0"):
        gpuopt.reduce(np.ones(3, np.float32), out=t[0, 0])
    del t, shared
    d.free()


@TORCH
def test_a_graph_replays_a_number(torch: Any) -> None:
    """A number is passed in the arguments of a launch."""
    x = torch.arange(1000, dtype=torch.float32, device="cuda")
    gpuopt.multiply(x, 2.5)  # one-time allocations happen before the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = gpuopt.multiply(x, 2.5)
    assert type(y) is torch.Tensor
    x += 1
    graph.replay()
    torch.testing.assert_close(y, x * 2.5)


@TORCH
def test_a_call_that_waits_is_refused_under_capture(torch: Any) -> None:
    x = torch.ones(1000, device="cuda")
    index = torch.arange(1000, device="cuda") % 10
    into = torch.zeros(10, device="cuda")
    gpuopt.index_add(into, index, x, mode="clip")
    graph = torch.cuda.CUDAGraph()
    refused = pytest.raises(gpuopt.CudaError, match="under capture")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch: the graph is empty
        with refused, torch.cuda.graph(graph):
            gpuopt.index_add(into, index, x)
    torch.cuda.synchronize()
    torch.testing.assert_close(
        gpuopt.index_add(into, index, x), torch.full((10,), 100.0).cuda()
    )


@TORCH
def test_results_into_an_input(torch: Any) -> None:
    x = torch.arange(12, dtype=torch.float32, device="cuda").reshape(3, 4)
    want = x + 1
    assert gpuopt.add(x, 1, out=x) is x
    torch.testing.assert_close(x, want)
    into = torch.zeros(4, device="cuda")
    index = torch.tensor([0, -1, 3], device="cuda")
    assert gpuopt.index_add(into, index, torch.ones(3, device="cuda"), out=into) is into
    assert into.tolist() == [1, 0, 0, 2]


# ---- CuPy ----


@CUPY
def test_cupy_round_trip(cupy: Any) -> None:
    x = cupy.arange(1500, dtype=cupy.float32).reshape(30, 50)
    for view in (x, x.T, x[::2, ::-3]):
        got = gpuopt.reduce(view, axis=1)
        assert type(got) is cupy.ndarray
        cupy.testing.assert_array_equal(got, view.sum(1))
    assert gpuopt.reduce(x).shape == ()
    out = cupy.empty(30, cupy.float32)
    assert gpuopt.reduce(x, axis=1, out=out) is out
    cupy.testing.assert_array_equal(cupy.from_dlpack(gpuopt.asdevice(x)), x)


@CUPY
def test_results_outlive_their_stream(cupy: Any) -> None:
    """Memory is freed in stream order, so the stream must still exist."""
    x = cupy.ones(1 << 20, cupy.float32)
    cupy.cuda.Device().synchronize()
    for _ in range(50):
        with cupy.cuda.Stream(non_blocking=True) as side:
            total = gpuopt.reduce(x)
            shared = gpuopt.asdevice(x)
            ours = gpuopt.reduce(x, stream=gpuopt.Stream())
            side.synchronize()
        del side
        assert total.item() == ours.item() == 1 << 20
        assert gpuopt.reduce(shared).numpy() == 1 << 20
        del total, ours, shared


@CUPY
def test_cupy_streams(cupy: Any) -> None:
    x = cupy.zeros(1 << 20, cupy.float32)
    spin = cupy.RawKernel(
        'extern "C" __global__ void spin() {'
        " long long t = clock64(); while (clock64() - t < 200000000) {} }",
        "spin",
    )
    cupy.cuda.Device().synchronize()
    with cupy.cuda.Stream(non_blocking=True) as side:
        spin((1,), (1,), ())
        x += 1
        total = gpuopt.reduce(x)
        assert total.item() == 1 << 20
        spin((1,), (1,), ())
        x += 1
        ours = gpuopt.reduce(x, stream=gpuopt.Stream())
        x += 1
        assert ours.item() == 2 << 20
        side.synchronize()


# ---- JAX ----


@JAX
def test_jax_round_trip(jax: Any) -> None:
    gpus = [d for d in jax.devices() if d.platform in ("gpu", "cuda")]
    if not gpus:  # an installation for the CPU alone
        return
    x = jax.device_put(some((30, 50)), gpus[0])
    for _ in range(50):
        y = (x * 2 + 1).sum(axis=0)
        got = gpuopt.reduce(y)
        del y  # the kernel may not have run yet
        assert isinstance(got, jax.Array)
        assert float(got) == (some((30, 50)) * 2 + 1).sum()
    with pytest.raises(ValueError, match="read-only"):
        gpuopt.reduce(x, axis=1, out=x[:, 0])


# ---- other producers ----


class Interface:
    """An array that has the CUDA array interface alone."""

    def __init__(self, d: gpuopt.DeviceArray, **changes: Any) -> None:
        self.keep = d
        self.__cuda_array_interface__ = {**d.__cuda_array_interface__, **changes}


# The protocol is looked up on the type, as for the arrays of Numba and Warp.
class Described(Interface):
    __cuda_array_interface__: Any = None


def test_the_cuda_array_interface_alone() -> None:
    x = some((6, 8))
    d = gpuopt.asdevice(x)
    for view in (d, d[::2, ::-1], d[:0]):
        got = gpuopt.reduce(Described(view), axis=1)
        assert type(got) is gpuopt.DeviceArray
        np.testing.assert_array_equal(got.numpy(), view.numpy().sum(1))
    assert gpuopt.reduce(Described(d, stream=None)).numpy() == x.sum()
    shared = gpuopt.asdevice(Described(d))
    assert shared.shape == d.shape
    for changes, error in (
        ({"mask": d}, TypeError),
        ({"stream": 0}, ValueError),
        ({"typestr": "<U1"}, TypeError),
        ({"strides": (3,)}, ValueError),
        ({"data": (x.ctypes.data, False)}, (TypeError, gpuopt.CudaError)),
    ):
        with pytest.raises(error):
            gpuopt.reduce(Described(d, **changes))
    with pytest.raises(ValueError, match="read-only"):
        out = Described(gpuopt.asdevice(np.float32(0)))
        out.__cuda_array_interface__["data"] = (
            out.__cuda_array_interface__["data"][0],
            True,
        )
        gpuopt.reduce(Described(d), out=out)


# ---- memory ----


def test_memory_figures() -> None:
    before = gpuopt.memory_info()
    d = gpuopt.asdevice(np.ones(1 << 26, np.float32))
    gpuopt.synchronize()
    assert gpuopt.memory_info()["free"] <= before["free"]
    d.free()
    gpuopt.synchronize()
    assert gpuopt.memory_info()["pool"] >= 1 << 28
    gpuopt.empty_cache()
    after = gpuopt.memory_info()
    assert after["pool"] < 1 << 28
    assert after["free"] > before["free"] - (64 << 20)


def test_out_of_memory_is_recovered() -> None:
    info = gpuopt.memory_info()
    small = gpuopt.asdevice(np.ones(1000, np.float32))
    kept = []
    with pytest.raises(gpuopt.OutOfMemoryError) as caught:
        chunk = np.empty(1 << 33, np.uint8)  # untouched pages read as zeros
        for _ in range(info["total"] // chunk.nbytes + 2):
            kept.append(gpuopt.asdevice(chunk))
    error: Any = caught.value
    assert error.requested == 1 << 33
    assert error.free < error.requested <= error.total
    assert gpuopt.reduce(small).numpy() == 1000
    del kept, caught, error
    gpuopt.empty_cache()
    assert gpuopt.reduce(small).numpy() == 1000


def test_no_leak_in_10000_calls() -> None:
    d = gpuopt.asdevice(some((16, 64)))
    for _ in range(100):
        gpuopt.reduce(d, axis=1)
    gpuopt.synchronize()
    gpuopt.empty_cache()
    before = gpuopt.memory_info()
    for _ in range(10_000):
        gpuopt.reduce(d, axis=1)
    gpuopt.synchronize()
    gpuopt.empty_cache()
    assert gpuopt.memory_info()["free"] >= before["free"] - (4 << 20)


@pytest.mark.parametrize("device", range(1, gpuopt.device_count()))
def test_other_devices(device: int) -> None:
    x = some((10, 20))
    d = gpuopt.asdevice(x, device=device)
    first = gpuopt.asdevice(x)
    got = gpuopt.reduce(d, axis=1)
    assert (got.device, first.device) == (device, 0)
    np.testing.assert_array_equal(got.numpy(), x.sum(1))
    np.testing.assert_array_equal(gpuopt.reduce(first, axis=1).numpy(), x.sum(1))
    with pytest.raises(TypeError, match=rf"different devices: cuda:{device} and cuda:0"):
        gpuopt.reduce(d, axis=1, out=gpuopt.asdevice(np.zeros(10, np.float32)))
    stream = gpuopt.Stream()
    with pytest.raises(ValueError, match="the stream belongs to cuda:0"):
        gpuopt.reduce(d, stream=stream)
    with pytest.raises(ValueError, match="the stream belongs to device 0"):
        gpuopt.reduce(d, stream=stream.handle)


# ---- processes ----


def test_import_makes_no_cuda_call(child: Child) -> None:
    child("""
import os
import gpuopt
if os.fork() == 0:
    os._exit(0 if gpuopt.reduce(gpuopt.asdevice([1.0, 2.0])).numpy() == 3 else 1)
assert os.wait()[1] == 0
""")


def test_a_fork_after_cuda_raises_in_the_child_alone(child: Child) -> None:
    child("""
import os
import numpy as np
import gpuopt
d = gpuopt.asdevice(np.ones(10, np.float32))
for _ in range(5):
    if os.fork() == 0:
        status = 0
        for call in (lambda: gpuopt.reduce(d), d.numpy, lambda: gpuopt.asdevice([1])):
            try:
                call()
                status = 1
            except gpuopt.CudaError as error:
                status |= "forked" not in str(error)
        status |= bool(gpuopt.reduce([1.0, 2.0], backend="cpu") != 3)
        del d
        os._exit(status)
    assert os.wait()[1] == 0
    assert gpuopt.reduce(d).numpy() == 10
""")


def test_a_dead_context_is_named() -> None:
    code = """
import numpy as np
import gpuopt
d = gpuopt.asdevice(np.ones(10, np.float32))
assert gpuopt.reduce(d).numpy() == 10
class Freed:  # claims more memory than any GPU has
    __cuda_array_interface__ = {
        "shape": (1 << 38,), "typestr": "|u1", "version": 3,
        "data": (d.__cuda_array_interface__["data"][0], True),
    }
messages = []
for call in (
    lambda: gpuopt.reduce(Freed(), op="max", variant="v4").numpy(),
    gpuopt.synchronize,
    lambda: gpuopt.reduce(d).numpy(),
    lambda: gpuopt.reduce(np.ones(10, np.float32), backend="cuda"),
    lambda: gpuopt.asdevice([1]),
):
    try:
        call()
    except gpuopt.ContextDeadError as error:
        messages.append(str(error))
assert len(messages) >= 4, messages
assert all("reduce_v4_last_warp" in m for m in messages), messages
assert gpuopt.reduce(np.ones(10, np.float32), backend="cpu") == 10
"""
    done = run_child("-W", "error", "-c", code)
    assert done.returncode == 0, done.stdout + done.stderr
    blocking = run_child("-W", "error", "-c", code, env={"GPUOPT_BLOCKING": "1"})
    assert blocking.returncode == 0, blocking.stdout + blocking.stderr


def test_exit_with_live_arrays(child: Child) -> None:
    for _ in range(10):
        child("""
import sys
import numpy as np
import gpuopt
kept = [gpuopt.asdevice(np.ones(1000, np.float32)) for _ in range(3)]
kept.append(gpuopt.Stream())
kept.append(gpuopt.reduce(kept[0], stream=kept[-1]))
kept.append(gpuopt.empty_pinned(1000))
kept[-2].numpy()
sys.modules["mine"] = kept
kept.append(kept)
""")
