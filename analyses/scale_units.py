"""What does the answer become without some units of a graph? Scaled together, and measured.

    effect = logit(activation · factor) − logit        each logit minus the mean of all logits

All units are scaled together, in the model as it is and with all patterns kept. What a graph
predicts is :meth:`analyses.AttributionGraph.predicted_effect`: a graph has fixed patterns, divisors
and gates, so that the second run is nearer to it (Ameisen et al. 2025, "Circuit Tracing").
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.methods.finite import check_finite_weights
from analyses.results import (
    Bars,
    Drawing,
    Result,
    Tokens,
    counted,
    number,
    percent,
    places_of,
    signed,
    token_ids,
)
from interp import DictionaryTransformer, Transformer, edits, run
from interp.dictionaries import CrossLayerTranscoder, feature_edits
from interp.edits import Edit
from interp.errors import InvalidInput, shorten
from interp.execution import Provenance
from interp.integers import at_least
from interp.metrics import Position, as_position, columns_read
from interp.model import MLP, Attention, Batch, Network
from interp.points import Place, Point

UNIT = re.compile(r"L(?P<layer>\d{1,4})((?P<letter>[NFH])(?P<index>\d{1,8})|MLP)@(?P<pos>\d{1,6})")
"""The name of a unit of a graph."""
KINDS = {"N": "neurons", "F": "features of an MLP", "H": "heads", "MLP": "an MLP"}
"""What layers have, by the letters of names."""
TOP = 5
"""Tokens that are reported without targets: the most probable, and those that change most."""


@dataclass(frozen=True, eq=False, repr=False)
class ScaledUnits(Result):
    """The logits of some tokens with units of a graph scaled.

    Attributes:
        scaled: the units that are scaled, by the names of a graph: ``L1N5@3``.
        factor: what their activations are multiplied by.
        target: the label of each token.
        target_ids: the ids of these tokens.
        value: the logit of each token minus the mean of all logits.
        effect: what is added to it.
        effect_frozen: the same with all patterns as they were.
        probability: the probability of each token.
        scaled_probability: its probability with the units scaled.
        provenance: model and tokens that the numbers depend on.
    """

    scaled: tuple[str, ...]
    factor: float
    target: tuple[str, ...]
    target_ids: Int[Tensor, " logit"]
    value: Float[Tensor, " logit"]
    effect: Float[Tensor, " logit"]
    effect_frozen: Float[Tensor, " logit"]
    probability: Float[Tensor, " logit"]
    scaled_probability: Float[Tensor, " logit"]
    provenance: Provenance

    def to_frame(self) -> pd.DataFrame:
        """One row per token, in the order of ``target``: the fields of this class."""
        columns = ("value", "effect", "effect_frozen", "probability", "scaled_probability")
        return pd.DataFrame(
            {
                "token": list(self.target),
                "id": self.target_ids.numpy(),
                **{name: getattr(self, name).numpy() for name in columns},
            }
        )

    def drawing(self) -> Drawing:
        """The change of each logit."""
        none = torch.full_like(self.effect, torch.nan)
        return Bars(
            self.effect,
            none,
            none,
            title=f"Change of the logits: {self._what()}",
            labels=self.target,
            unit="logits",
            name="measured",
            marks={"with patterns kept": self.effect_frozen},
        )

    def summary(self, top: int = 10) -> str:
        """The conclusion, and the change of each logit."""
        top = at_least(1, top, "top")
        places = places_of([*self.effect.tolist(), *self.effect_frozen.tolist()])
        rows = [
            f"{row['token']}: {signed(row['effect'], places)} logits, with patterns kept "
            f"{signed(row['effect_frozen'], places)}; {percent(row['probability'])} to "
            f"{percent(row['scaled_probability'])}"
            for row in self.to_frame().head(top).to_dict("records")
        ]
        return "\n".join([*self.conclusion(), *rows])

    def headline(self) -> str:
        """See :meth:`Result.headline`."""
        largest = int(self.effect.abs().argmax())
        return (
            f"{self._what()}: {self.target[largest]} "
            f"{number(self.effect[largest], 3, sign=True)} logits, "
            f"{percent(self.probability[largest])} to {percent(self.scaled_probability[largest])}"
        )

    def _what(self) -> str:
        named = self.scaled[0] if len(self.scaled) == 1 else counted(len(self.scaled), "unit")
        return f"{named} {'set to 0' if self.factor == 0 else f'scaled by {self.factor:g}'}"


def scale_units(  # noqa: PLR0913 - the settings of one analysis, by keyword
    model: Transformer,
    prompt: Any,  # noqa: ANN401 - what model.check reads
    units: Sequence[str],
    *,
    factor: float = 0.0,
    targets: Tokens | None = None,
    pos: Position = None,
    transcoder: CrossLayerTranscoder | None = None,
) -> ScaledUnits:
    """Scale units of an attribution graph together, and measure what the logits become.

    Args:
        model: the model; a view with dictionaries for features.
        prompt: one text, its token ids, or a batch of one row.
        units: their names in the graph of this prompt, such as ``L1N5@3`` (a neuron), ``L1F17@3``
            (a feature), ``L1H2@3`` (a head) or ``L1MLP@3`` (an MLP without its output bias).
        factor: what their activations are multiplied by; 0 switches them off.
        targets: tokens (ids or texts) whose logits are measured; ``None`` for the five that are
            most probable, and the five whose logits change most.
        pos: the position whose logits are read, as in :func:`analyses.attribution_graph`.
        transcoder: the cross-layer transcoder of which features are units.

    Raises:
        InvalidInput: several prompts, no units, a name that is no unit of this model and prompt, or
            one that is named twice; the factor is not a finite number; the model has no logits.
        InvalidTokens: a target's text is not one token; the message shows how it is split.

    Examples:
        >>> model, prompt = interp.load("rasp-histogram"), "ab"
        >>> graph = analyses.attribution_graph(model, prompt, check=0)
        >>> names = [node.name for node in graph.nodes if node.kind == "neuron"]
        >>> analyses.scale_units(model, prompt, names)
        ScaledUnits(2 units set to 0: 1 −12 logits, 100 % to 0 %)
    """
    check_finite_weights(model)
    if len(model.stacks) > 1:
        raise InvalidInput("scale_units takes models with one stack; this one has two.")
    if isinstance(factor, bool) or not isinstance(factor, int | float) or factor - factor != 0:  # pyright: ignore[reportUnnecessaryIsInstance] - of users
        raise InvalidInput(f"factor={shorten(factor)} should be a finite number.")
    (batch,) = model.batches(prompt)
    if len(batch.ids) != 1:
        raise InvalidInput(f"Units are those of one prompt; got {len(batch.ids)} prompts.")
    scaled = _edits(model, batch, units, float(factor), transcoder)
    named = None if targets is None else _named(model, targets)
    column = int(columns_read(batch, as_position(pos))[0])
    attentions = [
        Place(step.f.points.pattern, layer)
        for layer, step in model.stacks[0].branches()
        if isinstance(step.f, Attention)
    ]
    plain = run(model, batch, record=attentions)
    plain_patterns = [edits.patch(plain.cache, place) for place in attentions]
    before, after, frozen = (
        _logits(logits, column)
        for logits in (
            plain.logits,
            run(model, batch, edits=scaled).logits,
            run(model, batch, edits=[*scaled, *plain_patterns]).logits,
        )
    )
    centred = [x - x.mean() for x in (before, after, frozen)]
    ids = _largest(before, centred[1] - centred[0]) if named is None else named
    value = centred[0][ids]
    return ScaledUnits(
        scaled=tuple(units),
        factor=float(factor),
        target=tuple(model.label(token) for token in ids.tolist()),
        target_ids=ids,
        value=value,
        effect=centred[1][ids] - value,
        effect_frozen=centred[2][ids] - value,
        probability=before.softmax(-1)[ids],
        scaled_probability=after.softmax(-1)[ids],
        provenance=Provenance.of(model, batch),
    )


def _edits(
    model: Transformer,
    batch: Batch,
    units: Sequence[str],
    factor: float,
    transcoder: CrossLayerTranscoder | None,
) -> list[Edit]:
    """The edits of all units.

    Raises:
        InvalidInput: see :func:`scale_units`.
    """
    listed = cast("list[object]", units) if isinstance(units, list | tuple) else []
    if not listed or not all(isinstance(name, str) for name in listed):
        raise InvalidInput(f'units={shorten(units)} should be a list of names, such as ["L1N5@3"].')
    if len({*units}) < len(units):
        raise InvalidInput(f"units={shorten(units)} names a unit twice.")
    of_features = (
        _places_of_units(model, "F")
        if transcoder is None
        else _places_of_transcoder(model, transcoder)
    )
    places = {letter: _places_of_units(model, letter) for letter in ("N", "H", "MLP")}
    places["F"] = of_features
    n_pos = int(batch.is_real[0].sum())
    scaled: list[Edit] = []
    for name in units:
        letter, layer, index, pos = _parts_of(name)
        of_layer = places[letter]
        if layer not in of_layer:
            layers = ", ".join(map(str, of_layer)) or "none"
            raise InvalidInput(f"{name}: layers of this model with {KINDS[letter]}: {layers}.")
        place, width = of_layer[layer]
        if index >= width or pos >= n_pos:
            raise InvalidInput(
                f"{name}: layer {layer} has units 0 to {width - 1}, the prompt positions 0 to "
                f"{n_pos - 1}."
            )
        if letter == "F" and transcoder is not None:
            scaled += feature_edits(transcoder, layer, index, factor=factor, pos=pos)
        elif letter == "MLP":
            scaled.append(edits.scale(place, factor, pos=pos))
        else:
            unit, head = (None, index) if letter == "H" else (index, None)
            scaled.append(edits.scale(place, factor, unit=unit, head=head, pos=pos))
    return scaled


def _parts_of(name: str) -> tuple[str, int, int, int]:
    """The letter of a unit's name, its layer, its index there and its position.

    Raises:
        InvalidInput: it is no name of a unit.
    """
    match = UNIT.fullmatch(name)
    if match is None:
        raise InvalidInput(
            f"{shorten(name)} is no name of a unit; L1N5@3 is neuron 5 of layer 1 at position 3, "
            "L1F5@3 a feature, L1H5@3 a head and L1MLP@3 a whole MLP."
        )
    letter, index = match["letter"] or "MLP", match["index"] or "0"
    return letter, int(match["layer"]), int(index), int(match["pos"])


def _places_of_transcoder(
    model: Network, transcoder: CrossLayerTranscoder
) -> dict[int, tuple[Place, int]]:
    """What each layer of a cross-layer transcoder reconstructs, and its number of features.

    Raises:
        InvalidInput: it is none, or of another model.
    """
    if not isinstance(transcoder, CrossLayerTranscoder):  # pyright: ignore[reportUnnecessaryIsInstance] - of users
        raise InvalidInput(
            f"transcoder={shorten(transcoder)} should be what interp.dictionaries.load_cross_layer "
            "returned."
        )
    pairs = transcoder.places(model)
    return {layer: (written, transcoder.n_features) for layer, (_, written) in enumerate(pairs)}


def _places_of_units(model: Network, letter: str) -> dict[int, tuple[Place, int]]:
    """Where the units of each layer are that have some letters, and how many; see ``KINDS``."""
    parts = [(layer, step.f) for layer, step in model.stacks[0].branches()]
    if letter == "H":
        heads = [(layer, f) for layer, f in parts if isinstance(f, Attention)]
        return {layer: (Place(f.points.z, layer), f.n_heads) for layer, f in heads}
    mlps = {layer: f for layer, f in parts if isinstance(f, MLP)}
    if letter in ("N", "MLP"):
        widths = {layer: f.W_in.shape[1] if letter == "N" else 1 for layer, f in mlps.items()}
        return {layer: (Place(Point.POST, layer), width) for layer, width in widths.items()}
    attached = model.dictionaries() if isinstance(model, DictionaryTransformer) else {}
    if isinstance(model, DictionaryTransformer) and model.has_transcoder:
        places = [at for at in model.layout if at.point is Point.FEATURES and at not in attached]
        return {at.layer or 0: (at, model.fixed_axes(at)["feature"]) for at in places}
    outputs = {Place(f.out, layer): layer for layer, f in mlps.items()}
    return {
        outputs[output]: (place, dictionary.w_enc.shape[1])
        for place, dictionary in attached.items()
        for output in [dictionary.places(model)[1]]
        if output in outputs
    }


def _named(model: Transformer, targets: Tokens) -> Int[Tensor, " logit"]:
    """The tokens that were named."""
    n = len(targets) if isinstance(targets, list | tuple) else 1
    if not n:
        raise InvalidInput("targets=[] names no token; leave it out for ten of them.")
    return token_ids(model, targets, n, "targets").cpu()


def _largest(
    logits: Float[Tensor, " vocab"], change: Float[Tensor, " vocab"]
) -> Int[Tensor, " logit"]:
    """The most probable tokens, and those that change most."""
    top = min(TOP, len(logits))
    probable, changed = (x.topk(top).indices.tolist() for x in (logits, change.abs()))
    return torch.tensor([*dict.fromkeys([*probable, *changed])])


def _logits(logits: Tensor | None, column: int) -> Float[Tensor, " vocab"]:
    if logits is None:
        raise InvalidInput("This model has no logits, so there is nothing to measure.")
    return logits[0, column].double().cpu()
