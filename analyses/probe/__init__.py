"""Can a label be read from activations by one linear map? A linear probe.

    predicted class = argmax_c (x W + b)_c        x: the activations at one position

(Alain and Bengio 2016). W and b are fitted to the prompts of all folds but one, by ridge regression
onto the indicators of the classes or by logistic regression, and predict the prompts of that fold.
The control is the same probe fitted to labels in random order: its accuracy is what a probe of this
size reaches on labels that activations hold no information about. Selectivity is the difference
(Hewitt and Liang 2019, "Designing and Interpreting Probes with Control Tasks"; there, random labels
are given to words, and here to prompts). The p-value is exact: the share of random orders (the true
one counted among them) in which the best of all places is as accurate as this one (Westfall and
Young 1993). The accuracy of the most frequent label alone is called constant.

That a probe reads a label does not show that the model does, nor that it computed it there: much
can be read from the tokens themselves. See :func:`analyses.erase` for what depends on it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from analyses.methods.components import (
    Labelled,
    batches_of,
    labelled_activations,
    labels_of,
    place_cells,
)
from analyses.methods.finite import check_finite_weights
from analyses.methods.ridge import random_folds
from analyses.probe.classifiers import CLASSIFIERS, held_out_correct
from analyses.results import (
    LEVEL,
    Curve,
    Curves,
    Drawing,
    Result,
    fixed,
    interval,
    number,
    prompt_frame,
)
from interp import Harvest, Transformer
from interp.errors import InvalidInput, InvalidTokens, shorten
from interp.execution import Provenance
from interp.integers import as_integer, as_seed
from interp.model import whole_numbers

DRAWS = 20
"""Random orders of the labels; fewer than 19 could never give p ≤ 0.05."""


@dataclass(frozen=True, eq=False, repr=False)
class Probe(Result):
    """Which held-out prompts a probe predicts correctly, by place.

    Attributes:
        correct: whether the label of each prompt is predicted.
        control: the same (1 or 0) for labels in random order, in each order.
        points: the point that was read at each place, such as ``resid_pre``.
        layers: the layer of each place.
        labels: the label of each prompt.
        pos: the position that was read.
        kind: the kind of probe: ``ridge`` or ``logistic``.
        folds: the fold of each prompt.
        provenance: model, prompts and seed that the numbers depend on.
    """

    correct: Bool[Tensor, "place prompt"]
    control: Float[Tensor, "place draw prompt"]
    points: tuple[str, ...]
    layers: tuple[int, ...]
    labels: tuple[str, ...]
    pos: int
    kind: str
    folds: Int[Tensor, " prompt"]
    provenance: Provenance

    def to_frame(self) -> pd.DataFrame:
        """One row per place.

        Columns:
            point, layer, name: what was read.
            accuracy: share of prompts whose label is predicted.
            control: the same for labels in random order, mean over the orders.
            constant: accuracy of the most frequent label.
            selectivity, low, high: accuracy − control, with the 95 % interval over prompts.
            n: number of prompts.
            p: p-value of an accuracy by chance, corrected for the number of places.
            significant: whether p ≤ 0.05.
        """
        correct, control = self.correct.double(), self.control
        accuracy, by_chance = correct.mean(-1), control.mean(-1)
        selectivity = interval(correct - control.mean(1))
        as_good = by_chance.amax(0) >= accuracy[:, None]
        p = (1 + as_good.sum(-1)) / (1 + as_good.shape[-1])
        columns = {
            "accuracy": accuracy,
            "control": by_chance.mean(-1),
            "constant": torch.full_like(accuracy, self.constant),
            "selectivity": selectivity.mean,
            "low": selectivity.low,
            "high": selectivity.high,
            "n": torch.full_like(p, selectivity.n, dtype=torch.long),
            "p": p.double(),
            "significant": p <= LEVEL,
        }
        frame = pd.DataFrame(
            {**self._cells, **{name: column.numpy() for name, column in columns.items()}}
        )
        return frame.sort_values("selectivity", ascending=False, kind="stable", ignore_index=True)

    def to_prompt_frame(self) -> pd.DataFrame:
        """One row per place and prompt: point, layer, name, prompt, correct, control.

        ``correct``: whether the label is predicted; ``control`` is the share of random orders of
        the labels in which it is.
        """
        return prompt_frame(self._cells, correct=self.correct, control=self.control.mean(1))

    @property
    def constant(self) -> float:
        """The accuracy of the most frequent label."""
        return max(map(self.labels.count, self.labels)) / len(self.labels)

    def drawing(self) -> Drawing:
        """Accuracy by layer for each point; the controls are grey."""
        curves: list[Curve] = []
        for point in dict.fromkeys(self.points):
            rows = [number for number, name in enumerate(self.points) if name == point]
            x = [self.layers[number] for number in rows]
            control = self.control[rows].mean((1, 2))
            curves += [
                Curve(point, x, self.correct[rows].double().mean(-1).tolist()),
                Curve(f"{point}, labels in random order", x, control.tolist(), faint=True),
            ]
        return Curves(
            {"accuracy": curves},
            title=f"{self.provenance.model}: labels read by a {self.kind} probe at position "
            f"{self.pos}",
            axis="layer",
            units=["share of prompts held out"],
        )

    def summary(self) -> str:
        """The place where the label is read best, then all others."""
        frame = self.to_frame()
        width = max(map(len, self._cells["name"]))
        lines = [
            f"{name:<{width}} accuracy {fixed(accuracy, 2)}, control {fixed(control, 2)}, "
            f"p {'≤' if p <= LEVEL else '='} {number(max(p, LEVEL), 2)}"
            for name, accuracy, control, p in zip(
                frame["name"], frame["accuracy"], frame["control"], frame["p"], strict=True
            )
        ]
        return "\n".join([self.headline(), *lines])

    def headline(self) -> str:
        """See :meth:`Result.headline`; it says if no place exceeds both controls."""
        frame, classes = self.to_frame(), len(set(self.labels))
        best = frame.iloc[0]
        exceeds = frame["accuracy"] > frame[["control", "constant"]].max(axis=1)
        how = "best" if exceeds.any() else "no better than by the controls, best"
        return (
            f"{classes} labels of {len(self.labels)} prompts are read {how} at {best['name']}: "
            f"accuracy {fixed(best['accuracy'], 2)} held out (in random order "
            f"{fixed(best['control'], 2)}, constant {fixed(self.constant, 2)})"
        )

    @property
    def _cells(self) -> dict[str, list[Any]]:
        return place_cells(self.points, self.layers)


def probe(  # noqa: PLR0913 - the settings of one analysis, by keyword
    model: Transformer,
    prompts: Any,  # noqa: ANN401 - what model.check reads
    labels: Iterable[object],
    *,
    at: str | Sequence[str] = "resid_post",
    pos: int = -1,
    kind: str = "ridge",
    folds: int | Sequence[int] | Int[Tensor, " prompt"] = 5,
    stack: str | None = None,
    seed: int = 0,
) -> Probe:
    """Fit linear probes of a label to the activations of every layer.

    Args:
        model: the model.
        prompts: texts, token ids padded with ``interp.PAD``, images, or a batch; ``(source,
            target)`` for an encoder–decoder; or an ``interp.Harvest`` of the points, whose texts
            are then not run.
        labels: one label per prompt: texts, numbers or booleans.
        at: what is read: the label of a point that every layer has and that has positions, such as
            ``resid_post``, ``mlp_out``, ``z`` (all heads together); or several, each by itself.
        pos: the position that is read, among each prompt's tokens.
        kind: ``ridge``, whose penalty is chosen by leave-one-out over the rows that it is fitted
            to, or ``logistic``.
        folds: number of folds; each prompt is predicted by a probe fitted to the other folds. Or
            the fold of each prompt, to hold out prompts of one kind together.
        stack: for an encoder–decoder, the stack that is read; by default the decoder.
        seed: seed for the folds and for the random orders.

    Returns:
        Predictions by place and prompt.

    Raises:
        InvalidInput: not one label per prompt, fewer than two of each, or fewer than two folds; an
            unknown kind; a point that has no positions; a prompt too short to have the position.
        UnknownPlace: the model has no such point.
        NotRecorded: the harvest has not stored it.

    Examples:
        >>> model, prompts = interp.load("python-2l"), interp.read_prompts("python-brackets")
        >>> texts, labels = [p.text for p in prompts], [p.target for p in prompts]
        >>> analyses.probe(model, texts, labels)
        Probe(3 labels of 48 prompts are read best at resid_post 1: accuracy 1.00 held out (in
        random order 0.49, constant 0.50))
    """
    check_finite_weights(model)
    if kind not in list(CLASSIFIERS):
        raise InvalidInput(f"kind={shorten(kind)} should be one of {', '.join(CLASSIFIERS)}.")
    seed = as_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    batches = batches_of(model, prompts)
    labels = labels_of(labels, len(batches[0].ids))
    n = len(labels)
    split = _folds(folds, n, generator)
    read = prompts if isinstance(prompts, Harvest) else batches
    labelled = labelled_activations(model, read, labels, at=at, pos=pos, stack=stack)
    orders = [torch.randperm(n, generator=generator) for _ in range(DRAWS)]
    correct = _correct(labelled, kind, split, orders)
    cells = labelled.cells
    return Probe(
        correct=correct[:, 0],
        control=correct[:, 1:].double(),
        points=tuple(cells["point"]),
        layers=tuple(cells["layer"]),
        labels=labelled.labels,
        pos=pos,
        kind=kind,
        folds=split,
        provenance=Provenance.of(model, *labelled.batches, seed=seed),
    )


def _folds(
    folds: int | Sequence[int] | Tensor, n: int, generator: torch.Generator
) -> Int[Tensor, " prompt"]:
    """The fold of each prompt."""
    number = as_integer(folds)
    if number is None:
        split = _whole_numbers(folds)
        if split.shape != (n,) or len(split.unique()) < 2:  # noqa: PLR2004 - held out, and fitted to
            raise InvalidInput(
                f"folds={shorten(folds)} should be a number of folds, or the fold of each of the "
                f"{n} prompts, two or more different ones."
            )
        return split
    if not 2 <= number <= n:  # noqa: PLR2004 - likewise
        raise InvalidInput(f"folds={number} is outside 2..{n}, the number of prompts.")
    return random_folds(n, number, generator)


def _whole_numbers(folds: object) -> Int[Tensor, "..."]:
    """The folds as a tensor, which is empty if they are not integers."""
    try:
        return whole_numbers(folds)
    except InvalidTokens:
        return torch.empty(0, dtype=torch.long)


def _correct(
    labelled: Labelled,
    kind: str,
    folds: Int[Tensor, " prompt"],
    orders: Sequence[Int[Tensor, " prompt"]],
) -> Bool[Tensor, "place labelling prompt"]:
    """Whether each label is predicted: the true ones, then those in each order."""
    targets = torch.stack([labelled.targets, *(labelled.targets[order] for order in orders)])
    fit, n = CLASSIFIERS[kind], len(labelled.classes)
    return torch.stack(
        [
            held_out_correct(fit, labelled.rows_at(place), targets, n, folds)
            for place in labelled.every_place
        ]
    )
