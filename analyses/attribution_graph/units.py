"""What the nodes of a sub-layer are: units that read its input and write its output.

    output = Σ_units activation · writer + error + bias (+ input · W_skip)
    reading = input · reader + constant

A unit is linear once the run is frozen: its activation is proportional to its reading, which is a
sum over what wrote the stream. Neurons are such units, with error 0: the writer is a row of W_out,
the reader a column of W_in, and activation / reading = post / pre stays as in the run (RelP, Jafari
et al. 2025). Features of a transcoder are others: its decoder writes, its encoder reads, and the
error is what it leaves out of the sub-layer's output (Ameisen et al. 2025, "Circuit Tracing"). Of
a transcoder with a skip, input · W_skip passes by the features, and so carries edges, as heads do.
The output is that of the MLP or, where a norm follows, what this norm makes of it, as the
transcoder was trained. Features of a cross-layer transcoder write what several MLPs write: an edge
from one is the sum over all of them.
:class:`Units` is all that a graph asks of them.
"""

from dataclasses import replace
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.methods.attribution import written_points
from analyses.methods.frozen import Branch, FrozenModel
from interp import DictionaryTransformer, edits
from interp.dictionaries import Dictionary, Gated, SkipDictionary
from interp.edits import Edit
from interp.errors import InvalidInput
from interp.model import MLP, Network
from interp.points import Place, Point

Which = Int[Tensor, " chosen"]
"""Indices among the active units."""


@runtime_checkable
class Units(Protocol):
    """The active units of one sub-layer on one prompt.

    Attributes:
        kind: what they are: ``neuron`` or ``feature``.
        layer: the index of the block.
        pos: the position of each unit.
        index: its index in the layer.
        activation: its activation, which it writes with.
        reading: what it reads; the activation is proportional to it once the run is frozen.
        error: what the sub-layer writes at each position besides units and biases; ``None`` for 0.
        bias: what units write at each position in addition to the bias of the sub-layer; ``None``
            for 0.
        targets: the sub-layers that units write to, by their indices among the branches.
        reads_stream: whether units read the stream itself, before the norm of the input.
        writes_after_norm: whether units write what the sub-layer adds to the stream, after the norm
            of its output, if there is one.
        skip: W_skip; ``None`` without one.
    """

    kind: str
    layer: int
    pos: Int[Tensor, " unit"]
    index: Int[Tensor, " unit"]
    activation: Float[Tensor, " unit"]
    reading: Float[Tensor, " unit"]
    error: Float[Tensor, "pos d_model"] | None
    bias: Float[Tensor, "pos d_model"] | None
    targets: tuple[int, ...]
    reads_stream: bool
    writes_after_norm: bool
    skip: Float[Tensor, "d_model d_model"] | None

    def written(self, which: Which, target: int) -> Float[Tensor, "chosen d_model"]:
        """What units write to one of their targets: activation · writer."""
        ...

    def effects(
        self, direction: Float[Tensor, "row pos d_model"], target: int
    ) -> Float[Tensor, "row unit"]:
        """What all units write to one of their targets, along directions of its output."""
        ...

    def readers(
        self, which: Which
    ) -> tuple[Float[Tensor, "chosen d_model"], Float[Tensor, " chosen"]]:
        """The directions of what units read, and their constants."""
        ...

    def zero(self, unit: int) -> list[Edit]:
        """The edits that switch one unit off."""
        ...


class Neurons:
    """The neurons of one MLP, as :class:`Units`: all that write something.

    Args:
        frozen: the run.
        number: the index of the MLP among the branches.
    """

    kind: str = "neuron"
    reads_stream: bool = False
    error: Float[Tensor, "pos d_model"] | None = None
    bias: Float[Tensor, "pos d_model"] | None = None
    writes_after_norm: bool = False
    skip: Float[Tensor, "d_model d_model"] | None = None

    def __init__(self, frozen: FrozenModel, number: int) -> None:
        branch = frozen.branches[number]
        self.targets: tuple[int, ...] = (number,)
        if not isinstance(branch.step.f, MLP):
            raise TypeError(f"The sub-layer of layer {branch.layer} is no MLP.")
        self.layer, self.mlp = branch.layer, branch.step.f
        pre, post = (frozen.at(Place(at, branch.layer)) for at in (Point.PRE, Point.POST))
        self.pos, self.index = post.nonzero().unbind(1)
        self.activation = post[self.pos, self.index]
        self.reading = pre[self.pos, self.index]

    def written(self, which: Which, target: int) -> Float[Tensor, "chosen d_model"]:  # noqa: ARG002
        """See :meth:`Units.written`."""
        writers = self.mlp.W_out[self.index[which]].to(self.activation.dtype)
        return self.activation[which, None] * writers

    def effects(
        self,
        direction: Float[Tensor, "row pos d_model"],
        target: int,  # noqa: ARG002
    ) -> Float[Tensor, "row unit"]:
        """See :meth:`Units.effects`."""
        by_post = direction @ self.mlp.W_out.to(direction.dtype).mT
        return by_post[:, self.pos, self.index] * self.activation

    def readers(
        self, which: Which
    ) -> tuple[Float[Tensor, "chosen d_model"], Float[Tensor, " chosen"]]:
        """See :meth:`Units.readers`."""
        index, b_in = self.index[which], self.mlp.b_in
        W_in = self.mlp.W_in.mT[index].to(self.reading.dtype)
        return W_in, W_in.new_zeros(len(index)) if b_in is None else b_in[index].to(W_in.dtype)

    def zero(self, unit: int) -> list[Edit]:
        """See :meth:`Units.zero`."""
        place = Place(Point.POST, self.layer)
        return [edits.zero(place, unit=int(self.index[unit]), pos=int(self.pos[unit]))]


