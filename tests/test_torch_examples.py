"""The examples of gpuopt in a torch model: what they show is right, on every device here.

`make test-torch` runs it, in an environment of its own.
Order: the programs, the language model, the U-Net encoder.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from conftest import Child

import gpuopt.torch as gt

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def double() -> Iterator[None]:
    """Models in float64, in which a few steps of training amplify no rounding visibly."""
    torch.set_default_dtype(torch.float64)
    torch._dynamo.reset()
    yield
    torch.set_default_dtype(torch.float32)
    torch._dynamo.reset()


# ---- the programs ----


RUN = "import runpy, sys; sys.argv[:1] = []; runpy.run_path(sys.argv[0], run_name='__main__')"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("command", ["language_model.py --steps 20", "unet_encoder.py"])
def test_a_program_runs(command: str, device: str, child: Child) -> None:
    name, *arguments = command.split()
    given = (str(EXAMPLES / name), *arguments, "--device", device)
    assert "loss " in child(RUN, arguments=given).stdout


# ---- the language model ----


@pytest.mark.parametrize("device", DEVICES)
def test_the_losses_are_those_of_torch(device: str, double: None) -> None:
    """On a CPU and on a GPU, with our operators and with torch's: the same losses."""
    lm = example("language_model")
    want, _ = lm.train("cpu", 20, ours=False)
    got, _ = lm.train(device, 20)
    assert want[-1] < want[0] - 0.3
    assert got == pytest.approx(want, rel=1e-9)


@pytest.mark.parametrize("device", DEVICES)
def test_the_compiled_model_has_the_same_losses(device: str, double: None) -> None:
    lm = example("language_model")
    want, _ = lm.train(device, 4)
    got, _ = lm.train(device, 4, compiled=True)
    assert got == pytest.approx(want, rel=1e-9)


@pytest.mark.parametrize("device", DEVICES)
def test_the_model_learns_the_text(device: str) -> None:
    """In float32 the mean of the last losses is near the entropy, and not below it."""
    losses, entropy = example("language_model").train(device, 120)
    last = sum(losses[-10:]) / 10
    assert losses[0] > 2.5
    assert entropy - 0.1 < last < entropy + 0.2


def test_what_is_timed_is_both_kinds() -> None:
    lm = example("language_model")
    sizes = {"batch": 2, "length": 9, "channels": 8}
    for ours in (True, False):
        row = lm.timed("cpu", ours, False, 1, **sizes)
        assert row["ms"] > 0 and row["peak_mb"] is None
    kinds = {ours: type(lm.mixing(4, 3, ours)) for ours in (True, False)}
    assert kinds == {True: gt.CausalConv1d, False: lm.TorchConv}


# ---- the U-Net encoder ----


@pytest.mark.parametrize("device", DEVICES)
def test_an_encoder_has_the_gradients_of_torch(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    unet = example("unet_encoder")
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    loss, gradients = unet.one_step(gt.MaxPool3d, device)
    want, expected = unet.one_step(torch.nn.MaxPool3d, device)
    assert len(gradients) == len(expected) == 24
    assert torch.equal(loss, want)
    for a, b in zip(gradients, expected, strict=True):
        assert torch.equal(a, b)
        assert a.isfinite().all() and a.abs().sum() > 0
