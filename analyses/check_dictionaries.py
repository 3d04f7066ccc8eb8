"""How much of a model do its dictionaries explain? Variance, sparsity, and the loss without errors.

    FVU        Σ ‖y − x̂‖² / Σ ‖y − ȳ‖²                  share of the variance left unexplained
    L0         mean number of active features of a token
    dead       share of the features that no token of these prompts activates
    effect     loss(y ↦ x̂) − loss                       what the error is worth to the model
    recovered  (loss(y ↦ ȳ) − loss(y ↦ x̂)) / (loss(y ↦ ȳ) − loss)

y is what a dictionary reconstructs and x̂ what it makes of its features; ȳ is the mean of y over all
tokens, the control. (Bricken et al. 2023, "Towards Monosemanticity"; Gao et al. 2024,
arXiv:2406.04093.) Variance is measured by size: a few directions with large activations may be most
of it, and be irrelevant to the loss, or the reverse. A feature that these prompts do not activate
may be active on others. Of a cross-layer transcoder, x̂ is what the features of all layers up to one
write there; a last row is about the outputs of all layers replaced together.

What the publisher of a dictionary says of these figures stands beside them. It was measured on
other texts, and may be another figure: dictionary_learning compares the loss with zeros in place of
y. These mostly cost more than ȳ, and so the same reconstruction recovers a larger share.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import nan
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.methods.finite import check_finite_weights
from analyses.results import (
    Bars,
    Drawing,
    Progress,
    Result,
    bracketed,
    counted,
    effect_frame,
    fixed,
    percent,
    prompt_frame,
    rounding,
    signed,
)
from interp import (
    DictionaryTransformer,
    Place,
    Point,
    Transformer,
    dictionaries,
    edits,
    metrics,
    run,
    sweep,
)
from interp.cache import Cache
from interp.dictionaries import CrossLayerTranscoder
from interp.edits import Edit
from interp.errors import InvalidInput, shorten
from interp.execution import Provenance
from interp.integers import at_least
from interp.model import Batch
from interp.prompts import read_batches
from interp.sweeps import check_options

FIGURES = {
    "fvu": "FVU {:.3f}",
    "l0": "L0 {:.1f}",
    "dead": "{:.1%} dead",
    "recovered": "{:.1%} recovered",
}
"""The figures that publishers claim, and their texts in a summary."""
ALL_LAYERS = "all layers"
"""The name of the row about all outputs that a cross-layer transcoder reconstructs."""


@dataclass(frozen=True, eq=False, repr=False)
class DictionaryCheck(Result):
    """What dictionaries explain on some prompts.

    Attributes:
        places: the place that each dictionary reconstructs; of a cross-layer transcoder, that of
            each layer, and at the end ``all layers``.
        n_features: number of features of each.
        n_active: number of features that some token activates.
        unexplained: Σ ‖y − x̂‖² over the tokens of each prompt.
        variance: Σ ‖y − ȳ‖² over the tokens of each prompt.
        l0: mean number of active features of a token of each prompt.
        clean: the loss of the model, in nats.
        spliced: the loss with x̂ in place of y.
        ablated: the loss with ȳ in place of y.
        claims: what publishers say of these figures: the place of the dictionary, the figure, its
            value as claimed, and how it is defined there.
        provenance: the model with its dictionaries, and the prompts.
    """

    places: tuple[str, ...]
    n_features: Int[Tensor, " dictionary"]
    n_active: Int[Tensor, " dictionary"]
    unexplained: Float[Tensor, "dictionary prompt"]
    variance: Float[Tensor, "dictionary prompt"]
    l0: Float[Tensor, "dictionary prompt"]
    clean: Float[Tensor, " prompt"]
    spliced: Float[Tensor, "dictionary prompt"]
    ablated: Float[Tensor, "dictionary prompt"]
    claims: Mapping[str, Sequence[object]]
    provenance: Provenance

    @property
    def recovered(self) -> Float[Tensor, " dictionary"]:
        """The share of the loss that is recovered; NaN where ȳ in place of y costs nothing."""
        lost, left = (x.double().mean(1) for x in (self.ablated, self.spliced))
        cost = lost - self.clean.double().mean()
        nothing = cost <= rounding(self.clean, self.provenance.dtype)
        return ((lost - left) / cost).masked_fill(nothing, torch.nan)

    def to_frame(self) -> pd.DataFrame:
        """One row per dictionary, in the order of the model.

        Columns:
            place: what it reconstructs.
            n_features: number of features.
            fvu: share of the variance of the place that is left unexplained.
            l0: mean number of active features of a token.
            dead: share of features that no token activates.
            recovered: share of the loss that is recovered, of what the mean in place of y costs.
            spliced, ablated: loss in nats with x̂, and with the mean, in place of y.
            effect, low, high: spliced − loss, and its 95 % interval over prompts.
            size, share, n, p, q, significant: see :func:`analyses.results.effect_frame`.
            claimed_fvu, claimed_l0, claimed_dead, claimed_recovered: those of them that a publisher
                claims, NaN for other dictionaries; see :meth:`to_claim_frame`.
        """
        cells = {
            "place": list(self.places),
            "n_features": self.n_features.tolist(),
            "fvu": (self.unexplained.sum(1) / self.variance.sum(1)).tolist(),
            "l0": self.l0.mean(1).tolist(),
            "dead": (1 - self.n_active / self.n_features).tolist(),
            "recovered": self.recovered.tolist(),
            "spliced": self.spliced.double().mean(1).tolist(),
            "ablated": self.ablated.double().mean(1).tolist(),
        }
        claims = self._claimed()
        noise = rounding(self.clean, self.provenance.dtype)
        frame = effect_frame(cells, self.spliced - self.clean, noise, metric=self.clean)
        order = {place: number for number, place in enumerate(self.places)}
        frame = frame.sort_values("place", key=lambda names: names.map(order), ignore_index=True)
        for figure in FIGURES:
            if any(figure in of_place for of_place in claims.values()):
                claimed = [claims[place].get(figure, nan) for place in frame["place"]]
                frame[f"claimed_{figure}"] = claimed
        return frame

    def more_frames(self) -> dict[str, pd.DataFrame]:
        """See :meth:`Result.more_frames`."""
        return {"claims": self.to_claim_frame()} if self.claims["place"] else {}

    def to_claim_frame(self) -> pd.DataFrame:
        """One row per claim of a publisher, beside what was measured.

        Columns:
            place: what the dictionary reconstructs.
            figure: ``fvu``, ``l0``, ``dead`` or ``recovered``, as in :meth:`to_frame`.
            claimed: its value as the publisher claims it.
            measured: its value on these prompts, by the definition of this analysis.
            definition: that of the claim.
        """
        rows = {row["place"]: row for row in self.to_frame().to_dict("records")}
        cells = zip(self.claims["place"], self.claims["figure"], strict=True)
        frame = pd.DataFrame(self.claims)
        frame.insert(3, "measured", [rows[place][figure] for place, figure in cells])
        return frame

    def _claimed(self) -> dict[str, dict[str, float]]:
        """The claims of each dictionary, by the figure."""
        claims: dict[str, dict[str, float]] = {place: {} for place in self.places}
        columns = (self.claims[name] for name in ("place", "figure", "claimed"))
        for place, figure, claimed in zip(*columns, strict=True):
            claims[str(place)][str(figure)] = float(str(claimed))
        return claims

    def to_prompt_frame(self) -> pd.DataFrame:
        """One row per dictionary and prompt: place, prompt, fvu, l0, spliced, ablated, effect."""
        return prompt_frame(
            {"place": list(self.places)},
            fvu=self.unexplained / self.variance,
            l0=self.l0,
            spliced=self.spliced.double(),
            ablated=self.ablated.double(),
            effect=(self.spliced - self.clean).double(),
        )

    def drawing(self) -> Drawing:
        """What the error of each dictionary is worth, beside all that it reconstructs."""
        frame = self.to_frame()
        columns = (torch.tensor(frame[name].tolist()) for name in ("effect", "low", "high"))
        cost = torch.tensor(frame["ablated"].tolist()) - float(self.clean.mean())
        return Bars(
            *columns,
            title="Loss with reconstructions in place of activations, minus the loss",
            labels=[
                f"{row['place']}, {row['n_features']} features, L0 {fixed(row['l0'], 1)}"
                for row in frame.to_dict("records")
            ],
            unit="nats",
            name="reconstruction",
            marks={"mean in its place": cost},
        )

    def summary(self) -> str:
        """The figures of each dictionary."""
        lines = [
            f"{row['place']}  FVU {fixed(row['fvu'], 3)}, L0 {fixed(row['l0'], 1)}, "
            f"{percent(row['dead'])} of {row['n_features']} not active; loss "
            f"{signed(row['effect'], 3)}{bracketed(row['low'], row['high'], 3)} nats, "
            f"{percent(row['recovered'], 1)} recovered"
            for row in self.to_frame().to_dict("records")
        ]
        return "\n".join([self.headline(), *lines, *self._claim_lines()])

    def _claim_lines(self) -> list[str]:
        """Each claim, with the measured value and the definition of the claim."""
        return [
            f"{row['place']}  claimed {text.format(row['claimed'])}, measured "
            f"{text.format(row['measured'])}; claimed as {row['definition']}"
            for row in self.to_claim_frame().to_dict("records")
            for text in (FIGURES[row["figure"]],)
        ]

    def headline(self) -> str:
        """See :meth:`Result.headline`."""
        frame = self.to_frame()
        worst = frame.sort_values("size", ascending=False).to_dict("records")[0]
        n = "1 dictionary" if len(frame) == 1 else f"{len(frame)} dictionaries"
        if self.places[-1] == ALL_LAYERS:
            n = f"cross-layer transcoder of {len(frame) - 1} layers"
        return (
            f"{n} on {counted(len(self.clean), 'prompt')}, loss {fixed(self.clean.mean(), 3)} "
            f"nats; largest change by a reconstruction: {worst['place']} "
            f"{signed(worst['effect'], 3)} nats ({percent(worst['recovered'], 1)} recovered), FVU "
            f"{fixed(worst['fvu'], 3)}"
        )


def check_dictionaries(  # noqa: PLR0913 - the settings of one analysis, by keyword
    model: Transformer,
    prompts: Any,  # noqa: ANN401 - what model.check reads
    *,
    transcoder: CrossLayerTranscoder | None = None,
    rows: int = 16,
    memory: float | None = None,
    progress: Progress | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> DictionaryCheck:
    """Measure what dictionaries explain, on prompts that they were not trained on.

    Args:
        model: a model with dictionaries, as ``interp.with_dictionaries`` makes it, that predicts
            next tokens; or with a cross-layer transcoder alone.
        prompts: texts, token ids padded with ``interp.PAD``, or a batch.
        transcoder: a cross-layer transcoder, with a model without dictionaries, of which it is
            measured.
        rows: prompts per forward while features are counted; the result does not depend on it.
        memory: bytes that the sweep may take, as for :func:`interp.sweep`.
        progress: called with ``(forwards done, forwards in total)`` of the sweep.
        cancelled: called after each forward; if it returns True, nothing is returned.

    Raises:
        InvalidInput: the model has no dictionaries, or predicts no next tokens; or a transcoder is
            given, and is of another model, or the model has dictionaries.
        Cancelled: ``cancelled`` returned True.

    Examples:
        >>> transcoder = interp.dictionaries.load("python-4l/mlp-1")
        >>> model = interp.with_dictionaries(interp.load("python-4l"), transcoder)
        >>> analyses.check_dictionaries(model, ["def f(x): return x", "class A(B): pass"])
        DictionaryCheck(1 dictionary on 2 prompts, loss 4.110 nats; largest change by a
        reconstruction: ("mlp_out", 1) +0.016 nats (96.9 % recovered), FVU 0.007)
    """
    if not isinstance(transcoder, CrossLayerTranscoder | None):  # pyright: ignore[reportUnnecessaryIsInstance] - of users
        raise InvalidInput(
            f"transcoder={shorten(transcoder)} should be what interp.dictionaries.load_cross_layer "
            "returned."
        )
    if not isinstance(model, DictionaryTransformer) and transcoder is None:
        raise InvalidInput(
            "check_dictionaries takes a model with dictionaries, as interp.with_dictionaries makes "
            "it, or --dictionary on the command line does; got "
            f"{shorten(type(model).__name__)}."
        )
    if isinstance(model, DictionaryTransformer):
        transcoder = _alone(model, transcoder)
    check_finite_weights(model)
    check_options(model, memory, None)
    n_rows, batches = at_least(1, rows, "rows"), read_batches(model, prompts)
    counts = _counts_of_view(model) if transcoder is None else _counts_of(model, transcoder)
    for part in torch.arange(len(batches[0].ids)).split(n_rows):
        counts.add(model, [batch.rows(part.to(batch.ids.device)) for batch in batches])
    means = [[edits.mean(x.writes, values=x.mean.to(model.dtype))] for x in counts.sums]
    means += [[*chain(*means)]] if transcoder is not None else []
    table = sweep(
        model,
        tuple(batches) if len(batches) > 1 else batches[0],
        [*chain(*zip(counts.spliced, means, strict=True))],
        metrics.loss(),
        memory=memory,
        progress=progress,
        cancelled=cancelled,
    )
    spliced, ablated = table.values.view(len(means), 2, -1).unbind(1)
    sums = counts.sums
    figures = {
        "n_features": torch.tensor([len(each.active) for each in sums]),
        "n_active": torch.stack([each.active.sum() for each in sums]),
        "unexplained": torch.tensor([each.unexplained for each in sums], dtype=torch.float64),
        "variance": torch.stack([each.variance() for each in sums]),
        "l0": torch.tensor([each.l0 for each in sums], dtype=torch.float64),
    }
    if transcoder is not None:  # one more row is about all layers
        figures = {name: torch.cat([x, x.sum(0, keepdim=True)]) for name, x in figures.items()}
    names = [str(each.writes) for each in sums]
    return DictionaryCheck(
        places=(*names, *([ALL_LAYERS] if transcoder is not None else [])),
        **figures,
        clean=table.baseline,
        spliced=spliced,
        ablated=ablated,
        claims=_claims_of(model, counts),
        provenance=Provenance.of(model, *batches),
    )


class _Sums:
    """What is summed over the tokens of the prompts, for one dictionary, or one layer.

    Attributes:
        writes: the place that it reconstructs.
        active: which features were active.
        unexplained: Σ ‖y − x̂‖² of each prompt.
        l0: mean number of active features of each prompt.
    """

    def __init__(self, n_features: int, writes: Place) -> None:
        self.writes = writes
        self.active = torch.zeros(n_features, dtype=torch.bool)
        self.unexplained: list[float] = []
        self.l0: list[float] = []
        self._squares: list[float] = []
        self._n: list[int] = []
        self._y: list[Tensor] = []

    def add(self, features: Tensor, error: Tensor, y: Tensor) -> None:
        """Count the tokens of one prompt."""
        active = features > 0
        self.active |= active.any(0).cpu()
        self.l0.append(float(active.sum(1).double().mean()))
        self.unexplained.append(float(error.double().square().sum()))
        self._squares.append(float(y.double().square().sum()))
        self._y.append(y.double().sum(0).cpu())
        self._n.append(len(y))

    @property
    def mean(self) -> Tensor:
        """ȳ."""
        return torch.stack(self._y).sum(0) / sum(self._n)

    def variance(self) -> Float[Tensor, " prompt"]:
        """Σ ‖y − ȳ‖² of each prompt, which is Σ ‖y‖² − 2 ȳ·Σ y + n ‖ȳ‖²."""
        n, squares = (torch.tensor(x, dtype=torch.float64) for x in (self._n, self._squares))
        mean, sums = self.mean.flatten(), torch.stack([y.flatten() for y in self._y])
        return squares - 2 * sums @ mean + n * mean.square().sum()


def _claims_of(model: Transformer, counts: "_Counts") -> dict[str, list[object]]:
    """The claims about the dictionaries of a view, as columns."""
    attached = model.dictionaries() if isinstance(model, DictionaryTransformer) else {}
    rows = [
        (str(each.writes), figure, claim.value, claim.definition)
        for each, dictionary in zip(counts.sums, attached.values(), strict=bool(attached))
        for figure, claim in dictionary.claims.items()
    ]
    names = ("place", "figure", "claimed", "definition")
    return {name: [row[column] for row in rows] for column, name in enumerate(names)}


@dataclass(frozen=True, eq=False)
class _Counts:
    """What is counted on the prompts, and what is spliced.

    Attributes:
        sums: what is summed, for each dictionary, or for each layer.
        recorded: the places that are read.
        computed: features, error and output of each, by the tensors at places.
        spliced: the edits that put x̂ in place of each output, and of all.
        stacks: the index of the stack of each.
        stop: the layer of the last stack at which forwards end.
    """

    sums: list[_Sums]
    recorded: list[Place]
    computed: Callable[[Cache], Iterable[tuple[Tensor, Tensor, Tensor]]]
    spliced: list[list[Edit]]
    stacks: list[int]
    stop: int

    def add(self, model: Transformer, batches: list[Batch]) -> None:
        """Add the tokens of some prompts."""
        cache = run(model, *batches, record=self.recorded, stop_at_layer=self.stop).cache
        for each, stack, tensors in zip(self.sums, self.stacks, self.computed(cache), strict=True):
            real = batches[stack].is_real
            for row in range(len(real)):
                each.add(*(x[row][real[row]] for x in tensors))


def _counts_of_view(model: Transformer) -> _Counts:
    """Of the dictionaries of a view."""
    attached = model.dictionaries() if isinstance(model, DictionaryTransformer) else {}
    writes = {place: each.places(model)[1] for place, each in attached.items()}
    names = [stack.name_in_places for stack in model.stacks]
    layers = [place.layer or 0 for place in writes if place.stack == names[-1]]

    def computed(cache: Cache) -> Iterable[tuple[Tensor, Tensor, Tensor]]:
        return ((cache[place], cache[_error(place)], cache[y]) for place, y in writes.items())

    return _Counts(
        sums=[_Sums(each.n_features, writes[place]) for place, each in attached.items()],
        recorded=[at for place, y in writes.items() for at in (place, _error(place), y)],
        computed=computed,
        spliced=[[edits.zero(_error(place))] for place in writes],
        stacks=[names.index(place.stack) for place in writes],
        stop=max(layers, default=0) + 1,
    )


def _alone(
    model: DictionaryTransformer, requested: CrossLayerTranscoder | None
) -> CrossLayerTranscoder | None:
    """The cross-layer transcoder of a view; ``None`` if it has dictionaries of one layer each.

    Raises:
        InvalidInput: it has both, or another transcoder is asked for.
    """
    transcoder = model.transcoder()
    if requested is not None:
        raise InvalidInput("transcoder= takes a model without dictionaries; this one has some.")
    if transcoder is not None and model.dictionaries():
        raise InvalidInput(
            "check_dictionaries measures a cross-layer transcoder alone; this view has other "
            "dictionaries too. Attach them to another view."
        )
    return transcoder


def _counts_of(model: Transformer, transcoder: CrossLayerTranscoder) -> _Counts:
    """Of the layers of a cross-layer transcoder.

    Raises:
        InvalidInput: it is of another model.
    """
    pairs = transcoder.places(model)
    of_model = transcoder.to(model.device, model.dtype)

    def computed(cache: Cache) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        features: list[Tensor] = []
        for layer, (read, written) in enumerate(pairs):
            features.append(of_model.encode_at(layer, cache[read]))
            y = cache[written]
            yield features[layer], y - of_model.output_at(layer, features, cache[read]), y

    layers = range(transcoder.n_layers)
    alone = [dictionaries.reconstruction_edits(of_model, [layer]) for layer in layers]
    return _Counts(
        sums=[_Sums(transcoder.n_features, written) for _, written in pairs],
        recorded=[place for pair in pairs for place in pair],
        computed=computed,
        spliced=[*alone, dictionaries.reconstruction_edits(of_model)],
        stacks=[0 for _ in layers],
        stop=transcoder.n_layers,
    )


def _error(place: Place) -> Place:
    """The place of the error of a dictionary, by that of its features."""
    return Place(Point.FEATURES_ERROR, place.layer, place.norm, place.stack)
