"""What every operator guarantees its caller, whatever it computes.

Order: arguments, errors, ownership (references, inputs, leaks), results and out=, threads
and the GIL, processes, introspection, settings, why there is no GPU, failed allocations.
The tests read the registry and cases/.  See test_contract.py for the values.
"""

from __future__ import annotations

import contextlib
import gc
import inspect
import os
import pickle
import pydoc
import re
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import ENTRIES, Error, assert_same, dtype_of, each, like
from conftest import ROOT, Child, Figure, run_child

import gpuopt
from gpuopt import _core

OPS = _core.ops()
DESCRIBED = {op: _core.describe(op) for op in OPS}
ERRORS = [(op, error) for op in OPS for error in ENTRIES[op].errors()]
each_op = pytest.mark.parametrize("op", OPS)
# Functions of a room with the same signature share all code but a row of a table.  For
# processes, threads and failed allocations the first of them stands for all.
KINDS = {
    (told["room"], told["signature"].partition("(")[2]): op
    for op, told in reversed(DESCRIBED.items())
}.values()
each_kind = pytest.mark.parametrize("op", KINDS)
each_error = pytest.mark.parametrize(
    ("op", "error"), ERRORS, ids=[f"{op}-{error.name}" for op, error in ERRORS]
)


def call_valid(op: str) -> None:
    """The entry's valid call returns its result."""
    args, kwargs, want = ENTRIES[op].valid()
    got = getattr(gpuopt, op)(*args, **kwargs)
    assert_same(got, want)


# ---- arguments ----


@each_op
def test_every_argument_by_position_and_by_keyword(op: str) -> None:
    call = getattr(gpuopt, op)
    args, kwargs, want = ENTRIES[op].valid()
    described = _core.describe(op)["args"]
    given = {**dict(zip([a["name"] for a in described], args, strict=False)), **kwargs}
    signature = inspect.signature(call)
    full = {
        name: given.get(name, parameter.default)
        for name, parameter in signature.parameters.items()
    }
    assert all(value is not inspect.Parameter.empty for value in full.values())
    positional = [
        name
        for name, parameter in signature.parameters.items()
        if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    ]
    assert positional == [a["name"] for a in described if not a["named"]] + ["out"]
    assert_same(call(**full), want)
    for n in range(len(positional) + 1):
        front = [full[name] for name in positional[:n]]
        back = {name: value for name, value in full.items() if name not in positional[:n]}
        assert_same(call(*front, **back), want)
    # Keywords that are not interned, in another order, from a mapping.
    back = {"".join(list(name)): value for name, value in reversed(full.items())}
    assert_same(call(**back), want)


@each_op
def test_wrong_calls_read_as_cpython_says(op: str) -> None:
    call = getattr(gpuopt, op)
    args, _, _ = ENTRIES[op].valid()
    described = _core.describe(op)["args"]
    first = described[0]["name"]
    limit = len(described) + 1
    for wrong, words in (
        (lambda: call(), f"missing required argument '{first}' (pos 1)"),
        (lambda: call(*args, nonsense=1), "got an unexpected keyword argument 'nonsense'"),
        (lambda: call(*args, **{"": 1}), "got an unexpected keyword argument ''"),
        (lambda: call(*args, **{"\ud800": 1}), "got an unexpected keyword argument"),
        (
            lambda: call(*args, **{first: args[0]}),
            f"got multiple values for argument '{first}'",
        ),
        (lambda: call(*[args[0]] * (limit + 1)), f"but {limit + 1} were given"),
        (lambda: call(*[args[0]] * 1000), "but 1000 were given"),
    ):
        with pytest.raises(TypeError, match=re.escape(words)) as caught:
            wrong()
        if "\ud800" not in str(caught.value):
            assert str(caught.value).startswith(f"{op}() ")
        call_valid(op)


@each_op
def test_arguments_of_every_kind_survive_strange_objects(op: str) -> None:
    """An exception raised by an argument's conversion reaches the caller."""

    class Own(Exception):
        pass

    class Raises:
        def __index__(self) -> int:
            raise Own

        def __bool__(self) -> bool:
            raise Own

        def __float__(self) -> float:
            raise Own

        def __array__(self, *args: Any, **kwargs: Any) -> Any:
            raise Own

    args, kwargs, _ = ENTRIES[op].valid()
    expected: dict[str, tuple[type[Exception], ...]] = {
        "array": (Own,),
        "bool": (Own,),
        "int": (Own,),
        "ints": (Own,),
        "float": (Own,),
        "floats": (Own,),
        "enum": (TypeError,),
        "dtype": (TypeError,),
    }
    for i, argument in enumerate(_core.describe(op)["args"]):
        if i < len(args):
            given = (*args[:i], Raises(), *args[i + 1 :])
            with pytest.raises(expected[argument["kind"]]):
                getattr(gpuopt, op)(*given, **kwargs)
        else:
            with pytest.raises(expected[argument["kind"]]):
                getattr(gpuopt, op)(*args, **{**kwargs, argument["name"]: Raises()})
        call_valid(op)


# ---- errors ----


