"""Which subspace of queries and keys makes a head attend to a feature? C⁺ − C⁻ and its SVD.

    C = mean over cells (i, j) of q_i k_jᵀ / scale        trace C = the mean score of the cells
    C⁺ − C⁻ = Σ_r σ_r u_r v_rᵀ                            + cells with the feature, − other cells
    term_r = u_rᵀ (C⁺ − C⁻) u_r                           Σ_r term_r = trace(C⁺ − C⁻)

q and k are as the scores read them: normalized and rotated, where a model does so. The trace of
C⁺ − C⁻ is how much higher the head scores the cells with the feature, in nats before the softmax,
without biases of scores and masks. Few large σ_r mean that few directions of the head do it (Lee et
al. 2026, arXiv:2602.04752). On repeated random tokens, a feature is a role of a head: induction
cells, say, against all other cells of the same queries but the first position, the usual sink.

C⁺ and C⁻ are means over the cells of each prompt, then over prompts. The control has as many cells
of each prompt as the feature, drawn at random from those of both kinds: σ of differences by chance
are not zero. That a subspace separates cells does not show where in the stream it comes from.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from analyses.methods.finite import check_finite_weights, check_no_nan
from analyses.methods.heads import RepeatedRows, attentions_of, repeated_rows, visible_keys
from analyses.results import (
    Bars,
    Drawing,
    Result,
    bracketed,
    counted,
    fixed,
    interval,
    mean_frame,
    percent,
    places_of,
    signed,
)
from interp import Transformer, run
from interp.errors import InvalidInput, shorten
from interp.execution import Provenance
from interp.integers import as_seed, at_least, within
from interp.metrics import at_least_float32
from interp.model import Batch, ImageInput
from interp.points import Place, Point
from interp.prompts import read_batches
from interp.zoo import trained_tokens

QUERY_OF = {Point.K: Point.Q, Point.K_NORMALIZED: Point.Q_NORMALIZED, Point.ROT_K: Point.ROT_Q}
"""The point of queries that are scored against the keys of a point."""
SHOWN = 16
"""The most components of the figure."""
MOST = 0.9
"""The share of the difference by which the first line counts components."""
Cells = Bool[Tensor, "prompt query key"]
Matrices = Float[Tensor, "prompt d_head key_d_head"]


@dataclass(frozen=True, eq=False, repr=False)
class QKCovariance(Result):
    """The contrastive covariance of a head's queries and keys.

    Attributes:
        name: the head's name.
        feature: what the cells have in common.
        singular_value: σ of C⁺ − C⁻, largest first.
        singular_control: the same with labels of cells drawn at random.
        terms: term of each component on each prompt; their sum over components is ``difference``.
        difference: mean score of the cells with the feature minus that of the others, in nats.
        difference_control: the same with random labels, mean over prompts.
        query_directions: u of each component, in the space of the head's queries.
        key_directions: v of each component.
        n_cells: number of cells with the feature.
        provenance: model, tokens and seed that the numbers depend on.
    """

    name: str
    feature: str
    singular_value: Float[Tensor, " component"]
    singular_control: Float[Tensor, "draw component"]
    terms: Float[Tensor, "component prompt"]
    difference: Float[Tensor, " prompt"]
    difference_control: Float[Tensor, " draw"]
    query_directions: Float[Tensor, "component d_head"]
    key_directions: Float[Tensor, "component d_head"]
    n_cells: int
    provenance: Provenance

    def to_frame(self) -> pd.DataFrame:
        """One row per component, largest singular value first.

        Columns:
            component: from 1.
            singular_value, control: σ, and its mean with labels drawn at random.
            difference, low, high: its term of the score difference in nats, with the 95 % interval
                over prompts.
            explained: share of the score difference that it and those before it make up.
            n: number of prompts.
        """
        frame = mean_frame({"component": range(1, 1 + len(self.terms))}, self.terms)
        frame = frame.rename(columns={"mean": "difference"})
        frame.insert(1, "singular_value", self.singular_value.numpy())
        frame.insert(2, "control", self.singular_control.mean(0).numpy())
        frame.insert(6, "explained", self._explained.numpy())
        return frame

    def drawing(self) -> Drawing:
        """The terms of the first components."""
        estimate = interval(self.terms[:SHOWN])
        return Bars(
            estimate.mean,
            estimate.low,
            estimate.high,
            title=f"{self.name}: score of {self.feature} cells − others, by component of C⁺ − C⁻",
            labels=[str(number) for number in range(1, 1 + len(estimate.mean))],
            unit="nats",
            name="term",
            marks={
                "σ": self.singular_value[:SHOWN].double(),
                "σ, random labels": self.singular_control.mean(0)[:SHOWN].double(),
            },
        )

    def summary(self, top: int = 5) -> str:
        """The difference, and the ``top`` largest components."""
        top = at_least(1, top, "top")
        rows = self.to_frame().head(top).to_dict("records")
        places = places_of(self.singular_value.tolist())
        lines = [
            f"component {row['component']}: σ {fixed(row['singular_value'], places)} (random "
            f"labels {fixed(row['control'], places)}), {signed(row['difference'], places)} nats"
            f"{bracketed(row['low'], row['high'], places)}; up to here {percent(row['explained'])}"
            for row in rows
        ]
        return "\n".join([self.headline(), *lines])

    def headline(self) -> str:
        """See :meth:`Result.headline`."""
        difference, chance = (
            signed(values.mean(), 2) for values in (self.difference, self.difference_control)
        )
        reached = (self._explained >= MOST).nonzero()
        rank = 1 + int(reached[0]) if len(reached) else len(self.terms)
        return (
            f"{self.name} in {self.provenance.model}: scores of "
            f"{counted(self.n_cells, f'{self.feature} cell')} are {difference} nats from those of "
            f"others (random labels {chance}); {counted(rank, 'component')} of "
            f"{len(self.terms)} explain {percent(self._explained[rank - 1])}"
        )

    @property
    def _explained(self) -> Float[Tensor, " component"]:
        return self.terms.mean(-1).cumsum(0) / self.difference.mean()


@torch.no_grad()
def qk_covariance(  # noqa: PLR0913 - the settings of one analysis, by keyword
    model: Transformer,
    layer: int,
    head: int,
    prompts: Any = None,  # noqa: ANN401 - what model.batch reads
    *,
    cells: str | Tensor = "induction",
    others: Tensor | None = None,
    draws: int = 8,
    rows: int = 16,
    seed: int = 0,
) -> QKCovariance:
    """Find the directions in which a head's queries and keys tell cells with a feature from others.

    Args:
        model: a model of tokens with one stack.
        layer: the head's layer; negative values count from the end.
        head: the head's index; negative values count from the end.
        prompts: texts, token ids or a batch; ``None`` for rows of repeated random tokens.
        cells: the pairs of query and key with the feature: a role on repeated tokens, such as
            ``previous-token``, ``induction`` or ``duplicate-token``; or with prompts, a boolean
            tensor ``[prompt query key]``, or ``[query key]`` for all of them.
        others: the pairs to compare them with; by default all other keys of the same queries but
            the first.
        draws: number of times that labels are drawn at random for the control.
        rows: number of rows of repeated tokens.
        seed: seed of all draws.

    Raises:
        InvalidInput: an encoder–decoder or a model of images; no such head or role; prompts with a
            role, or cells of another shape; no cells of one of the two kinds in any prompt; or
            scores that are not finite.

    Examples:
        >>> analyses.qk_covariance(interp.load("induction-by-hand"), 1, 0)
        QKCovariance(L1H0 in induction-by-hand: scores of 496 induction cells are +91.98 nats from
        those of others (random labels −0.07); 54 components of 64 explain 91 %)
    """
    check_finite_weights(model)
    if len(model.stacks) > 1 or isinstance(model.stacks[0].input, ImageInput):
        raise InvalidInput("qk_covariance takes models of tokens with one stack.")
    draws, rows, seed = at_least(1, draws, "draws"), at_least(1, rows, "rows"), as_seed(seed)
    kind = attentions_of(model)
    layer = within(-len(kind.layers), len(kind.layers) - 1, layer, "layer") % len(kind.layers)
    attn = kind.layers[layer]
    head = within(-attn.n_heads, attn.n_heads - 1, head, "head") % attn.n_heads
    batch, having = _feature(model, prompts, cells, rows, seed)
    (context,) = model.contexts([batch])
    visible = visible_keys(attn, context, batch.ids.shape[1]) & batch.is_real[:, :, None]
    having = having.to(visible.device) & visible
    others = _others(others, having, visible, batch)
    has_both = having.flatten(1).any(-1) & others.flatten(1).any(-1)
    if not bool(has_both.any()):
        raise InvalidInput("No prompt has cells with the feature, and others beside them.")
    having, others = having[has_both], others[has_both]
    q, k = _scored(model, batch, layer, head)
    q, k = q[has_both], k[has_both]
    contrast = _mean_product(q, k, having) - _mean_product(q, k, others)
    if not bool(contrast.isfinite().all()):
        raise InvalidInput(
            f"{Place(Point.SCORES, layer)} is not finite: products of queries and keys overflow in "
            f'{contrast.dtype}; load the model with dtype="float64".'
        )
    left, singular, right = torch.linalg.svd(contrast.mean(0))
    generator = torch.Generator().manual_seed(seed)
    by_chance = torch.stack(
        [_at_random(q, k, having, others, generator).mean(0) for _ in range(draws)]
    )
    return QKCovariance(
        name=f"L{layer}H{head}",
        feature=cells if isinstance(cells, str) else "given",
        singular_value=singular.cpu(),
        singular_control=torch.linalg.svdvals(by_chance).cpu(),
        terms=torch.einsum("dr,bde,er->rb", left, contrast, left).cpu(),
        difference=_traces(contrast).cpu(),
        difference_control=_traces(by_chance).cpu(),
        query_directions=left.T.cpu(),
        key_directions=right.cpu(),
        n_cells=int(having.sum()),
        provenance=replace(Provenance.of(model, batch), seed=seed),
    )


def _feature(
    model: Transformer, prompts: object, cells: object, rows: int, seed: int
) -> tuple[Batch, Cells]:
    """The prompts and the cells with the feature.

    Raises:
        InvalidInput: see :func:`qk_covariance`.
    """
    if prompts is None:
        ids = torch.tensor(trained_tokens(model))
        drawn: RepeatedRows = repeated_rows(model, ids, rows=rows, seed=seed)
        roles = drawn.cells(bidirectional=attentions_of(model).is_bidirectional)
        if not isinstance(cells, str) or cells not in roles:
            raise InvalidInput(
                f"cells={shorten(cells)} should be a role on repeated tokens: {', '.join(roles)}; "
                "or give prompts with a tensor of cells."
            )
        return drawn.repeated, roles[cells].expand(rows, -1, -1)
    (batch,) = read_batches(model, prompts)
    return batch, _mask(cells, batch, "cells")


def _mask(cells: object, batch: Batch, argument: str) -> Cells:
    """A mask of pairs of columns.

    Raises:
        InvalidInput: it is no boolean tensor of this shape.
    """
    n, width = batch.ids.shape
    shapes: Sequence[tuple[int, ...]] = ((n, width, width), (width, width))
    if not isinstance(cells, Tensor) or cells.dtype != torch.bool or cells.shape not in shapes:
        raise InvalidInput(
            f"{argument}={shorten(cells)} should be a boolean tensor [prompt query key], "
            f"{list(shapes[0])}, or [query key]."
        )
    return cells.expand(n, width, width)


def _others(others: object, having: Cells, visible: Cells, batch: Batch) -> Cells:
    """The cells without the feature: those given, or other keys of the same queries."""
    if others is not None:
        return _mask(others, batch, "others").to(visible.device) & visible & ~having
    is_first = batch.is_real & (batch.is_real.cumsum(-1) == 1)
    return visible & ~having & having.any(-1, keepdim=True) & ~is_first[:, None]


def _scored(
    model: Transformer, batch: Batch, layer: int, head: int
) -> tuple[Float[Tensor, "prompt query d_head"], Float[Tensor, "prompt key d_head"]]:
    """The head's queries, divided by the scale, and keys, as the scores read them."""
    attn = attentions_of(model).layers[layer]
    key = attn.kv_points[0]
    places = [Place(QUERY_OF[key], layer), Place(key, layer)]
    cache = run(model, batch, record=places, stop_at_layer=layer + 1).cache
    q, k = (at_least_float32(cache[place]) for place in places)
    check_no_nan(model, [batch], q, k)
    return q[:, :, head] / attn.divisor, attn.each_query(k)[:, :, head]


def _mean_product(q: Tensor, k: Tensor, cells: Cells) -> Matrices:
    """The mean of q_i k_jᵀ over the cells of each prompt."""
    mask = cells.to(q.dtype)
    return torch.einsum("bid,bij,bje->bde", q, mask, k) / mask.sum((1, 2))[:, None, None]


def _at_random(
    q: Tensor, k: Tensor, having: Cells, others: Cells, generator: torch.Generator
) -> Matrices:
    """The contrast with as many cells of each prompt, drawn from those of both kinds."""
    both = (having | others).flatten(1)
    random = torch.rand(both.shape, generator=generator).to(q.device).masked_fill(~both, 2.0)
    rank = random.argsort(-1).argsort(-1)
    drawn = (rank < having.flatten(1).sum(-1, keepdim=True)).view_as(having)
    rest = both.view_as(having) & ~drawn
    return _mean_product(q, k, drawn) - _mean_product(q, k, rest)


def _traces(matrices: Float[Tensor, "n d_head key_d_head"]) -> Float[Tensor, " n"]:
    return matrices.diagonal(dim1=-2, dim2=-1).sum(-1)
