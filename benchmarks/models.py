"""Our models for benchmarks: GPT-2-small's shape, random weights, one per kernel."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

import interp
from benchmarks.timing import Absent
from interp.kernels import OperationLog

KERNELS = ("default", "packed")
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Shape:
    """Sizes of a GPT-2-like model."""

    n_layers: int = 12
    n_heads: int = 12
    d_model: int = 768
    d_vocab: int = 50257
    n_ctx: int = 1024

    @property
    def d_head(self) -> int:
        """Dimension of a head: d_model / n_heads."""
        return self.d_model // self.n_heads


@dataclass(frozen=True)
class Setting:
    """The setting of one call of the command.

    Attributes:
        shape: sizes of the models.
        passes: (rows, width) of the forwards.
        prompts: (rows, width) of the sweeps.
        corpus: (rows, width) of the texts of a scan.
        rounds: number of times that each work is timed.
        long_rounds: number of times that loops are timed that take a minute per round.
        warmup: number of rounds before those, which are not counted.
        kernels: our kernels: ``default``, ``packed`` or both.
        device: device of the models.
        dtype: dtype of weights and activations.
        threads: number of CPU threads.
        quick: whether this is a trial of the command on a tiny model.
    """

    shape: Shape = Shape()
    passes: tuple[tuple[int, int], ...] = ((1, 128), (4, 256), (1, 1024))
    prompts: tuple[int, int] = (8, 32)
    corpus: tuple[int, int] = (8, 512)
    rounds: int = 7
    long_rounds: int = 3
    warmup: int = 2
    kernels: tuple[str, ...] = KERNELS
    device: torch.device = CPU
    dtype: torch.dtype = torch.float32
    threads: int = 2
    quick: bool = False

    def tokens(self, rows: int, width: int) -> Tensor:
        """Random token ids ``[rows width]``, the same in every call."""
        generator = torch.Generator().manual_seed(rows * 10_000 + width)
        ids = torch.randint(self.shape.d_vocab, (rows, width), generator=generator)
        return ids.to(self.device)


QUICK = Setting(
    shape=Shape(n_layers=2, n_heads=2, d_model=16, d_vocab=50, n_ctx=64),
    passes=((1, 8), (1, 32)),
    prompts=(2, 8),
    corpus=(2, 16),
    rounds=1,
    long_rounds=1,
    warmup=0,
    quick=True,
)


class Ours:
    """Our model in each kernel; all use the same weights."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting

    @cached_property
    def default(self) -> interp.Transformer:
        """The model with the default kernel."""
        torch.manual_seed(0)
        model = interp.Transformer(config_of(self._setting.shape))
        return model.to(self._setting.device, self._setting.dtype).eval()

    @cached_property
    def packed(self) -> interp.Transformer:
        """The model with matrix products by oneDNN, for which weights are packed once.

        Raises:
            Absent: packed kernels do not exist for this device or dtype.
        """
        if self._setting.device.type != "cpu":
            raise Absent("packed kernels are for CPUs")
        try:
            return feature("packed")(self.default)
        except interp.InterpError as error:
            raise Absent(f"packed: {error}") from error

    def __getitem__(self, kernel: str) -> interp.Transformer:
        """The model with the named kernel.

        Raises:
            Absent: the setting excludes that kernel, or it does not exist here.
        """
        if kernel not in self._setting.kernels:
            raise Absent(f"--kernel leaves {kernel} out")
        return self.packed if kernel == "packed" else self.default

    def of_depth(self, n_layers: int) -> interp.Transformer:
        """A model with ``n_layers`` layers, otherwise of the same shape."""
        shape = self._setting.shape
        shallow = Shape(n_layers, shape.n_heads, shape.d_model, shape.d_vocab, shape.n_ctx)
        model = interp.Transformer(config_of(shallow))
        return model.to(self._setting.device, self._setting.dtype).eval()


def config_of(shape: Shape) -> interp.Config:
    """The configuration of a model of this shape, with GPT-2's architecture."""
    return interp.Config(
        d_model=shape.d_model,
        d_vocab=shape.d_vocab,
        n_ctx=shape.n_ctx,
        tied=True,
        decoder=interp.StackConfig(
            n_layers=shape.n_layers,
            attention=interp.AttentionConfig(shape.n_heads, shape.d_head),
            mlp=interp.MLPConfig(4 * shape.d_model, "gelu_tanh"),
        ),
    )


def feature(name: str) -> Callable[..., Any]:
    """A function of ``interp``.

    Raises:
        Absent: this version has no such function.
    """
    function = getattr(interp, name, None)
    if not callable(function):
        raise Absent(f"this version has no interp.{name}")
    return function


def kernel_ran(model: interp.Transformer) -> str:
    """The operations of torch that compute products and attention in a forward of two tokens."""
    with torch.no_grad(), OperationLog() as log:
        model(*[[[0, 0]] for _ in model.stacks])
    return ", ".join(log.operations)
