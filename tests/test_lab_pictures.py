"""The simulator's trace, and the pictures of it: what each shows is compared with the counts.

Order: kernels, the trace, orders of execution, the pictures, what they refuse.
"""

import numpy as np
import pytest

import gpuopt
from gpuopt import lab
from gpuopt.lab import host_compiler, pictures
from gpuopt.lab.profile import profile
from gpuopt.lab.trace import Request, Trace, _in_order, trace

needs_compiler = pytest.mark.skipif(
    host_compiler.unavailable() is not None, reason="no C++ compiler"
)

STRIDED = """
__global__ void strided(const float *x, float *y, int step) {
    __shared__ float tile[32 * 32];
    for (int i = 0; i < 32; i++) {
        tile[32 * i + threadIdx.x] = x[step * (32 * i + threadIdx.x)];
    }
    __syncthreads();
    if (threadIdx.x % 2) {
        y[threadIdx.x] = tile[32 * threadIdx.x];
    } else {
        y[threadIdx.x] = tile[threadIdx.x];
    }
}
"""


@pytest.fixture(scope="module")
def v1():
    return trace("reduce", np.ones(16384, np.float32), variant="v1")


@pytest.fixture(scope="module")
def strided():
    kernel = lab.kernel(STRIDED)
    x, y = np.ones(3 * 1024, np.float32), lab.empty(32)
    return kernel.trace(1, 32, x, y, 3)


# ---- the trace ----


@pytest.mark.parametrize(
    ("op", "variant", "shape"),
    [("reduce", "v1", 3000), ("reduce", "v8", 5000), ("scan", "v2", 3000)],
)
def test_all_blocks_together_are_what_the_profile_counts(op, variant, shape):
    x = np.ones(shape, np.float32)
    seen = trace(op, x, variant=variant, blocks=1 << 20)
    assert seen.complete
    for counted in profile(op, x, variant=variant):
        kind = {"kernel": counted.kernel}
        shared, moved = seen.find("shared", **kind), seen.find("global", **kind)
        assert len(shared) == counted.shared_requests
        assert sum(r.wavefronts for r in shared) == counted.shared_wavefronts
        assert sum(r.ideal for r in shared) == counted.shared_ideal
        assert len(moved) == counted.global_requests
        assert sum(len(r.sectors()) for r in moved) == counted.global_sectors
        assert sum(r.ideal for r in moved) == counted.global_ideal
        code = seen.find("code", **kind)
        assert len(code) == counted.code_blocks
        assert sum(len(r.lanes) for r in code) == counted.code_lanes
        rows = seen.blocks[seen.blocks["kernel"] == counted.kernel.encode()]
        assert len(rows) == counted.blocks
        assert rows["pieces"].sum() == counted.code_blocks


