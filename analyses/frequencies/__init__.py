"""Which frequencies does a model of residues compute with? It may add numbers mod p by rotations.

    x_a = Σ_k (u_k cos(2πka/p) + v_k sin(2πka/p))        embeddings of the residues a = 0 … p − 1
    n_ab = c + Σ_k f_k(a, b)                              a neuron after a prompt with a and b

where f_k holds the terms cos ka, sin ka, cos kb, sin kb and their products, of one frequency k. The
share of frequency k is the variance of its terms divided by that of all terms (Nanda et al. 2023,
"Progress Measures for Grokking via Mechanistic Interpretability"; there, a neuron with more than
85 % at one frequency is explained by it). Products of two different frequencies belong to neither,
so a neuron's shares need not add up to 1; those of embeddings and logits do. Logits are those of
the residues, minus their mean over the residues.

The control is the same with the residues in random order, since frequencies depend on their order.
A frequency stands out if its share exceeds every share in each of 20 random orders, which happens
by chance in one of 20 parts. That a part has a frequency does not show that the answer depends on
it; ablation does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from analyses.frequencies.residues import over_residues, residue_prompts
from analyses.methods.components import components_of
from analyses.methods.finite import check_finite_weights
from analyses.methods.fourier import frequency_shares, joint_shares
from analyses.results import Curve, Curves, Drawing, Result, percent, rounding
from interp import Transformer
from interp.errors import InvalidInput, shorten
from interp.execution import Provenance
from interp.integers import as_seed, integer
from interp.metrics import required_columns
from interp.model import ImageInput, unembedding_of, whole_numbers
from interp.points import Place, Point
from interp.zoo import trained_tokens

TUNED = 0.85
"""The share above which a neuron is explained by one frequency."""
DRAWS = 20
"""Random orders of the residues; neurons use the first alone."""
EMBEDDING = "embedding"


@dataclass(frozen=True, eq=False, repr=False)
class Frequencies(Result):
    """Shares of the variance over residues, by frequency 1, 2, …, p/2.

    Attributes:
        share: shares of the ``embedding`` and the ``unembedding`` of the residues, and of the
            ``logits``.
        control: the same with the residues in random orders.
        neuron_share: shares of each neuron, by layer; NaN for a neuron with the same activation on
            all prompts.
        neuron_control: the same with the residues in random order.
        modulus: the number of residues.
        template: labels of the tokens, those of residues replaced by ``a`` and ``b``.
        pos: the position at which neurons and logits are read.
        provenance: model, prompts and seed that the numbers depend on.
    """

    share: Mapping[str, Float[Tensor, " frequency"]]
    control: Mapping[str, Float[Tensor, "draw frequency"]]
    neuron_share: Mapping[int, Float[Tensor, "neuron frequency"]]
    neuron_control: Mapping[int, Float[Tensor, "neuron frequency"]]
    modulus: int
    template: tuple[str, ...]
    pos: int
    provenance: Provenance

    def to_frame(self) -> pd.DataFrame:
        """One row per part and frequency; the largest shares of each part first.

        Columns:
            name: ``embedding``, ``unembedding`` or ``logits``.
            frequency: number of periods over all residues.
            share: share of the variance.
            control: the same with the residues in random order, mean over the orders.
            stands_out: whether the share exceeds that of every frequency in every random order, by
                more than rounding.
        """
        noise = rounding(torch.ones(()), self.provenance.dtype)
        frames = [
            pd.DataFrame(
                {
                    "name": part,
                    "frequency": range(1, len(shares) + 1),
                    "share": shares.numpy(),
                    "control": self.control[part].mean(0).numpy(),
                    "stands_out": (shares > self.control[part].max() + noise).numpy(),
                }
            ).sort_values("share", ascending=False, kind="stable")
            for part, shares in self.share.items()
        ]
        return pd.concat(frames, ignore_index=True)

    def to_neuron_frame(self) -> pd.DataFrame:
        """One row per neuron.

        Columns:
            layer, neuron, name: the neuron.
            frequency: the frequency with the largest share of its variance.
            share: share of that frequency; NaN for a neuron that does not vary.
            control: the largest share with the residues in random order.
            tuned: whether the share exceeds 0.85.
        """
        frames = [
            pd.DataFrame(
                {
                    "layer": layer,
                    "neuron": range(len(shares)),
                    "name": [f"L{layer}N{neuron}" for neuron in range(len(shares))],
                    "frequency": shares.nan_to_num().argmax(-1).numpy() + 1,
                    "share": shares.amax(-1).numpy(),
                    "control": self.neuron_control[layer].amax(-1).numpy(),
                    "tuned": (shares.amax(-1) > TUNED).numpy(),
                }
            )
            for layer, shares in self.neuron_share.items()
        ]
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()

    def key_frequencies(self) -> dict[int, float]:
        """The frequencies that stand out in the embedding, with their shares; largest first."""
        frame = self.to_frame().query("name == @EMBEDDING and stands_out")
        return dict(zip(frame["frequency"], frame["share"], strict=True))

    def drawing(self) -> Drawing:
        """Shares by frequency: of embedding, unembedding and logits; and of tuned neurons."""
        x = range(1, self.modulus // 2 + 1)
        controls = torch.cat(list(self.control.values())).amax(0)
        parts = [Curve(part, x, shares.tolist()) for part, shares in self.share.items()]
        parts.append(Curve("largest in random orders", x, controls.tolist(), faint=True))
        tuned = [
            Curve(f"neurons of layer {layer}", x, self._tuned(shares).tolist())
            for layer, shares in self.neuron_share.items()
        ]
        return Curves(
            {"variance": parts, f"neurons over {percent(TUNED)}": tuned},
            title=f"{self.provenance.model}: Fourier spectrum over residues mod {self.modulus}",
            axis=f"frequency (periods over {self.modulus} residues)",
            units=["share", "share"],
        )

    def summary(self) -> str:
        """The frequencies that stand out, the largest of each part, and the share of neurons."""
        lines = [self.headline()]
        for part, shares in self.share.items():
            top = shares.nan_to_num().topk(min(4, len(shares)))
            ranked = zip((top.indices + 1).tolist(), top.values.tolist(), strict=True)
            text = ", ".join(f"{frequency} ({percent(share, 1)})" for frequency, share in ranked)
            lines.append(f"{part:<12} {text}")
        return "\n".join([*lines, *map(self._layer_line, self.neuron_share)])

    def headline(self) -> str:
        """See :meth:`Result.headline`."""
        model, key = self.provenance.model, self.key_frequencies()
        most = self.control[EMBEDDING].max()
        control = f"(in random order none has over {percent(most, 1)})"
        if key:
            named = ", ".join(map(str, key))
            finding = (
                f"frequencies {named} have {percent(sum(key.values()))} of the embedding's variance"
            )
        else:
            finding = "no frequency stands out in the embedding"
        return f"{model}: {finding} over residues mod {self.modulus} {control}"

    def _layer_line(self, layer: int) -> str:
        shares, control = self.neuron_share[layer], self.neuron_control[layer]
        tuned = self._tuned(shares)
        counts = (tuned * len(shares)).round().int()
        ranked = [k for k in counts.argsort(descending=True).tolist() if counts[k]]
        named = ", ".join(f"{counts[k]} at {k + 1}" for k in ranked[:5])
        return (
            f"layer {layer}: {percent(tuned.sum(), 1)} of {len(shares)} neurons have over "
            f"{percent(TUNED)} of their variance at one frequency (in random order "
            f"{percent(self._tuned(control).sum(), 1)})" + (f": {named}" if named else "")
        )

    @staticmethod
    def _tuned(shares: Float[Tensor, "neuron frequency"]) -> Float[Tensor, " frequency"]:
        """The share of neurons that each frequency explains."""
        return (shares > TUNED).double().mean(0)


@torch.no_grad()
def frequencies(
    model: Transformer,
    prompt: Any,  # noqa: ANN401 - what model.batch reads
    *,
    residues: Sequence[int] | None = None,
    pos: int = -1,
    seed: int = 0,
) -> Frequencies:
    """Decompose embeddings, neurons and logits over residues into frequencies.

    Args:
        model: a model that reads residues as tokens of their own.
        prompt: a text or a row of ids with one or two residues, such as ``16 102 =``. They are
            replaced with all residues, in all p or p² combinations.
        residues: the token ids of 0, 1, …, p − 1 in this order; by default those of a model whose
            trained tokens are these numbers alone.
        pos: the position at which neurons and logits are read.
        seed: seed for the random orders of the control.

    Returns:
        Shares by frequency. Layers without neurons, and mixtures of experts, are left out.

    Raises:
        InvalidInput: a model without a residue task, of pairs or images, or without logits of
            tokens; or a prompt of several rows, without residues or with more than two.

    Examples:
        >>> analyses.frequencies(interp.load("addition-mod-113"), "16 102 =")
        Frequencies(addition-mod-113: frequencies 27, 10, 9 have 97 % of the embedding's variance
        over residues mod 113 (in random order none has over 5.8 %))
    """
    check_finite_weights(model)
    _check(model)
    seed, pos = as_seed(seed), integer(pos, "pos")
    ids = model.batch(prompt).ids
    if len(ids) != 1:
        raise InvalidInput(f"frequencies takes one prompt; got {len(ids)}.")
    if residues is None:
        residue_ids = _trained_residues(model)
    else:
        residue_ids = _checked_residues(residues, model.config.n_logits)
    prompts = residue_prompts(ids[0].cpu(), residue_ids)
    batch = model.batch(prompts.ids)
    required_columns(batch, pos)
    with_neurons = [sublayer for sublayer in components_of(model).sublayers if sublayer.n_neurons]
    layers = [sublayer.layer for sublayer in with_neurons]
    places = [Place(Point.POST, layer) for layer in layers]
    values, logits = over_residues(model, prompts, places, pos)
    generator = torch.Generator().manual_seed(seed)
    orders = [torch.randperm(len(residue_ids), generator=generator) for _ in range(DRAWS)]
    tokens = prompts.residues
    parts = {
        EMBEDDING: model.W_E[tokens.to(model.device)].cpu(),
        "unembedding": model.W_U.mT[tokens.to(model.device)].cpu(),
        "logits": (logits - logits.mean(-1, keepdim=True)).movedim(-1, 0).flatten(1),
    }
    axes = len(prompts.columns)
    letters = iter("ab")
    return Frequencies(
        share={name: joint_shares(x) for name, x in parts.items()},
        control={
            name: torch.stack([joint_shares(x[order]) for order in orders])
            for name, x in parts.items()
        },
        neuron_share=_by_layer(layers, values, axes),
        neuron_control=_by_layer(layers, [_reordered(x, orders[0], axes) for x in values], axes),
        modulus=len(residue_ids),
        template=tuple(
            next(letters) if column in prompts.columns else label
            for column, label in enumerate(model.to_labels(ids[0]))
        ),
        pos=pos,
        provenance=Provenance.of(model, batch, seed=seed),
    )


def _check(model: Transformer) -> None:
    """Check that the model reads tokens and has logits of them."""
    if len(model.stacks) > 1 or isinstance(model.stacks[0].input, ImageInput):
        raise InvalidInput("frequencies puts residues into a prompt of tokens of a single stack.")
    unembedding_of(model)
    if model.config.n_classes is not None:
        raise InvalidInput("frequencies needs logits of tokens; this model has those of classes.")


def _trained_residues(model: Transformer) -> list[int]:
    """The ids of the numbers 0 … p − 1, if the model was trained on these alone.

    Raises:
        InvalidInput: it was not.
    """
    trained = sorted(trained_tokens(model))
    labels = [] if model.tokenizer is None else model.to_labels(torch.tensor(trained))
    ids = dict(zip(labels, trained, strict=False))
    if not labels or set(ids) != set(map(str, range(len(labels)))):
        raise InvalidInput(
            f"{model.config.name or 'This model'} has no residue task: its trained tokens are not "
            "the numbers 0, 1, …, p − 1 alone. Give residues=, their token ids in this order."
        )
    return [ids[str(number)] for number in range(len(ids))]


def _checked_residues(residues: Sequence[int], n_vocab: int) -> list[int]:
    """The given ids of the numbers.

    Raises:
        InvalidInput: they are not a list of ids within the vocabulary.
    """
    try:
        ids = whole_numbers(residues)
    except InvalidInput as error:
        raise InvalidInput(f"residues={shorten(residues)}: {error}") from error
    if ids.ndim != 1 or bool(((ids < 0) | (ids >= n_vocab)).any()):
        raise InvalidInput(
            f"residues={shorten(residues)} should be token ids of the vocabulary, "
            f"0..{n_vocab - 1}, one per number."
        )
    return ids.tolist()


def _by_layer(
    layers: Sequence[int], values: Sequence[Tensor], axes: int
) -> dict[int, Float[Tensor, "neuron frequency"]]:
    """The shares of each neuron, by layer."""
    shares = (frequency_shares(x, axes) for x in values)
    return dict(zip(layers, shares, strict=True))


def _reordered(x: Tensor, order: Tensor, axes: int) -> Tensor:
    """Put the residues in another order along each of the first ``axes`` axes."""
    for axis in range(axes):
        x = x.index_select(axis, order)
    return x
