"""What does each head do for the answer? Where it attends, what it writes, what its ablation does.

    direct = logit of the target − logit of the distractor, of what the head writes: two sides
    effect = difference of the logits (head ablated) − difference of the logits

A large direct effect alone does not say what a head does: on "… John gave a drink to", one that
lowers " John" counts as much for " Mary" as one that raises " Mary". So each head has three kinds
of evidence: where it attends from the position of the answer, by disjoint classes of tokens
(occurrences of the target's token, of the distractor's, the first position, its own, the previous
one, the rest; the first that fits); the two sides of its direct effect; and its ablation, which
later parts may counteract (McGrath et al. 2023, "The Hydra Effect"). It has a label only where the
three agree (Wang et al. 2022, "Interpretability in the Wild", has name movers and negative ones):

    label                      attends to      direct effect            ablation
    moves the target           target          raises the target        lowers the difference
    suppresses the distractor  distractor      lowers the distractor    lowers the difference
    helps, attends elsewhere   another class   raises the difference    lowers the difference
    works against the answer   any class       lowers the difference    raises the difference
    acts indirectly            –               none                     large
    direct only                any class       large                    none

A head attends to the class whose share exceeds that of uniform attention most, if it does so by 0.1
(as for ``head_roles``) with an interval above 0. The side that is named is the larger one. A mean
effect counts from 2 % of the mean |difference| on (three of four heads of SmolLM2-135M change less
when ablated), if q ≤ 0.05; a direct effect must also exceed its control, the mean |term| for tokens
drawn at random. It is large from 10 % on. What the evidence can't show: what a head's query and key
are made of, and that it does the same on other prompts. A head that raises both logits, or that
another one stands in for, may have no label however large it is; ``missing`` says why.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import nan
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.ablate import Ablation, ablate
from analyses.direct_logit_attribution import DirectLogitAttribution, direct_logit_attribution
from analyses.head_effects.answer_attention import CLASSES, AnswerAttention, attention_at_answer
from analyses.head_effects.labels import RULES, Evidence, label_of
from analyses.methods.components import check_method
from analyses.methods.finite import check_finite_weights
from analyses.methods.heads import attentions_of
from analyses.results import (
    FEWEST,
    LARGE,
    LEVEL,
    NONE,
    Bars,
    Drawing,
    Heatmap,
    Interval,
    Progress,
    Result,
    Tokens,
    bracketed,
    counted,
    effect_text,
    false_discovery_rates,
    fixed,
    interval,
    mean_frame,
    number,
    percent,
    places_of,
    prompt_frame,
    rounding,
    signed,
    token_ids,
)
from interp import Sweep, Transformer
from interp.errors import InvalidInput, shorten
from interp.execution import Provenance
from interp.integers import as_seed, at_least
from interp.io import cancellable
from interp.metrics import Position, as_position, columns_read, logit_diff
from interp.prompts import read_batches
from interp.sweeps import check_options

LEAST_SHARE = 0.1
"""The amount by which attention to a class must exceed uniform attention, on average."""
LEAST = 0.02
"""The share of the mean |difference| from which an effect counts."""
MOST_BARS = 30
"""The most heads of a figure."""
NAMED = 3
"""The most heads that the first line names."""
QUANTITIES = ("to the target", "to the distractor", "difference", "ablation")


@dataclass(frozen=True, eq=False, repr=False)
class HeadEffects(Result):
    """Three kinds of evidence for what each head does, and a label where they agree.

    Attributes:
        clean: difference of the two logits on each prompt, without ablation.
        shares: attention from the answer's position on each class, see ``CLASSES``.
        uniform: the same with equal attention on all tokens that the head may attend to.
        key: position of the token with the most attention.
        strongest: attention on that token.
        key_classes: class of each token of each prompt; ``distractor 2 of 2`` where a class has
            several tokens.
        direct: direct effect on the difference, in logits.
        of_target: direct effect on the target's logit alone.
        control: direct effect on the difference of tokens drawn at random.
        effect: change of the difference when the head is ablated; NaN where a cancelled call did
            not get to it.
        cells: layer, head and name of each head, in the order of the forward.
        target: label of each prompt's target.
        distractor: label of each prompt's distractor.
        method: ``zero``, ``mean`` or ``resample``.
        provenance: model, tokens and settings that the numbers depend on.
        notes: notes on how the numbers were computed, such as where they are NaN.
        partial: for a cancelled call, the sweep to pass as ``resume=``; else ``None``.
    """

    working = ("partial",)

    clean: Float[Tensor, " prompt"]
    shares: Float[Tensor, "head prompt class"]
    uniform: Float[Tensor, "head prompt class"]
    key: Int[Tensor, "head prompt"]
    strongest: Float[Tensor, "head prompt"]
    key_classes: tuple[tuple[str, ...], ...]
    direct: Float[Tensor, "head prompt"]
    of_target: Float[Tensor, "head prompt"]
    control: Float[Tensor, "head prompt"]
    effect: Float[Tensor, "head prompt"]
    cells: dict[str, tuple[Any, ...]]
    target: tuple[str, ...]
    distractor: tuple[str, ...]
    method: str
    provenance: Provenance
    notes: tuple[str, ...] = ()
    partial: Sweep | None = None

    def to_frame(self) -> pd.DataFrame:
        """One row per head, largest size first.

        Columns:
            layer, head, name: the head.
            label: what it does, see the module; ``–`` where the evidence does not agree.
            missing: without a label, which evidence there is not, or which contradicts the rest.
            attends: the class that it attends to most above uniform attention; ``–`` for none.
            uniform: what that class has of uniform attention; NaN for none.
            on_target, on_distractor, on_first, on_self, on_previous, on_rest: mean attention from
                the answer's position on each class; they sum to 1.
            strongest_key: the token that it attends to most, as its class, on most prompts.
            direct: mean direct effect on the difference, in logits.
            to_target, to_distractor: its two sides: the direct effect on each logit.
            control: mean of |direct effect| for tokens drawn at random.
            effect, low, high: mean effect of ablation on the difference, with its 95 % interval.
            size: the larger of mean |direct| and mean |effect|.
            n: number of prompts.
        """
        direct, effect = self._direct_interval, self._ablation
        sides = self.of_target.double().mean(-1), (self.of_target - self.direct).double().mean(-1)
        sizes = torch.stack([direct.size, effect.size.nan_to_num(0.0)]).amax(0)
        labels = [label_of(evidence) for evidence in self._evidence]
        shares = zip(CLASSES, self.shares.double().mean(1).unbind(-1), strict=True)
        columns = {
            "label": [label or NONE for label, _ in labels],
            "missing": [NONE if label else self._missing(missing) for label, missing in labels],
            "attends": [evidence.attends or NONE for evidence in self._evidence],
            "uniform": self._uniform_of_attended(),
            **{f"on_{name}": share.tolist() for name, share in shares},
            "strongest_key": self._strongest_keys(),
            "direct": direct.mean.tolist(),
            "to_target": sides[0].tolist(),
            "to_distractor": sides[1].tolist(),
            "control": self._controls.tolist(),
            "effect": effect.mean.tolist(),
            "low": effect.low.tolist(),
            "high": effect.high.tolist(),
            "size": sizes.tolist(),
        }
        frame = pd.DataFrame({**self.cells, **columns}).assign(n=effect.n)
        return frame.sort_values("size", ascending=False, kind="stable", ignore_index=True)

    def more_frames(self) -> dict[str, pd.DataFrame]:
        """See :meth:`Result.more_frames`."""
        return {"evidence": self.to_evidence_frame()}

    def to_evidence_frame(self) -> pd.DataFrame:
        """One row per head and number: each with its interval and control.

        Columns:
            layer, head, name: the head.
            quantity: ``attention on target`` and so on; of the direct effect, ``to the target``,
                ``to the distractor`` and ``difference``; ``ablation``.
            mean, low, high: the mean over prompts and its 95 % interval.
            control: of attention, that of uniform attention; of the direct effect on the
                difference, the mean of |term| for tokens drawn at random; else NaN.
            n: number of prompts.
        """
        sides = (self.of_target, self.of_target - self.direct, self.direct, self.effect)
        none = torch.full_like(self._controls, torch.nan)
        controls = (none, none, self._controls, none)
        rows = [
            *(
                (f"attention on {name}", share, uniform.double().mean(-1))
                for name, share, uniform in zip(
                    CLASSES, self.shares.unbind(-1), self.uniform.unbind(-1), strict=True
                )
            ),
            *zip(QUANTITIES, sides, controls, strict=True),
        ]
        frames = [
            mean_frame({**self.cells, "quantity": [quantity] * len(values)}, values.double())
            .assign(control=control.tolist())
            .assign(order=range(len(values)))
            for quantity, values, control in rows
        ]
        frame = pd.concat(frames, ignore_index=True).sort_values("order", kind="stable")
        columns = [*self.cells, "quantity", "mean", "low", "high", "control", "n"]
        return frame[columns].reset_index(drop=True)

    def to_prompt_frame(self) -> pd.DataFrame:
        """One row per head and prompt.

        Columns: layer, head, name, prompt; direct, to_target, to_distractor, control, effect; key,
        key_class and strongest: position and class of the token with the most attention, and how
        much that is.
        """
        frame = prompt_frame(
            self.cells,
            direct=self.direct,
            to_target=self.of_target,
            to_distractor=self.of_target - self.direct,
            control=self.control,
            effect=self.effect,
            strongest=self.strongest,
        )
        keys = [key for row in self._key_classes for key in row]
        return frame.assign(key=self.key.flatten().tolist(), key_class=keys)

    def drawing(self) -> Drawing:
        """The largest heads: direct effects as bars; both sides and ablation as marks."""
        rows, more = self._largest, len(self.cells["name"]) > MOST_BARS
        direct, target = self._direct_interval, self.of_target.double().mean(-1)
        marks = (target, target - direct.mean, self._ablation.mean)
        names = (*QUANTITIES[:2], f"{self.method} ablation")
        return Bars(
            direct.mean[rows],
            direct.low[rows],
            direct.high[rows],
            title="Direct effect of heads on target minus distractor, its two sides, and ablation"
            + (f"; the {MOST_BARS} largest heads" if more else ""),
            labels=[self.cells["name"][row] for row in rows],
            unit="logits",
            name="direct effect",
            marks={name: each[rows] for name, each in zip(names, marks, strict=True)},
        )

    def drawings(self) -> dict[str, Drawing]:
        """The drawing, and where the same heads attend."""
        attention = Heatmap(
            self.shares.double().mean(1)[self._largest],
            title="Attention of these heads from the position of the answer",
            rows=[self.cells["name"][row] for row in self._largest],
            columns=CLASSES,
            axes=("head", "class of tokens"),
            unit="0 to 1",
            top=1.0,
            places=2,
        )
        return {"figure": self.drawing(), "attention": attention}

    def summary(self, top: int = 10) -> str:
        """The difference, the evidence on the ``top`` largest heads, and those with each label."""
        top = at_least(1, top, "top")
        frame = self.to_frame()
        lines = [self._line(row) for row in frame.head(top).to_dict("records")]
        about = (
            "direct: target − (distractor); control: mean of |direct| for tokens drawn at random; "
            f"an effect counts from {number(self._least, 2)} logits ({percent(LEAST)}) on"
        )
        return "\n".join([self.headline(), *lines, about, self._labelled(frame), *self.notes])

    def conclusion(self) -> list[str]:
        """The largest heads with their labels, and the heads with each label."""
        return [self.headline(), self._labelled(self.to_frame())]

    def headline(self) -> str:
        """See :meth:`Result.headline`."""
        frame = self.to_frame().head(NAMED)
        named = (
            f"{name} ({'no label' if label == NONE else label})"
            for name, label in zip(frame["name"], frame["label"], strict=True)
        )
        return (
            f"logit difference {number(self.clean.nanmean().item(), 3, sign=True)} on "
            f"{counted(len(self.clean), 'prompt')}; largest of "
            f"{counted(len(self.cells['name']), 'head')}: {', '.join(named)}"
        )

    # ---- evidence ---------------------------------------------------------------------------

    @property
    def _noise(self) -> float:
        return rounding(self.clean, self.provenance.dtype)

    @property
    def _least(self) -> float:
        """The least mean effect that counts, in logits."""
        return max(LEAST * self.clean.double().abs().nanmean().item(), self._noise)

    @cached_property
    def _direct_interval(self) -> Interval:
        return interval(self.direct, self._noise)

    @cached_property
    def _ablation(self) -> Interval:
        return interval(self.effect, self._noise)

    @property
    def _controls(self) -> Float[Tensor, " head"]:
        return self.control.double().abs().mean(-1)

    @cached_property
    def _evidence(self) -> list[Evidence]:
        """The evidence for each head; signs are 0 where an effect is small or not significant."""
        direct, ablation = self._direct_interval, self._ablation
        counts = self._signs(direct) * (direct.mean.abs() > self._controls)
        by_ablation = self._signs(ablation).double().where(~ablation.mean.isnan(), torch.nan)
        to_target = self.of_target.double().mean(-1)
        large = LARGE / LEAST * self._least
        columns = (
            self._attended(),
            to_target.tolist(),
            (to_target - direct.mean).tolist(),
            counts.tolist(),
            by_ablation.tolist(),
            (direct.mean.abs() >= large).tolist(),
            (ablation.mean.abs() >= large).tolist(),
        )
        return [Evidence(*row) for row in zip(*columns, strict=True)]

    def _signs(self, estimate: Interval) -> Int[Tensor, " head"]:
        """The sign of each mean that is large enough and significant; else 0."""
        is_significant = false_discovery_rates(estimate.p) <= LEVEL
        return (
            estimate.mean.sign() * (is_significant & (estimate.mean.abs() >= self._least))
        ).int()

    def _attended(self) -> list[str]:
        """The class that each head attends to most above uniform attention; ``""`` for none."""
        excess = interval((self.shares - self.uniform).transpose(1, 2))
        best = excess.mean.argmax(-1, keepdim=True)
        mean, low = (each.gather(-1, best)[:, 0] for each in (excess.mean, excess.low))
        stands_out = (mean >= LEAST_SHARE) & (low > 0)
        return [
            CLASSES[number] if stands else ""
            for number, stands in zip(best[:, 0].tolist(), stands_out.tolist(), strict=True)
        ]

    def _uniform_of_attended(self) -> list[float]:
        uniform = self.uniform.double().mean(1)
        attended = (evidence.attends for evidence in self._evidence)
        return [
            row[CLASSES.index(name)].item() if name else nan
            for row, name in zip(uniform, attended, strict=True)
        ]

    def _missing(self, missing: str) -> str:
        few = len(self.clean) < FEWEST
        return f"no intervals with fewer than {FEWEST} prompts" if few else missing

    @property
    def _key_classes(self) -> list[list[str]]:
        """The class of the token that each head attends to most, on each prompt."""
        rows = self.key.tolist()
        return [
            [classes[key] for classes, key in zip(self.key_classes, row, strict=True)]
            for row in rows
        ]

    def _strongest_keys(self) -> list[str]:
        counts = (Counter(sorted(row)).most_common(1)[0] for row in self._key_classes)
        return [f"{name} ({count} of {len(self.clean)})" for name, count in counts]

    @property
    def _largest(self) -> list[int]:
        """The numbers of the largest heads, largest first."""
        sizes = torch.stack([self._direct_interval.size, self._ablation.size.nan_to_num(0.0)])
        return sizes.amax(0).argsort(descending=True, stable=True)[:MOST_BARS].tolist()

    # ---- lines ------------------------------------------------------------------------------

    def _line(self, row: dict[Any, Any]) -> str:
        places = places_of([*self._direct_interval.size.tolist(), *self._ablation.size.tolist()])
        does = f"no label: {row['missing']}" if row["label"] == NONE else row["label"]
        attends, where = row["attends"], "no class"
        if attends != NONE:
            uniform = fixed(row["uniform"], 2)
            where = f"{attends} {fixed(row[f'on_{attends}'], 2)} (uniform {uniform})"
        target, distractor = (signed(row[f"to_{side}"], places) for side in CLASSES[:2])
        direct = f"{signed(row['direct'], places)} = {target} − ({distractor})"
        ablation = effect_text(row["effect"], places, "logits")
        return (
            f"{row['name']:<6} {does}; attends to {where}, most to "
            f"{row['strongest_key']}; direct {direct}, control {fixed(row['control'], places)}; "
            f"ablation {ablation}{bracketed(row['low'], row['high'], places)}"
        )

    def _labelled(self, frame: pd.DataFrame) -> str:
        """The heads with each label, and how many have none."""
        texts = list[str]()
        for rule in RULES:
            names = frame.loc[frame["label"] == rule.label, "name"].tolist()
            more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
            texts += [f"{rule.label}: {', '.join(names[:NAMED])}{more}"] * bool(names)
        without = (frame["label"] == NONE).sum()
        return "; ".join([*texts, f"without a label: {without} of {counted(len(frame), 'head')}"])


def head_effects(  # noqa: PLR0913 - the settings of one analysis, by keyword
    model: Transformer,
    prompts: Any,  # noqa: ANN401 - what model.check reads
    *,
    target: Tokens,
    distractor: Tokens | None,
    pos: Position = None,
    heads: Sequence[str] | None = None,
    method: str = "mean",
    seed: int = 0,
    rows: int = 64,
    memory: float | None = None,
    progress: Progress | None = None,
    cancelled: Callable[[], bool] | None = None,
    resume: Sweep | None = None,
) -> HeadEffects:
    """Measure where heads attend, what they write and what their ablation does, and label them.

    Args:
        model: a model with one stack, whose logits are linear in (the norm of) its last stream.
        prompts: texts, token ids padded with ``interp.PAD``, images, or a batch that
            ``model.batch`` made.
        target: a token (its id or text), or one per prompt.
        distractor: likewise; the difference of the two logits is what heads act on.
        pos: the position whose logits are read, among the tokens of each prompt. ``None`` for the
            last, or in an encoder that of the prompt's mask token.
        heads: names of the heads that are ablated, such as ``["L1H0"]``; by default all of them.
        method: what replaces z of an ablated head: ``zero``, ``mean`` (over all prompts and
            positions) or ``resample`` (another prompt at the same position, drawn by ``seed``).
        seed: seed for the resampling, and for the tokens that are drawn for the control.
        rows: prompts per forward while activations are collected; the result does not depend on it.
        memory: bytes that the sweep may take, as for :func:`interp.sweep`.
        progress: called with ``(heads done, heads in total)``.
        cancelled: called after each forward; if it returns True, what was measured is returned,
            and its ``partial`` can be resumed.
        resume: partial result of the same call, as for ``ablate``.

    Returns:
        The evidence on each head and prompt.

    Raises:
        InvalidInput: a model with two stacks, without logits or with a nonlinear head before them;
            no distractor, or one that is the target; tokens outside the vocabulary; a prompt has no
            such position; no such head or method; or a ``resume`` of another call.
        InvalidTokens: a text is not one token; the message shows how it is split.
        Cancelled: ``cancelled`` returned True before anything was measured.
        Interrupted: Ctrl-C; its ``result`` can be resumed.

    Examples:
        >>> model = interp.load("induction-by-hand")
        >>> prompts = ["abcab", "xyzxy", "klmkl", "pqrpq", "uvwuv"]
        >>> analyses.head_effects(model, prompts, target=[*"czmrw"], distractor="e")
        HeadEffects(logit difference +12 on 5 prompts; largest of 8 heads: L0H0 (acts indirectly),
        L1H0 (moves the target), L0H1 (no label))
    """
    check_finite_weights(model)
    if len(model.stacks) > 1:
        raise InvalidInput("head_effects takes models with one stack; this one has two.")
    if distractor is None:
        raise InvalidInput(
            "head_effects compares two logits: give a distractor beside the target of each prompt."
        )
    check_method(method)
    check_options(model, memory, resume)
    seed, rows = as_seed(seed), at_least(1, rows, "rows")
    names = _names(model, heads)
    (batch,) = read_batches(model, prompts)
    column = columns_read(batch, as_position(pos))
    answers = {"target": target, "distractor": distractor}
    ids = torch.stack([token_ids(model, each, len(column), name) for name, each in answers.items()])
    if bool((ids[0] == ids[1]).any()):
        raise InvalidInput("The target and the distractor of a prompt are the same token.")
    with cancellable(cancelled):
        attention = attention_at_answer(model, batch, column, ids, rows)
        direct = direct_logit_attribution(
            model, batch, target=ids[0], distractor=ids[1], pos=pos, by="head", seed=seed
        )
    ablation = ablate(
        model,
        batch,
        units={name: name for name in names},
        method=method,
        metric=logit_diff(ids[0].tolist(), ids[1].tolist(), pos),
        seed=seed,
        rows=rows,
        memory=memory,
        progress=progress,
        cancelled=cancelled,
        resume=resume,
    )
    return _of_heads(names, attention, direct, ablation)


def _names(model: Transformer, heads: Sequence[str] | None) -> dict[str, tuple[int, int, int]]:
    """Number, layer and index of each head that is asked for, by name, in the order of the forward.

    Raises:
        InvalidInput: no heads, or no such head.
    """
    layers = enumerate(attentions_of(model).layers)
    places = [(layer, head) for layer, attn in layers for head in range(attn.n_heads)]
    every = {f"L{at[0]}H{at[1]}": (number, *at) for number, at in enumerate(places)}
    if heads is None:
        return every
    is_list = isinstance(heads, Sequence) and not isinstance(heads, str)  # pyright: ignore[reportUnnecessaryIsInstance]
    if not (is_list and heads and all(isinstance(name, str) and name in every for name in heads)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(
            f"heads={shorten(heads)} should be names of heads of this model, such as ['L0H0']."
        )
    return {name: number for name, number in every.items() if name in heads}


def _of_heads(
    names: dict[str, tuple[int, int, int]],
    attention: AnswerAttention,
    direct: DirectLogitAttribution,
    ablation: Ablation,
) -> HeadEffects:
    """The evidence on the heads of these names."""
    row = {part.name: n for n, part in enumerate(direct.parts)}
    terms, (numbers, layer, head) = [row[name] for name in names], zip(*names.values(), strict=True)
    if direct.of_target is None:
        raise TypeError("A difference of logits has two sides.")
    every = list(numbers)
    return HeadEffects(
        clean=ablation.clean,
        shares=attention.share[every],
        uniform=attention.uniform[every],
        key=attention.key[every],
        strongest=attention.strongest[every],
        key_classes=attention.key_classes,
        direct=direct.effect[terms],
        of_target=direct.of_target[terms],
        control=direct.control[terms],
        effect=ablation.effect,
        cells={"layer": layer, "head": head, "name": tuple(names)},
        target=direct.target,
        distractor=direct.distractor or (),
        method=ablation.method,
        provenance=ablation.provenance,
        notes=ablation.notes,
        partial=ablation.partial,
    )