def test_the_worst_request_of_v1_meets_in_four_banks(v1):
    worst = v1.worst("shared")
    assert (worst.wavefronts, worst.ideal) == (8, 1)
    assert worst.file == "ops/reduce/ladder/v1_strided.cuh"
    assert {(lane, 8 * lane % 32) for lane in range(32)} == {
        (lane, bank - worst.address[0] // 4 % 32) for lane, bank, _ in worst.passes()
    }


def test_a_trace_says_what_it_holds(v1):
    assert repr(v1).startswith("<trace of reduce v1: ")
    assert len(list(v1)) == len(v1)
    assert {request.block for request in v1} == {0}
    with pytest.raises(ValueError, match="no kernel 'nope'; it has reduce_v1"):
        v1.kernel("nope")
    with pytest.raises(ValueError, match="kind must be one of"):
        v1.find("local")
    with pytest.raises(ValueError, match="reduce v1 has no request to shared memory, line=1"):
        v1.worst("shared", line=1)
    with pytest.raises(ValueError, match="no operator 'nope'"):
        trace("nope", variant="v1")
    with pytest.raises(gpuopt.VariantError, match="v99"):
        trace("reduce", np.ones(3), variant="v99")
    with pytest.raises(ValueError, match="block must be at least 0"):
        trace("reduce", np.ones(3), variant="v1", block=-1)


def test_a_trace_of_later_blocks_lacks_small_grids():
    seen = trace("reduce", np.ones(16384, np.float32), variant="v1", block=3, blocks=2)
    assert {request.block for request in seen} == {3, 4}
    assert seen.lanes_over_time()[0].block == 3
    with pytest.raises(ValueError, match="no request of reduce_finish<Op>: its grid ends"):
        seen.lanes_over_time("reduce_finish<Op>")


def test_a_full_trace_says_so(monkeypatch, pyplot):
    monkeypatch.setattr("gpuopt.lab.trace.MOST_REQUESTS", 50)
    monkeypatch.setattr("gpuopt.lab.trace.MOST_BLOCKS", 4)
    seen = trace("reduce", np.ones(16384, np.float32), variant="v1")
    assert not seen.complete
    assert (len(seen), len(seen.blocks)) == (50, 4)
    assert "cut off" in repr(seen)
    assert "the first of the trace" in lab.plot_blocks(seen).get_title()
    assert "the first of the trace" in lab.plot_lanes(seen).get_title()


def test_tracing_ends_and_leaves_the_settings():
    before = gpuopt._core._sim_configure()
    first = trace("reduce", np.ones(300, np.float32), variant="v2")
    size = len(first)
    profile("reduce", np.ones(300, np.float32), variant="v2")
    again = trace("reduce", np.ones(300, np.float32), variant="v2")
    assert len(first) == len(again) == size
    assert gpuopt._core._sim_configure() == before


def wide(nbytes, addresses):
    lanes = tuple(range(len(addresses)))
    return Request(
        "k", 0, 0, 0, 0, "", 0, "shared", False, nbytes, lanes, 2**32 - 1, tuple(addresses)
    )


@pytest.mark.parametrize(
    ("nbytes", "addresses", "wavefronts", "ideal"),
    [
        (4, [4 * k for k in range(32)], 1, 1),
        (4, [0] * 32, 1, 1),  # the same word is shared
        (4, [128 * k for k in range(32)], 32, 1),
        (1, list(range(32)), 1, 1),
        (8, [8 * k for k in range(32)], 2, 2),  # half warps
        (16, [16 * k for k in range(32)], 4, 4),  # quarter warps
        (16, [32 * k for k in range(32)], 8, 4),
    ],
)
def test_passes_over_the_banks(nbytes, addresses, wavefronts, ideal):
    request = wide(nbytes, addresses)
    assert (request.wavefronts, request.ideal) == (wavefronts, ideal)
    served = {}
    for lane, bank, turn in request.passes():
        words = {request.address[lane] // 4 + k for k in range(max(nbytes // 4, 1))}
        word = next(w for w in words if w % 32 == bank)
        assert served.setdefault((bank, turn), word) == word  # a bank gives a word per pass


# ---- orders of execution ----


def test_lanes_that_skip_a_piece_do_not_move_it():
    after = np.zeros(5, [("after", "i4")])
    after["after"] = [-1, 0, 0, 2, -1]
    # lane 0: 0 1; lane 1: 0 2 3 1; lane 2 begins with 4
    assert _in_order(after) == [4, 0, 2, 3, 1]


@needs_compiler
def test_both_branches_stand_before_what_follows(strided):
    pieces = strided.lanes_over_time()
    odd = [i for i, p in enumerate(pieces) if p.lanes == tuple(range(1, 32, 2))]
    even = [i for i, p in enumerate(pieces) if p.lanes == tuple(range(0, 32, 2))]
    assert odd
    assert even
    assert min(odd + even) > 32  # the loop comes first, a piece per iteration at least
    assert [p.interval for p in pieces] == sorted(p.interval for p in pieces)


# ---- the pictures ----


def test_plot_banks_draws_every_word_of_the_request(pyplot, v1):
    axes = lab.plot_banks(v1)
    assert len(axes.patches) == 32
    assert sorted({text.get_text() for text in axes.texts}) == [str(k) for k in range(1, 9)]
    assert "8 passes; without conflicts 1" in axes.get_title()
    corners = {(patch.get_x(), patch.get_y()) for patch in axes.patches}
    assert corners == {(bank, lane) for lane, bank, _ in v1.worst("shared").passes()}


@needs_compiler
def test_plot_banks_takes_a_kernel_and_a_line(pyplot, strided):
    line = 1 + STRIDED.splitlines().index("        y[threadIdx.x] = tile[32 * threadIdx.x];")
    axes = lab.plot_banks(strided, line=line)
    assert "16 lanes: 16 passes; without conflicts 1" in axes.get_title()
    assert f":{line}: load of 4 bytes" in axes.get_title()
    kernel = lab.kernel(STRIDED)
    x, y = np.ones(3 * 1024, np.float32), lab.empty(32)
    _figure, mine = pyplot.subplots()
    assert lab.plot_banks(kernel, 1, 32, x, y, 3, ax=mine, line=line) is mine
    assert mine.get_title() == axes.get_title()


@needs_compiler
def test_plot_sectors_shows_what_moves_in_vain(pyplot, strided):
    axes = lab.plot_sectors(strided, write=False)
    assert "32 lanes: 12 sectors of 32 bytes, 33% of them used" in axes.get_title()
    assert len(axes.patches) == 12 + 32
    axes = lab.plot_sectors("reduce", np.ones(4096, np.float32), variant="v8", write=False)
    assert "16 sectors of 32 bytes, 100% of them used" in axes.get_title()  # 16 bytes a lane


def test_plot_lanes_is_the_code_of_a_warp(pyplot, v1):
    axes = lab.plot_lanes(v1)
    image = np.asarray(axes.images[0].get_array())
    pieces = v1.lanes_over_time()
    assert image.shape == (32, len(pieces))
    assert (image == 2).sum() == sum(len(p.lanes) for p in pieces)
    barriers = len({p.interval for p in pieces}) - 1
    assert len(axes.lines) == barriers > 5
    with pytest.raises(ValueError, match="warp 8 is not one of the block's: 0 to 7"):
        lab.plot_lanes(v1, warp=8)


def test_plot_blocks_places_every_block_once(pyplot, v1):
    axes = lab.plot_blocks(v1)
    assert "64 blocks of 256 threads, up to 8 on an SM" in axes.get_title()
    assert "64 of 132 SMs have work; 1 wave" in axes.get_title()
    axes = lab.plot_blocks(v1, sms=4)
    assert "4 of 4 SMs have work; 2 waves" in axes.get_title()


def test_blocks_go_to_the_sm_that_is_free_first():
    assert pictures.place([5, 1, 1, 1], 2, 1) == [
        (0, 0, 0, 5), (1, 0, 0, 1), (1, 0, 1, 2), (1, 0, 2, 3)
    ]  # fmt: skip
    assert [p[:2] for p in pictures.place([1, 1, 1], 2, 2)] == [(0, 0), (1, 0), (0, 1)]
    assert pictures.resident(1024, 0) == 2
    assert pictures.resident(33, 0) == 32  # two warps
    assert pictures.resident(32, 100 << 10) == 2
    assert pictures.resident(32, 227 << 10) == 1


# ---- what they refuse ----


def test_pictures_say_what_they_need(pyplot, v1):
    with pytest.raises(TypeError, match="name the rung of 'reduce' to draw: variant='v1'"):
        lab.plot_banks("reduce", np.ones(3, np.float32))
    with pytest.raises(TypeError, match="an operator's name, a kernel or a trace, not int"):
        lab.plot_lanes(3)
    with pytest.raises(TypeError, match="a trace is drawn as it is: variant must go to"):
        lab.plot_banks(v1, variant="v1")
    with pytest.raises(ValueError, match="sms must be at least 1"):
        lab.plot_blocks(v1, sms=0)
    with pytest.raises(ValueError, match="has no launch"):
        lab.plot_lanes(Trace("nothing", v1._requests[:0], v1.blocks[:0], True))


def test_without_matplotlib_one_sentence(monkeypatch, v1):
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"plots need matplotlib: pip install gpuopt\[lab\]"):
        lab.plot_banks(v1)


def test_modules_come_when_they_are_named(child):
    code = "from gpuopt import lab; print(lab.bench.compare.__name__, lab.sweep.run.__name__)"
    assert child(code).stdout.split() == ["compare", "run"]
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        _ = lab.nope


def test_the_names_are_offered():
    assert "importlib" not in dir(lab)
    assert {"bench", "sweep", "trace"} <= set(dir(lab))
    for name in lab.__all__:
        assert name in dir(lab)
        assert getattr(lab, name) is not None