def neurons_of(frozen: FrozenModel) -> dict[int, Units]:
    """The neurons of all MLPs, by the index of their branch; none of a mixture of experts."""
    return {
        number: Neurons(frozen, number)
        for number, branch in enumerate(frozen.branches)
        if isinstance(branch.step.f, MLP)
    }


class Features:
    """The active features of a transcoder of one MLP, as :class:`Units`.

    Args:
        frozen: the run.
        number: the index of the MLP among the branches.
        place: the place of the features.
        dictionary: the transcoder.
    """

    kind: str = "feature"
    reads_stream: bool = False

    def __init__(
        self, frozen: FrozenModel, number: int, place: Place, dictionary: Dictionary
    ) -> None:
        branch = frozen.branches[number]
        self.targets: tuple[int, ...] = (number,)
        features = frozen.read(place)  # dense, so not kept
        self.layer, self.dictionary, self._place = branch.layer, dictionary, place
        self.pos, self.index = features.nonzero().unbind(1)
        self.activation = self.reading = features[self.pos, self.index]
        self._counts: list[int] = (features != 0).sum(1).tolist()
        error = replace(place, point=Point.FEATURES_ERROR)
        self.error: Float[Tensor, "pos d_model"] | None = frozen.at(error)
        self.writes_after_norm = place.norm == branch.step.points.writes.label
        bias = bias_besides(frozen, branch, dictionary.b_dec, after_norm=self.writes_after_norm)
        self.bias: Float[Tensor, "pos d_model"] | None = bias
        self.skip: Float[Tensor, "d_model d_model"] | None = (
            dictionary.w_skip.to(features.dtype) if isinstance(dictionary, SkipDictionary) else None
        )

    def written(self, which: Which, target: int) -> Float[Tensor, "chosen d_model"]:  # noqa: ARG002
        """See :meth:`Units.written`."""
        writers = self.dictionary.w_dec[self.index[which]].to(self.activation.dtype)
        return self.activation[which, None] * writers

    def effects(
        self,
        direction: Float[Tensor, "row pos d_model"],
        target: int,  # noqa: ARG002
    ) -> Float[Tensor, "row unit"]:
        """See :meth:`Units.effects`."""
        w_dec = self.dictionary.w_dec.to(direction.dtype)
        # Few of the features are active at a position, so that others are not multiplied.
        of_positions = zip(direction.unbind(1), self.index.split(self._counts), strict=True)
        effects = [at @ w_dec[index].mT for at, index in of_positions]
        return torch.cat(effects, 1) * self.activation

    def readers(
        self, which: Which
    ) -> tuple[Float[Tensor, "chosen d_model"], Float[Tensor, " chosen"]]:
        """See :meth:`Units.readers`: an active feature is linear in what the encoder computes."""
        index, dictionary = self.index[which], self.dictionary
        directions = dictionary.w_enc.mT[index].to(self.reading.dtype)
        constants = dictionary.b_enc[index].to(directions) - directions @ dictionary.b_in.to(
            directions
        )
        if isinstance(dictionary.activation, Gated):
            scale = dictionary.activation.r_mag[index].to(directions).exp()
            offset = dictionary.activation.b_mag[index].to(directions)
            return directions * scale[:, None], constants * scale + offset
        return directions, constants

    def zero(self, unit: int) -> list[Edit]:
        """See :meth:`Units.zero`."""
        return [edits.zero(self._place, unit=int(self.index[unit]), pos=int(self.pos[unit]))]


def bias_besides(
    frozen: FrozenModel, branch: Branch, b_dec: Float[Tensor, " d_model"], *, after_norm: bool
) -> Float[Tensor, "pos d_model"]:
    """``b_dec``, less the biases of the sub-layer, which are writers by themselves."""
    like, f = frozen.vectors[0], branch.step.f
    whole = b_dec.to(like.dtype).expand_as(like)
    if after_norm:
        return whole - frozen.biases(branch).sum(0)
    b_out = f.b_out if isinstance(f, MLP) else None
    return whole if b_out is None else whole - b_out.to(like.dtype)


def features_of(model: Network, frozen: FrozenModel) -> dict[int, Units]:
    """The features of the transcoders of MLPs, by the index of their branch.

    Raises:
        InvalidInput: the model has no transcoder, or one that a graph can't take.
    """
    attached = model.dictionaries() if isinstance(model, DictionaryTransformer) else {}
    of_output = {(d.places(model)[1]): (place, d) for place, d in attached.items()}
    units: dict[int, Units] = {}
    for number, branch in enumerate(frozen.branches):
        is_mlp = isinstance(branch.step.f, MLP)
        points = {*written_points(branch.step)} if is_mlp else set[Point]()
        outputs = [of_output.get(Place(point, branch.layer)) for point in points]
        of_branch = [output for output in outputs if output is not None]
        if len(of_branch) > 1:
            raise InvalidInput(
                f"Two transcoders write what the MLP of layer {branch.layer} writes, before and "
                "after a norm; a graph takes one of them: attach the other to another view."
            )
        for place, dictionary in of_branch:
            source = replace(branch.step.source(), layer=branch.layer)
            _check_transcoder(dictionary.places(model)[0], source)
            units[number] = Features(frozen, number, place, dictionary)
    if not units:
        raise InvalidInput(
            'units="features" takes a model with transcoders that write what an MLP writes: '
            "interp.with_dictionaries(model, transcoders)."
        )
    return units


def _check_transcoder(reads: Place, source: Place) -> None:
    """Check that features are linear in the normalized input of the MLP.

    Raises:
        InvalidInput: they are not.
    """
    if reads != source:
        raise InvalidInput(
            f"A graph takes transcoders that read {source}, the input of the MLP; one reads "
            f"{reads}."
        )
