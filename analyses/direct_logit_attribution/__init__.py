"""Which parts write a logit? Every term of the stream, along the logit's direction.

    logit − b_U = norm(x)·w = Σ_terms u·w′ + Σ_norms c        w = W_U[:, target]

With a distractor, w = W_U[:, target] − W_U[:, distractor] and the sum is the logit difference.
Each norm is linear with its divisor fixed at the value from the run, so w is taken backward through
all norms on the way, including those of a sub-layer's output or of the stream itself; nothing is
approximated (:mod:`analyses.methods.attribution.logit_terms`; Elhage et al. 2021, "A Mathematical
Framework for Transformer Circuits"; Wang et al. 2022, "Interpretability in the Wild"). Token by
token, a head's term is A_ij · v_j W_O · w′, which includes its share of b_V.

A term is a direct effect: what later parts make of what was written belongs to their terms. It is
not the effect of an ablation, which would also change the divisors of norms. Much of a single logit
may be common to all logits, and so have no effect on the prediction; a logit difference has no such
part. The control is the same attribution for tokens drawn at random.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from analyses.direct_logit_attribution.attributed_logits import BY, attribute_logits
from analyses.methods.attribution import Part
from analyses.methods.finite import check_finite_weights
from analyses.results import (
    Bars,
    Drawing,
    Heatmap,
    Interval,
    Result,
    SeparatePrompts,
    Tokens,
    bracketed,
    counted,
    effect_frame,
    effect_text,
    fixed,
    interval,
    marked_names,
    number,
    places_of,
    places_of_effects,
    plotted,
    prompt_frame,
    rounding,
    signed,
    significance_text,
    size_notes,
    token_ids,
)
from interp import Transformer
from interp.errors import InvalidInput, shorten
from interp.execution import Provenance
from interp.integers import as_seed, at_least, within
from interp.metrics import Position, as_position, columns_read
from interp.model import Batch, unembedding_of
from interp.prompts import read_batches

SHOWN = 30
"""The most bars, or heads, of a figure."""
DIFFERENCE = "target minus distractor"
FIRST = 3
"""Terms in the first line of a summary."""


@dataclass(frozen=True, eq=False, repr=False)
class DirectLogitAttribution(Result):
    """A logit, or the difference of two, as the sum of its terms, for each prompt.

    Attributes:
        value: the logit or the difference, before any soft-cap.
        effect: the terms that sum to it, in logits, in the order of the forward; biases of norms
            and of the unembedding come last.
        of_target: with a distractor, the same terms of the target's logit alone: a term may raise
            the target, lower the distractor, or both; else ``None``.
        control: the same terms for tokens drawn at random in place of target and distractor.
        by_source: with ``by="source"``, each head's term by the token that it attends to; else
            ``None``.
        of_target_by_source: with a distractor, the same of the target's logit alone; else ``None``.
        parts: what writes each term; see :class:`analyses.methods.attribution.Part`.
        tokens: label of each key in ``by_source``, ``None`` at padding; for an encoder–decoder, the
            tokens of the source, then those of the target.
        target: label of each prompt's target.
        distractor: label of each prompt's distractor; ``None`` if there is none.
        by: ``component``, ``head``, ``source`` or ``feature``.
        soft_cap: the soft-cap of the logits, which is not applied to ``value``; ``None`` if none.
        provenance: model, tokens and settings that the numbers depend on.
        notes: by feature, which dictionaries are not read.
    """

    effect_unit = "logits"

    value: Float[Tensor, " prompt"]
    effect: Float[Tensor, "term prompt"]
    of_target: Float[Tensor, "term prompt"] | None
    control: Float[Tensor, "term prompt"]
    by_source: Float[Tensor, "head prompt key"] | None
    of_target_by_source: Float[Tensor, "head prompt key"] | None
    parts: tuple[Part, ...]
    tokens: tuple[tuple[str | None, ...], ...]
    target: tuple[str, ...]
    distractor: tuple[str, ...] | None
    by: str
    soft_cap: float | None
    provenance: Provenance
    notes: tuple[str, ...] = ()

    @property
    def error(self) -> float:
        """The largest difference between Σ terms and ``value``, over the prompts, in logits."""
        return (self.effect.sum(0) - self.value).abs().max().item()

    def interval(self) -> Interval:
        """The mean over prompts of each term, with interval and p-value."""
        return interval(self.effect, self._noise)

    def to_frame(self) -> pd.DataFrame:
        """One row per term, largest size first; by source, one row per prompt, head and token.

        Columns:
            name, kind, layer, head, unit: the term (without ``head`` by component; ``unit``, the
                index of a feature, by feature only).
            effect, low, high: the mean term over prompts and its 95 % interval, in logits.
            size: mean of |effect|, in which effects of opposite sign do not cancel.
            n, p, q, significant: as in ``ablate_heads``, for a mean other than zero.
            to_target, to_distractor: with a distractor, the two sides of the effect: the mean term
                of each logit, whose difference is the effect.
            control: mean of |effect| for tokens drawn at random.

        Columns by source, where the tokens differ from prompt to prompt:
            prompt, name, layer, head: the prompt and the head.
            key, token: the token of the prompt that it attends to.
            effect: the term, in logits.
            to_target, to_distractor: with a distractor, its two sides.
        """
        if self.by_source is not None:
            return self._source_frame(self.by_source)
        control = self.control.double().abs().mean(-1).tolist()
        sides = {f"to_{side}": terms.tolist() for side, terms in self._sides().items()}
        last = {**sides, "control": control}
        frame = effect_frame({**self._cells, **last}, self.effect, self._noise)
        return _with_integers(frame[[*(name for name in frame if name not in last), *last]])

    def largest_terms(
        self, effects: Mapping[str, float], top: int
    ) -> tuple[pd.DataFrame, pd.DataFrame]:
        """The ``top`` terms by their size or that of another effect, and all others.

        Args:
            effects: another effect of some of the terms, by name, such as that of ablation.
            top: the largest number of terms.

        Returns:
            Two parts of :meth:`to_frame` (not by source), with the other effect as ``other``; NaN
            where there is none.
        """
        frame = self.to_frame()
        frame["other"] = [effects.get(name, nan) for name in frame["name"]]
        sizes = frame[["size", "other"]].abs().max(axis=1)
        is_largest = frame.index.isin(sizes.sort_values(ascending=False, kind="stable").index[:top])
        return frame[is_largest], frame[~is_largest]

    def separate_prompts(self) -> SeparatePrompts | None:
        """See :meth:`Result.separate_prompts`."""
        return SeparatePrompts(self._noise)

    def to_prompt_frame(self) -> pd.DataFrame:
        """One row per term and prompt: name, kind, layer, head, prompt, effect, control."""
        return _with_integers(prompt_frame(self._cells, effect=self.effect, control=self.control))

    def drawing(self, prompt: int = 0) -> Drawing:
        """Bars; by head, layers × heads; by source, heads × tokens of ``prompt``.

        Raises:
            InvalidInput: there is no such prompt.
        """
        prompt = within(0, len(self.value) - 1, prompt, "prompt")
        if self.by_source is not None:
            return self._source_drawing(self.by_source, prompt)
        return self._head_drawing() if self.by == "head" else self._component_drawing()

    figure = plotted(drawing)

    def drawings(self) -> dict[str, Drawing]:
        """The drawing; by head, also a map of each side of a difference, on the same scale."""
        maps = {
            side: self._map_of_heads(terms, f"logit of {_common(getattr(self, side), side)}")
            for side, terms in self._sides().items()
            if self.by == "head"
        }
        return {"figure": self.drawing(), **maps}

    def summary(self, top: int = 10) -> str:
        """The value, its ``top`` largest terms, and how exactly all of them sum to it."""
        top = at_least(1, top, "top")
        lines = self._term_lines(top) if self.by_source is None else self._source_lines(top)
        cap = f", before their soft-cap of {self.soft_cap:g}" if self.soft_cap else ""
        exact = f"the {len(self.parts)} terms sum to it within {self.error:.1e} logits{cap}"
        return "\n".join([self.headline(), *lines, exact, *self.notes])

    def headline(self) -> str:
        """See :meth:`Result.headline`."""
        estimate = self.interval()
        largest = estimate.size.argsort(descending=True, stable=True)[:FIRST].tolist()
        terms = [term for term in largest if estimate.size[term] > self._noise]
        means, sizes = (x[terms].tolist() for x in (estimate.mean, estimate.size))
        places = places_of(means)
        rows = zip(terms, means, size_notes(means, sizes, places), strict=True)
        texts = (
            f"{self.parts[term]} {signed(mean, places)}{note and f' ({note})'}"
            for term, mean, note in rows
        )
        value = number(self.value.mean().item(), sign=True)
        return f"{self._what} {value} on {counted(len(self.value), 'prompt')}: {', '.join(texts)}"

    # ---- lines, tables and figures ----------------------------------------------------------

    @property
    def _noise(self) -> float:
        return rounding(self.value, self.provenance.dtype)

    @property
    def _what(self) -> str:
        """A description of what was attributed."""
        return _describe(self.target, self.distractor)

    def _sides(self) -> dict[str, Float[Tensor, " term"]]:
        """The mean term of the target's logit, and that of the distractor's."""
        if self.of_target is None:
            return {}
        target, effect = (terms.double().mean(-1) for terms in (self.of_target, self.effect))
        return {"target": target, "distractor": target - effect}

    @property
    def _cells(self) -> dict[str, Sequence[object]]:
        axes = ("name", "kind", "layer", "head", "unit")
        cells = {axis: [getattr(part, axis) for part in self.parts] for axis in axes}
        return {
            axis: values
            for axis, values in cells.items()
            if any(value is not None for value in values)
        }

    @property
    def _heads(self) -> list[Part]:
        """The heads, in the order of ``sources``."""
        return [part for part in self.parts if part.head is not None]

    def _term_lines(self, top: int) -> list[str]:
        frame = self.to_frame().head(top)
        frame = frame[frame["size"] > self._noise]
        names = marked_names(frame)
        places, width = places_of_effects(frame), max([12, *map(len, names)])
        lines = [
            f"{name:<{width}} {effect_text(row['effect'], places, 'logits')}"
            f"{bracketed(row['low'], row['high'], places)}"
            f"{_sides_text(row, places)}"
            f"  control {fixed(row['control'], places)}"
            for name, row in zip(names, frame.to_dict("records"), strict=True)
        ]
        tested = significance_text(self.to_frame(), "terms")
        sides = (
            "" if self.of_target is None else "target − distractor: what it adds to each logit; "
        )
        return [*lines, f"{tested}; {sides}control: mean of |term| for tokens drawn at random"]

    def _source_lines(self, top: int) -> list[str]:
        frame = self.to_frame()
        frame = frame.loc[frame["effect"].abs().nlargest(top).index]
        frame = frame[frame["effect"].abs() > self._noise]
        places = places_of(frame["effect"])
        return [
            f"{row['name']:<12} {effect_text(row['effect'], places, 'logits')}"
            f"{_sides_text(row, places)} by attending to {row['token']} "
            f"(key {row['key']} of prompt {row['prompt']})"
            for row in frame.to_dict("records")
        ]

    def _source_frame(self, sources: Float[Tensor, "head prompt key"]) -> pd.DataFrame:
        real = torch.tensor([[token is not None for token in row] for row in self.tokens])
        (prompt, column), sides = real.nonzero().unbind(-1), self._source_sides()
        keys = {
            "prompt": prompt,
            "key": (real.cumsum(-1) - 1)[prompt, column],
            "token": [token for row in self.tokens for token in row if token is not None],
        }
        parts = [
            pd.DataFrame(keys).assign(
                name=part.name,
                layer=part.layer,
                head=part.head,
                effect=terms[prompt, column].numpy(),
                **{f"to_{name}": side[row][prompt, column].numpy() for name, side in sides.items()},
            )
            for row, (part, terms) in enumerate(zip(self._heads, sources, strict=True))
        ]
        columns = ["prompt", "name", "layer", "head", "key", "token", "effect"]
        columns += [f"to_{name}" for name in sides]
        frame = pd.concat(parts, ignore_index=True)[columns]
        return frame.sort_values("prompt", kind="stable", ignore_index=True)

    def _source_sides(self) -> dict[str, Float[Tensor, "head prompt key"]]:
        """By source, the terms of the target's logit, and those of the distractor's."""
        target, sources = self.of_target_by_source, self.by_source
        if target is None or sources is None:
            return {}
        return {"target": target, "distractor": target - sources}

    def _component_drawing(self) -> Drawing:
        estimate = self.interval()
        largest = sorted(estimate.size.argsort(descending=True, stable=True)[:SHOWN].tolist())
        some = f"; the {SHOWN} largest terms" if len(largest) < len(self.parts) else ""
        return Bars(
            estimate.mean[largest],
            estimate.low[largest],
            estimate.high[largest],
            title=f"Direct attribution of the {self._what}, mean over prompts{some}",
            labels=[self.parts[term].name for term in largest],
            unit="logits",
            places=places_of_effects(self.to_frame()),
            name=DIFFERENCE,
            marks={f"to the {side}": terms[largest] for side, terms in self._sides().items()},
            helps="above",
        )

    def _head_drawing(self) -> Heatmap:
        """The difference or the logit; of a difference, hover texts with both sides of each."""
        beside = {f"to the {side}": terms for side, terms in self._sides().items()}
        return self._map_of_heads(self.interval().mean, self._what, beside)

    def _map_of_heads(
        self,
        means: Float[Tensor, " term"],
        what: str,
        beside: Mapping[str, Float[Tensor, " term"]] | None = None,
    ) -> Heatmap:
        """Heads, and the MLP in the last column; the difference and both sides share a scale.

        It is that of the differences and of the heads' sides: those of MLPs, which may raise both
        logits by much more, can lie beyond its ends.
        """
        cells = [
            (part.name.removesuffix(column), column, row)
            for row, part in enumerate(self.parts)
            if part.kind in ("head", "mlp")
            for column in ("MLP" if part.head is None else f"H{part.head}",)
        ]
        rows, columns = (list(dict.fromkeys(axis)) for axis in list(zip(*cells, strict=True))[:2])
        columns.sort(key="MLP".__eq__)
        places = tuple(
            torch.tensor([axis.index(cell[n]) for cell in cells])
            for n, axis in enumerate((rows, columns))
        )
        terms = torch.tensor([row for *_, row in cells])

        def table(values: Float[Tensor, " term"]) -> Float[Tensor, "row column"]:
            empty = torch.full((len(rows), len(columns)), torch.nan, dtype=torch.float64)
            return empty.index_put(places, values[terms].double())

        sides = self._sides().values()
        of_heads = torch.tensor([self.parts[row].kind == "head" for row in terms.tolist()])
        scaled = [self.interval().mean[terms], *(side[terms][of_heads] for side in sides)]
        return Heatmap(
            table(means),
            title=f"Direct attribution of the {what}, mean over prompts",
            rows=rows,
            columns=columns,
            axes=("layer", "head"),
            unit="logits",
            diverging=True,
            top=float(torch.cat(scaled).abs().max()) if sides else None,
            places=places_of_effects(self.to_frame()),
            beside={name: table(values) for name, values in (beside or {}).items()},
        )

    def _source_drawing(self, sources: Float[Tensor, "head prompt key"], prompt: int) -> Drawing:
        terms, tokens = sources[:, prompt], self.tokens[prompt]
        largest = sorted(terms.abs().sum(-1).argsort(descending=True, stable=True)[:SHOWN].tolist())
        keys = [key for key, token in enumerate(tokens) if token is not None]
        some = f"; the {SHOWN} largest heads" if len(largest) < len(terms) else ""
        distractor = None if self.distractor is None else self.distractor[prompt : prompt + 1]
        what = _describe(self.target[prompt : prompt + 1], distractor)
        sides = self._source_sides().items()
        return Heatmap(
            terms[largest][:, keys],
            title=f"Direct attribution of the {what} on prompt {prompt}, by token{some}",
            rows=[self._heads[head].name for head in largest],
            columns=[token for token in tokens if token is not None],
            axes=("head", "token attended to"),
            unit="logits",
            diverging=True,
            beside={f"to the {side}": each[largest, prompt][:, keys] for side, each in sides},
        )


def direct_logit_attribution(  # noqa: PLR0913 - the settings of one analysis, by keyword
    model: Transformer,
    prompts: Any,  # noqa: ANN401 - what model.check reads
    *,
    target: Tokens,
    distractor: Tokens | None = None,
    pos: Position = None,
    by: str = "component",
    seed: int = 0,
) -> DirectLogitAttribution:
    """Attribute a logit, or the difference of two, to what was written into the stream.

    Args:
        model: a model whose logits are linear in (the norm of) its last stream.
        prompts: texts, token ids, images or a batch; ``(source, target)`` for an encoder–decoder,
            whose decoder's stream is attributed.
        target: a token (its id or text), or one per prompt.
        distractor: likewise; its logit is subtracted.
        pos: the position whose logits are read, among the tokens of each prompt. ``None`` for the
            last, or in an encoder that of the prompt's mask token.
        by: ``component`` sums the heads of a layer; ``head`` has a row for each head;
            ``source`` also has each head's term by the token that it attends to. ``feature``, of
            ``interp.with_dictionaries(model, dictionaries)``, has a row for each feature that is
            active at the position, and for the error and bias of each dictionary, in place of the
            MLP or the heads that it is of. A feature of a cross-layer transcoder has one term for
            all that it writes. In place of a dictionary of the stream, its features have terms and
            what was written before has none: with several, the last one is taken.
        seed: seed for the tokens that are drawn for the control.

    Returns:
        The terms of each prompt, biases included, which sum to ``value``.

    Raises:
        InvalidInput: the model has no logits, or a nonlinear head before them; ``by`` is unknown;
            targets are outside the vocabulary or not one per prompt; a prompt has no such
            position; or a logit is NaN (the message names the first place that is).
        InvalidTokens: a target's text is not one token; the message shows how it is split.

    Examples:
        >>> model = interp.load("induction-by-hand")
        >>> analyses.direct_logit_attribution(model, "abcab", target="c", distractor="a")
        DirectLogitAttribution(logit of c minus a +12 on 1 prompt: L1 heads +12.0)
    """
    check_finite_weights(model)
    if by not in BY:
        raise InvalidInput(f"by={shorten(by)} is not one of {', '.join(BY)}.")
    seed = as_seed(seed)
    unembedding_of(model)
    batches = read_batches(model, prompts)
    column = columns_read(batches[-1], as_position(pos))
    answers = {"target": target} | ({} if distractor is None else {"distractor": distractor})
    ids = torch.stack(
        [token_ids(model, tokens, len(column), name) for name, tokens in answers.items()]
    )
    attributed = attribute_logits(model, batches, column, ids, by=by, seed=seed)
    labels = [tuple(model.label(token) for token in each) for each in ids.tolist()]
    return DirectLogitAttribution(
        value=attributed.values,
        effect=attributed.terms,
        of_target=attributed.of_target,
        control=attributed.control,
        by_source=attributed.sources,
        of_target_by_source=attributed.sources_of_target,
        parts=attributed.parts,
        tokens=_labels(model, batches) if by == "source" else (),
        target=labels[0],
        distractor=None if distractor is None else labels[1],
        by=by,
        soft_cap=model.config.logit_cap,
        provenance=Provenance.of(model, *batches, seed=seed),
        notes=attributed.notes,
    )


def _labels(model: Transformer, batches: Sequence[Batch]) -> tuple[tuple[str | None, ...], ...]:
    """The label of each key (for an image patch its number), ``None`` at padding."""

    def labels(batch: Batch, row: int) -> list[str | None]:
        if batch.images is not None:
            return [str(number) for number in range(batch.ids.shape[1])]
        ids, real = batch.ids[row], batch.is_real[row].tolist()
        return [label if r else None for label, r in zip(model.to_labels(ids), real, strict=True)]

    rows = range(len(batches[-1].ids))
    return tuple(tuple(label for batch in batches for label in labels(batch, n)) for n in rows)


def _describe(target: Sequence[str], distractor: Sequence[str] | None) -> str:
    """Describe the logit, or the difference, that was attributed."""
    first = f"logit of {_common(target, 'target')}"
    return first if distractor is None else f"{first} minus {_common(distractor, 'distractor')}"


def _common(labels: Sequence[str], role: str) -> str:
    """The label that all prompts share, or the role of each prompt's own."""
    return labels[0] if len(set(labels)) == 1 else f"each prompt's {role}"


def _sides_text(row: Mapping[Any, Any], places: int) -> str:
    """``target +1.54 − distractor −0.02``; empty without a distractor."""
    if "to_target" not in row:
        return ""
    target, distractor = (signed(row[f"to_{side}"], places) for side in ("target", "distractor"))
    return f"  = {target} − ({distractor})"


def _with_integers(frame: pd.DataFrame) -> pd.DataFrame:
    """Make layers and heads integers, of which some may be missing."""
    return frame.astype({name: "Int64" for name in ("layer", "head", "unit") if name in frame})
