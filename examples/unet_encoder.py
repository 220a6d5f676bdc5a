"""A 3-D U-Net encoder for volumes, with gpuopt.torch's pooling.

    python examples/unet_encoder.py [--device cpu|cuda]

It takes one training step on random volumes with our pooling and with torch's; the loss and
every gradient are the same bits, because a maximum is one of its inputs.
Order: the model, one step, the command.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import gpuopt.torch as gt


class Block(nn.Module):
    """Two convolutions of 3 x 3 x 3, each normalised and rectified."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv3d(c, outputs, 3, padding=1) for c in (inputs, outputs)
        )
        self.norms = nn.ModuleList(nn.InstanceNorm3d(outputs, affine=True) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = F.relu(norm(conv(x)))
        return x


class Encoder(nn.Module):
    """Halves a volume and doubles its channels at every level.

    Returns the features of every level: a U-Net's decoder uses them as skip connections.
    """

    def __init__(
        self, pool: Callable[[int], nn.Module], channels: int = 8, levels: int = 3
    ) -> None:
        super().__init__()
        widths = [1, *(channels << i for i in range(levels))]
        self.blocks = nn.ModuleList(map(Block, widths[:-1], widths[1:]))
        self.pool = pool(2)

    def forward(self, x: Tensor) -> list[Tensor]:
        features: list[Tensor] = []
        for block in self.blocks:
            features.append(block(self.pool(features[-1]) if features else x))
        return features


def one_step(pool: Callable[[int], nn.Module], device: str) -> tuple[Tensor, list[Tensor]]:
    """The loss of a step on two random volumes, and the gradients of all parameters."""
    torch.manual_seed(0)
    encoder = Encoder(pool).to(device)
    volumes = torch.randn(2, 1, 16, 20, 24, generator=torch.Generator().manual_seed(1))
    loss = sum(level.square().mean() for level in encoder(volumes.to(device)))
    assert isinstance(loss, Tensor)
    loss.backward()
    return loss.detach(), [p.grad for p in encoder.parameters() if p.grad is not None]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    device = parser.parse_args().device
    torch.backends.cudnn.deterministic = True  # the convolutions, to compare bits
    ours, gradients = one_step(gt.MaxPool3d, device)
    theirs, expected = one_step(nn.MaxPool3d, device)
    same = all(torch.equal(a, b) for a, b in zip(gradients, expected, strict=True))
    print(f"loss {float(ours):.6f}, with torch's pooling {float(theirs):.6f}")
    print(f"{len(gradients)} gradients, the same bits: {same}")


if __name__ == "__main__":
    main()