@each_op
def test_eight_or_more_error_inputs(op: str) -> None:
    errors = ENTRIES[op].errors()
    assert len(errors) >= 8
    assert len({error.name for error in errors}) == len(errors)


@each_error
def test_error_input(op: str, error: Error) -> None:
    """Class and message; nothing written; no reference kept; the next call is correct."""
    args, kwargs = error.make()
    arrays = [a for a in (*args, *kwargs.values()) if isinstance(a, np.ndarray)]
    before = [a.tobytes() if a.size < 10**6 else b"" for a in arrays]
    counts = [sys.getrefcount(a) for a in arrays]
    with pytest.raises(error.raises, match=error.match) as caught:
        getattr(gpuopt, op)(*args, **kwargs)
    message = str(caught.value)
    assert message, "an error without a sentence"
    del caught
    gc.collect()
    assert counts == [sys.getrefcount(a) for a in arrays]
    after = [a.tobytes() if a.size < 10**6 else b"" for a in arrays]
    assert before == after
    call_valid(op)


@each_error
def test_plan_refuses_what_the_call_refuses(op: str, error: Error) -> None:
    args, kwargs = error.make()
    if "stream" in kwargs or error.name.startswith("result too large"):
        return  # checked when memory is allocated, which a plan does not do
    with pytest.raises(error.raises):
        _core.plan(op, *args, **kwargs)


# ---- ownership ----


@each_op
def test_references_and_inputs_are_as_before(op: str) -> None:
    args, kwargs, _ = ENTRIES[op].valid()
    objects = [a for a in (*args, *kwargs.values()) if isinstance(a, np.ndarray)]
    before = [x.tobytes() for x in objects]
    counts = [sys.getrefcount(x) for x in objects]
    for _ in range(100):
        getattr(gpuopt, op)(*args, **kwargs)
        _core.plan(op, *args, **kwargs)
    assert counts == [sys.getrefcount(x) for x in objects]
    assert before == [x.tobytes() for x in objects]


@each_op
def test_out_is_returned_and_owned_once(op: str) -> None:
    args, kwargs, want = ENTRIES[op].valid()
    out = like(want, np.zeros_like)
    counts = [sys.getrefcount(a) for a in each(out)]
    got = getattr(gpuopt, op)(*args, **kwargs, out=out)
    assert all(a is b for a, b in zip(each(got), each(out), strict=True))
    del got
    assert [sys.getrefcount(a) for a in each(out)] == counts
    assert_same(out, want)


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


CALLS = 10_000

# A margin for what the allocators keep; one lost object per call is 10,000 blocks and at
# least 160 kB.
LOST_BLOCKS = 500
LOST_BYTES = 4 << 20

# A leak grows in every round; what an allocator or another thread of the process keeps
# once does not.
ROUNDS = 3


def growth(action: Callable[[], None]) -> tuple[int, int]:
    """Python blocks and bytes of resident memory that 10,000 runs of `action` leave behind."""
    gc.collect()
    blocks, resident = sys.getallocatedblocks(), resident_bytes()
    for _ in range(CALLS):
        action()
    gc.collect()
    grown = resident_bytes() - resident
    return sys.getallocatedblocks() - blocks, grown


def assert_flat(action: Callable[[], None], name: str) -> int:
    """In one of ROUNDS rounds Python blocks and resident memory stay as they were."""
    for _ in range(200):
        action()
    seen = []
    for _ in range(ROUNDS):
        blocks, grown = growth(action)
        if blocks < LOST_BLOCKS and grown < LOST_BYTES:
            return grown
        seen.append(f"{blocks} blocks and {grown} bytes")
    raise AssertionError(f"{name}: in {CALLS} calls each, {', then '.join(seen)} were lost")


@each_op
def test_no_leak_in_10000_calls(op: str, figure: Figure) -> None:
    args, kwargs, want = ENTRIES[op].valid()
    call = getattr(gpuopt, op)
    out = like(want, np.zeros_like)
    grown = assert_flat(lambda: call(*args, **kwargs), op)
    grown = max(grown, assert_flat(lambda: call(*args, **kwargs, out=out), f"{op} out="))
    strided = like(want, lambda a: np.zeros((*a.shape, 2), a.dtype)[..., 0])
    assert_flat(lambda: call(*args, **kwargs, out=strided), f"{op} strided out=")
    lists = [a.tolist() if isinstance(a, np.ndarray) else a for a in args]
    assert_flat(lambda: call(*lists, **kwargs), f"{op} of lists")
    swapped = [
        a.astype(a.dtype.newbyteorder()) if isinstance(a, np.ndarray) else a for a in args
    ]
    assert_flat(lambda: call(*swapped, **kwargs), f"{op} byte-swapped")
    assert_flat(lambda: _core.plan(op, *args, **kwargs), f"plan({op})")
    figure(f"{op}: growth in {CALLS:,} calls", f"{grown} bytes")


