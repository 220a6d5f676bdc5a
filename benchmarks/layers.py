"""`python -m benchmarks.layers`: the pooling and upsampling layers of known networks.

Order: the networks, the rows, the tables.  Every layer of max pooling or nearest upsampling of
six networks in its published shape: float32 and float16, channels first and last, forward and
backward with the batch of a training, and forward alone with a batch of one; beside torch.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from gpuopt._table import Table
from gpuopt.benchmarks import beside
from gpuopt.benchmarks.sweep import max_pool3d, upsample_nearest
from gpuopt.benchmarks.sweep.max_pool3d import Window
from gpuopt.lab.drawing import Case, Dice

LABELS = ("network", "layer", "shape", "dtype", "layout", "way")
DTYPES = ("float32", "float16")
LAYOUTS = ("channels first", "channels last")
SHRUNK = 8  # of channels, for a CPU's rows


# ---- the networks ----


class Layer(NamedTuple):
    """A layer: its name, the channels and lengths of its input, its windows or its scale."""

    name: str
    shape: tuple[int, ...]
    does: Window | int

    @property
    def title(self) -> str:
        """The name, and what the layer does."""
        if isinstance(self.does, int):
            return f"{self.name} x{self.does}"
        padded = f" p{self.does.padding}" if self.does.padding else ""
        return f"{self.name} k{self.does.kernel} s{self.does.stride}{padded}"


class Network(NamedTuple):
    """A network: the batch of a training on one GPU, and its layers in order."""

    batch: int
    layers: tuple[Layer, ...]


HALF = Window(2, 2, 0, 1)
THREE = Window(3, 2, 0, 1)


def around(kernel: int, stride: int = 1) -> Window:
    """Return windows whose middles are in the input."""
    return Window(kernel, stride, kernel // 2, 1)


NETWORKS = {
    # He et al. 2016
    "ResNet-50": Network(64, (Layer("stem pool", (64, 112, 112), around(3, 2)),)),
    # Simonyan and Zisserman 2015
    "VGG-16": Network(
        32,
        (
            Layer("pool 1", (64, 224, 224), HALF),
            Layer("pool 2", (128, 112, 112), HALF),
            Layer("pool 3", (256, 56, 56), HALF),
            Layer("pool 4", (512, 28, 28), HALF),
            Layer("pool 5", (512, 14, 14), HALF),
        ),
    ),
    # Szegedy et al. 2016, names of the published code; the maximum in Mixed_7c is that of the
    # graph of 2015 from which the Frechet Inception distance is computed
    "Inception-v3": Network(
        32,
        (
            Layer("stem pool 1", (64, 147, 147), THREE),
            Layer("stem pool 2", (192, 71, 71), THREE),
            Layer("Mixed_6a branch", (288, 35, 35), THREE),
            Layer("Mixed_7a branch", (768, 17, 17), THREE),
            Layer("Mixed_7c branch", (2048, 8, 8), around(3)),
        ),
    ),
    # Ronneberger et al. 2015, convolutions without padding
    "U-Net 2-D": Network(
        8,
        (
            Layer("down 1", (64, 568, 568), HALF),
            Layer("down 2", (128, 280, 280), HALF),
            Layer("down 3", (256, 136, 136), HALF),
            Layer("down 4", (512, 64, 64), HALF),
            Layer("up 1", (1024, 28, 28), 2),
            Layer("up 2", (512, 52, 52), 2),
            Layer("up 3", (256, 100, 100), 2),
            Layer("up 4", (128, 196, 196), 2),
        ),
    ),
    # Cicek et al. 2016, convolutions without padding; depth, height, width
    "U-Net 3-D": Network(
        2,
        (
            Layer("down 1", (64, 112, 128, 128), HALF),
            Layer("down 2", (128, 52, 60, 60), HALF),
            Layer("down 3", (256, 22, 26, 26), HALF),
            Layer("up 1", (512, 7, 9, 9), 2),
            Layer("up 2", (256, 10, 14, 14), 2),
            Layer("up 3", (128, 16, 24, 24), 2),
        ),
    ),
    # Huang et al. 2020, for images of 608 by 608
    "YOLOv3-SPP": Network(
        16,
        (
            Layer("SPP 5", (512, 19, 19), around(5)),
            Layer("SPP 9", (512, 19, 19), around(9)),
            Layer("SPP 13", (512, 19, 19), around(13)),
        ),
    ),
}


# ---- the rows ----


def items(dice: Dice) -> Iterator[beside.Item]:
    """Yield every row; on a CPU one layer of a kind, with an eighth of the channels."""
    for name, network in NETWORKS.items():
        for layer in few(network.layers) if dice.small else network.layers:
            for dtype in DTYPES[:1] if dice.small else DTYPES:
                for layout in LAYOUTS:
                    ways = [("forward", 1)]
                    if not dice.small:
                        ways.append(("forward", network.batch))
                    ways.append(("backward", 1 if dice.small else network.batch))
                    for way, batch in ways:
                        yield item(dice, name, layer, batch, dtype, layout, way)


def few(layers: Sequence[Layer]) -> list[Layer]:
    """Return the smallest pooling and the smallest upsampling, with few channels."""
    kinds = {type(layer.does): layer for layer in sorted(layers, key=size, reverse=True)}
    return [
        layer._replace(shape=(layer.shape[0] // SHRUNK, *layer.shape[1:]))
        for layer in kinds.values()
    ]


def size(layer: Layer) -> int:
    """Return the elements of a layer's input."""
    return functools.reduce(int.__mul__, layer.shape)


