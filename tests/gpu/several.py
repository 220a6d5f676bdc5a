"""How two and more GPUs share a run: Dask with a worker for each, one convolution whose
steps are spread over ranks, copies from one to another.

Prints one JSON object; times in ms, the least of several.  Usage: several.py [LOG2_N
[PART...]] (elements of the Dask arrays, 32 without one; all parts without one); needs
gpuopt's extra `dask`, CuPy and torch.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import gpuopt
from gpuopt.lab.run import commit, device_name

REPEATS = 5
BLOCKS = (1 << 28, 1 << 30)  # elements of a Dask block: 1 and 4 GiB of float32
STEPS, TAPS, BATCH, CHANNELS = 1 << 20, 4, 4, 256


def best(call: Callable[[], Any]) -> float:
    call()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - start))
    return min(times)


# ---- copies ----


def copies(gpus: int) -> dict[str, Any]:
    """GB/s from the first GPU to each other one, and what torch's copy reaches."""
    import torch

    x = gpuopt.asdevice(np.zeros(1 << 28, np.float32))
    theirs = torch.zeros(1 << 28, device="cuda:0")
    rates = {}
    for device in range(1, gpus):
        there = torch.empty(1 << 28, device=f"cuda:{device}")

        def ours(device: int = device) -> None:
            gpuopt.asdevice(x, device=device)
            gpuopt.synchronize(device)
            gpuopt.synchronize(0)

        def peer(device: int = device, there: Any = there) -> None:
            there.copy_(theirs)
            torch.cuda.synchronize(device)
            torch.cuda.synchronize(0)

        rates[f"0 to {device}"] = {
            "gpuopt": round(x.nbytes / best(ours) / 1e6, 1),
            "torch": round(x.nbytes / best(peer) / 1e6, 1),
        }
    return rates


# ---- Dask ----


def block(index: int, n: int) -> Any:
    import cupy

    return (cupy.arange(n, dtype=cupy.uint32) * 2654435761 >> 20).astype(cupy.float32) - index


