"""What is measured? A model of GPT-2-small's shape with random weights, in each kernel of ours."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import interp
from benchmarks.timing import Absent

KERNELS = ("default", "packed")
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Shape:
    """The shape of a model."""

    n_layers: int = 12
    n_heads: int = 12
    d_model: int = 768
    d_vocab: int = 50257
    n_ctx: int = 1024

    @property
    def d_head(self) -> int:
        """Dimensions of a head."""
        return self.d_model // self.n_heads


@dataclass(frozen=True)
class Setting:
    """What one call of the command measures, and how.

    Attributes:
        shape: of the models.
        passes: (rows, width) of the forwards.
        prompts: (rows, width) of the sweeps.
        rounds: how many times each work is timed.
        long_rounds: the same for loops that take a minute a round.
        warmup: rounds that are not counted.
        kernels: of ours: ``default``, ``packed`` or both.
        device: where.
        dtype: of weights and activations.
        threads: of the CPU.
        quick: whether it only tries that everything runs.
    """

    shape: Shape = Shape()
    passes: tuple[tuple[int, int], ...] = ((1, 128), (4, 256), (1, 1024))
    prompts: tuple[int, int] = (8, 32)
    rounds: int = 7
    long_rounds: int = 3
    warmup: int = 2
    kernels: tuple[str, ...] = KERNELS
    device: torch.device = CPU
    dtype: torch.dtype = torch.float32
    threads: int = 2
    quick: bool = False

    def tokens(self, rows: int, width: int) -> Tensor:
        """Random token ids, the same in every call."""
        generator = torch.Generator().manual_seed(rows * 10_000 + width)
        ids = torch.randint(self.shape.d_vocab, (rows, width), generator=generator)
        return ids.to(self.device)


QUICK = Setting(
    shape=Shape(n_layers=2, n_heads=2, d_model=16, d_vocab=50, n_ctx=64),
    passes=((1, 8), (1, 32)),
    prompts=(2, 8),
    rounds=1,
    long_rounds=1,
    warmup=0,
    quick=True,
)


class Ours:
    """Our model of a shape, in each kernel; all share their weights."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting

    @cached_property
    def default(self) -> interp.Transformer:
        """As it is built."""
        torch.manual_seed(0)
        model = interp.Transformer(config_of(self._setting.shape))
        return model.to(self._setting.device, self._setting.dtype).eval()

    @cached_property
    def packed(self) -> interp.Transformer:
        """With its products in oneDNN, weights packed once.

        Raises:
            Absent: there is none for this device or type.
        """
        if self._setting.device.type != "cpu":
            raise Absent("packed kernels are for CPUs")
        try:
            return feature("packed")(self.default)
        except interp.InterpError as error:
            raise Absent(f"packed: {error}") from error

    def __getitem__(self, kernel: str) -> interp.Transformer:
        """The model with that kernel.

        Raises:
            Absent: it was not asked for, or there is none here.
        """
        if kernel not in self._setting.kernels:
            raise Absent(f"--kernel left {kernel} out")
        return self.packed if kernel == "packed" else self.default

    def of_depth(self, n_layers: int) -> interp.Transformer:
        """A model with fewer layers, otherwise of the same shape."""
        shape = self._setting.shape
        shallow = Shape(n_layers, shape.n_heads, shape.d_model, shape.d_vocab, shape.n_ctx)
        model = interp.Transformer(config_of(shallow))
        return model.to(self._setting.device, self._setting.dtype).eval()


def config_of(shape: Shape) -> interp.Config:
    """GPT-2's architecture in that shape."""
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


def feature(name: str) -> Callable[..., object]:
    """A function of ``interp``.

    Raises:
        Absent: this version has none of that name.
    """
    found = getattr(interp, name, None)
    if not callable(found):
        raise Absent(f"this version has no interp.{name}")
    return found


class Seen(TorchDispatchMode):
    """Notes which operations of torch compute products and attention."""

    PRODUCTS = ("mm", "linear", "attention")

    def __init__(self) -> None:
        super().__init__()
        self.operations: dict[str, None] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401 - torch's signature
        """The operation, done as it is."""
        name = str(func.overloadpacket)
        if any(part in name for part in self.PRODUCTS) and "reorder" not in name:
            self.operations[name] = None
        return func(*args, **(kwargs or {}))


def kernel_ran(model: interp.Transformer) -> str:
    """The operations of torch by which a forward computed its products and its attention."""
    with torch.no_grad(), Seen() as seen:
        model([[0, 0]])
    return ", ".join(seen.operations)
