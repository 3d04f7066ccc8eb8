"""Heads and whole MLPs as units: what they write is a vector, read along one direction each.

    reading of head h at i = D_i · r_h,i        r_h,i = Σ_j A_ij (norm(x_j) W_V + b_V) W_O

D_i is the gradient of the answer Σ p·logit with respect to what the sub-layer writes at i, through
all that follows, with patterns, divisors of norms and ratios post / pre (of features: activation /
reading) fixed. So what a head reads is in logits: all that it contributes to the answer, by every
route. An edge into it is what a source contributes to that through the values that it attends to;
an edge from it is what the whole vector r_h,i adds to what the target reads. Both are exact, and
so is the sum over all paths of the graph for the answer as a whole: if reading(t) = D_t · r_t of
all targets t of h, then Σ_t edge(h → t) = Σ_t D_t · (∂r_t / ∂r_h) r_h = D_h · r_h.

Where D · r is 0, as what reads the head cancels (the two neurons of a step function, for instance,
with effects of +12 and −12), D is the same gradient with the sizes of effects of units in place of
effects. So the head has a row and influence; its effect on the answer is 0 as before.

What is approximate: the two numbers of a head stand for a vector, as if all that reads it read it
along D. So paths to one of several logits, paths around nodes that were pruned, and effects of
several units removed together are those of the vector's part along D.

An MLP as one unit is the same with r_i = post W_out, whose neurons keep their ratios post / pre.
"""

from abc import ABC, abstractmethod

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

from analyses.attribution_graph.units import Neurons, Which
from analyses.methods.frozen import FrozenModel, attention_of
from interp import edits
from interp.edits import Edit
from interp.points import Place, Point


class VectorUnits(ABC):
    """What units have in common that write vectors, as :class:`Units`: so many at each position.

    Args:
        frozen: the run.
        number: the index of the sub-layer among the branches.
        directions: D before a norm of the output, by effects and by their sizes.
        width: number of units at each position.
    """

    reads_stream: bool = False
    error: Float[Tensor, "pos d_model"] | None = None
    bias: Float[Tensor, "pos d_model"] | None = None
    writes_after_norm: bool = False
    skip: Float[Tensor, "d_model d_model"] | None = None

    def __init__(
        self,
        frozen: FrozenModel,
        number: int,
        directions: Float[Tensor, "two pos d_model"],
        width: int,
    ) -> None:
        self.layer, self.targets = frozen.branches[number].layer, (number,)
        self._frozen, self._directions, self._width = frozen, directions, width
        self.n = directions.shape[1] * width
        by_effect, by_size = self.effects(directions, number)
        rounding = torch.finfo(by_effect.dtype).eps ** 0.5
        self._is_by_size = by_effect.abs() <= rounding * by_size.abs()
        self.reading: Float[Tensor, " unit"] = torch.where(self._is_by_size, by_size, by_effect)

    @abstractmethod
    def effects(
        self, direction: Float[Tensor, "row pos d_model"], target: int
    ) -> Float[Tensor, "row unit"]:
        """See :meth:`Units.effects`."""

    @abstractmethod
    def written(self, which: Which, target: int) -> Float[Tensor, "chosen d_model"]:
        """See :meth:`Units.written`."""

    def places(self, which: Which) -> tuple[Int[Tensor, " chosen"], Int[Tensor, " chosen"]]:
        """See :meth:`Units.places`."""
        return which // self._width, which % self._width

    def first(self, n_pos: int) -> int:
        """See :meth:`Units.first`."""
        return n_pos * self._width

    def activation(self, which: Which) -> Float[Tensor, " chosen"]:
        """See :meth:`Units.activation`: the norm of what each unit writes."""
        return self.written(which, self.targets[0]).norm(dim=1)

    def directions(self, which: Which) -> Float[Tensor, "chosen d_model"]:
        """D of units."""
        return self._directions[self._is_by_size[which].long(), self.places(which)[0]]


