"""Features of a cross-layer transcoder as units: each writes what several MLPs write.

    y_m = Σ_{l ≤ m} f_l W_dec,l→m + b_dec,m + ε_m      reading of a feature = x_l · encoder + b_enc

The error ε_m of a layer is what the features of all layers up to it leave out (Ameisen et al. 2025,
"Circuit Tracing").
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.attribution_graph.units import ActiveFeatures, ScalarUnits, Which, bias_besides
from analyses.methods.attribution import written_points
from analyses.methods.frozen import FrozenModel
from interp.dictionaries import CrossLayerTranscoder, Gated, feature_edits
from interp.edits import Edit
from interp.errors import InvalidInput
from interp.model import MLP, Network
from interp.points import Place, Point


class CrossLayerFeatures(ActiveFeatures):
    """The active features of one layer of a cross-layer transcoder, as :class:`Units`.

    Args:
        frozen: the run.
        transcoder: the transcoder.
        layer: the layer.
        numbers: the index of each layer's MLP among the branches.
        features: the activations of the features of this layer.
        error: what is left out of the output of this layer's MLP.
        reads_stream: whether features read the stream, before the norm of the MLP's input.
        after_norm: whether what is reconstructed is the output after a norm.
    """

    kind: str = "feature"
    attends: bool = False

    def __init__(  # noqa: PLR0913 - what it is, by keyword
        self,
        frozen: FrozenModel,
        transcoder: CrossLayerTranscoder,
        layer: int,
        *,
        numbers: Sequence[int],
        features: Float[Tensor, "pos feature"],
        error: Float[Tensor, "pos d_model"],
        reads_stream: bool,
        after_norm: bool,
    ) -> None:
        super().__init__(features)
        self.transcoder, self.layer = transcoder, layer
        self.targets: tuple[int, ...] = tuple(numbers[layer:])
        self.reads_stream, self.writes_after_norm = reads_stream, after_norm
        self.error: Float[Tensor, "pos d_model"] | None = error
        branch = frozen.branches[numbers[layer]]
        b_dec = transcoder.b_dec[layer]
        bias = bias_besides(frozen, branch, b_dec, after_norm=after_norm)
        w_skip = None if transcoder.w_skip is None else transcoder.w_skip[layer].to(features.dtype)
        self.skip: Float[Tensor, "d_model d_model"] | None = w_skip
        self.bias: Float[Tensor, "pos d_model"] | None = bias
        active, self._active_of = self.index.unique(return_inverse=True)
        # Those of the features that are active somewhere, which may be on disk, are read once.
        self._decoders = transcoder.w_dec[layer][active].to(features.dtype)

    def written(self, which: Which, target: int) -> Float[Tensor, "chosen d_model"]:
        """See :meth:`Units.written`."""
        writers = self._decoders[self._active_of[which], self.targets.index(target)]
        return self.reading[which, None] * writers

    def effects(
        self, direction: Float[Tensor, "row pos d_model"], target: int
    ) -> Float[Tensor, "row unit"]:
        """See :meth:`Units.effects`."""
        writers = self._decoders[:, self.targets.index(target)]
        of_positions = zip(direction.unbind(1), self._active_of.split(self.counts), strict=False)
        effects = [at @ writers[active].mT for at, active in of_positions]
        return torch.cat(effects, 1) * self.reading[: self.first(direction.shape[1])]

    def readers(
        self, which: Which
    ) -> tuple[Float[Tensor, "chosen d_model"], Float[Tensor, " chosen"]]:
        """See :meth:`Units.readers`: an active feature is linear in what the encoder computes."""
        index, transcoder = self.index[which], self.transcoder
        directions = transcoder.w_enc[self.layer].mT[index].to(self.reading.dtype)
        return directions, transcoder.b_enc[self.layer][index].to(directions)

    def zero(self, unit: int) -> list[Edit]:
        """See :meth:`Units.zero`."""
        index, pos = int(self.index[unit]), int(self.pos[unit])
        return feature_edits(self.transcoder, self.layer, index, pos=pos)


def cross_layer_units(
    model: Network, frozen: FrozenModel, transcoder: CrossLayerTranscoder
) -> dict[int, ScalarUnits]:
    """The features of all layers, by the index of the MLP that they read the input of.

    Args:
        model: the model.
        frozen: a run that recorded the places of the transcoder too.
        transcoder: the transcoder.

    Raises:
        InvalidInput: the transcoder is of another model, a layer has no MLP, or features read or
            write something else than an MLP's input and output.
    """
    if any(isinstance(each, Gated) for each in transcoder.activation):
        raise InvalidInput("A graph takes no gated cross-layer transcoder.")
    transcoder = transcoder.to(model.device, model.dtype)
    pairs, numbers = transcoder.places(model), _mlps(frozen)
    if len(numbers) != transcoder.n_layers:
        raise InvalidInput(
            f"A graph takes a cross-layer transcoder of a model with an MLP in each of its "
            f"{transcoder.n_layers} layers; this model has {len(numbers)}."
        )
    if transcoder.w_skip is not None and _reads_stream(frozen, numbers[0], pairs[0][0]):
        raise InvalidInput(
            "A graph takes a cross-layer transcoder with a skip only if it reads the input of the "
            "MLP after its norm; this one reads the stream."
        )
    features: list[Tensor] = []
    units: dict[int, ScalarUnits] = {}
    for layer, (number, (read, written)) in enumerate(zip(numbers, pairs, strict=True)):
        x = frozen.read(read)
        features.append(transcoder.encode_at(layer, x.to(model.dtype)))
        y = frozen.read(written)
        units[number] = CrossLayerFeatures(
            frozen,
            transcoder,
            layer,
            numbers=numbers,
            features=features[layer].to(y.dtype),
            error=y - transcoder.output_at(layer, features, x.to(model.dtype)).to(y.dtype),
            reads_stream=_reads_stream(frozen, number, read),
            after_norm=_writes_after_norm(frozen, number, written),
        )
    return units


def _mlps(frozen: FrozenModel) -> list[int]:
    """The index of each MLP among the branches."""
    return [n for n, branch in enumerate(frozen.branches) if isinstance(branch.step.f, MLP)]


def _reads_stream(frozen: FrozenModel, number: int, read: Place) -> bool:
    """Whether features read the stream before an MLP, or else what its norm makes of it.

    Raises:
        InvalidInput: they read neither.
    """
    branch = frozen.branches[number]
    source = Place(branch.step.source().point, branch.layer, branch.step.source().norm)
    stream = [Place(Point.MLP_IN, branch.layer), Place(branch.step.points.reads, branch.layer)]
    if read == source:
        return False
    if _is_after_attention(frozen, number):
        stream.append(Place(Point.RESID_MID, branch.layer))
    if read in stream:
        return True
    raise InvalidInput(
        f"A graph takes a cross-layer transcoder that reads {source}, the input of the MLP, or the "
        f"stream before its norm; this one reads {read}."
    )


def _is_after_attention(frozen: FrozenModel, number: int) -> bool:
    """Whether the MLP reads the stream after the attention of its layer: they are not parallel."""
    layer, before = frozen.branches[number].layer, frozen.branches[number].before
    others = [each for each in frozen.branches if each.layer == layer]
    return all(each.before < before for each in others if each is not frozen.branches[number])


def _writes_after_norm(frozen: FrozenModel, number: int, written: Place) -> bool:
    """Whether what is reconstructed is the output after a norm, if there is one.

    Raises:
        InvalidInput: it is not what the MLP writes.
    """
    step, layer = frozen.branches[number].step, frozen.branches[number].layer
    if written not in {Place(point, layer) for point in written_points(step)}:
        raise InvalidInput(
            f"A graph takes a cross-layer transcoder that writes what MLPs write; this one writes "
            f"{written}."
        )
    return written.point == step.points.writes
