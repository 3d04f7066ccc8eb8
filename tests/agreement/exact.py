"""Hugging Face in float64, and all that its forward computes, by name.

Its models compute angles, norms and softmaxes in float32 whatever the type of their weights. To
compare to 1e-9, float32 is told to be float64 while they are built and run.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as everyone writes it

IN_FLOAT = Tensor.float


def _in_double(x: Tensor, *args, **kwargs) -> Tensor:
    return x.double(*args, **kwargs)


@contextmanager
def exact() -> Iterator[None]:
    """Whoever casts to float32 in here casts to float64."""
    before = torch.float32, torch.float, torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    torch.float32 = torch.float = torch.float64
    Tensor.float = _in_double
    try:
        yield
    finally:
        torch.float32, torch.float, default = before
        Tensor.float = IN_FLOAT
        torch.set_default_dtype(default)


def randomised(model: nn.Module, seed: int = 0) -> nn.Module:
    """In float64, every weight and bias moved well away from zeros and ones."""
    generator = torch.Generator().manual_seed(seed)
    model = model.double().eval()
    with torch.no_grad():
        for weight in model.parameters():
            noise = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
            weight.add_(noise * (0.1 if weight.ndim > 1 else 0.3))
    return model


@dataclass
class Seen:
    """What passed through the modules of a model in one forward.

    Attributes:
        given: the first input of each module, by name.
        gave: the first output.
        scores: what each attention's softmax was given, in order.
    """

    given: dict[str, Tensor] = field(default_factory=dict)
    gave: dict[str, Tensor] = field(default_factory=dict)
    scores: list[Tensor] = field(default_factory=list)


@contextmanager
def watched(model: nn.Module) -> Iterator[Seen]:
    """Notes what every module of ``model`` is given and gives, and what softmaxes are given."""
    seen = Seen()
    handles = [
        module.register_forward_hook(_noting(seen, name), with_kwargs=True)
        for name, module in model.named_modules()
    ]
    softmax = F.softmax

    def noted(x: Tensor, *args, **kwargs) -> Tensor:
        if x.ndim == 4:
            seen.scores.append(x.detach().clone())
        return softmax(x, *args, **kwargs)

    F.softmax = noted
    try:
        yield seen
    finally:
        F.softmax = softmax
        for handle in handles:
            handle.remove()


def _noting(seen: Seen, name: str) -> Callable[..., None]:
    def note(module, args, kwargs, output) -> None:
        given = next((x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)), None)
        if given is not None:
            seen.given[name] = given.detach()
        first = output[0] if isinstance(output, tuple | list) else output
        if isinstance(first, Tensor):
            seen.gave[name] = first.detach().clone()  # which later code may change in place

    return note
