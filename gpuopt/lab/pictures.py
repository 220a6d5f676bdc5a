"""Pictures of what the simulator saw: banks, sectors, lanes, blocks.  Needs matplotlib.

Each function takes a trace, or what `trace` takes: an operator, its arguments and
`variant=`; or a kernel of your own, its grid, block and arguments.  Each takes `ax=`,
returns the Axes and shows nothing by itself.  Colours can be told apart with every kind of
colour blindness, and what they say is also written or drawn.
Order: what is drawn, banks, sectors, lanes, blocks.
"""

from __future__ import annotations

import heapq
import importlib
from typing import Any

import numpy as np

from gpuopt.lab.plots import BLUE, GREY, ORANGE, new_axes
from gpuopt.lab.trace import BANKS, LANES, SECTOR_BYTES, Request, Trace, trace

__all__ = ["plot_banks", "plot_blocks", "plot_lanes", "plot_sectors"]

EMPTY = "#d0d7de"  # outlines
SMS = 132  # of an H100 or H200
# Of one SM of compute capability 9.0.
SM_THREADS, SM_BLOCKS, SM_SHARED, BLOCK_RESERVES = 2048, 32, 228 << 10, 1 << 10


def _traced(what: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Trace:
    """The trace that the arguments of a picture name."""
    if isinstance(what, Trace):
        if args or options:
            names = ", ".join(options) or "arguments"
            raise TypeError(f"a trace is drawn as it is: {names} must go to what made it")
        return what
    if isinstance(what, str):
        if "variant" not in options:
            raise TypeError(f"name the rung of '{what}' to draw: variant='v1'")
        return trace(what, *args, **options)
    if hasattr(what, "trace"):
        found: Trace = what.trace(*args, **options)
        return found
    raise TypeError(
        f"expected an operator's name, a kernel or a trace, not {type(what).__name__}"
    )


def _box(ax: Any, x: float, y: float, width: float, height: float, **style: Any) -> None:
    patches = importlib.import_module("matplotlib.patches")
    ax.add_patch(patches.Rectangle((x, y), width, height, **style))


def _describe(ax: Any, title: str, **labels: Any) -> None:
    """Set limits, labels and a title that fits beside another."""
    ax.set(**labels)
    ax.set_title(title, fontsize="medium")


def _plural(n: int, word: str) -> str:
    return f"{n} {word}" if n == 1 else f"{n} {word}s" if word[-1] != "s" else f"{n} {word}es"


def _verb(request: Request) -> str:
    if "atomic" in request.kind:
        return "atomic"
    return "store" if request.write else "load"


# ---- banks ----


def plot_banks(
    what: Any, *args: Any, ax: Any = None, kernel: str | None = None,
    line: int | None = None, warp: int | None = None, **options: Any,
) -> Any:  # fmt: skip
    """Draw the bank of shared memory that each lane of a request uses, and in which pass.

    The request is the one with the most bank conflicts, or the first of those; `kernel`,
    `line` and `warp` narrow the choice.  The number in a cell is the pass, from 1: what is
    in one pass is served together.
    """
    seen = _traced(what, args, options)
    request = seen.worst("shared", kernel=kernel, line=line, warp=warp)
    ax = new_axes(ax, (6.6, 6.2))
    for lane, bank, turn in request.passes():
        color = BLUE if turn == 0 else ORANGE
        _box(ax, bank, lane, 1, 1, facecolor=color, edgecolor="white", linewidth=0.5)
        ax.text(bank + 0.5, lane + 0.52, str(turn + 1), color="white", fontsize=6,
                ha="center", va="center")  # fmt: skip
    _describe(
        ax,
        xlim=(0, BANKS), ylim=(LANES, 0), xlabel="bank", ylabel="lane",
        title=(
            f"{request.kernel}, {request.where}: {_verb(request)} of {request.bytes} bytes\n"
            f"{_plural(len(request.lanes), 'lane')}: {_plural(request.wavefronts, 'pass')}; "
            f"without conflicts {request.ideal}"
        ),
    )  # fmt: skip
    ticks = list(range(0, BANKS, 4))
    ax.set_xticks([t + 0.5 for t in ticks], [str(t) for t in ticks])
    ax.set_yticks([t + 0.5 for t in ticks], [str(t) for t in ticks])
    ax.set_xticks(range(BANKS + 1), minor=True)
    ax.set_yticks(range(LANES + 1), minor=True)
    ax.grid(visible=True, which="minor", color=EMPTY, linewidth=0.4)
    ax.tick_params(which="both", length=0)
    ax.set_axisbelow(True)
    ax.set_aspect("equal")
    return ax


# ---- sectors ----


def plot_sectors(
    what: Any, *args: Any, ax: Any = None, kernel: str | None = None,
    line: int | None = None, warp: int | None = None, write: bool | None = None,
    **options: Any,
) -> Any:  # fmt: skip
    """Draw the sectors of global memory that one request of a warp moves, and who uses them.

    A row is a sector of 32 bytes, the least that moves; what no lane uses moves in vain.
    The request is the one with the most such bytes, or the first of those; `kernel`,
    `line`, `warp` and `write` narrow the choice.
    """
    seen = _traced(what, args, options)
    request = seen.worst("global", kernel=kernel, line=line, warp=warp, write=write)
    ax = new_axes(ax, (6.6, 5.2))
    sectors = request.sectors()
    row = {sector: i for i, sector in enumerate(sectors)}
    for i in range(len(sectors)):
        _box(ax, 0, i + 0.08, SECTOR_BYTES, 0.84, facecolor="none", edgecolor=GREY,
             linewidth=0.8, hatch="////" if len(sectors) <= 2 * LANES else None)  # fmt: skip
    used: dict[tuple[int, int, int], list[int]] = {}
    for lane, address in zip(request.lanes, request.address, strict=True):
        done = 0
        while done < request.bytes:  # an access may cross the end of a sector
            at = (address + done) % SECTOR_BYTES
            size = min(request.bytes - done, SECTOR_BYTES - at)
            used.setdefault((row[(address + done) // SECTOR_BYTES], at, size), []).append(lane)
            done += size
    for (i, at, size), lanes in used.items():
        _box(ax, at, i + 0.08, size, 0.84, facecolor=BLUE, edgecolor="white", linewidth=0.8)
        text = str(lanes[0]) if len(lanes) == 1 else f"{lanes[0]}+{len(lanes) - 1}"
        ax.text(at + size / 2, i + 0.52, text, color="white", ha="center", va="center",
                fontsize=max(3.5, min(8, 130 / len(sectors))))  # fmt: skip
    share = len({(i, at + k) for i, at, size in used for k in range(size)})
    share_text = f"{share / (SECTOR_BYTES * len(sectors)):.0%}"
    _describe(
        ax,
        xlim=(0, SECTOR_BYTES), ylim=(len(sectors), 0),
        xlabel="byte of the sector; the numbers are lanes", ylabel="sector, from the first",
        title=(
            f"{request.kernel}, {request.where}: {_verb(request)} of {request.bytes} bytes\n"
            f"{_plural(len(request.lanes), 'lane')}: {_plural(len(sectors), 'sector')} of "
            f"{SECTOR_BYTES} bytes, {share_text} of them used"
        ),
    )  # fmt: skip
    step = max(1, len(sectors) // 16)
    shown = range(0, len(sectors), step)
    ax.set_yticks([i + 0.5 for i in shown], [str(sectors[i] - sectors[0]) for i in shown])
    ax.set_xticks(range(0, SECTOR_BYTES + 1, 4))
    return ax


# ---- lanes ----


def plot_lanes(
    what: Any, *args: Any, ax: Any = None, kernel: str | None = None, warp: int = 0,
    **options: Any,
) -> Any:  # fmt: skip
    """Draw which lanes of a warp execute each piece of code, in the order of execution.

    A piece of code has no branches; its width says nothing of its time.  Dashed lines are
    barriers of the block.
    """
    seen = _traced(what, args, options)
    pieces = seen.lanes_over_time(kernel, warp)
    ax = new_axes(ax, (8, 4.2))
    colors = importlib.import_module("matplotlib.colors")
    image = np.zeros((LANES, len(pieces)), int)
    for i, piece in enumerate(pieces):
        image[[k for k in range(LANES) if piece.exists >> k & 1], i] = 1
        image[list(piece.lanes), i] = 2
    ax.imshow(
        image, cmap=colors.ListedColormap([EMPTY, "white", BLUE]), vmin=0, vmax=2,
        aspect="auto", interpolation="nearest", extent=(0, len(pieces), LANES, 0),
    )  # fmt: skip
    for i in range(1, len(pieces)):
        if pieces[i].interval != pieces[i - 1].interval:
            ax.axvline(i, color="black", linestyle="--", linewidth=0.8)
    ran, there = int((image == 2).sum()), int((image >= 1).sum())
    whole = "" if seen.complete else " (the first of the trace)"
    _describe(
        ax,
        xlabel="pieces of code in the order of execution; dashed: barriers", ylabel="lane",
        title=(
            f"{seen.kernel(kernel)}, block {pieces[0].block}, warp {warp}: "
            f"{ran / there:.0%} of the lanes active{whole}"
        ),
    )  # fmt: skip
    ax.set_yticks(range(0, LANES + 1, 8))
    return ax


# ---- blocks ----


def resident(threads: int, shared_bytes: int) -> int:
    """How many blocks one SM of compute capability 9.0 holds; registers are not known."""
    warps = -(-threads // LANES)
    by_shared = SM_SHARED // (shared_bytes + BLOCK_RESERVES)
    return max(1, min(SM_BLOCKS, SM_THREADS // (LANES * warps), by_shared))


def place(work: list[int], sms: int, slots: int) -> list[tuple[int, int, int, int]]:
    """The (sm, slot, begin, end) of each block, where each goes to what is free first.

    Blocks are given out round robin, first one to every SM.
    """
    free = [(0, slot, sm) for slot in range(slots) for sm in range(sms)]
    heapq.heapify(free)
    placed = []
    for pieces in work:
        begin, slot, sm = heapq.heappop(free)
        placed.append((sm, slot, begin, begin + pieces))
        heapq.heappush(free, (begin + pieces, slot, sm))
    return placed


def plot_blocks(
    what: Any, *args: Any, ax: Any = None, kernel: str | None = None, sms: int = SMS,
    **options: Any,
) -> Any:  # fmt: skip
    """Draw how the blocks of a launch share the SMs of a GPU.

    A model, not a measurement: a block goes to the SM that is free first and takes as long
    as the pieces of code that each of its warps executes; an SM holds what its threads and
    shared memory allow (compute capability 9.0; registers are not known).  Blocks beside
    each other do not slow each other down.

    sms : the SMs of the GPU; 132 of an H100 or H200
    """
    if sms < 1:
        raise ValueError(f"sms must be at least 1, got {sms}")
    seen = _traced(what, args, options)
    name = seen.kernel(kernel)
    rows = seen.blocks[seen.blocks["kernel"] == name.encode()]
    rows = rows[rows["launch"] == rows["launch"][0]]
    threads = int(np.prod(rows["threads"][0]))
    slots = resident(threads, int(rows["shared_bytes"][0]))
    warps = -(-threads // LANES)
    work = [max(1, round(int(row["pieces"]) / warps)) for row in np.sort(rows, order="block")]
    placed = place(work, sms, slots)
    ax = new_axes(ax, (8, 5))
    collections = importlib.import_module("matplotlib.collections")
    patches = importlib.import_module("matplotlib.patches")
    boxes = [
        patches.Rectangle((begin, sm + slot / slots), end - begin, 1 / slots)
        for sm, slot, begin, end in placed
    ]
    ax.add_collection(
        collections.PatchCollection(boxes, facecolor=BLUE, edgecolor="white", linewidth=0.3)
    )
    last = max(end for *_, end in placed)
    busy = len({sm for sm, *_ in placed})
    waves = -(-len(placed) // (sms * slots))
    whole = "" if seen.complete else " (the first of the trace)"
    _describe(
        ax,
        xlim=(0, last), ylim=(sms, 0), ylabel="SM",
        xlabel="pieces of code of a warp (a model, no time was measured)",
        title=(
            f"{name}: {_plural(len(placed), 'block')} of {threads} threads, "
            f"up to {slots} on an SM\n"
            f"{busy} of {_plural(sms, 'SM')} have work; {_plural(waves, 'wave')}{whole}"
        ),
    )  # fmt: skip
    return ax