@each_op
def test_no_leak_in_each_variant(op: str) -> None:
    args, kwargs, _ = ENTRIES[op].valid()
    call = getattr(gpuopt, op)
    reasons = _core.backends()
    for row in _core.variants(op):
        if row["backend"] == "cpu" or (
            row["backend"] == "cuda" and reasons["cuda"] is None and row["available"]
        ):
            where = {"backend": row["backend"], "variant": row["name"]}
            assert_flat(lambda w=where: call(*args, **kwargs, **w), f"{op} {where}")


@each_error
def test_no_leak_in_10000_errors(op: str, error: Error) -> None:
    args, kwargs = error.make()
    call = getattr(gpuopt, op)

    def fail() -> None:
        with contextlib.suppress(error.raises):
            call(*args, **kwargs)

    assert_flat(fail, f"{op}: {error.name}")


@each_op
def test_no_array_memory_is_lost(op: str) -> None:
    """NumPy reports its buffers to tracemalloc: none may remain after a call."""
    args, kwargs, _ = ENTRIES[op].valid()
    big = [np.repeat(a, 65_536, axis=0) if isinstance(a, np.ndarray) else a for a in args]
    big = list(heavy()) if (heavy := ENTRIES[op].heavy) else big
    swapped = [a.astype(a.dtype.newbyteorder()) if hasattr(a, "dtype") else a for a in big]
    call = getattr(gpuopt, op)
    call(*swapped, **kwargs)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(20):
            call(*big, **kwargs)
            call(*swapped, **kwargs)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 65_536


@each_op
def test_no_simulated_device_memory_is_kept(op: str) -> None:
    """Every variant in the simulator, then every error: its heap is unchanged."""
    if _core.backends()["sim"] is not None:
        with pytest.raises(gpuopt.SimulatorError):
            _core._sim_state()
        return
    args, kwargs, want = ENTRIES[op].valid()
    before = _core._sim_state()["allocations"]
    for row in _core.variants(op):
        if row["backend"] == "sim" and row["available"]:
            where = {"backend": "sim", "variant": row["name"]}
            for _ in range(20):
                try:
                    got = getattr(gpuopt, op)(*args, **kwargs, **where)
                except (gpuopt.VariantError, TypeError) as refusal:
                    assert row["shape"]  # the variant does not take this call
                    words = f"takes |{row['name']}\\) does not support dtype"
                    assert re.search(words, str(refusal))
                    continue
                assert_same(got, want, 1e-5 if row["name"] in ENTRIES[op].bounds else 0)
    gpuopt.use("sim")
    for error in ENTRIES[op].errors():
        wrong, options = error.make()
        with pytest.raises(error.raises):
            getattr(gpuopt, op)(*wrong, **options)
    assert _core._sim_state()["allocations"] == before


# ---- threads and the GIL ----


@each_kind
def test_eight_threads_ten_iterations(op: str, figure: Figure) -> None:
    """Every variant's small cases, and large ones, from eight threads at once."""
    entry = ENTRIES[op]
    samples = [*list(entry.samples("float32", "full"))[::7], *entry.floats()]
    samples = [s for s in samples if entry.expect(s).error is None]
    problems: list[str] = []
    start = threading.Barrier(8)
    call = getattr(gpuopt, op)
    variants = [r["name"] for r in _core.variants(op) if r["backend"] == "cpu"]
    done = [0] * 8

    def work(k: int) -> None:
        start.wait()
        try:
            for turn in range(10):
                for i, sample in enumerate(samples):
                    if i % 8 != (k + turn) % 8 and i % 5:
                        continue
                    arrays = [spec.build() for spec in sample.arrays]
                    options = dict(sample.options)
                    if "dtype" in options:
                        options["dtype"] = dtype_of(options["dtype"])
                    variant = variants[(i + turn) % len(variants)]
                    got = call(*arrays, **options, backend="cpu", variant=variant)
                    problem = entry.expected(sample, variant).compare(got)
                    done[k] += 1
                    if problem:
                        problems.append(f"{variant}: {sample}: {problem}")
        except Exception as error:
            problems.append(repr(error))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems, "\n".join(problems[:10])
    assert min(done) >= 100
    figure(f"{op}: calls from 8 threads", f"{sum(done):,}, all right")


@each_op
def test_threads_that_share_an_input_and_change_settings(op: str) -> None:
    """set_num_threads and use() in one thread do not disturb calls in others."""
    sample = next(s for s in ENTRIES[op].floats() if s.elements > 50_000)
    arrays = [spec.build() for spec in sample.arrays]
    expected = ENTRIES[op].expect(sample)
    stop = threading.Event()
    problems: list[str | None] = []

    def settings() -> None:
        n = 0
        while not stop.is_set():
            n += 1
            gpuopt.set_num_threads(n % 8 + 1)
            gpuopt.use("cpu" if n % 2 else None)
            time.sleep(0)

    def work() -> None:
        for _ in range(50):
            got = getattr(gpuopt, op)(*arrays, **dict(sample.options), backend="cpu")
            problems.append(expected.compare(got))

    changer = threading.Thread(target=settings)
    workers = [threading.Thread(target=work) for _ in range(4)]
    changer.start()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    stop.set()
    changer.join()
    assert problems == [None] * 200


