"""A small language model whose layers mix time steps with gpuopt.torch.CausalConv1d.

    python examples/language_model.py [--device cpu|cuda] [--steps 200] [--compile] [--time]

The text is drawn from a Markov chain, so the best possible loss, the chain's entropy, is
known; the model gets near it in a few hundred steps.  `--time` compares a training step with
the same model on torch's own operators: milliseconds and, on a GPU, peak memory.
Order: the text, the model, training, timing, the command.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import gpuopt.torch as gt

# ---- the text ----


class Text:
    """Sequences of a Markov chain in which the symbol two steps back decides."""

    def __init__(self, symbols: int = 16, seed: int = 0) -> None:
        self.random = torch.Generator().manual_seed(seed)
        weights = torch.rand(symbols, symbols, generator=self.random) ** 8
        self.next = weights / weights.sum(1, keepdim=True)
        self.symbols = symbols

    def draw(self, batch: int, steps: int) -> Tensor:
        """Int64 of shape (batch, steps)."""
        text = [torch.randint(self.symbols, (batch,), generator=self.random) for _ in range(2)]
        while len(text) < steps:
            chances = self.next[text[-2]]
            text.append(torch.multinomial(chances, 1, generator=self.random)[:, 0])
        return torch.stack(text, 1)

    def entropy(self) -> float:
        """The loss, in nats per symbol, that no model can beat on long texts."""
        stays = torch.linalg.matrix_power(self.next.double(), 256)[0]
        logs = torch.where(self.next > 0, self.next.log(), 0).double()
        return -float(stays @ (self.next * logs).sum(1))


# ---- the model ----


class TorchConv(nn.Module):
    """What CausalConv1d replaces: torch's convolution, padded on the left, then SiLU."""

    def __init__(self, channels: int, taps: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, taps, padding=taps - 1, groups=channels)

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(self.conv(x.transpose(1, 2))[..., : x.shape[1]]).transpose(1, 2)


def mixing(channels: int, taps: int, ours: bool) -> nn.Module:
    """A layer of (B, T, C) in which a step sees itself and the `taps - 1` before it."""
    if ours:
        return gt.CausalConv1d(channels, taps, activation="silu", layout="BTC")
    return TorchConv(channels, taps)


class Layer(nn.Module):
    """Normalise, mix time steps, gate, and add to the input, as state-space models do."""

    def __init__(self, channels: int, taps: int, ours: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels)
        self.into = nn.Linear(channels, 2 * channels)
        self.mix = mixing(channels, taps, ours)
        self.out = nn.Linear(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        values, gate = self.into(self.norm(x)).chunk(2, dim=-1)
        return x + self.out(self.mix(values) * F.silu(gate))


class LanguageModel(nn.Module):
    """Scores for the next symbol, of shape (B, T, symbols)."""

    def __init__(
        self,
        symbols: int,
        channels: int = 64,
        layers: int = 2,
        taps: int = 4,
        ours: bool = True,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(symbols, channels)
        self.layers = nn.ModuleList(Layer(channels, taps, ours) for _ in range(layers))
        self.head = nn.Linear(channels, symbols)

    def forward(self, text: Tensor) -> Tensor:
        x = self.embedding(text)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def model_of(symbols: int, ours: bool, device: str, **sizes: int) -> LanguageModel:
    """A model whose parameters are the same numbers whatever `ours` and the device are."""
    torch.manual_seed(0)
    return LanguageModel(symbols, ours=ours, **sizes).to(device)


# ---- training ----


def step_of(model: nn.Module, compiled: bool) -> Callable[[Tensor], Tensor]:
    """One step of Adam on a batch of texts; returns the loss, without waiting for it."""
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    run: Any = torch.compile(model, fullgraph=True) if compiled else model

    def step(text: Tensor) -> Tensor:
        scores = run(text[:, :-1])
        loss = F.cross_entropy(scores.flatten(0, 1), text[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return loss.detach()

    return step


def train(
    device: str = "cpu",
    steps: int = 200,
    ours: bool = True,
    compiled: bool = False,
    progress: int = 0,
) -> tuple[list[float], float]:
    """The loss of every step, and the text's entropy; prints every `progress` steps."""
    text = Text()
    step = step_of(model_of(text.symbols, ours, device), compiled)
    losses = []
    for i in range(1, steps + 1):
        losses.append(float(step(text.draw(32, 64).to(device))))
        if progress and i % progress == 0:
            print(f"step {i:4d}: loss {losses[-1]:.3f}, at best {text.entropy():.3f}")
    return losses, text.entropy()


# ---- timing ----


def timed(
    device: str, ours: bool, compiled: bool, repeats: int, batch: int, length: int, **sizes: int
) -> dict[str, Any]:
    """The median milliseconds of a training step and, on a GPU, its peak memory in MB."""
    text = Text()
    step = step_of(model_of(text.symbols, ours, device, **sizes), compiled)
    batch_of_texts = text.draw(batch, length).to(device)
    for _ in range(3):  # compiles, and lets the allocator settle
        step(batch_of_texts)
    on_gpu = device != "cpu"
    if on_gpu:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        step(batch_of_texts)
        if on_gpu:
            torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - begin))
    peak = torch.cuda.max_memory_allocated() / 1e6 if on_gpu else None
    return {"ms": statistics.median(times), "peak_mb": peak}


def compare(device: str) -> list[dict[str, Any]]:
    """Our operators beside torch's, eager and compiled, on a model of common width."""
    wide = {"batch": 8, "length": 2049, "channels": 1024, "layers": 4}
    sizes = wide if device != "cpu" else {"batch": 8, "length": 257, "channels": 64}
    return [
        {
            "mixing": "gpuopt" if ours else "torch",
            "compiled": compiled,
            **timed(device, ours, compiled, 20, **sizes),
        }
        for compiled in (False, True)
        for ours in (True, False)
    ]


# ---- the command ----


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--compile", action="store_true", help="torch.compile the model")
    parser.add_argument("--time", action="store_true", help="compare with torch's operators")
    args = parser.parse_args()
    if args.time:
        for row in compare(args.device):
            memory = f", {row['peak_mb']:.0f} MB" if row["peak_mb"] else ""
            how = "compiled" if row["compiled"] else "eager"
            print(f"{row['mixing']:6} {how:8} {row['ms']:8.2f} ms a step{memory}")
        return
    train(args.device, args.steps, compiled=args.compile, progress=20)


if __name__ == "__main__":
    main()