def item(
    dice: Dice, network: str, layer: Layer, batch: int, dtype: str, layout: str, way: str
) -> beside.Item:
    """Return the row of a layer."""
    shape = (batch, *layer.shape)
    values = (network, layer.title, str(shape), dtype, layout, way)
    last = layout == LAYOUTS[1]
    return beside.Item(
        dict(zip(LABELS, values, strict=True)),
        lambda: case(dice, layer, shape, dtype, last, way == "forward"),
    )


def case(
    dice: Dice, layer: Layer, shape: tuple[int, ...], dtype: str, last: bool, forward: bool
) -> Case:
    """Return a layer's case; the arrays are made here."""
    if isinstance(layer.does, int):
        out = (*shape[:2], *(layer.does * n for n in shape[2:]))
        way = upsample_nearest.forward if forward else upsample_nearest.backward
        return way(dice, layer.title, dtype, shape, out, layer.does, last)
    x = dice.array(shape, dtype)
    x = dice.channels_last(x) if last else x
    if forward:
        return max_pool3d.forward(dice, layer.title, x, layer.does)
    return max_pool3d.backward(dice, layer.title, x, layer.does, last)


BENCH = beside.Benchmark("layers", LABELS, items)


# ---- the tables ----

HEADING = """\
## The layers of known networks
Every max pooling and nearest upsampling of six networks in its published shape, as
`python -m benchmarks.layers` times it beside torch. A window is k(ernel) s(tride) p(adding), a
shape is batch, channels, lengths; backward takes the indices of our own forward call. Shares,
worst and mean are those of [random calls](#random-calls)."""


def section() -> str:
    """Return the tables; nothing before a whole run is committed."""
    return beside.section(HEADING, beside.kept(BENCH.name), parts)


def parts(run: beside.Run) -> Iterator[str]:
    """Yield a line per network, then the rows of each."""
    networks = beside.grouped(run["rows"], "network")
    groups = [*networks.items(), ("all", run["rows"])]
    yield Table(
        {"network": name, **beside.totals("rows", rows)} for name, rows in groups
    ).markdown()
    for name, rows in networks.items():
        yield from beside.folded(f"{name}: {len(rows)} rows", Table(map(line, rows)))


def line(row: beside.Row) -> dict[str, Any]:
    """Return a row of a network's table."""
    return {
        **{label: row[label] for label in LABELS},
        "ours ms": row.get("ms"),
        "torch ms": beside.best_of(row, "torch"),
        "times as fast": beside.ratio(row),
    }


def main(arguments: list[str] | None = None) -> int:
    """Measure every layer."""
    return beside.main(BENCH, __doc__, arguments)


if __name__ == "__main__":
    sys.exit(main())
