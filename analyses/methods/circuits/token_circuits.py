"""The OV and QK circuits of a head: its output for each token, and which tokens it attends to.

    OV:  W_E S W_U          QK:  (W_E W_Q + b_Q) (W_E W_K + b_K)ᵀ / scale

Both are products of thin matrices (vocab × d_head and d_head × vocab) and are never multiplied out
(Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits"). W_E denotes the stream of
a single token (:mod:`analyses.methods.circuits.token_streams`) after the norm that the head reads
through, including its divisor. Later norms are folded into W_U without their divisors. If a model
clips its values, OV is computed without clipping.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from analyses.methods.circuits.folded_heads import FoldedHeads, norm_of, normalized, written_through
from analyses.methods.circuits.token_streams import TOKENS, Ids, Streams, streams_of_tokens
from analyses.methods.heads import AttentionName, attentions_of
from interp.errors import InvalidInput, shorten
from interp.integers import within
from interp.io import ProgressLike, as_progress
from interp.metrics import at_least_float32
from interp.model import (
    Context,
    ImageInput,
    MaskedHead,
    Network,
    Norm,
    PositionEmbedding,
    Rotary,
    ScaledNorm,
    Stack,
    Step,
    Unembedding,
)

Vectors = Float[Tensor, "token d_head"]


@dataclass(frozen=True, eq=False)
class TokenCircuits:
    """The OV and the QK circuit of one head.

    Attributes:
        model: the model.
        name: name of the head, such as ``L1H4``; in an encoder–decoder ``cross.L1H4``.
        layer: its layer.
        head: its index in the layer.
        step: the residual step of its attention.
        query: the stack that queries are computed from.
        key: the stack that keys and values are computed from.
        first_mlp: whether the first MLP is applied to embeddings.
        weights: weights of the heads of the layer.
    """

    model: Network
    name: str
    layer: int
    head: int
    step: Step
    query: Stack
    key: Stack
    first_mlp: bool
    weights: FoldedHeads

    @classmethod
    def of(
        cls,
        model: Network,
        layer: int,
        head: int,
        attention: AttentionName | None = None,
        *,
        first_mlp: bool = False,
    ) -> "TokenCircuits":
        """The circuits of a head; negative indices count from the end.

        Raises:
            InvalidInput: there is no such layer or head; the model reads images; ``attention`` does
                not match the model's stacks; or there is no first MLP before the head.
        """
        kind = attentions_of(model, attention)
        query, key = model.stacks[kind.query], model.stacks[kind.key]
        if isinstance(query.input, ImageInput) or isinstance(key.input, ImageInput):
            raise InvalidInput("This model reads images, so there are no tokens to list.")
        if not isinstance(first_mlp, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"first_mlp={shorten(first_mlp)} should be True or False.")
        n_layers = len(kind.layers)
        at = within(-n_layers, n_layers - 1, layer, "layer") % n_layers
        attn = kind.layers[at]
        head = within(-attn.n_heads, attn.n_heads - 1, head, "head") % attn.n_heads
        step = next(candidate for candidate in query.block(at).steps if candidate.f is attn)
        if first_mlp:
            _check_first_mlp(at, query, key)
        source = key.final_norm if kind.is_cross else step.input_norm
        prefix = "" if kind.name is None else f"{kind.name}."
        return cls(
            model,
            f"{prefix}L{at}H{head}",
            at,
            head,
            step,
            query,
            key,
            first_mlp,
            FoldedHeads.of(attn, step, source),
        )

    # ---- the input of the head -----------------------------------------------------------------

    def query_stream(self, ids: Ids, position: int | None = None) -> Streams:
        """The stream from which queries are computed, if it only contained one token each.

        Args:
            ids: the tokens.
            position: position whose embedding is added to every token; ``None`` for none.
        """
        return streams_of_tokens(self.query, ids, self.step, position, first_mlp=self.first_mlp)

    def key_stream(self, ids: Ids) -> Streams:
        """The same for keys and values; for cross-attention, the last stream of the encoder."""
        until = None if self.weights.attn.is_cross else self.step
        return streams_of_tokens(self.key, ids, until, None, first_mlp=self.first_mlp)

    @property
    def query_norm(self) -> Norm:
        """The norm that queries are read through."""
        return self.step.input_norm

    @property
    def key_norm(self) -> Norm:
        """The norm that keys and values are read through."""
        return self.key.final_norm if self.weights.attn.is_cross else self.step.input_norm

    # ---- the OV circuit ------------------------------------------------------------------------

    @torch.no_grad()
    def values(self, ids: Ids) -> Vectors:
        """W_E W_V for tokens, without biases, which do not depend on what the head attends to."""
        return self.read_keys(ids, self.weights.W_V[self.head])

    @torch.no_grad()
    def output(self) -> Float[Tensor, "d_head d_model"]:
        """W_O, followed by the later norms up to the unembedding, without their divisors.

        Raises:
            InvalidInput: the head's output reaches no logits, or not by linear maps only.
        """
        stack, last = self.query, self.model.stacks[-1]
        if stack is not last:
            raise InvalidInput(
                f"{self.name} writes to the stream of the encoder, which has no unembedding, so it "
                "has no OV circuit of tokens. Ask for a head of the decoder or of cross-attention."
            )
        if not isinstance(self.model.unembed, Unembedding):
            raise InvalidInput(
                "This model returns its last stream and has no unembedding, so a head has no OV "
                "circuit of tokens."
            )
        if isinstance(stack.final_norm, MaskedHead):
            raise InvalidInput(
                "The unembedding of this model reads norm(act(x·W + b)), which is not linear in "
                "the output of a head; it has no OV circuit of tokens."
            )
        norms = [self.step.norms.sum]
        for step in _steps_after(stack, self.step):
            norms += [step.norms.base, step.norms.sum]
        written = self.weights.W_O[self.head]
        for norm in norms:
            written = written_through(norm_of(norm), written)
        return written_through(stack.final_norm, written)

    @torch.no_grad()
    def logits(self, written: Float[Tensor, "row d_model"]) -> Float[Tensor, "row logit"]:
        """Vectors after the final norm times W_U, minus the mean over all logits."""
        if not isinstance(self.model.unembed, Unembedding):
            raise InvalidInput("This model has no unembedding.")
        logits = written @ at_least_float32(self.model.unembed.W_U)
        _check_finite(logits)
        return logits - logits.mean(-1, keepdim=True)

    # ---- the QK circuit ------------------------------------------------------------------------

    @torch.no_grad()
    def queries(self, ids: Ids) -> Vectors:
        """Queries of tokens, divided by the scale of the scores; normalized, but not rotated."""
        return _in_parts(lambda part: self._query(self.query_norm, self.query_stream(part)), ids)

    @torch.no_grad()
    def keys(self, ids: Ids) -> Vectors:
        """Keys of tokens; normalized, but not rotated."""
        return _in_parts(lambda part: self._key(self.key_norm, self.key_stream(part)), ids)

    def _query(self, norm: Norm, x: Streams) -> Vectors:
        attn = self.weights.attn
        q = _projected(norm(x[:, None]), attn.W_Q, attn.b_Q, attn.q_norm, self.head)
        return q / attn.divisor

    def _key(self, norm: Norm, x: Streams) -> Vectors:
        attn = self.weights.attn
        head = attn.kv_head(self.head)
        return _projected(norm(x[:, None]), attn.W_K, attn.b_K, attn.k_norm, head)

    @torch.no_grad()
    def query_bias(self) -> Float[Tensor, " d_head"]:
        """The part of every query that does not depend on the token: (b_Q + b W_Q) / scale.

        It is not rotated. NaN if queries are normalized, so that it is not a term of the query.
        """
        bias, attn = self.weights.b_Q[self.head], self.weights.attn
        return torch.full_like(bias, torch.nan) if attn.has_qk_norm else bias / attn.divisor

    @property
    def is_rotary(self) -> bool:
        """Whether scores depend on query minus key position through rotations."""
        return isinstance(self.weights.attn.positions, Rotary)

    def rotated(self, x: Vectors, position: int) -> Vectors:
        """Queries or keys rotated to a position."""
        return self.weights.rotated(x, position)

    @torch.no_grad()
    def mean_scores(
        self, ids: Ids, n: int, progress: ProgressLike = None
    ) -> Float[Tensor, "query key"]:
        """Scores of the first ``n`` positions, averaged over all pairs of tokens, plus the mask M.

        If query and key have the same position, they are the same token.

        Args:
            ids: the tokens.
            n: number of positions.
            progress: called with the number of positions done, and of all; only once if positions
                are not embedded.
        """
        attn, at = self.weights.attn, torch.arange(n, device=ids.device)
        embedded = isinstance(self.query.entry, PositionEmbedding)
        report = as_progress(progress, "positions")
        positions: Sequence[int | None] = range(n) if embedded else [None]
        heads = self.weights
        q, k = (
            weight.new_empty(len(positions), weight.shape[-1]) for weight in (heads.W_Q, heads.W_K)
        )
        same = q.new_empty(len(positions))
        for number, position in enumerate(positions):
            q[number], k[number], same[number] = self._means(ids, position)
            if report is not None:
                report(number + 1, len(positions))
        query, key = (attn.positions.rotated(vector.expand(n, -1), at) for vector in (q, k))
        scores = query @ key.mT
        scores.diagonal().copy_(same.expand(n))
        biases = attn.masking.add(
            scores.new_zeros(1, attn.n_heads, n, n), Context.plain(scores.new_zeros(1, n, 1))
        )
        return scores + biases[0, self.head]

    def _means(self, ids: Ids, position: int | None) -> tuple[Tensor, Tensor, Tensor]:
        """The means over all tokens of queries, keys, and scores of a token with itself."""

        def of(part: Ids) -> Tensor:
            x = self.query_stream(part, position)
            return torch.stack([self._query(self.query_norm, x), self._key(self.key_norm, x)], 1)

        q, k = _in_parts(of, ids).unbind(1)
        return q.mean(0), k.mean(0), (self.rotated(q, 0) * self.rotated(k, 0)).sum(-1).mean()

    # ---- the input of folded weights ---------------------------------------------------------

    @torch.no_grad()
    def read_queries(
        self, ids: Ids, directions: Float[Tensor, "d_model r"]
    ) -> Float[Tensor, "token r"]:
        """The normalized streams from which queries are computed, along some directions."""

        def of(part: Ids) -> Tensor:
            x = at_least_float32(self.query_stream(part)[:, None])
            return normalized(self.query_norm, x)[:, 0] @ directions

        return _in_parts(of, ids)

    @torch.no_grad()
    def read_keys(
        self, ids: Ids, directions: Float[Tensor, "d_model r"]
    ) -> Float[Tensor, "token r"]:
        """The same for the streams from which keys and values are computed."""

        def of(part: Ids) -> Tensor:
            x = at_least_float32(self.key_stream(part)[:, None])
            return normalized(self.key_norm, x)[:, 0] @ directions

        return _in_parts(of, ids)


def _in_parts(of: Callable[[Ids], Tensor], ids: Ids) -> Tensor:
    """A function of tokens, applied to some of them at a time.

    The results are written into one tensor: separate ones would lie between the larger tensors that
    ``of`` allocates and frees, whose memory could then not be reused.
    """
    values = torch.empty(0)
    for number, part in enumerate(ids.split(TOKENS)):
        value = of(part)
        values = values if number else value.new_empty(len(ids), *value.shape[1:])
        values[number * TOKENS :][: len(part)] = value
    _check_finite(values)
    return values


def _check_finite(values: Tensor) -> None:
    """Check what is computed of finite weights.

    Raises:
        InvalidInput: numbers overflow.
    """
    if not bool(values.isfinite().all()):
        raise InvalidInput(
            f"Of a token alone, what this head reads or writes is not finite in {values.dtype}. "
            'Look for weights that are too large, or load the model with dtype="float64".'
        )


def _projected(
    x: Float[Tensor, "token pos d_model"],
    W: Float[Tensor, "head d_model d_head"],
    b: Float[Tensor, "head d_head"],
    norm: Norm,
    head: int,
) -> Vectors:
    """Queries or keys of one head; all heads are computed if one norm is over all together."""
    if isinstance(norm, ScaledNorm) and len(norm.shape) > 1:
        every = norm(einsum(x, W, "token pos d_model, head d_model d -> token pos head d") + b)
        return at_least_float32(every[:, 0, head])
    return at_least_float32(norm((x @ W[head] + b[head])[:, :, None])[:, 0, 0])


def _steps_after(stack: Stack, step: Step) -> list[Step]:
    """The steps of a stack after ``step``."""
    steps = [
        step_there for layer in range(len(stack.blocks)) for step_there in stack.block(layer).steps
    ]
    return steps[next(n for n, step_there in enumerate(steps) if step_there is step) + 1 :]


def _check_first_mlp(layer: int, *stacks: Stack) -> None:
    """Make sure that there is an MLP in block 0, before a head of this layer.

    Raises:
        InvalidInput: there is no such MLP.
    """
    if layer == 0:
        raise InvalidInput(
            "first_mlp=True is for heads after the first MLP; a head of layer 0 reads the "
            "embeddings."
        )
    if any(not hasattr(stack.block(0), "mlp") for stack in stacks):
        raise InvalidInput("first_mlp=True: the first block of this model has no MLP.")
