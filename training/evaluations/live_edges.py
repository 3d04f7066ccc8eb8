"""Which edges of a known circuit change the logits when each is patched alone? In plain torch.

This module does not use the package's own forward, so that its results can be a reference for it.
It supports models without norms, with learned positions and relu. An edge is *live* on some prompts
if replacing its value changes a logit. Not every edge of a circuit is live: its value may be the
same on both prompts, or its effect may be saturated.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from interp.prompts import read_prompts
from interp.transformer import Transformer
from interp.zoo import Circuit, LiveEdges

LEAST = 1e-9
"""Changes of a logit up to this size are rounding errors."""
Pairs = Sequence[tuple[Sequence[int], Sequence[int]]]
"""Token ids of clean and corrupted prompts of equal length."""
Outputs = dict[str, Tensor]
"""The output of each node that writes to the stream, ``[pos d_model]``."""


def pairs_of(model: Transformer, name: str) -> Pairs:
    """The pairs of a bundled prompt set, as token ids."""

    def ids(text: str) -> list[int]:
        return model.to_tokens(text)[0].tolist()

    return [(ids(prompt.text), ids(prompt.corrupt or "")) for prompt in read_prompts(name)]


def with_live_edges(circuit: Circuit, model: Transformer, pairs: Pairs) -> Circuit:
    """The circuit with its live edges on some pairs; the mean is over all their clean tokens."""
    plain = PlainModel(model)
    clean, corrupt = ([plain.run(pair[side])[1] for pair in pairs] for side in (0, 1))
    means = {name: torch.cat([outputs[name] for outputs in clean]).mean(0) for name in clean[0]}

    def live(values: Sequence[Outputs]) -> tuple[tuple[str, str], ...]:
        return tuple(
            edge
            for edge in circuit.edges
            if any(
                plain.change(ids, edge, outputs[edge[0]]) > LEAST
                for (ids, _), outputs in zip(pairs, values, strict=True)
            )
        )

    zeros = [{name: torch.zeros((), dtype=torch.float64) for name in means}] * len(pairs)
    return replace(
        circuit,
        live=LiveEdges(resample=live(corrupt), mean=live([means] * len(pairs)), zero=live(zeros)),
    )


class PlainModel:
    """logits = (x0 + Σ heads + Σ MLPs) W_U, written out, in float64."""

    def __init__(self, model: Transformer) -> None:
        self.causal = model.config.decoder is not None
        self.W_E, self.W_pos, self.W_U = (
            matrix.detach().double() for matrix in (model.W_E, model.W_pos, model.W_U)
        )
        self.attentions = [_doubles(block.attn, HEADS) for block in model.blocks]
        self.divisors = [block.attn.divisor for block in model.blocks]
        self.mlps = [
            _doubles(block.mlp, NEURONS) if hasattr(block, "mlp") else None
            for block in model.blocks
        ]

    def change(self, ids: Sequence[int], edge: tuple[str, str], value: Tensor) -> float:
        """The largest change of a logit when the value of one edge is replaced."""
        plain, _ = self.run(ids)
        return float((self.run(ids, edge, value)[0] - plain).abs().max())

    def run(
        self, ids: Sequence[int], edge: tuple[str, str] = ("", ""), value: Tensor | None = None
    ) -> tuple[Tensor, Outputs]:
        """The logits, and the output of each node; ``value`` replaces that of ``edge``."""
        outputs = {"embed": self.W_E[list(ids)], "pos_embed": self.W_pos[: len(ids)]}

        def read(reader: str) -> Tensor:
            inputs = dict(outputs)
            if reader == edge[1] and value is not None:
                inputs[edge[0]] = value.expand_as(inputs["embed"])
            return torch.stack(list(inputs.values())).sum(0)

        for layer, neurons in enumerate(self.mlps):
            heads = range(len(self.attentions[layer]["W_Q"]))
            outputs |= {f"L{layer}H{h}": self._head(layer, h, read) for h in heads}
            if neurons is not None:
                hidden = read(f"L{layer}MLP") @ neurons["W_in"] + neurons["b_in"]
                outputs[f"L{layer}MLP"] = hidden.relu() @ neurons["W_out"]
        return read("logits") @ self.W_U, outputs

    def _head(self, layer: int, head: int, read: Callable[[str], Tensor]) -> Tensor:
        """A v W_O, where queries, keys and values each read their own stream."""
        weights, name = self.attentions[layer], f"L{layer}H{head}"
        q, k, v = (
            read(f"{name}.{letter.lower()}") @ weights[f"W_{letter}"][head]
            + weights[f"b_{letter}"][head]
            for letter in "QKV"
        )
        scores = q @ k.T / self.divisors[layer]
        if self.causal:
            later = torch.ones_like(scores, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(later, -torch.inf)
        return scores.softmax(-1) @ v @ weights["W_O"][head]


HEADS = ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V")
NEURONS = ("W_in", "b_in", "W_out")


def _doubles(part: nn.Module, names: Sequence[str]) -> dict[str, Tensor]:
    return {name: getattr(part, name).detach().double() for name in names}