class Heads(VectorUnits):
    """The heads of one attention at all positions, as :class:`Units`.

    Args:
        frozen: the run.
        number: the index of the attention among the branches.
        directions: D before a norm of the output, by effects and by their sizes.
    """

    kind: str = "head"
    attends: bool = True

    def __init__(
        self, frozen: FrozenModel, number: int, directions: Float[Tensor, "two pos d_model"]
    ) -> None:
        self.attention = attention_of(frozen.branches[number])
        self._place = Place(self.attention.points.z, frozen.branches[number].layer)
        super().__init__(frozen, number, directions, self.attention.n_heads)
        self.n_active = int(self._z.any(-1).sum())

    @property
    def _z(self) -> Float[Tensor, "pos head d_head"]:
        return self._frozen.read(self._place)

    def written(self, which: Which, target: int) -> Float[Tensor, "chosen d_model"]:  # noqa: ARG002
        """See :meth:`Units.written`."""
        pos, head = self.places(which)
        z = self._z[pos, head]
        return einsum(z, self.attention.W_O[head].to(z.dtype), "row d, row d m -> row m")

    def effects(
        self,
        direction: Float[Tensor, "row pos d_model"],
        target: int,  # noqa: ARG002
    ) -> Float[Tensor, "row unit"]:
        """See :meth:`Units.effects`."""
        W_O = self.attention.W_O.to(direction.dtype)
        along = einsum(direction, W_O, "row pos m, head d m -> row pos head d")
        return along.mul_(self._z[: direction.shape[1]]).sum(-1).flatten(1)

    def readers(
        self, which: Which
    ) -> tuple[Float[Tensor, "chosen d_model"], Float[Tensor, " chosen"]]:
        """D at the positions of heads; what they read at all positions is for rows to know."""
        direction = self.directions(which)
        return direction, direction.new_zeros(len(direction))

    def zero(self, unit: int) -> list[Edit]:
        """See :meth:`Units.zero`."""
        pos, head = divmod(unit, self.attention.n_heads)
        return [edits.zero(self._place, head=head, pos=pos)]


class WholeMLP(VectorUnits):
    """One MLP at all positions, as :class:`Units`: one at each position.

    Args:
        frozen: the run.
        number: the index of the MLP among the branches.
        directions: D before a norm of the output, by effects and by their sizes.
    """

    kind: str = "mlp"
    attends: bool = False

    def __init__(
        self, frozen: FrozenModel, number: int, directions: Float[Tensor, "two pos d_model"]
    ) -> None:
        self._neurons = Neurons(frozen, number)
        self._place = Place(Point.POST, self._neurons.layer)
        post = frozen.read(self._place)
        self._output = post @ self._neurons.mlp.W_out.to(post.dtype)
        super().__init__(frozen, number, directions, 1)
        self.n_active = int(self._output.any(1).sum())

    def written(self, which: Which, target: int) -> Float[Tensor, "chosen d_model"]:  # noqa: ARG002
        """See :meth:`Units.written`."""
        return self._output[which]

    def effects(
        self,
        direction: Float[Tensor, "row pos d_model"],
        target: int,  # noqa: ARG002
    ) -> Float[Tensor, "row unit"]:
        """See :meth:`Units.effects`."""
        return (direction * self._output[: direction.shape[1]]).sum(-1)

    def readers(
        self, which: Which
    ) -> tuple[Float[Tensor, "chosen d_model"], Float[Tensor, " chosen"]]:
        """See :meth:`Units.readers`: the neurons, each by what it writes along D."""
        direction = self.directions(which)
        by_post = direction @ self._neurons.mlp.W_out.mT.to(direction.dtype)
        return self._neurons.pulled_at(by_post * self._frozen.read(self._place)[which], which)

    def zero(self, unit: int) -> list[Edit]:
        """See :meth:`Units.zero`."""
        return [edits.zero(self._place, pos=unit)]
