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
from one is the sum over all of them. Heads and whole MLPs write vectors: see
:mod:`analyses.attribution_graph.vector_units`.
:class:`Units` is all that a graph asks of them.
"""

from abc import ABC, abstractmethod
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
Pulled = tuple[Float[Tensor, "*rows pos d_model"], Float[Tensor, "*rows pos"]]
"""Directions of what units read, and constants."""


@runtime_checkable
class Units(Protocol):
    """The active units of one sub-layer on one prompt.

    Attributes:
        kind: what they are: ``neuron``, ``feature``, ``head`` or ``mlp``.
        layer: the index of the block.
        n: the number of units, by position.
        n_active: the number of those that write something.
        reading: what they read; the activation is proportional to it once the run is frozen.
        error: what the sub-layer writes at each position besides units and biases; ``None`` for 0.
        bias: what units write at each position in addition to the bias of the sub-layer; ``None``
            for 0.
        targets: the sub-layers that units write to, by their indices among the branches.
        reads_stream: whether units read the stream itself, before the norm of the input.
        attends: whether units are heads, which read all positions that they attend to; their
            readers are directions of what they write, before a norm of the output.
        writes_after_norm: whether units write what the sub-layer adds to the stream, after the norm
            of its output, if there is one.
        skip: W_skip; ``None`` without one.
    """

    kind: str
    layer: int
    n: int
    n_active: int
    error: Float[Tensor, "pos d_model"] | None
    bias: Float[Tensor, "pos d_model"] | None
    targets: tuple[int, ...]
    reads_stream: bool
    attends: bool
    writes_after_norm: bool
    skip: Float[Tensor, "d_model d_model"] | None

    @property
    def reading(self) -> Float[Tensor, " unit"]:
        """What each unit reads."""
        ...

    def places(self, which: Which) -> tuple[Int[Tensor, " chosen"], Int[Tensor, " chosen"]]:
        """The positions of units, and their indices in the layer."""
        ...

    def first(self, n_pos: int) -> int:
        """The number of units at the first positions."""
        ...

    def activation(self, which: Which) -> Float[Tensor, " chosen"]:
        """The activations of units, which they write with."""
        ...

    def written(self, which: Which, target: int) -> Float[Tensor, "chosen d_model"]:
        """What units write to one of their targets: activation · writer."""
        ...

    def effects(
        self, direction: Float[Tensor, "row pos d_model"], target: int
    ) -> Float[Tensor, "row unit"]:
        """What units write to one of their targets, along directions of its output.

        The directions are those of the first positions; the units are those that are there.
        """
        ...

    def readers(
        self, which: Which
    ) -> tuple[Float[Tensor, "chosen d_model"], Float[Tensor, " chosen"]]:
        """The directions of what units read, and their constants."""
        ...

    def zero(self, unit: int) -> list[Edit]:
        """The edits that switch one unit off."""
        ...


@runtime_checkable
class ScalarUnits(Units, Protocol):
    """Units that write one number along one direction each, so that directions pass through."""

    def pulled(self, effects: Float[Tensor, "row unit"], n_pos: int) -> Pulled:
        """What all units of the first positions read, each for an effect of what it writes.

        Args:
            effects: what each of these units writes along a direction, as in :meth:`effects`.
            n_pos: the number of these positions.
        """
        ...


class Neurons:
    """The neurons of one MLP at all positions, as :class:`Units`.

    Their activations are read from the run at each call: of a long prompt, they take more memory
    than all else.

    Args:
        frozen: the run.
        number: the index of the MLP among the branches.
    """

    kind: str = "neuron"
    reads_stream: bool = False
    attends: bool = False
    error: Float[Tensor, "pos d_model"] | None = None
    bias: Float[Tensor, "pos d_model"] | None = None
    writes_after_norm: bool = False
    skip: Float[Tensor, "d_model d_model"] | None = None

    def __init__(self, frozen: FrozenModel, number: int) -> None:
        branch = frozen.branches[number]
        self.targets: tuple[int, ...] = (number,)
        if not isinstance(branch.step.f, MLP):
            raise TypeError(f"The sub-layer of layer {branch.layer} is no MLP.")
        self.layer, self.mlp, self._frozen = branch.layer, branch.step.f, frozen
        post = self._post
        self._width, self.n = post.shape[1], post.numel()
        self.n_active = int(post.count_nonzero())

    @property
    def _post(self) -> Float[Tensor, "pos neuron"]:
        return self._frozen.read(Place(Point.POST, self.layer))

    @property
    def reading(self) -> Float[Tensor, " unit"]:
        """See :class:`Units`."""
        return self._frozen.read(Place(Point.PRE, self.layer)).flatten()

    def places(self, which: Which) -> tuple[Int[Tensor, " chosen"], Int[Tensor, " chosen"]]:
        """See :meth:`Units.places`."""
        return which // self._width, which % self._width

    def first(self, n_pos: int) -> int:
        """See :meth:`Units.first`."""
        return n_pos * self._width

    def activation(self, which: Which) -> Float[Tensor, " chosen"]:
        """See :meth:`Units.activation`."""
        return self._post[self.places(which)]

    def written(self, which: Which, target: int) -> Float[Tensor, "chosen d_model"]:  # noqa: ARG002
        """See :meth:`Units.written`."""
        activation = self.activation(which)
        writers = self.mlp.W_out[self.places(which)[1]].to(activation.dtype)
        return activation[:, None] * writers

    def effects(
        self,
        direction: Float[Tensor, "row pos d_model"],
        target: int,  # noqa: ARG002
    ) -> Float[Tensor, "row unit"]:
        """See :meth:`Units.effects`."""
        by_post = direction @ self.mlp.W_out.to(direction.dtype).mT
        return by_post.mul_(self._post[: direction.shape[1]]).flatten(1)

    def readers(
        self, which: Which
    ) -> tuple[Float[Tensor, "chosen d_model"], Float[Tensor, " chosen"]]:
        """See :meth:`Units.readers`."""
        (_, index), b_in = self.places(which), self.mlp.b_in
        W_in = self.mlp.W_in.mT[index].to(self._frozen.embeddings.dtype)
        return W_in, W_in.new_zeros(len(index)) if b_in is None else b_in[index].to(W_in.dtype)

    def pulled(self, effects: Float[Tensor, "row unit"], n_pos: int) -> Pulled:
        """See :meth:`ScalarUnits.pulled`."""
        return self.pulled_at(effects.unflatten(1, (n_pos, self._width)), slice(n_pos))

    def pulled_at(
        self, effects: Float[Tensor, "*rows pos neuron"], at: Int[Tensor, " pos"] | slice
    ) -> Pulled:
        """The same of all neurons at some positions; a neuron that reads 0 is a constant."""
        pre, b_in = self._frozen.read(Place(Point.PRE, self.layer))[at], self.mlp.b_in
        constant = torch.where(pre == 0, effects, 0.0).sum(-1)
        by_pre = torch.where(pre == 0, 0.0, effects / pre)
        if b_in is not None:
            constant = constant + by_pre @ b_in.to(by_pre.dtype)
        return by_pre @ self.mlp.W_in.mT.to(by_pre.dtype), constant

    def zero(self, unit: int) -> list[Edit]:
        """See :meth:`Units.zero`."""
        pos, index = divmod(unit, self._width)
        return [edits.zero(Place(Point.POST, self.layer), unit=index, pos=pos)]


def neurons_of(frozen: FrozenModel) -> dict[int, ScalarUnits]:
    """The neurons of all MLPs, by the index of their branch; none of a mixture of experts."""
    return {
        number: Neurons(frozen, number)
        for number, branch in enumerate(frozen.branches)
        if isinstance(branch.step.f, MLP)
    }


class ActiveFeatures(ABC):
    """Where features are active, and how much.

    Args:
        features: the activations of all features.
    """

    def __init__(self, features: Float[Tensor, "pos feature"]) -> None:
        self.pos, self.index = features.nonzero().unbind(1)
        self.reading = features[self.pos, self.index]
        self.n = self.n_active = len(self.pos)
        self.counts: list[int] = (features != 0).sum(1).tolist()

    def places(self, which: Which) -> tuple[Int[Tensor, " chosen"], Int[Tensor, " chosen"]]:
        """See :meth:`Units.places`."""
        return self.pos[which], self.index[which]

    def first(self, n_pos: int) -> int:
        """See :meth:`Units.first`."""
        return sum(self.counts[:n_pos])

    def activation(self, which: Which) -> Float[Tensor, " chosen"]:
        """See :meth:`Units.activation`."""
        return self.reading[which]

    @abstractmethod
    def readers(
        self, which: Which
    ) -> tuple[Float[Tensor, "chosen d_model"], Float[Tensor, " chosen"]]:
        """See :meth:`Units.readers`."""

    def pulled(self, effects: Float[Tensor, "row unit"], n_pos: int) -> Pulled:
        """See :meth:`ScalarUnits.pulled`."""
        which = torch.arange(self.first(n_pos), device=self.reading.device)
        slopes = effects / self.reading[: len(which)]
        of_positions = zip(
            slopes.split(self.counts[:n_pos], 1), which.split(self.counts[:n_pos]), strict=True
        )
        read = [(by, *self.readers(at)) for by, at in of_positions]
        directions = torch.stack([by @ direction for by, direction, _ in read], 1)
        return directions, torch.stack([by @ constant for by, _, constant in read], 1)


class Features(ActiveFeatures):
    """The active features of a transcoder of one MLP, as :class:`Units`.

    Args:
        frozen: the run.
        number: the index of the MLP among the branches.
        place: the place of the features.
        dictionary: the transcoder.
    """

    kind: str = "feature"
    reads_stream: bool = False
    attends: bool = False

    def __init__(
        self, frozen: FrozenModel, number: int, place: Place, dictionary: Dictionary
    ) -> None:
        branch = frozen.branches[number]
        self.targets: tuple[int, ...] = (number,)
        super().__init__(frozen.read(place))
        self.layer, self.dictionary, self._place = branch.layer, dictionary, place
        error = replace(place, point=Point.FEATURES_ERROR)
        self.error: Float[Tensor, "pos d_model"] | None = frozen.read(error)
        self.writes_after_norm = place.norm == branch.step.points.writes.label
        bias = bias_besides(frozen, branch, dictionary.b_dec, after_norm=self.writes_after_norm)
        self.bias: Float[Tensor, "pos d_model"] | None = bias
        self.skip: Float[Tensor, "d_model d_model"] | None = (
            dictionary.w_skip.to(self.reading.dtype)
            if isinstance(dictionary, SkipDictionary)
            else None
        )

    def written(self, which: Which, target: int) -> Float[Tensor, "chosen d_model"]:  # noqa: ARG002
        """See :meth:`Units.written`."""
        writers = self.dictionary.w_dec[self.index[which]].to(self.reading.dtype)
        return self.reading[which, None] * writers

    def effects(
        self,
        direction: Float[Tensor, "row pos d_model"],
        target: int,  # noqa: ARG002
    ) -> Float[Tensor, "row unit"]:
        """See :meth:`Units.effects`."""
        w_dec = self.dictionary.w_dec.to(direction.dtype)
        # Few of the features are active at a position, so that others are not multiplied.
        # Later positions are not read.
        of_positions = zip(direction.unbind(1), self.index.split(self.counts), strict=False)
        effects = [at @ w_dec[index].mT for at, index in of_positions]
        return torch.cat(effects, 1) * self.reading[: self.first(direction.shape[1])]

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
    like, f = frozen.embeddings, branch.step.f
    whole = b_dec.to(like.dtype).expand_as(like)
    if after_norm:
        return whole - sum(frozen.biases(branch), torch.zeros_like(like))
    b_out = f.b_out if isinstance(f, MLP) else None
    return whole if b_out is None else whole - b_out.to(like.dtype)


def layers_of_features(model: Network) -> set[int]:
    """The layers with a transcoder of an MLP."""
    attached = model.dictionaries() if isinstance(model, DictionaryTransformer) else {}
    outputs = {dictionary.places(model)[1] for dictionary in attached.values()}
    return {
        layer
        for layer, step in model.stacks[0].branches()
        if isinstance(step.f, MLP)
        and outputs & {Place(point, layer) for point in written_points(step)}
    }


def features_of(model: Network, frozen: FrozenModel) -> dict[int, ScalarUnits]:
    """The features of the transcoders of MLPs, by the index of their branch.

    Raises:
        InvalidInput: the model has no transcoder, or one that a graph can't take.
    """
    attached = model.dictionaries() if isinstance(model, DictionaryTransformer) else {}
    of_output = {(d.places(model)[1]): (place, d) for place, d in attached.items()}
    units: dict[int, ScalarUnits] = {}
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
