"""Where does each weight of a model come from? One line a weight, in the words of the source.

    "attn.weight_qkv": joined(at("attn.q.weight"), at("attn.k.weight"), at("attn.v.weight"))
    "attn.weight_o": at("attn.c_proj.weight").T

A line says which tensors of the source are read and what is made of them. It is first run on
tensors without content, which tells the shape before anything is read or allocated.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Weight:
    """What is made of some tensors of the source.

    Attributes:
        keys: their names.
        make: ``make(*tensors)``.
    """

    keys: tuple[str, ...]
    make: Callable[..., Tensor]

    def __call__(self, read: Callable[[str], Tensor]) -> Tensor:
        """The weight, from what ``read`` gives for each key."""
        return self.make(*(read(key) for key in self.keys))

    def then(self, change: Callable[[Tensor], Tensor]) -> "Weight":
        """What ``change`` makes of it."""

        def make(*tensors: Tensor) -> Tensor:
            return change(self.make(*tensors))

        return replace(self, make=make)

    @property
    def T(self) -> "Weight":
        """Rows and columns swapped: of matrices that are stored [in, out]."""
        return self.then(lambda x: x.mT)

    def __getitem__(self, rows: slice) -> "Weight":
        """Some of the rows."""
        return self.then(lambda x: x[rows])

    def by_head(self, n_heads: int) -> "Weight":
        """Rows laid out [head][q k v][d_head], as ours are: [q k v][head][d_head]."""

        def laid(x: Tensor) -> Tensor:
            by_head = x.reshape(n_heads, 3, -1, *x.shape[1:])
            return by_head.transpose(0, 1).flatten(0, 2)

        return self.then(laid)


Table = dict[str, Weight]
"""Our names, and what each is made of."""


def at(key: str) -> Weight:
    """A tensor of the source, as it is."""

    def same(x: Tensor) -> Tensor:
        return x

    return Weight((key,), same)


def joined(*weights: Weight) -> Weight:
    """Several, one under another."""
    counts = [len(weight.keys) for weight in weights]

    def make(*tensors: Tensor) -> Tensor:
        parts: list[Tensor] = []
        for weight, count in zip(weights, counts, strict=True):
            own, tensors = tensors[:count], tensors[count:]
            parts.append(weight.make(*own))
        return torch.cat(parts)

    return Weight(tuple(key for weight in weights for key in weight.keys), make)


def stacked(*weights: Weight) -> Weight:
    """Several, as one tensor with a new first axis."""
    return joined(*(weight.then(lambda x: x[None]) for weight in weights))


def under(name: str, table: Mapping[str, Weight], source: str = "") -> Table:
    """A table below ``name``, its keys below ``source``."""
    return {
        f"{name}{own}": Weight(tuple(f"{source}{key}" for key in weight.keys), weight.make)
        for own, weight in table.items()
    }


def each_layer(n: int, table: Mapping[str, Weight], name: str, source: str) -> Table:
    """A block's table for each of ``n`` layers; ``source`` holds ``{}`` where its number stands."""
    lines: Table = {}
    for layer in range(n):
        lines |= under(f"{name}.{layer}.", table, source.format(layer))
    return lines


def norm(name: str, source: str, *, bias: bool = True) -> Table:
    """The gain (and bias) of a norm."""
    lines = {f"{name}.gain": at(f"{source}.weight")}
    return lines | ({f"{name}.bias": at(f"{source}.bias")} if bias else {})


def linear(weight: str, bias: str, source: str, *, biased: bool = True) -> Table:
    """A matrix [out, in] and perhaps its bias."""
    lines = {weight: at(f"{source}.weight")}
    return lines | ({bias: at(f"{source}.bias")} if biased else {})


def unembedding(head: str, key: str = "lm_head.weight") -> Table:
    """W_U, if it has weights of its ``own``, and is neither ``tied`` nor ``none``."""
    return {"unembed.weight": at(key)} if head == "own" else {}


def separate_qkv(
    q: str, k: str, v: str, *, biased: bool | tuple[bool, bool, bool] = True, name: str = "attn"
) -> Table:
    """Queries, keys and values that are stored apart, of one attention: that called ``name``."""
    flags = (biased,) * 3 if isinstance(biased, bool) else biased
    lines: Table = {f"{name}.weight_qkv": joined(*(at(f"{part}.weight") for part in (q, k, v)))}
    for own, part, flag in zip("qkv", (q, k, v), flags, strict=True):
        lines |= {f"{name}.b_{own}": at(f"{part}.bias")} if flag else {}
    return lines


def fused_qkv(weight: Weight, bias: Weight | None, n_query: int, n_key: int) -> Table:
    """Queries, keys and values that are stored as one, in this order: rows of each."""
    lines: Table = {"attn.weight_qkv": weight}
    if bias is not None:
        lines |= {
            "attn.b_q": bias[:n_query],
            "attn.b_k": bias[n_query : n_query + n_key],
            "attn.b_v": bias[n_query + n_key :],
        }
    return lines
