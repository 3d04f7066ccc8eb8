"""Tables that map each parameter of a model to the source tensors that it is computed from.

    "attn.weight_qkv": concatenated(from_key("q.weight"), from_key("k.weight"), ...)
    "attn.weight_o": from_key("attn.c_proj.weight").T

A :class:`Weight` holds the keys that it reads and a function of those tensors. It is first applied
to tensors on the meta device, so that shapes are checked before any data is read or allocated.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from interp.loading.foreign_config import UnembeddingKind


@dataclass(frozen=True)
class Weight:
    """One parameter as a function of tensors of the source.

    Attributes:
        keys: names of the tensors in the source.
        compute: the function, called as ``compute(*tensors)`` with one tensor per key.
    """

    keys: tuple[str, ...]
    compute: Callable[..., Tensor]

    def __call__(self, read: Callable[[str], Tensor]) -> Tensor:
        """The parameter, where ``read(key)`` returns the tensor of a key."""
        return self.compute(*(read(key) for key in self.keys))

    def map(self, function: Callable[[Tensor], Tensor]) -> "Weight":
        """The composition: ``function`` applied to this weight."""

        def compute(*tensors: Tensor) -> Tensor:
            return function(self.compute(*tensors))

        return replace(self, compute=compute)

    @property
    def T(self) -> "Weight":
        """The transpose; for matrices stored as ``[in, out]``."""
        return self.map(lambda x: x.mT)

    def __getitem__(self, rows: slice) -> "Weight":
        """A slice of the rows."""
        return self.map(lambda x: x[rows])

    def group_qkv(self, n_heads: int) -> "Weight":
        """Rows in the order [head][q k v][d_head] reordered to [q k v][head][d_head]."""
        return self.group_grouped_qkv(n_heads, 1)

    def group_grouped_qkv(self, n_kv_heads: int, n_sharing: int) -> "Weight":
        """The same for grouped-query attention, from [kv_head][q … q k v][d_head].

        Args:
            n_kv_heads: number of key/value heads.
            n_sharing: number of query heads that share each of them.
        """

        def reorder(x: Tensor) -> Tensor:
            by_head = x.reshape(n_kv_heads, n_sharing + 2, -1, *x.shape[1:])
            parts = by_head.split([n_sharing, 1, 1], dim=1)
            return cat([part.flatten(0, 2) for part in parts])

        return self.map(reorder)


Table = dict[str, Weight]
"""Parameter names of the model, and how each parameter is computed."""


def from_key(key: str) -> Weight:
    """The source tensor ``key``, unchanged."""

    def identity(x: Tensor) -> Tensor:
        return x

    return Weight((key,), identity)


def concatenated(*weights: Weight) -> Weight:
    """Several weights concatenated along the first axis."""
    counts = [len(weight.keys) for weight in weights]

    def compute(*tensors: Tensor) -> Tensor:
        parts: list[Tensor] = []
        for weight, count in zip(weights, counts, strict=True):
            inputs, tensors = tensors[:count], tensors[count:]
            parts.append(weight.compute(*inputs))
        return cat(parts)

    return Weight(tuple(key for weight in weights for key in weight.keys), compute)


def stacked(*weights: Weight) -> Weight:
    """Several weights of one shape stacked along a new first axis."""
    return concatenated(*(weight.map(lambda x: x[None]) for weight in weights))


def cat(parts: Sequence[Tensor]) -> Tensor:
    """``torch.cat(parts)`` along the first axis.

    On the meta device only the shape is computed: PyTorch would import its compiler to do so, which
    takes longer than loading a small model.

    Raises:
        RuntimeError: the shapes differ in another axis than the first.
    """
    if not parts[0].is_meta:
        return torch.cat(list(parts))
    rows, rest = sum(len(part) for part in parts), parts[0].shape[1:]
    if any(part.shape[1:] != rest for part in parts):
        shapes = ", ".join(str(tuple(part.shape)) for part in parts)
        raise RuntimeError(f"tensors of shapes {shapes} can't be concatenated")
    return parts[0].new_empty(rows, *rest)


# ---- tables of parts ----------------------------------------------------------------------------


def prefixed(prefix: str, table: Mapping[str, Weight], source: str = "") -> Table:
    """A table with ``prefix`` before each parameter name and ``source`` before each key."""
    return {
        f"{prefix}{name}": Weight(tuple(f"{source}{key}" for key in weight.keys), weight.compute)
        for name, weight in table.items()
    }


def each_layer(n_layers: int, block: Mapping[str, Weight], source: str) -> Table:
    """The table of ``blocks``, from that of one block.

    Args:
        n_layers: number of blocks.
        block: the table of a block.
        source: prefix of a block's keys, with ``{}`` for the layer's index.
    """
    table: Table = {}
    for layer in range(n_layers):
        table |= prefixed(f"blocks.{layer}.", block, source.format(layer))
    return table


def norm(name: str, source: str, *, gain: bool = True, bias: bool = True) -> Table:
    """Gain and bias of a norm, if it has them."""
    table = {f"{name}.gain": from_key(f"{source}.weight")} if gain else {}
    return table | ({f"{name}.bias": from_key(f"{source}.bias")} if bias else {})


def linear(weight: str, bias: str, source: str, *, biased: bool = True) -> Table:
    """A matrix stored as ``[out, in]`` and its bias."""
    table = {weight: from_key(f"{source}.weight")}
    return table | ({bias: from_key(f"{source}.bias")} if biased else {})


def mlp(source_in: str, source_out: str, *, biased: bool = True) -> Table:
    """W_in and W_out of an MLP, with their biases."""
    return {
        **linear("mlp.weight_in", "mlp.b_in", source_in, biased=biased),
        **linear("mlp.weight_out", "mlp.b_out", source_out, biased=biased),
    }


def gate_and_in(source: str, *, biased: bool = True) -> Table:
    """W_gate and W_in of a gated MLP, stored as the halves of one matrix ``[out, in]``."""
    parts = {"weight": ("mlp.weight_gate", "mlp.weight_in"), "bias": ("mlp.b_gate", "mlp.b_in")}
    table: Table = {}
    for part in ("weight", "bias") if biased else ("weight",):
        joint, (gate, in_) = from_key(f"{source}.{part}"), parts[part]
        table |= {gate: joint.map(lambda x: x.chunk(2)[0]), in_: joint.map(lambda x: x.chunk(2)[1])}
    return table


def attention_output(source: str, *, biased: bool = True, name: str = "attn") -> Table:
    """W_O and b_O of the attention called ``name``."""
    return linear(f"{name}.weight_o", f"{name}.b_O", source, biased=biased)


def separate_qkv(q: str, k: str, v: str, *, biased: bool = True, name: str = "attn") -> Table:
    """Queries, keys and values stored as three matrices, for the attention called ``name``."""
    sources = {"q": q, "k": k, "v": v}
    matrices = (from_key(f"{source}.weight") for source in sources.values())
    table: Table = {f"{name}.weight_qkv": concatenated(*matrices)}
    for part, source in sources.items() if biased else ():
        table[f"{name}.b_{part}"] = from_key(f"{source}.bias")
    return table


def fused_qkv(weight: Weight, bias: Weight | None, n_query: int, n_key: int) -> Table:
    """Queries, keys and values stored as one matrix, in this order.

    Args:
        weight: the matrix.
        bias: its bias, if it has one.
        n_query: number of rows of the queries.
        n_key: number of rows of the keys.
    """
    table: Table = {"attn.weight_qkv": weight}
    if bias is not None:
        table |= {
            "attn.b_q": bias[:n_query],
            "attn.b_k": bias[n_query : n_query + n_key],
            "attn.b_v": bias[n_query + n_key :],
        }
    return table


def unembedding(kind: UnembeddingKind) -> Table:
    """W_U, if the unembedding is ``untied``; empty if it is ``tied`` or there is ``none``."""
    return {"unembed.weight": from_key("lm_head.weight")} if kind == "untied" else {}
