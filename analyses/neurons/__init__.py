"""What do neurons respond to, and what do they do? Tokens, logits, weights and ablation.

    activation       post_i[n] at every token of a corpus; the largest with their contexts
    direct effect    post_i[n] · W_out[n] · w′_v      on the logit of each token v
    cosine           cos(W_in[:, n], W_out[n])
    ablation         metric(post[n] replaced) − metric

The direct effect is taken at the token of the largest activation, with the divisor of every norm
fixed at its value from the run; over all neurons it sums to the term of the MLP
(:mod:`analyses.neurons.neuron_terms`; Geva et al. 2022, "Transformer Feed-Forward Layers Build
Predictions by Promoting Concepts in the Vocabulary Space"). The mean over the vocabulary is
subtracted from each logit, since no prediction depends on it. Cosines follow Gurnee et al. 2024,
"Universal Neurons in GPT2 Language Models".

Controls: the largest activation when the other tokens of its text are in random order; the largest
direct effect of a random vector of the length of W_out[n]; the root mean square of the cosines with
other neurons' weights. The largest activations are extremes, so the mean and quantiles of all are
reported beside them. A direct effect does not include what later parts make of an activation, which
the ablation does.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.methods.components import check_method, mlp_of
from analyses.methods.corpus import (
    Settings,
    Snippet,
    activations_of,
    shuffled_values,
    snippets,
    stream_corpus,
    strips,
)
from analyses.methods.finite import check_finite_weights
from analyses.neurons.direct_effects import largest_effects, writes_logits
from analyses.neurons.neuron_ablation import NeuronAblation, ablate_neurons
from analyses.neurons.neuron_terms import (
    DirectEffects,
    input_output_cosines,
)
from analyses.results import (
    MARK,
    AnyMetric,
    Drawing,
    Progress,
    Result,
    check_metric,
    counted,
    effect_frame,
    effect_text,
    largest_text,
    number,
    places_of_effects,
    plotted,
    prompt_frame,
    signed,
    significance_text,
    token_strips,
)
from interp import Transformer
from interp.errors import Cancelled, InvalidInput, shorten
from interp.execution import Provenance
from interp.integers import as_integer, as_seed, at_least, within
from interp.prompts import rows_of
from interp.sweeps import check_options

LEVELS = (0.5, 0.9, 0.99, 0.999)
"""The shares of tokens at which quantiles are reported."""
DRAWS = 4
"""Random orders of the other tokens."""
LISTED = 3
"""Tokens that a summary lists."""


@dataclass(frozen=True, eq=False, repr=False)
class Neurons(Result):
    """What neurons of one MLP respond to, and what they do.

    Attributes:
        layer: layer of the MLP.
        stack: stack of the MLP in an encoder–decoder; else ``None``.
        neuron: indices of the neurons.
        value: the largest activations of each neuron, largest first.
        text: index of the text of each activation, from 0.
        pos: its position among the tokens of the text.
        control: the largest activation with the other tokens of its text in random order.
        snippets: the tokens around each activation.
        strips: the activations along each text; NaN after its end.
        mean: mean activation over all tokens.
        active: the share of tokens with an activation above 0.
        quantiles: the activations that half, 90 %, 99 % and 99.9 % of the tokens do not exceed,
            to a relative accuracy of 2.2 %.
        direct_effects: direct effects on the logits where each neuron is largest; ``None`` if the
            logits are not linear in the stream of this stack.
        token_labels: labels of the tokens in ``direct_effects``, by id.
        cosine: cosines of input and output weights, by name.
        cosine_control: root mean square of the cosines with the other neurons, by name.
        ablation: ablation of each neuron on the first texts; ``None`` if nothing was ablated.
        n_texts: number of texts.
        n_tokens: number of tokens.
        provenance: model, tokens and settings that the numbers depend on.
        notes: notes on how the numbers were computed.
    """

    layer: int
    stack: str | None
    neuron: Int[Tensor, " neuron"]
    value: Float[Tensor, "neuron top"]
    text: Int[Tensor, "neuron top"]
    pos: Int[Tensor, "neuron top"]
    control: Float[Tensor, " neuron"]
    snippets: tuple[tuple[Snippet, ...], ...]
    strips: Float[Tensor, "neuron top token"]
    mean: Float[Tensor, " neuron"]
    active: Float[Tensor, " neuron"]
    quantiles: Float[Tensor, "neuron level"]
    direct_effects: DirectEffects | None
    token_labels: Mapping[int, str]
    cosine: Mapping[str, Float[Tensor, " neuron"]]
    cosine_control: Mapping[str, Float[Tensor, " neuron"]]
    ablation: NeuronAblation | None
    n_texts: int
    n_tokens: int
    provenance: Provenance
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """The name of each neuron, such as ``L0N12``."""
        stack = f"{self.stack}." if self.stack else ""
        return [f"{stack}L{self.layer}N{n}" for n in self.neuron.tolist()]

    def to_frame(self) -> pd.DataFrame:
        """One row per neuron, largest size of the ablation effect first.

        Columns:
            layer, neuron, name: the neuron.
            token, value, control: its largest activation; :meth:`to_top_frame` has more.
            mean, active: over all tokens.
            promoted_tokens, suppressed_tokens: those whose logits it raises and lowers most, if
                measured.
            logit, logit_control: the most that a logit is raised, and its control, if measured.
            cosine, cosine_control: of input and output weights (of each pair of a gated MLP).
            effect, low, high, size, share, n, p, q, significant: of the ablation, as in ``ablate``.
        """
        cells: dict[str, Sequence[object]] = {
            "layer": [self.layer] * len(self.neuron),
            "neuron": self.neuron.tolist(),
            "name": self.names,
            "token": [row[0].token for row in self.snippets],
            "value": self.value[:, 0].tolist(),
            "control": self.control.tolist(),
            "mean": self.mean.tolist(),
            "active": self.active.tolist(),
            **self._logit_cells,
        }
        for pair, cosine in self.cosine.items():
            name = "cosine" if pair == "in out" else f"cosine_{pair.replace(' ', '_')}"
            cells |= {name: cosine.tolist(), f"{name}_control": self.cosine_control[pair].tolist()}
        if self.ablation is None:
            return pd.DataFrame(cells)
        clean = self.ablation.clean
        return effect_frame(cells, self.ablation.effect, self._noise, metric=clean)

    def to_top_frame(self) -> pd.DataFrame:
        """One row per neuron and large activation: name, rank, text, pos, token, value, context."""
        rows = [
            (name, rank, int(text), int(pos), snippet.token, float(value), snippet.marked)
            for name, *cells in zip(
                self.names, self.text, self.pos, self.value, self.snippets, strict=True
            )
            for rank, (text, pos, value, snippet) in enumerate(zip(*cells, strict=True), 1)
        ]
        columns = ["name", "rank", "text", "pos", "token", "value", "context"]
        return pd.DataFrame(rows, columns=columns)

    def to_prompt_frame(self) -> pd.DataFrame:
        """One row per neuron and text: layer, neuron, name, prompt, clean, ablated, effect."""
        ablation = self.ablation
        if ablation is None:
            return pd.DataFrame()
        layers = [self.layer] * len(self.neuron)
        cells = {"layer": layers, "neuron": self.neuron.tolist(), "name": self.names}
        clean = ablation.clean.expand_as(ablation.ablated)
        return prompt_frame(cells, clean=clean, ablated=ablation.ablated, effect=ablation.effect)

    def drawing(self, neuron: int | None = None) -> Drawing:
        """Tokens around the largest activations of one neuron, by default the table's first.

        Raises:
            InvalidInput: the neuron was not measured.
        """
        measured = self.neuron.tolist()
        wanted = int(self.to_frame()["neuron"].iloc[0]) if neuron is None else as_integer(neuron)
        if wanted not in measured:
            raise InvalidInput(
                f"neuron={shorten(neuron)} was not measured; there are {shorten(measured)}."
            )
        row = measured.index(wanted)
        largest = list(zip(self.snippets[row], self.strips[row], strict=True))
        return token_strips(
            [snippet.values(strip) for snippet, strip in largest],
            [snippet.labels for snippet, _ in largest],
            title=f"{self.names[row]}: the {len(largest)} largest activations",
            rows=[f"text {n}" for n in self.text[row].tolist()],
            unit="activation",
            diverging=True,
        )

    figure = plotted(drawing)

    def summary(self, top: int = 10) -> str:
        """What the neurons are most active on, and the effects of ablating them."""
        top = at_least(1, top, "top")
        frame = self.to_frame()
        places = places_of_effects(frame) if "effect" in frame else 0
        context = dict(zip(self.names, (row[0].marked for row in self.snippets), strict=True))
        lines = [
            self._line(record, context[record["name"]], places)
            for record in frame.head(top).to_dict("records")
        ]
        if self.ablation is not None:
            lines.append(significance_text(frame, "neurons"))
        if self.direct_effects is not None:
            error = self.direct_effects.sum_error
            lines.append(
                f"direct effects of all neurons sum to the MLP's within {error:.1e} logits"
            )
        return "\n".join([self.headline(), *lines, *self.notes])

    def headline(self) -> str:
        """See :meth:`Result.headline`."""
        frame, lost = self.to_frame(), (self.control < 0.5 * self.value[:, 0]).sum()
        return (
            f"{counted(len(frame), 'neuron')} of {self._mlp} on {counted(self.n_texts, 'text')}, "
            f"{counted(self.n_tokens, 'token')}: {self._largest_effect(frame)}random "
            f"order halves {lost} of {counted(len(frame), 'largest activation')}"
        )

    @property
    def _mlp(self) -> str:
        return f"{self.stack}.L{self.layer}MLP" if self.stack else f"L{self.layer}MLP"

    def _largest_effect(self, frame: pd.DataFrame) -> str:
        if self.ablation is None:
            return ""
        ablation = self.ablation
        how = f"{ablation.method} ablation on {counted(len(ablation.clean), 'text')}"
        largest = largest_text(frame, ablation.unit, "neurons", how)
        return f"{ablation.metric}, {largest}; "

    def _line(self, row: Mapping[Any, Any], context: str, places: int) -> str:
        """The line of the summary for one neuron."""
        mark = f" {MARK}" if row.get("significant") else ""
        activation = f"{number(row['value'], 3)} (control {number(row['control'], 2)})"
        parts = [f"{row['name'] + mark:<7} {activation} {context}"]
        if self.direct_effects is not None:
            listed = " ".join(str(row["promoted_tokens"]).split()[:LISTED])
            logit, control = number(row["logit"], 2, sign=True), number(row["logit_control"], 2)
            parts.append(f"promotes {listed} ({logit}, control {control})")
        cosine, control = signed(row["cosine"], 2), signed(row["cosine_control"], 2)
        parts.append(f"cosine {cosine} (control {control})")
        if self.ablation is not None:
            effect = effect_text(row["effect"], places, self.ablation.unit)
            parts.append(f"{self.ablation.metric} {effect}")
        return "; ".join(parts)

    @property
    def _logit_cells(self) -> dict[str, Sequence[object]]:
        effects = self.direct_effects
        if effects is None:
            return {}
        promoted, suppressed = (
            [" ".join(self.token_labels[n] for n in row) for row in ids.tolist()]
            for ids in (effects.promoted, effects.suppressed)
        )
        return {
            "promoted_tokens": promoted,
            "suppressed_tokens": suppressed,
            "logit": effects.promoted_logits[:, 0].tolist(),
            "logit_control": effects.control.tolist(),
        }

    @property
    def _noise(self) -> float:
        return 0.0 if self.ablation is None else self.ablation.noise


def neurons(  # noqa: PLR0913 - the settings of one analysis, by keyword
    model: Transformer,
    texts: Any,  # noqa: ANN401 - what interp.prompts.pools_of reads
    *,
    layer: int,
    neurons: Sequence[int] | None = None,
    stack: str | None = None,
    top: int = 5,
    tokens: int = 5,
    bos: bool = False,
    ablate: int = 32,
    method: str = "mean",
    metric: AnyMetric | None = None,
    seed: int = 0,
    rows: int = 64,
    memory: float | None = None,
    progress: Progress | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Neurons:
    """Describe neurons of one MLP by what they respond to and what they do.

    Args:
        model: the model.
        texts: a corpus of any size, as for :func:`analyses.top_texts`.
        layer: layer of the MLP; negative values count from the end.
        neurons: which of its neurons; by default all.
        stack: for an encoder–decoder, ``encoder`` or ``decoder`` (the default).
        top: number of largest activations to report.
        tokens: number of promoted and suppressed tokens to report.
        bos: whether activations at BOS count.
        ablate: number of texts, the first of the corpus, on which neurons are ablated; 0 for none.
        method: method of ablation: ``zero``, ``mean`` (over these texts) or ``resample``.
        metric: ``"loss"`` (next-token, nats), ``"kl"`` (KL from the model's own predictions, nats,
            which is never negative), a metric or a function of the logits; by default the loss, or
            KL for an encoder. A model without logits needs a metric to be ablated.
        seed: seed for random orders, vectors and donors.
        rows: texts per forward; the result does not depend on it.
        memory: bytes that the ablation may take, as for :func:`interp.sweep`.
        progress: called with the amount read and the total, as for :func:`analyses.top_texts`;
            then with ``(neurons ablated, neurons in total)``.
        cancelled: called after each forward; if it returns True while the corpus is read, the
            result covers what was read, without ablation; while neurons are ablated, those that
            were not are NaN, and there is no ablation if none was.

    Returns:
        Numbers by neuron.

    Raises:
        InvalidInput: the layer has no MLP, a mixture of experts, or not these neurons; an empty
            corpus, a line that can't be read, or settings out of range.

    Examples:
        >>> model, prompts = interp.load("python-4l"), interp.read_prompts("docstrings")
        >>> analyses.neurons(model, [p.text for p in prompts[:2]], layer=3, neurons=[411, 412])
        Neurons(2 neurons of L3MLP on 2 texts, 88 tokens: loss, largest effect of 2 neurons (mean
        ablation on 2 texts): L3N411 −0.0638 nats; ≥ 10 % of the metric: 0 of 2; random order
        halves 2 of 2 largest activations)
    """
    check_finite_weights(model)
    mlp = mlp_of(model, layer, stack)
    chosen = mlp.neurons(neurons)
    top, rows, seed = at_least(1, top, "top"), at_least(1, rows, "rows"), as_seed(seed)
    ablate = at_least(0, ablate, "ablate")
    check_options(model, memory, None)
    check_method(method)
    if metric is not None:
        check_metric(metric, model)
    measure = activations_of(model, mlp.name, chosen[0].place, tuple(c.unit or 0 for c in chosen))
    tokens = at_least(1, tokens, "tokens")
    if writes_logits(model, measure):
        within(1, model.config.n_logits, tokens, "tokens")
    settings = Settings(top, rows, bos=bos, sample=ablate)
    corpus = stream_corpus(model, texts, measure, settings, progress=progress, cancelled=cancelled)
    control = shuffled_values(measure, corpus, ranks=1, draws=DRAWS, rows=rows, seed=seed)
    direct = largest_effects(model, measure, corpus, tokens=tokens, rows=rows, seed=seed)
    ablation, provenance, notes = None, Provenance.of(model, seed=seed), corpus.notes
    if metric is None and model.config.unembeds:
        metric = "loss" if model.config.is_causal else "kl"
    if ablate and corpus.complete and metric is not None:
        try:
            ablation, table = ablate_neurons(
                model,
                rows_of(corpus.sample),
                chosen,
                method=method,
                metric=metric,
                seed=seed,
                rows=rows,
                memory=memory,
                progress=progress,
                cancelled=cancelled,
            )
        except Cancelled:
            notes = (*notes, "cancelled before neurons were ablated")
        else:
            provenance, notes = replace(table.provenance, seed=seed), (*notes, *table.notes)
    cosines = input_output_cosines(model, mlp.layer, mlp.place.stack)
    numbers = torch.tensor(measure.neurons)
    return Neurons(
        layer=mlp.layer,
        stack=mlp.place.stack,
        neuron=numbers,
        value=corpus.value,
        text=corpus.text,
        pos=corpus.pos,
        control=control[:, 0],
        snippets=snippets(model, measure, corpus),
        strips=strips(measure, corpus, rows),
        mean=corpus.distribution.mean.cpu(),
        active=(corpus.distribution.positive / corpus.distribution.n).cpu(),
        quantiles=corpus.distribution.quantiles(LEVELS).cpu(),
        direct_effects=direct,
        token_labels={} if direct is None else _labels(model, direct),
        cosine={name: cosine.cpu()[numbers] for name, (cosine, _) in cosines.items()},
        cosine_control={name: rms.cpu()[numbers] for name, (_, rms) in cosines.items()},
        ablation=ablation,
        n_texts=corpus.n_texts,
        n_tokens=corpus.n_tokens,
        provenance=replace(provenance, tokens=corpus.sha256),
        notes=notes,
    )


def _labels(model: Transformer, direct: DirectEffects) -> dict[int, str]:
    """The label of each token that is promoted or suppressed."""
    ids = torch.cat([direct.promoted, direct.suppressed]).unique().tolist()
    return {n: model.label(n) for n in ids}