GIL = """
import ctypes, mmap, os, sys, threading
import numpy as np
import gpuopt

sys.path.insert(0, {tests!r})
from cases import ENTRIES
entry = ENTRIES[{op!r}]
shim = ctypes.CDLL({shim!r})
call, backend = getattr(gpuopt, {op!r}), sys.argv[1]
if backend == "cpu":
    sample = max(entry.large("float64"), key=lambda s: s.elements)
else:
    sample = min(entry.floats(), key=lambda s: s.elements)
arrays = [np.ascontiguousarray(spec.build()) for spec in sample.arrays]

# The last input of floats moves to pages of its own.
k = max(i for i, x in enumerate(arrays) if x.dtype.kind == "f")
pages = mmap.mmap(-1, -(-arrays[k].nbytes // mmap.PAGESIZE) * mmap.PAGESIZE)
moved = np.frombuffer(pages, arrays[k].dtype, arrays[k].size).reshape(arrays[k].shape)
moved[...] = arrays[k]
arrays[k] = moved
middle = moved.nbytes // 2 // mmap.PAGESIZE * mmap.PAGESIZE

inside, tell = os.pipe()
wait, go_on = os.pipe()
seen = []

def other():
    seen.append(len(os.read(inside, 1)))  # nothing, if the call is back
    os.close(go_on)

thread = threading.Thread(target=other)
thread.start()
where = ctypes.c_void_p(moved.ctypes.data + middle)
assert shim.stop_at(where, ctypes.c_size_t(mmap.PAGESIZE), tell, wait) == 0
got = call(*arrays, **dict(sample.options), backend=backend)
os.close(tell)
thread.join()
assert seen == [1], "the call has not looked at all of its input"
assert entry.expect(sample).compare(got) is None
"""


@pytest.fixture(scope="module")
def stopping_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """fixtures/stopping_page.c as a library."""
    shim = tmp_path_factory.mktemp("stopping") / "stopping_page.so"
    source = Path(__file__).parent / "fixtures" / "stopping_page.c"
    command = ["gcc", "-shared", "-fPIC", "-O1", str(source), "-o", str(shim)]
    subprocess.run(command, check=True)
    return shim


@each_kind
def test_the_gil_is_released(op: str, stopping_page: Path) -> None:
    """A call that is stopped in the middle of its input lets a second thread run.

    It continues only when that thread, in Python, allows it: if the call held the GIL, both
    would wait for ever.
    """
    code = GIL.format(op=op, shim=str(stopping_page), tests=str(Path(__file__).parent))
    for backend in ("cpu", "sim"):
        if gpuopt.backends()[backend] is None:
            done = run_child("-W", "error", "-c", code, backend)
            assert (done.returncode, done.stderr) == (0, ""), (backend, done.stderr)


# ---- processes ----


FORK = """
import os, sys
import numpy as np
import gpuopt

op = {op!r}
sys.path.insert(0, {tests!r})
from cases import ENTRIES
sample = next(s for s in ENTRIES[op].floats() if s.elements > 50_000)
arrays = [spec.build() for spec in sample.arrays]
call, options = getattr(gpuopt, op), dict(sample.options)

def right():
    for variant in [r["name"] for r in gpuopt._core.variants(op) if r["backend"] == "cpu"]:
        got = call(*arrays, **options, backend="cpu", variant=variant)
        assert ENTRIES[op].expected(sample, variant).compare(got) is None

gpuopt.set_num_threads(4)
right()
for turn in range(50):
    pid = os.fork()
    if pid == 0:
        try:
            right()
            if turn % 10 == 0:  # a child of the child
                grandchild = os.fork()
                if grandchild == 0:
                    right()
                    os._exit(0)
                assert os.waitpid(grandchild, 0)[1] == 0
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0, turn
    right()
print("50 rounds")
"""


@each_kind
def test_fifty_forks(op: str, child: Child) -> None:
    tests = str(Path(__file__).resolve().parent)
    done = child(FORK.format(op=op, tests=tests))
    assert done.stdout == "50 rounds\n"


FORK_MEANWHILE = """
import os, sys, threading
import numpy as np
import gpuopt

sys.path.insert(0, {tests!r})
from cases import ENTRIES
from gpuopt import _core

def calls_of(op):
    entry = ENTRIES[op]
    for backend in ("cpu", "sim"):
        if gpuopt.backends()[backend] is None:
            enough = [s for s in entry.floats() if backend == "sim" or s.elements > 50_000]
            sample = min(enough, key=lambda s: s.elements)
            arrays = [spec.build() for spec in sample.arrays]
            options = dict(sample.options) | dict(backend=backend)
            expected = entry.expect(sample)
            def right(arrays=arrays, options=options, expected=expected):
                assert expected.compare(getattr(gpuopt, op)(*arrays, **options)) is None
            yield right

def others():
    x = np.ones(3000, np.float32)
    yield gpuopt.info
    if gpuopt.backends()["sim"] is None:
        def away():
            assert gpuopt.reduce(gpuopt.asdevice(x, backend="sim")).numpy() == 3000
        def settings():  # the lock of the settings as well as the simulator's
            _core._sim_configure(seed=1)
            assert _core._sim_state()["bytes"] >= 0
        yield from (away, settings)

calls = list(calls_of({op!r}) if {op!r} else others())
for call in calls:
    call()
stop = threading.Event()
def work(call):
    while not stop.is_set():
        call()
threads = [threading.Thread(target=work, args=(call,)) for call in calls for _ in range(2)]
for thread in threads:
    thread.start()
for turn in range({forks}):
    pid = os.fork()
    if pid == 0:
        try:
            for call in calls:
                call()
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0, turn
stop.set()
for thread in threads:
    thread.join()
print("done")
"""


