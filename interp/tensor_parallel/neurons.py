"""MLPs whose neurons are divided among ranks, and mixtures whose experts are.

    MLP(x) = Σ_ranks act(x·W_in + b_in)·W_out + b_out        Σ_e w_e(x)·MLP_e(x) = Σ_ranks Σ_e …

The sum over ranks is the second of the two sums of a block. Where neurons are recorded, each rank
stores its share; where they are edited, they are joined for the edit. The router of a mixture is on
all ranks.
"""

from torch import Tensor

from interp.errors import InvalidInput
from interp.model import MLP, Context, Experts, GatedMLP, Stream, Tap, untouched
from interp.points import Point
from interp.tensor_parallel.parts import ShardedPart, Split, Splits, tap_of_share, with_local
from interp.tensor_parallel.ranks import Ranks, Shares

NEURONS = {Point.PRE, Point.GATE, Point.POST}
OF_EXPERTS = {Point.EXPERT_PRE, Point.EXPERT_GATE, Point.EXPERT_POST}


class ShardedMLP(ShardedPart, MLP):
    """An MLP with a share of the neurons on each rank.

    Attributes:
        local: the MLP of this rank's neurons.
        shares: the neurons of each rank.
    """

    local: MLP
    shares: Shares

    def forward(self, x: Stream, context: Context, tap: Tap = untouched) -> Stream:
        """The output of all neurons."""
        return tap(self.out, self.written(x, context, tap))

    def written(self, x: Stream, context: Context, tap: Tap = untouched) -> Stream:
        """Their output, which is not given to ``tap``."""
        of_share = tap_of_share(tap, NEURONS, {"d_mlp": self.shares}, self.ranks)
        post = self.local.hidden(self.ranks.copied(x), context, of_share)
        return self._sum(of_share(Point.POST, post))

    def pre(self, x: Stream) -> Tensor:
        """x·W_in + b_in of all neurons."""
        return self.ranks.joined(self.local.pre(self.ranks.copied(x)), self.shares, -1)

    def write(self, post: Tensor) -> Stream:
        """post·W_out + b_out."""
        return self._sum(self.ranks.share(post, self.shares, -1))

    def _sum(self, post: Tensor) -> Stream:
        """Σ_ranks post·W_out + b_out, where post is that of this rank's neurons."""
        total = self.ranks.summed(self.local.write(post))
        return total if self.b_out is None else total + self.b_out


class ShardedGatedMLP(ShardedMLP, GatedMLP):
    """A gated MLP with a share of the neurons on each rank."""

    local: GatedMLP  # pyright: ignore[reportIncompatibleVariableOverride]

    def gate(self, x: Stream) -> Tensor:
        """x·W_gate + b_gate of all neurons."""
        return self.ranks.joined(self.local.gate(self.ranks.copied(x)), self.shares, -1)


class ShardedExperts(ShardedPart, Experts):
    """A mixture with a share of the experts on each rank.

    Attributes:
        local: the mixture of this rank's experts.
        shares: the experts of each rank.
    """

    local: Experts
    shares: Shares

    def of_chosen(self, x: Stream, weights: Tensor) -> Stream:
        """Σ_e w_e · MLP_e(x), with each expert run only on the tokens with a nonzero weight."""
        x, of_local = self.ranks.copied(x), self.ranks.share(weights, self.shares, -1)
        # No token may be routed to the experts of this rank.
        written = self.ranks.depending(self.local.of_chosen(x, of_local), x, of_local)
        return self.ranks.summed(written)

    def of_each(self, x: Stream, weights: Tensor, tap: Tap) -> Stream:
        """Σ_e w_e · MLP_e(x), with every expert run on all tokens."""
        of_share = tap_of_share(tap, OF_EXPERTS, {"expert": self.shares}, self.ranks)
        of_local = self.ranks.share(weights, self.shares, -1)
        return self.ranks.summed(self.local.of_each(self.ranks.copied(x), of_local, of_share))

    def gate(self, x: Stream) -> Tensor:
        """``x @ W_gate + b_gate`` for every expert."""
        return self.ranks.joined(self.local.gate(self.ranks.copied(x)), self.shares, 2)

    def pre(self, x: Stream) -> Tensor:
        """``x @ W_in + b_in`` for every expert."""
        return self.ranks.joined(self.local.pre(self.ranks.copied(x)), self.shares, 2)

    def of_all(self, weights: Tensor, post: Tensor) -> Stream:
        """Σ_e w_e · (post_e·W_out_e + b_out_e)."""
        of_local = self.ranks.share(weights, self.shares, -1)
        return self.ranks.summed(
            self.local.of_all(of_local, self.ranks.share(post, self.shares, 2))
        )


def splits_of(mlp: MLP | Experts, ranks: Ranks) -> Splits:
    """How the weights of a whole MLP or mixture are divided.

    Raises:
        InvalidInput: there are more ranks than neurons or experts.
    """
    total = len(mlp.weight_in)
    if total < ranks.size:
        units = "experts" if isinstance(mlp, Experts) else "neurons"
        raise InvalidInput(f"{ranks.size} ranks can't share {total} {units}; take fewer ranks.")
    rows = Split(0, Shares.even(total, ranks.size))
    if isinstance(mlp, Experts):
        names = ("weight_gate", "weight_in", "weight_out", "b_gate", "b_in", "b_out")
        return dict.fromkeys(names, rows)
    gated = {"weight_gate": rows, "b_gate": rows} if isinstance(mlp, GatedMLP) else {}
    return {"weight_in": rows, "b_in": rows, "weight_out": Split(1, rows.shares), **gated}


def shard(mlp: MLP | Experts, splits: Splits, ranks: Ranks) -> None:
    """Make an MLP or a mixture, whose weights are this rank's already, a sharded one."""
    if isinstance(mlp, Experts):
        experts, _ = with_local(mlp, ShardedExperts, splits, ranks)
        experts.shares = splits["weight_in"].shares
    else:
        kind = ShardedGatedMLP if isinstance(mlp, GatedMLP) else ShardedMLP
        neurons, _ = with_local(mlp, kind, splits, ranks)
        neurons.shares = splits["weight_in"].shares