def array(n: int, length: int) -> Any:
    import cupy
    import dask
    import dask.array as da

    parts = [
        da.from_delayed(
            dask.delayed(block, pure=True)(k, length), (length,), "float32",
            meta=cupy.empty(0, cupy.float32),
        )
        for k in range(n // length)
    ]  # fmt: skip
    return da.concatenate(parts)


@contextlib.contextmanager
def client_of(gpus: Sequence[int]) -> Iterator[Any]:
    """A client of one worker process for each entry, which sees that GPU alone."""
    import distributed

    logging.getLogger("distributed").setLevel(logging.ERROR)
    workers = [
        {
            "cls": distributed.Nanny,
            "options": {
                "nthreads": 1,
                "memory_limit": 0,  # blocks are on the GPU: else they count as the host's
                "host": "127.0.0.1",
                "env": {"CUDA_VISIBLE_DEVICES": str(k)},
            },
        }
        for k in gpus
    ]
    with (
        distributed.SpecCluster(
            workers=dict(enumerate(workers)),
            scheduler={
                "cls": distributed.Scheduler,
                "options": {"host": "127.0.0.1", "dashboard": False},
            },
        ) as spec,
        distributed.Client(spec) as client,
    ):
        client.wait_for_workers(len(gpus))
        yield client


def dask_times(gpus: int, n: int, length: int) -> dict[str, Any]:
    """Times of operators on an array that lies in the workers' memory, and the results."""
    import distributed

    import gpuopt.dask as gd

    with client_of(range(gpus)) as client:
        x = client.persist(array(n, length))
        distributed.wait(x)
        bits = tuple(range(0, 20, 2))
        calls = {
            "reduce": lambda: gd.reduce(x),
            "partition_reduce": lambda: gd.partition_reduce(x, bits),
            "scan": lambda: gd.scan(x),
        }
        found: dict[str, Any] = {}
        for name, call in calls.items():
            results = []

            def run(call: Callable[[], Any] = call, results: list[Any] = results) -> None:
                """Computes every block of the result; keeps the bits of its end."""
                y = client.persist(call())
                distributed.wait(y)
                end = client.compute(y if y.ndim == 0 else y[-16:]).result()
                results.append(np.asarray(end.get() if hasattr(end, "get") else end).tobytes())

            found[name] = {
                "ms": round(best(run), 2),
                "bits": sorted(set(results))[0].hex()[:64],
            }
            assert len(set(results)) == 1, f"{name} gave two results"
        return found


def dying(x: Any, marker: Path) -> Any:
    """The block `x`; the first worker that is asked for it dies instead."""
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return x
    os._exit(1)


def dead_worker(gpus: int) -> dict[str, Any]:
    """Whether operators give the same bits when a worker dies while it computes a block.

    Two workers, which share the GPU of a machine that has one.
    """
    import gpuopt.dask as gd

    calls: dict[str, Callable[[Any], Any]] = {
        "reduce": lambda x: gd.reduce(x, "sum"),
        "partition_reduce": lambda x: gd.partition_reduce(x, (0, 3, 7)),
        "scan": lambda x: gd.scan(x)[-16:],
    }
    found: dict[str, Any] = {"workers": [0, min(1, gpus - 1)]}
    x = array(1 << 26, 1 << 23)
    for name, call in calls.items():
        want = call(x).compute(scheduler="synchronous")
        with tempfile.TemporaryDirectory() as folder:
            marker = Path(folder) / "dead"
            with client_of(found["workers"]) as client:
                y = call(x.map_blocks(dying, marker, dtype=x.dtype, meta=x._meta))
                got = client.compute(y).result(timeout=120)
            assert marker.exists(), f"{name}: no worker died"
        found[name] = "same bits" if got.tobytes() == want.tobytes() else "OTHER BITS"
    return found


# ---- a convolution over ranks ----


def rank_of(rank: int, ranks: int, port: int, queue: Any) -> None:
    import torch
    import torch.distributed as dist

    import gpuopt.torch as gt
    from gpuopt.torch import parallel

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), NCCL_NVLS_ENABLE="0")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=ranks)
    device = torch.device("cuda", rank)
    times = {}
    for taps, name in ((TAPS, "4 taps"), (1 << 16, "65536 taps")):
        channels = CHANNELS if taps == TAPS else 16
        torch.manual_seed(0)
        whole = torch.randn(BATCH, channels, STEPS, device=device)
        w = torch.randn(channels, taps, device=device) / taps
        part = whole.chunk(ranks, dim=2)[rank].contiguous().requires_grad_()
        want = gt.causal_conv1d(whole, w, activation="silu") if taps == TAPS else None

        def step(part: Any = part, w: Any = w, activation: Any = None) -> Any:
            y = parallel.causal_conv1d(part, w, activation=activation, check=False)
            y.backward(y.detach())
            torch.cuda.synchronize()
            return y

        activation = "silu" if taps == TAPS else None
        ms = best(lambda step=step, activation=activation: step(activation=activation))
        y = step(activation=activation)
        if want is not None:
            torch.testing.assert_close(y, want.chunk(ranks, dim=2)[rank], rtol=1e-4, atol=1e-5)
        times[name] = round(ms, 3)
        del whole, part, want, y
        torch.cuda.empty_cache()
    if rank == 0:
        queue.put(times)
    dist.destroy_process_group()


def convolution(ranks: int) -> Any:
    """ms of forward and backward, T = 2^20, on one rank and on all."""
    import torch.multiprocessing as mp

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = mp.get_context("spawn")
    queue = context.SimpleQueue()
    mp.spawn(rank_of, (ranks, port, queue), nprocs=ranks)
    return queue.get()


def main() -> None:
    gpus = gpuopt.device_count()
    n = 1 << int((*sys.argv[1:], "32")[0])
    counts = [k for k in (1, 2, 4, 8) if k <= gpus]
    parts: dict[str, Callable[[], Any]] = {
        "copies in GB/s": lambda: copies(gpus),
        "dead worker": lambda: dead_worker(gpus),
        "dask": lambda: {
            f"blocks of {length}": {str(k): dask_times(k, n, length) for k in counts}
            for length in BLOCKS
        },
        "causal_conv1d forward and backward in ms": lambda: {
            str(k): convolution(k) for k in counts
        },
    }
    found: dict[str, Any] = {
        "device": device_name("cuda"), "commit": commit(), "gpus": gpus, "elements": n,
    }  # fmt: skip
    for name in sys.argv[2:] or parts:
        found[name] = parts[name]()
        print(name, found[name], file=sys.stderr, flush=True)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