@pytest.mark.parametrize("op", [*KINDS, ""])
def test_fork_while_other_threads_call(op: str, child: Child) -> None:
    """The child has one thread and none of the parent's work; its calls are correct.

    Without an operator: what all operators share, such as arrays on a device, settings and
    introspection.
    """
    tests = str(Path(__file__).resolve().parent)
    done = child(FORK_MEANWHILE.format(op=op, tests=tests, forks=10 if op else 30))
    assert done.stdout == "done\n"


def test_a_spawned_pool_works(child: Child) -> None:
    done = child(
        """
import multiprocessing
import gpuopt

if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(pool.map(gpuopt.reduce, [[1.0, 2.0], [3, 4]]))
"""
    )
    assert done.stdout == "[np.float64(3.0), np.int64(7)]\n"


def test_exit_with_live_buffers_is_clean(child: Child) -> None:
    child(
        """
import threading
import numpy as np
import gpuopt

x = np.ones((2048, 2048), np.float32)
kept = [gpuopt.reduce(x, axis=0) for _ in range(10)]
out = np.empty(2048, np.float32)
gpuopt.reduce(x, axis=1, out=out)
def work():
    while True:
        gpuopt.reduce(x, axis=0, backend="cpu")
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
class AtExit:
    def __del__(self):
        gpuopt.reduce(x)
last = AtExit()
"""
    )


def test_fifty_exits_are_clean() -> None:
    code = (
        "import numpy, gpuopt; x = numpy.ones(1 << 18); "
        "gpuopt.reduce(x, backend='cpu', variant='threads')"
    )
    for _ in range(50):
        done = run_child("-c", code)
        assert (done.returncode, done.stderr) == (0, "")


def test_import_makes_no_cuda_call(child: Child) -> None:
    """The process never tries to load libcuda, and the driver is not mapped."""

    def asks(code: str) -> bool:
        done = run_child("-c", code, env={"LD_DEBUG": "libs"})
        assert done.returncode == 0
        return "libcuda.so" in done.stderr

    assert not asks("import gpuopt; gpuopt.ops(); gpuopt.describe('reduce')")
    # To show that the check can fail: this process loads the driver.
    assert asks("import gpuopt; gpuopt.cuda_unavailable_reason()") or asks(
        "import contextlib, ctypes\n"
        "with contextlib.suppress(OSError): ctypes.CDLL('libcuda.so.1')"
    )
    child(
        """
import gpuopt
from pathlib import Path
assert "libcuda.so" not in Path("/proc/self/maps").read_text()
"""
    )


def test_import_is_quiet_and_imports_no_other_library(child: Child) -> None:
    done = child(
        """
import sys
import gpuopt
heavy = {"torch", "cupy", "jax", "ml_dtypes", "matplotlib", "dask", "numba"}
print(sorted(heavy & set(sys.modules)))
"""
    )
    assert done.stdout == "[]\n"


def test_no_start_up_threads(child: Child) -> None:
    """Importing starts no thread; the first call that uses the pool starts it."""
    child(
        """
import os
import numpy
before = len(os.listdir("/proc/self/task"))
import gpuopt
assert len(os.listdir("/proc/self/task")) == before
"""
    )


def test_workers_keep_off_the_callers_core(child: Child) -> None:
    """Woken there, a worker would take turns with its caller."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core")
    done = child(
        """
import os
import numpy as np
import gpuopt

def tasks():
    return set(map(int, os.listdir("/proc/self/task")))

before = tasks()
x = np.ones(1 << 20, np.float32)
gpuopt.set_num_threads(2)
for turn in range(3):
    assert (gpuopt.add(x, x, backend="cpu", variant="threads") == 2).all()
