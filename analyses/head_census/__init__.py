"""What kind of head is each head? A census over the published kinds, each with its control.

Each kind is measured as its paper defines it, on prompts of its own or on weights, with a score and
a control on each sample:

    family             kinds                                        samples, cost
    repeated tokens    previous-token, induction, duplicate-token,  rows, two forwards each; weights
                       sink, copying
    own token          copy-suppression, token-copying              groups of tokens; weights
    succession         successor                                    tokens; weights
    retrieval          retrieval                                    rows, two forwards each
    function vectors   function-vector                              prompts, two cases for each head
    two names          name-mover, negative-mover,                  prompts, one case for each head
                       subject-suppression, subject-inhibition,     that attends to a name, or
                       duplicate-name                               writes one

(Olsson et al. 2022; McDougall et al. 2023; Gould et al. 2023; Wu et al. 2024; Todd et al. 2023;
Wang et al. 2022; what each score is: ``to_kind_frame()``.) A head is of a kind if its score exceeds
the control by the least that counts (0.1; of probabilities 0.01), the 95 % interval of that
difference over samples leaves out 0, q ≤ 0.05 over all heads, and where the kind needs it (the
movers of names), pattern, direct effect and ablation agree as in :func:`analyses.head_effects`. A
kind that a model can't show (no such tokens, no tokenizer, no room) is named in ``notes`` instead
of numbers.

What a census can't show: that a head does nothing else. Kinds of weights say what a head would
write if it attended to a token, those of attention where it attends, not that the model uses it;
``effects=True`` ablates each head of a kind on the kind's own prompts.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from analyses.ablate import ablate
from analyses.head_census import (
    function_vectors,
    own_token,
    repeated_tokens,
    retrieval,
    successor,
    two_names,
)
from analyses.head_census.kinds import Case, Family, Kind, Measured, NotShown, Scores
from analyses.head_roles import BACKGROUND
from analyses.methods.finite import check_finite_weights
from analyses.results import (
    FEWEST,
    LEVEL,
    Drawing,
    Heatmap,
    Result,
    bracketed,
    counted,
    false_discovery_rates,
    fixed,
    grid,
    interval,
    mean_frame,
    signed,
)
from interp import Transformer, read_prompts
from interp.errors import InvalidInput, shorten
from interp.execution import Provenance
from interp.integers import as_seed, at_least
from interp.io import Progress, as_progress
from interp.prompts import Prompt

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        repeated_tokens.FAMILY,
        own_token.FAMILY,
        successor.FAMILY,
        retrieval.FAMILY,
        function_vectors.FAMILY,
        two_names.FAMILY,
    )
}
"""What is measured, in this order."""
PAIRS = "ioi"
"""The bundled pairs with two names."""
STEPS = 100
"""Number of steps of progress of a family."""
LISTED = 30
"""The most heads of the figure."""
NAMED = 3
"""The most kinds that the first line names a head for."""
UNITS = ("logits", "probability")
"""Units that stand beside scores."""


@dataclass(frozen=True, eq=False, repr=False)
class HeadCensus(Result):
    """Scores of each head, by kind, with controls, and the heads of each kind.

    Attributes:
        score: score of each head on each sample, by the name of the kind; NaN where it has none.
        control: the same statistic where there is nothing to find.
        agrees: which heads have the further evidence that the kind needs, if it needs any.
        definitions: what each score is.
        silent: heads that write nothing; none if repeated tokens are not asked for.
        effects: effect of mean ablation of each head of a kind on each prompt of the kind, if asked
            for; by kind and name of the head.
        tasks: on what heads of a kind are ablated.
        evoked: probability of each answer without examples: as it is, with the function vector of
            the ten largest heads, and with its control; empty without function vectors.
        provenance: model and seed that the numbers depend on.
        notes: kinds that this model can't show, and why.
    """

    score: Mapping[str, Scores]
    control: Mapping[str, Scores]
    agrees: Mapping[str, Bool[Tensor, "layer head"]]
    definitions: tuple[Kind, ...]
    silent: Bool[Tensor, "layer head"]
    effects: Mapping[str, Mapping[str, Float[Tensor, " prompt"]]]
    tasks: Mapping[str, str]
    evoked: Mapping[str, Float[Tensor, " prompt"]]
    provenance: Provenance
    notes: tuple[str, ...] = ()

    def to_frame(self) -> pd.DataFrame:
        """One row per head and kind.

        Columns:
            layer, head, name: the head.
            role: the name of the kind.
            score, control: means over samples.
            difference, low, high: score − control, with the 95 % interval over samples.
            n: number of samples.
            q: p of the difference, corrected for the number of heads.
            has_role: whether the head is of this kind.
        """
        return pd.concat([self._frame_of(kind) for kind in self.definitions], ignore_index=True)

    def more_frames(self) -> dict[str, pd.DataFrame]:
        """See :meth:`Result.more_frames`."""
        effects = {"effects": self.to_effect_frame()} if self.effects else {}
        evoked = {"evoked": self.to_evoked_frame()} if self.evoked else {}
        return {"kinds": self.to_kind_frame(), **effects, **evoked}

    def to_kind_frame(self) -> pd.DataFrame:
        """One row per kind: role, statistic, unit, least, n_heads, reference.

        ``least`` is the amount by which the score must exceed its control, ``n_heads`` the number
        of heads of the kind.
        """
        frame = self.to_frame()
        count = frame.groupby("role")["has_role"].sum()
        rows = [
            {
                "role": kind.name,
                "statistic": kind.statistic,
                "unit": kind.unit,
                "least": kind.least,
                "n_heads": int(count.get(kind.name, 0)),
                "reference": kind.reference,
            }
            for kind in self.definitions
        ]
        return pd.DataFrame(rows)

    def to_effect_frame(self) -> pd.DataFrame:
        """One row per kind and head of it that was ablated.

        Columns: role, name, effect (the mean over prompts), low, high, n, metric.
        """
        rows = list[dict[str, object]]()
        for role, by_name in self.effects.items():
            for name, values in by_name.items():
                estimate = interval(values)
                rows.append(
                    {
                        "role": role,
                        "name": name,
                        "effect": estimate.mean.item(),
                        "low": estimate.low.item(),
                        "high": estimate.high.item(),
                        "n": estimate.n,
                        "metric": self.tasks[role],
                    }
                )
        return pd.DataFrame(rows, columns=["role", "name", "effect", "low", "high", "n", "metric"])

    def to_evoked_frame(self) -> pd.DataFrame:
        """Probability of the answer without examples: quantity, mean, low, high, n."""
        values = [*self.evoked.values()]
        table = torch.stack(values) if values else torch.zeros(0, 1)
        return mean_frame({"quantity": [*self.evoked]}, table)

    def roles(self) -> dict[str, tuple[str, ...]]:
        """The kinds of each head, clearest first: ``{"L0H5": ("previous-token",), …}``."""
        frame = self._clearest()
        of_head = frame[frame["has_role"]].groupby("name", sort=False)["role"].agg(tuple).to_dict()
        return {name: of_head.get(name, ()) for name in self._names}

    def drawing(self) -> Drawing:
        """Heatmap of the clearest heads: how many times the least that counts a score exceeds."""
        frame = self._clearest()
        frame = frame[~frame["role"].isin(BACKGROUND)]
        names = [*dict.fromkeys(frame["name"])][:LISTED]
        columns = [kind.name for kind in self.definitions if kind.name in set(frame["role"])]
        table = frame.pivot_table(index="name", columns="role", values="times", sort=False)
        more = f", the {LISTED} clearest heads" if frame["name"].nunique() > LISTED else ""
        return Heatmap(
            torch.tensor(table.reindex(index=names, columns=columns).to_numpy()),
            title=f"Kinds of heads: (score − control) / least that counts{more}",
            rows=names,
            columns=columns,
            axes=("head", "kind"),
            unit="times the least",
            diverging=True,
            top=10.0,
            places=1,
        )

    def summary(self, top: int = 5) -> str:
        """The heads of each kind, up to ``top`` of them, clearest first, and their ablation."""
        top = at_least(1, top, "top")
        frame, lines = self._clearest(), [self.headline()]
        for kind in sorted(self.definitions, key=lambda kind: kind.name in BACKGROUND):
            rows = frame[frame["has_role"] & (frame["role"] == kind.name)]
            texts = [self._text(row) for row in rows.head(top).to_dict("records")]
            more = f", and {len(rows) - top} more" if len(rows) > top else ""
            lines += [f"{kind.name:<20} {', '.join(texts)}{more}"] if texts else []
        with_heads = set(frame.loc[frame["has_role"], "role"])
        without = [
            kind.name
            for kind in self.definitions
            if kind.name not in with_heads and not kind.name.startswith("offset")
        ]
        lines += ["in brackets: the control"] if frame["has_role"].any() else []
        lines += [f"no head: {', '.join(without)}"] if without else []
        return "\n".join([*lines, *self._evoked_lines, *self.notes])

    def headline(self) -> str:
        """The clearest head of each kind, for the kinds that few heads are of."""
        frame = self._clearest()
        frame = frame[frame["has_role"] & ~frame["role"].isin(BACKGROUND)]
        count = frame["name"].nunique()
        heads = counted(self.silent.numel(), "head")
        if not count:
            return f"{self.provenance.model}: none of {heads} is of {self._number_of_kinds}"
        best = frame.drop_duplicates("role").head(NAMED)
        texts = [
            f"{row['name']} ({row['role']} {self._scores(row)}, control "
            f"{self._scores(row, 'control')})"
            for row in best.to_dict("records")
        ]
        more = ", …" if frame["role"].nunique() > NAMED else ""
        return (
            f"{self.provenance.model}: {count} of {heads} are of {self._number_of_kinds}: "
            f"{', '.join(texts)}{more}"
        )

    @property
    def _evoked_lines(self) -> list[str]:
        if not self.evoked:
            return []
        texts = [f"{name} {fixed(values.mean(), 3)}" for name, values in self.evoked.items()]
        return [f"probability of the answer to a question: {', '.join(texts)}"]

    @property
    def _number_of_kinds(self) -> str:
        rare = [kind for kind in self.definitions if kind.name not in BACKGROUND]
        return counted(len(rare), "kind")

    def _scores(self, row: Mapping[Hashable, Any], column: str = "score") -> str:
        """A number of a row, with a unit if it is no share."""
        (unit,) = (kind.unit for kind in self.definitions if kind.name == row["role"])
        text = fixed(row[column], 3 if unit == "probability" else 2)
        return f"{text} {unit}" if unit in UNITS and column == "score" else text

    def _text(self, row: Mapping[Hashable, Any]) -> str:
        """A head with its score, the control and the effect of its ablation."""
        text = f"{row['name']} {self._scores(row)} ({self._scores(row, 'control')})"
        values = self.effects.get(row["role"], {}).get(row["name"])
        if values is None:
            return text
        effect = interval(values)
        ends = bracketed(effect.low.item(), effect.high.item(), 2)
        return f"{text} ablated {signed(effect.mean.item(), 2)}{ends}"

    def _frame_of(self, kind: Kind) -> pd.DataFrame:
        score, control = self.score[kind.name], self.control[kind.name]
        difference = (score - control).flatten(0, 1).double()
        frame = mean_frame({**self._cells, "role": [kind.name] * len(difference)}, difference)
        frame = frame.rename(columns={"mean": "difference"})
        frame.insert(4, "score", score.flatten(0, 1).double().nanmean(-1).numpy())
        frame.insert(5, "control", control.flatten(0, 1).double().nanmean(-1).numpy())
        frame["q"] = _corrected(difference).numpy()
        above = (frame["difference"] > kind.least) & (frame["low"] > 0) & (frame["q"] <= LEVEL)
        has = self.agrees[kind.name] & ~self.silent if kind.name in self.agrees else ~self.silent
        frame["has_role"] = above & has.flatten().numpy()
        return frame[frame["n"] > 0]

    def _clearest(self) -> pd.DataFrame:
        """The table, heads of a kind first, by how often their difference exceeds the least."""
        frame = self.to_frame()
        least = {kind.name: kind.least for kind in self.definitions}
        frame["times"] = frame["difference"] / frame["role"].map(least)
        return frame.sort_values(["has_role", "times"], ascending=False, kind="stable")

    @property
    def _cells(self) -> dict[str, list[Any]]:
        layers, heads = self.silent.shape
        return {**grid(layer=range(layers), head=range(heads)), "name": self._names}

    @property
    def _names(self) -> list[str]:
        layers, heads = self.silent.shape
        return [f"L{layer}H{head}" for layer in range(layers) for head in range(heads)]


def head_census(  # noqa: PLR0913 - the settings of one analysis, by keyword
    model: Transformer,
    *,
    families: Sequence[str] | None = None,
    pairs: Sequence[Prompt] | None = None,
    rows: int = 16,
    seed: int = 0,
    effects: bool = False,
    progress: Progress | None = None,
) -> HeadCensus:
    """Find the heads of each published kind.

    Args:
        model: a model with one stack of layers.
        families: names of families of kinds, see the module; by default all.
        pairs: minimal pairs with a target and a distractor, which is named twice in each text; by
            default the bundled set ``ioi``.
        rows: number of rows of repeated tokens, and of rows with a needle.
        seed: seed for all that is drawn.
        effects: whether to ablate each head of a kind, with its mean, on the prompts of the kind:
            one case of a sweep for each, without kinds that most heads are of.
        progress: called with ``(steps done, steps in total)``: a hundred steps a family.

    Returns:
        Scores and controls by kind.

    Raises:
        InvalidInput: an encoder–decoder; an unknown family, no pairs, or rows below 1; or attention
            that is not finite.

    Examples:
        >>> analyses.head_census(interp.load("induction-by-hand"), families=["repeated tokens"])
        HeadCensus(induction-by-hand: 2 of 8 heads are of 10 kinds: L1H0 (induction 1.00, control
        0.00), L0H0 (previous-token 1.00, control 0.05))
    """
    check_finite_weights(model)
    if len(model.stacks) > 1:
        raise InvalidInput("head_census takes models with one stack; this one has two.")
    if not isinstance(effects, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"effects={shorten(effects)} should be True or False.")
    chosen, report = _families(families), as_progress(progress, "steps")
    rows, seed = at_least(1, rows, "rows"), as_seed(seed)
    prompts = _pairs(pairs)
    measured, notes, steps = list[Measured](), list[str](), STEPS * len(chosen)
    evoked = dict[str, Tensor]()
    for number, family in enumerate(chosen):

        def done(part: float, number: int = number) -> None:
            if report is not None:
                report(round(STEPS * (number + part)), steps)

        case = Case(model, rows, seed, prompts, done, notes, evoked)
        try:
            measured += family.measure(case)
        except NotShown as reason:
            notes.append(f"{family.name}: not measured, for {reason}")
        done(1.0)
    if not measured:
        raise InvalidInput(f"This model shows no kind of head. {'; '.join(notes)}")
    silent = next((each.silent for each in measured if each.silent is not None), None)
    result = HeadCensus(
        score={each.kind.name: each.score for each in measured},
        control={each.kind.name: each.control for each in measured},
        agrees={each.kind.name: each.agrees for each in measured if each.agrees is not None},
        definitions=tuple(each.kind for each in measured),
        silent=torch.zeros(measured[0].score.shape[:2]).bool() if silent is None else silent,
        effects={},
        tasks={each.kind.name: each.task.title for each in measured if each.task is not None},
        evoked=evoked,
        provenance=Provenance.of(model, seed=seed),
        notes=tuple(notes),
    )
    return replace(result, effects=_effects(model, result, measured)) if effects else result


def _families(names: Any) -> list[Family]:  # noqa: ANN401 - checked here
    """The families of these names, in the order of ``FAMILIES``.

    Raises:
        InvalidInput: no names, or unknown ones.
    """
    if names is None:
        return [*FAMILIES.values()]
    is_several = isinstance(names, Sequence) and not isinstance(names, str)
    if not is_several or not names or any(name not in FAMILIES for name in names):  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        raise InvalidInput(
            f"families={shorten(names)} should be names among {', '.join(FAMILIES)}."
        )
    return [family for name, family in FAMILIES.items() if name in names]


def _pairs(pairs: Any) -> tuple[Prompt, ...]:  # noqa: ANN401 - checked here
    """The given prompts, or the bundled ones.

    Raises:
        InvalidInput: no prompts, or something else.
    """
    prompts: Any = read_prompts(PAIRS) if pairs is None else pairs
    is_several = isinstance(prompts, Sequence) and not isinstance(prompts, str)
    if not is_several or not prompts or not all(isinstance(each, Prompt) for each in prompts):  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        raise InvalidInput(
            f"pairs={shorten(pairs)} should be prompts, such as interp.read_prompts returns."
        )
    return tuple(prompts)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def _effects(
    model: Transformer, census: HeadCensus, measured: Sequence[Measured]
) -> dict[str, dict[str, Float[Tensor, " prompt"]]]:
    """The effects of mean ablation of each head of a kind on the prompts of the kind."""
    frame, effects = census.to_frame(), dict[str, dict[str, Tensor]]()
    for each in measured:
        rows = frame[frame["has_role"] & (frame["role"] == each.kind.name)]
        if each.task is None or rows.empty:
            continue
        names = rows["name"].tolist()
        ablation = ablate(
            model, each.task.prompts, units={name: name for name in names}, metric=each.task.metric
        )
        effects[each.kind.name] = dict(zip(names, ablation.effect, strict=True))
    return effects


def _corrected(difference: Float[Tensor, "head sample"]) -> Float[Tensor, " head"]:
    """q of each head; heads with values on other samples than the first head are tested apart."""
    p = difference.new_full(difference.shape[:1], torch.nan)
    has = ~difference.isnan()
    for pattern in has.unique(dim=0):
        rows = (has == pattern).all(-1)
        if int(pattern.sum()) >= FEWEST:
            p[rows] = interval(difference[rows][:, pattern]).p
    return false_discovery_rates(p)
