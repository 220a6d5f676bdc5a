"""What only a machine with two GPUs can test: arrays on the second one, and errors across.

Collected if there are two.  Order: arrays, refusals, streams, threads, other libraries.
"""

from __future__ import annotations

import importlib.util
import threading
from typing import Any

import cases
import numpy as np
import pytest

import gpuopt

N = (1 << 20) + 3
FIRST, SECOND = 0, 1


def have(*names: str) -> list[str]:
    return [name for name in names if importlib.util.find_spec(name)]


def some(n: int = N, dtype: str = "float32") -> Any:
    return np.random.default_rng(n).integers(-50, 50, n).astype(dtype)


def on(device: int, x: Any) -> Any:
    return gpuopt.asdevice(x, device=device)


# ---- arrays ----


@pytest.mark.parametrize("op", gpuopt.ops())
def test_an_operator_stays_on_the_second_device(op: str) -> None:
    """The same bits as on the first, interleaved: workspaces belong to a device."""
    args, options, want = cases.ENTRIES[op].valid()
    results = []
    for device in (SECOND, FIRST, SECOND):
        there = [on(device, a) if isinstance(a, np.ndarray) else a for a in args]
        got = getattr(gpuopt, op)(*there, **options)
        parts = got if isinstance(got, tuple) else (got,)
        assert all(p.device == device for p in parts if isinstance(p, gpuopt.DeviceArray))
        results.append([np.asarray(p.numpy() if hasattr(p, "numpy") else p) for p in parts])
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a, b)
    first = want[0] if isinstance(want, tuple) else want
    np.testing.assert_allclose(results[0][0], np.asarray(first), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("n", [0, 1, N, 5 * N])
def test_copies_between_devices(n: int) -> None:
    x = some(n)
    there = on(SECOND, on(FIRST, x))
    assert there.device == SECOND
    np.testing.assert_array_equal(there.numpy(), x)
    back = on(FIRST, there[::-1])
    assert back.device == FIRST
    np.testing.assert_array_equal(back.numpy(), x[::-1])


def test_each_device_says_what_it_has() -> None:
    """Other processes may take memory meanwhile, so that no amount is certain."""
    for device in (FIRST, SECOND):
        gpuopt.empty_cache(device)
        gpuopt.synchronize(device)
        memory = gpuopt.memory_info(device)
        assert 0 < memory["free"] <= memory["total"]


# ---- refusals ----


def test_arrays_on_two_devices_are_refused() -> None:
    x, y = on(FIRST, some()), on(SECOND, some())
    with pytest.raises(TypeError, match=r"different devices: cuda:0 and cuda:1; move them"):
        gpuopt.add(x, y)
    with pytest.raises(TypeError, match="different devices"):
        gpuopt.add(x, x, out=y)
    np.testing.assert_array_equal(y.numpy(), some())
    np.testing.assert_array_equal(gpuopt.add(x, on(FIRST, y)).numpy(), 2 * some())


def test_a_device_that_is_not_there() -> None:
    for device in (gpuopt.device_count(), 99, -1):
        for call in (gpuopt.memory_info, gpuopt.synchronize, lambda d: on(d, some(5))):
            with pytest.raises(ValueError, match="device"):
                call(device)
    assert gpuopt.reduce(on(SECOND, some(5))).item() == some(5).sum()


# ---- streams ----


def test_a_stream_of_the_other_device_is_refused() -> None:
    x = on(SECOND, some())
    stream = gpuopt.Stream(FIRST)
    with pytest.raises(ValueError, match="the stream belongs to cuda:0, the arrays"):
        gpuopt.reduce(x, stream=stream)
    own = gpuopt.Stream(SECOND)
    assert own.device == SECOND
    assert gpuopt.reduce(x, stream=own).item() == some().sum()


def test_work_on_two_streams_is_ordered() -> None:
    """A result on a stream of the second device is read from its default stream."""
    x, stream = on(SECOND, some(5 * N)), gpuopt.Stream(SECOND)
    for _ in range(50):
        y = gpuopt.add(x, x, stream=stream)
        np.testing.assert_array_equal(gpuopt.add(y, y).numpy(), 4 * some(5 * N))


# ---- threads ----


@pytest.mark.parametrize("op", ["reduce", "scan", "index_add"])
def test_threads_on_two_devices(op: str) -> None:
    args, options, _ = cases.ENTRIES[op].valid()
    wrong: list[str] = []

    def work(device: int) -> None:
        there = [on(device, a) if isinstance(a, np.ndarray) else a for a in args]
        first = np.asarray(getattr(gpuopt, op)(*there, **options).numpy())
        for _ in range(200):
            got = getattr(gpuopt, op)(*there, **options)
            if got.device != device or not np.array_equal(got.numpy(), first):
                wrong.append(f"device {device}")

    threads = [threading.Thread(target=work, args=(d,)) for d in (FIRST, SECOND) * 2]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


# ---- other libraries ----


@pytest.mark.parametrize("name", have("torch"))
def test_torch_tensors_stay_where_they_are(name: str) -> None:
    torch = pytest.importorskip(name)
    x = torch.arange(N, device="cuda:1")
    assert torch.cuda.current_device() == FIRST
    y = gpuopt.scan(x)
    assert y.device == torch.device("cuda:1")
    assert torch.equal(y, x.cumsum(0))
    assert torch.cuda.current_device() == FIRST
    with pytest.raises(TypeError, match="different devices"):
        gpuopt.add(x, x.to("cuda:0"))
    with torch.cuda.device(SECOND):
        assert gpuopt.reduce(x.to("cuda:0")).device == torch.device("cuda:0")
        assert torch.cuda.current_device() == SECOND


@pytest.mark.parametrize("name", have("cupy"))
def test_cupy_arrays_stay_where_they_are(name: str) -> None:
    cupy = pytest.importorskip(name)
    with cupy.cuda.Device(SECOND):
        x = cupy.arange(N)
    y = gpuopt.scan(x)
    assert y.device.id == SECOND
    with cupy.cuda.Device(SECOND):
        assert bool((y == cupy.cumsum(x)).all())
    assert cupy.cuda.Device().id == FIRST