(worker,) = tasks() - before
mine, its = os.sched_getaffinity(0), os.sched_getaffinity(worker)
assert its < mine and len(its) == len(mine) - 1, (mine, its)
os.sched_setaffinity(0, {min(mine)})  # the calling thread alone
assert (gpuopt.add(x, x, backend="cpu", variant="threads") == 2).all()
gpuopt.set_num_threads(12)  # more than are kept off
assert (gpuopt.add(x, x, backend="cpu", variant="threads") == 2).all()
print("done")
"""
    )
    assert done.stdout == "done\n"


def test_workers_have_no_thread_local_data() -> None:
    """That of a loaded module is allocated on first use; glibc exits if it cannot be."""
    loops = [ROOT / "csrc/backend/team.c", *(ROOT / "csrc/ops").rglob("*.[chi]*")]
    assert len(loops) > 100
    found = [
        path.name for path in loops if re.search(r"_Thread_local|__thread\b", path.read_text())
    ]
    assert not found


# ---- introspection ----


@each_op
def test_the_function_presents_itself(op: str) -> None:
    call = getattr(gpuopt, op)
    signature = _core.describe(op)["signature"]
    bare = signature.removeprefix(op)
    assert str(inspect.signature(call)) == bare
    assert call.__text_signature__.replace("$module, ", "") == bare
    assert call.__name__ == op
    assert call.__module__.split(".")[0] == "gpuopt"
    assert pickle.loads(pickle.dumps(call)) is call
    text = pydoc.plain(pydoc.render_doc(call))
    assert bare in text
    for heading in ("Parameters", "Returns", "Raises", "Notes"):
        assert re.search(rf"^ *{heading}\n *-+$", text, re.M), heading
    for word in ("Accuracy", "Determinism"):
        assert word in text
    for argument in _core.describe(op)["args"]:
        assert re.search(rf"^ *{argument['name']} : ", text, re.M), argument["name"]
        for choice in argument["choices"] or ():
            assert f"'{choice}'" in text


@each_op
def test_describe_agrees_with_the_signature(op: str) -> None:
    described = _core.describe(op)
    assert described["name"] == op
    assert described["nout"] >= 1
    parameters = inspect.signature(getattr(gpuopt, op)).parameters
    for argument in described["args"]:
        parameter = parameters[argument["name"]]
        required = argument["preset"] is None
        assert (parameter.default is inspect.Parameter.empty) == required
        if not required:
            assert repr(parameter.default) == argument["preset"]
        assert argument["kind"] in (
            "array", "bool", "int", "float", "ints", "floats", "enum", "dtype",
        )  # fmt: skip
        assert (argument["choices"] is not None) == (argument["kind"] == "enum")
    named = [a["name"] for a in described["args"] if a["named"]]
    common = list(parameters)[len(described["args"]) - len(named) :]
    assert common == ["out", *named, "variant", "backend", "stream"]


def test_tab_completion_shows_the_public_names() -> None:
    names = dir(gpuopt)
    public = [name for name in names if not name.startswith("_")]
    for name in (
        *OPS,
        *("ops", "variants", "explain", "source", "info", "use", "backends"),
        *("set_num_threads", "get_num_threads", "cuda_unavailable_reason"),
        *("CudaError", "OutOfMemoryError", "VariantError", "ContextDeadError"),
        "SimulatorError",
    ):
        assert name in public, name
        assert getattr(gpuopt, name) is not None
    assert set(gpuopt.__all__) <= set(public)
    assert not {"np", "numpy", "annotations", "sys", "os"} & set(public)


def test_exception_classes() -> None:
    assert issubclass(gpuopt.CudaError, RuntimeError)
    assert issubclass(gpuopt.OutOfMemoryError, MemoryError)
    assert issubclass(gpuopt.VariantError, ValueError)
    assert issubclass(gpuopt.ContextDeadError, gpuopt.CudaError)
    assert issubclass(gpuopt.SimulatorError, RuntimeError)
    for name in ("CudaError", "OutOfMemoryError", "VariantError", "SimulatorError"):
        error = getattr(gpuopt, name)
        assert error.__module__ == "gpuopt"
        again = pickle.loads(pickle.dumps(error("text")))
        assert type(again) is error
        assert str(again) == "text"


@each_op
def test_variant_error_lists_and_suggests(op: str) -> None:
    args, kwargs, _ = ENTRIES[op].valid()
    names = [r["name"] for r in _core.variants(op) if r["backend"] == "cpu"]
    for name in names:
        typo = name + name[-1]
        with pytest.raises(gpuopt.VariantError) as caught:
            getattr(gpuopt, op)(*args, **kwargs, variant=typo, backend="cpu")
        message = str(caught.value)
        assert typo in message
        assert all(known in message for known in names)
        assert re.search(rf"did you mean '{name}'", message), message
    with pytest.raises(gpuopt.VariantError, match="xyzzy") as caught:
        getattr(gpuopt, op)(*args, **kwargs, variant="xyzzy")
    assert "did you mean" not in str(caught.value)
    for strange in ("", "\0", "sim\0d", "v" * 10_000, "é", "{}%s%n"):
        with pytest.raises(gpuopt.VariantError):
            getattr(gpuopt, op)(*args, **kwargs, variant=strange)
        call_valid(op)


@each_op
def test_a_cuda_rung_on_the_cpu_names_the_simulator(op: str) -> None:
    rungs = [r["name"] for r in _core.variants(op) if r["backend"] in ("cuda", "sim")]
    args, kwargs, _ = ENTRIES[op].valid()
    for rung in dict.fromkeys(rungs):
        with pytest.raises(gpuopt.VariantError, match=r'backend="sim"'):
            getattr(gpuopt, op)(*args, **kwargs, variant=rung, backend="cpu")


@each_op
def test_plan_computes_nothing_and_says_why(op: str) -> None:
    args, kwargs, want = ENTRIES[op].valid()
    out = like(want, lambda a: np.full_like(a, 77))
    plan = _core.plan(op, *args, **kwargs, out=out)
    assert all((a == 77).all() for a in each(out))
    assert plan["outputs"] == [(a.shape, a.dtype.name) for a in each(want)]
    assert plan["backend"] == _core.default_backend()
    assert plan["variant"] in [r["name"] for r in _core.variants(op)]
    assert plan["why"]
    arrays = [a for a in args if isinstance(a, np.ndarray)]
    assert plan["read_bytes"] == sum(a.nbytes for a in arrays)
    assert plan["written_bytes"] == sum(a.nbytes for a in each(want))
    assert plan["flops"] >= 0


def test_unknown_operators() -> None:
    for function in (_core.describe, _core.variants, _core.plan):
        with pytest.raises(ValueError, match=r"reducee"):
            function("reducee")
        with pytest.raises(TypeError):
            function(3)


# ---- settings ----


def test_use_chooses_the_backend() -> None:
    gpuopt.use("cpu")
    assert gpuopt.default_backend() == "cpu"
    x = np.arange(4.0)
    assert _core.plan("reduce", x)["backend"] == "cpu"
    with pytest.raises(ValueError, match=r"'cpu', 'cuda', 'sim'.*'tpu'"):
        gpuopt.use("tpu")
    with pytest.raises(TypeError):
        gpuopt.use(3)
    assert gpuopt.default_backend() == "cpu"
    gpuopt.use(None)
    usable = gpuopt.backends()
    assert gpuopt.default_backend() == ("cpu" if usable["cuda"] else "cuda")


def test_use_in_a_with_block_restores_what_was_set_before() -> None:
    automatic = gpuopt.default_backend()
    with gpuopt.use("sim") as used:
        assert repr(used) == "gpuopt.use('sim')"
        assert gpuopt.default_backend() == "sim"
        assert _core.plan("reduce", [1.0])["backend"] == "sim"
        with gpuopt.use("cpu"):
            assert gpuopt.default_backend() == "cpu"
            with gpuopt.use(None) as used:
                assert repr(used) == "gpuopt.use(None)"
                assert gpuopt.default_backend() == automatic
            assert gpuopt.default_backend() == "cpu"
        assert gpuopt.default_backend() == "sim"
    assert gpuopt.default_backend() == automatic

    gpuopt.use("sim")  # without `with`: for good
    with pytest.raises(ZeroDivisionError), gpuopt.use("cpu"):
        gpuopt.use(None)  # the block restores what was set before it, whatever is set in it
        raise ZeroDivisionError
    assert gpuopt.default_backend() == "sim"
    with pytest.raises(ValueError, match="'tpu'"), gpuopt.use("cpu"):
        gpuopt.use("tpu")
    assert gpuopt.default_backend() == "sim"


def test_what_use_returns_serves_one_with_block() -> None:
    used = gpuopt.use("cpu")
    with used:
        with pytest.raises(RuntimeError, match=r"call use\(\) again"), used:
            raise AssertionError
        assert gpuopt.default_backend() == "cpu"
    with pytest.raises(RuntimeError, match=r"call use\(\) again"), used:
        raise AssertionError
    assert type(used) is gpuopt.UsedBackend
    with pytest.raises(TypeError, match="cannot create"):
        gpuopt.UsedBackend()


def test_use_holds_for_every_thread() -> None:
    seen: list[str] = []
    with gpuopt.use("sim"):
        thread = threading.Thread(target=lambda: seen.append(gpuopt.default_backend()))
        thread.start()
        thread.join()
    assert seen == ["sim"]


def test_an_unusable_backend_is_refused_with_its_reason() -> None:
    x = np.arange(4.0)
    for name, reason in gpuopt.backends().items():
        if reason is None:
            assert gpuopt.reduce(x, backend=name) == 6
            gpuopt.use(name)
            assert gpuopt.default_backend() == name
            gpuopt.use(None)
        else:
            error = gpuopt.CudaError if name == "cuda" else RuntimeError
            with pytest.raises(error, match=re.escape(reason)):
                gpuopt.reduce(x, backend=name)
    assert gpuopt.cuda_unavailable_reason() == gpuopt.backends()["cuda"]


def test_the_environment_chooses_the_backend(child: Child) -> None:
    code = "import gpuopt; print(gpuopt.default_backend())"
    assert child(code, env={"GPUOPT_BACKEND": "cpu"}).stdout == "cpu\n"
    both = "import gpuopt; gpuopt.use('cpu'); print(gpuopt.default_backend())"
    assert child(both, env={"GPUOPT_BACKEND": "cpu"}).stdout == "cpu\n"
    if gpuopt.backends()["sim"] is None:
        assert child(code, env={"GPUOPT_BACKEND": "sim"}).stdout == "sim\n"
        assert child(both, env={"GPUOPT_BACKEND": "sim"}).stdout == "cpu\n"
    wrong = run_child(
        "-c", "import gpuopt; gpuopt.reduce([1.0])", env={"GPUOPT_BACKEND": "abacus"}
    )
    assert wrong.returncode == 1
    assert "ValueError" in wrong.stderr
    assert "abacus" in wrong.stderr


def test_thread_settings(child: Child) -> None:
    gpuopt.set_num_threads(3)
    assert gpuopt.get_num_threads() == 3
    gpuopt.set_num_threads(0)
    default = gpuopt.get_num_threads()
    assert default >= 1
    for wrong in (-1, 2**40):
        with pytest.raises((ValueError, OverflowError)):
            gpuopt.set_num_threads(wrong)
    for wrong in ("2", 1.5, None):
        with pytest.raises(TypeError):
            gpuopt.set_num_threads(wrong)
    assert gpuopt.get_num_threads() == default


def test_build_info() -> None:
    info = _core.build_info()
    assert info["version"] == gpuopt.__version__
    assert info["compiler"]


# ---- why there is no GPU ----

WHY = "import gpuopt; print(gpuopt.cuda_unavailable_reason())"
with_cuda = pytest.mark.skipif(
    not gpuopt.info()["cuda"], reason="this build has no CUDA part to ask"
)


@with_cuda
def test_without_a_driver_the_reason_says_so(tmp_path: Path) -> None:
    """An empty file in place of the library hides an installed driver."""
    (tmp_path / "libcuda.so.1").touch()
    done = run_child("-c", WHY, env={"LD_LIBRARY_PATH": str(tmp_path)})
    assert (done.stdout, done.stderr) == (
        "no NVIDIA driver on this machine\n",
        "",
    )


@with_cuda
def test_a_driver_that_is_too_old_or_has_no_gpu_is_told_apart(tmp_path: Path) -> None:
    source = Path(__file__).parent / "fixtures" / "fake_driver.c"
    driver = tmp_path / "libcuda.so.550.54.14"  # named like the file of an installed driver
    soname = tmp_path / "libcuda.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", str(source), "-o", str(driver)], check=True)
    soname.symlink_to(driver.name)

    def why(version: str, **more: str) -> str:
        environment = {"LD_LIBRARY_PATH": str(tmp_path), "FAKE_DRIVER": version, **more}
        return run_child("-c", WHY, env=environment).stdout.strip()

    assert why("12020") == "NVIDIA driver 550.54.14 is too old, 580 or later is needed"
    soname.unlink()
    driver.rename(soname)  # a name without a version
    built = gpuopt.info()["cuda"]
    old = f"the NVIDIA driver is too old: it supports CUDA 12.2, this build needs {built}"
    assert why("12020") == old
    assert why("99000", CUDA_VISIBLE_DEVICES="") == "CUDA_VISIBLE_DEVICES='' leaves no GPU"
    assert why("99000", CUDA_VISIBLE_DEVICES="7") == "CUDA_VISIBLE_DEVICES='7' leaves no GPU"
    if "CUDA_VISIBLE_DEVICES" not in os.environ:
        assert why("99000") == "the NVIDIA driver finds no GPU"


# ---- failed allocations ----


FAILING = """
import ctypes, sys
sys.path.insert(0, {tests!r})
import numpy as np
import gpuopt
from cases import ENTRIES
from gpuopt import _core

