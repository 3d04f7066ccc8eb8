"""Heads and whole MLPs as units: what they write is a vector, read along one direction each.

    reading of head h at i = D_i · r_h,i        r_h,i = Σ_j A_ij (norm(x_j) W_V + b_V) W_O

D_i is the gradient of the answer Σ p·logit with respect to what the sub-layer writes at i, through
all that follows, with patterns, divisors of norms and ratios post / pre (of features: activation /
reading) fixed. So what a head reads is in logits: all that it contributes to the answer, by every
route. An edge into it is what a source contributes to that through the values that it attends to;
an edge from it is what the whole vector r_h,i adds to what the target reads. Both are exact, and
so is the sum over all paths of the graph for the answer as a whole: if reading(t) = D_t · r_t of
all targets t of h, then Σ_t edge(h → t) = Σ_t D_t · (∂r_t / ∂r_h) r_h = D_h · r_h.

What is approximate: the two numbers of a head stand for a vector, as if all that reads it read it
along D. So paths to one of several logits, paths around nodes that were pruned, and effects of
several units removed together are those of the vector's part along D.

An MLP as one unit is the same with r_i = post W_out, whose neurons keep their ratios post / pre.
"""

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

from analyses.attribution_graph.units import Neurons, Which
from analyses.methods.frozen import FrozenModel, attention_of
from interp import edits
from interp.edits import Edit
from interp.points import Place, Point


class Heads:
    """The heads of one attention at all positions, as :class:`Units`.

    Args:
        frozen: the run.
        number: the index of the attention among the branches.
        direction: D, before a norm of the output.
    """

    kind: str = "head"
    reads_stream: bool = False
    attends: bool = True
    error: Float[Tensor, "pos d_model"] | None = None
    bias: Float[Tensor, "pos d_model"] | None = None
    writes_after_norm: bool = False
    skip: Float[Tensor, "d_model d_model"] | None = None

    def __init__(
        self, frozen: FrozenModel, number: int, direction: Float[Tensor, "pos d_model"]
    ) -> None:
        branch = frozen.branches[number]
        self.targets: tuple[int, ...] = (number,)
        self.layer, self.attention = branch.layer, attention_of(branch)
        self._direction, self._frozen = direction, frozen
        self._place = Place(self.attention.points.z, branch.layer)
        self.n = len(direction) * self.attention.n_heads
        self.n_active = int(self._z.any(-1).sum())
        self.reading: Float[Tensor, " unit"] = self.effects(direction[None], number)[0]

    @property
    def _z(self) -> Float[Tensor, "pos head d_head"]:
        return self._frozen.read(self._place)

    def places(self, which: Which) -> tuple[Int[Tensor, " chosen"], Int[Tensor, " chosen"]]:
        """See :meth:`Units.places`."""
        return which // self.attention.n_heads, which % self.attention.n_heads

    def first(self, n_pos: int) -> int:
        """See :meth:`Units.first`."""
        return n_pos * self.attention.n_heads

    def activation(self, which: Which) -> Float[Tensor, " chosen"]:
        """See :meth:`Units.activation`: the norm of what each head writes."""
        return self.written(which, self.targets[0]).norm(dim=1)

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
        direction = self._direction[self.places(which)[0]]
        return direction, direction.new_zeros(len(direction))

    def zero(self, unit: int) -> list[Edit]:
        """See :meth:`Units.zero`."""
        pos, head = divmod(unit, self.attention.n_heads)
        return [edits.zero(self._place, head=head, pos=pos)]


class WholeMLP:
    """One MLP at all positions, as :class:`Units`: one at each position.

    Args:
        frozen: the run.
        number: the index of the MLP among the branches.
        direction: D, before a norm of the output.
    """

    kind: str = "mlp"
    reads_stream: bool = False
    attends: bool = False
    error: Float[Tensor, "pos d_model"] | None = None
    bias: Float[Tensor, "pos d_model"] | None = None
    writes_after_norm: bool = False
    skip: Float[Tensor, "d_model d_model"] | None = None

    def __init__(
        self, frozen: FrozenModel, number: int, direction: Float[Tensor, "pos d_model"]
    ) -> None:
        self.targets: tuple[int, ...] = (number,)
        self._neurons, self._direction, self._frozen = Neurons(frozen, number), direction, frozen
        self.layer = self._neurons.layer
        post = frozen.read(Place(Point.POST, self.layer))
        self._output = post @ self._neurons.mlp.W_out.to(post.dtype)
        self.n, self.n_active = len(post), int(self._output.any(1).sum())
        self.reading: Float[Tensor, " unit"] = (self._output * direction).sum(1)

    def places(self, which: Which) -> tuple[Int[Tensor, " chosen"], Int[Tensor, " chosen"]]:
        """See :meth:`Units.places`."""
        return which, torch.zeros_like(which)

    def first(self, n_pos: int) -> int:
        """See :meth:`Units.first`."""
        return n_pos

    def activation(self, which: Which) -> Float[Tensor, " chosen"]:
        """See :meth:`Units.activation`: the norm of what the MLP writes, without its bias."""
        return self._output[which].norm(dim=1)

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
        W_out = self._neurons.mlp.W_out.to(self._direction.dtype)
        post = self._frozen.read(Place(Point.POST, self.layer))[which]
        return self._neurons.pulled_at(self._direction[which] @ W_out.mT * post, which)

    def zero(self, unit: int) -> list[Edit]:
        """See :meth:`Units.zero`."""
        return [edits.zero(Place(Point.POST, self.layer), pos=unit)]