shim = ctypes.PyDLL({shim!r})
shim.fail_after.argtypes = [ctypes.c_long]
entry = ENTRIES[{op!r}]
function = getattr(gpuopt, {op!r})
samples = [*entry.floats(), next(iter(entry.large("int32")))]
_core.set_num_threads(3)
failed = 0
for variant in [r["name"] for r in _core.variants({op!r}) if r["backend"] == "cpu"]:
    for sample in samples:
        arrays = [spec.build() for spec in sample.arrays]
        options = {{**dict(sample.options), "backend": "cpu", "variant": variant}}
        expected = entry.expected(sample, variant)
        function(*arrays, **options)  # the team of threads is made before anything fails
        for n in range(1, 1000):
            try:
                shim.fail_after(n)
                got = function(*arrays, **options)
            except MemoryError:
                got = None
            if not shim.fired():
                break
            failed += got is None
            got = function(*arrays, **options)
            assert expected.compare(got) is None, (variant, n)
        else:
            raise SystemExit("allocations that never end")
        assert expected.compare(got) is None
print(failed)
"""


@pytest.fixture(scope="module")
def failing_malloc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """fixtures/failing_malloc.c as a library."""
    shim = tmp_path_factory.mktemp("failing") / "failing_malloc.so"
    source = Path(__file__).parent / "fixtures" / "failing_malloc.c"
    command = ["gcc", "-shared", "-fPIC", "-O1", str(source), "-o", str(shim), "-ldl"]
    subprocess.run(command, check=True)
    return shim


@each_kind
def test_every_host_allocation_may_fail(op: str, failing_malloc: Path, figure: Figure) -> None:
    """As in SQLite's tests: the n-th allocation fails, for n = 1, 2, ... until none does."""
    shim = str(failing_malloc)
    code = FAILING.format(tests=str(Path(__file__).parent), shim=shim, op=op)
    environment = {"LD_PRELOAD": shim, "PYTHONMALLOC": "malloc"}
    done = run_child("-c", code, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout) > 0
    figure(f"{op}: failed host allocations survived", done.stdout.strip())
