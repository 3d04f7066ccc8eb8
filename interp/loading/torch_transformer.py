"""``torch.nn.Transformer``, the encoder–decoder of Vaswani et al. 2017 (arXiv:1706.03762).

PyTorch's module maps embedded sequences to a sequence of the decoder's streams. Embeddings,
positions and the unembedding are outside of it, and are passed separately:

    logits = transformer(scale · W_E[source] + W_pos, scale · W_E[target] + W_pos) · W_U + b_U

with a causal mask on the target. Unlike in the paper, each stack ends in a norm.
"""

import torch
from torch import Tensor, nn

from interp.config import Config, EmbeddingConfig, PositionsConfig, StackConfig, TokensConfig
from interp.errors import ModelLoadError
from interp.loading.agreement import (
    N_TOKENS,
    check_agreement,
    evaluating,
    expected_rounding,
    random_ids,
)
from interp.loading.assemble import build
from interp.loading.settings import UNBOUNDED
from interp.loading.source import StateDictSource
from interp.loading.special_tokens import as_tokenizer, attach_tokenizer
from interp.loading.torch_parts import STACKS, stack_of
from interp.loading.torch_table import table_of
from interp.transformer import Transformer

Matrix = nn.Embedding | nn.Linear | Tensor
"""A matrix, or a module with a matrix as its ``weight``."""
SINUSOIDAL = PositionsConfig(kind="sinusoidal", layout="interleaved")
"""Sines in the even dimensions, cosines in the odd ones (Vaswani et al. 2017, §3.5)."""
NO_TOKENS = TokensConfig()
"""No special tokens."""


def from_torch(  # noqa: PLR0913 - each is one part outside of the module
    transformer: nn.Transformer,
    source_embedding: Matrix,
    target_embedding: Matrix,
    unembedding: Matrix | None = None,
    *,
    scale: float | None = None,
    positions: PositionsConfig | tuple[Matrix, Matrix] = SINUSOIDAL,
    tokens: TokensConfig = NO_TOKENS,
    tokenizer: object = None,
) -> Transformer:
    """A ``torch.nn.Transformer`` with its embeddings as a :class:`Transformer`; weights are copied.

    The outputs of both for the same streams are compared, and the largest difference is kept as
    ``model.agreement``. The model is called as ``model(source, target)``.

    Args:
        transformer: the module, with any ``norm_first``, ``bias`` and ``batch_first``.
        source_embedding: W_E of the encoder ``[vocab d_model]``; shared with the decoder if the
            values are equal.
        target_embedding: W_E of the decoder ``[vocab d_model]``.
        unembedding: W_U as the weight of a ``Linear``, ``[vocab d_model]``, and its bias; tied to
            ``target_embedding`` if the values are equal. ``None``: the model returns the last
            stream.
        scale: the factor of the embeddings; ``None`` means √d_model.
        positions: added to the embeddings: sinusoidal, none (``PositionsConfig("none")``), or two
            learned tables ``[position d_model]``, for the source and for the target.
        tokens: the special tokens; generation starts with ``decoder_start``.
        tokenizer: as for :func:`interp.load`.

    Raises:
        ModelLoadError: a part is not of PyTorch's own class or differs between layers, or the
            outputs differ by more than rounding.

    Examples:
        >>> module = torch.nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
        >>> model = interp.from_torch(module, torch.nn.Embedding(9, 8), torch.nn.Embedding(7, 8))
        >>> model(torch.tensor([[1, 2, 3]]), torch.tensor([[4, 5]])).shape
        torch.Size([1, 2, 8])
    """
    outside = {"source_embedding": source_embedding, "target_embedding": target_embedding}
    outside |= {} if unembedding is None else {"unembedding": unembedding}
    if isinstance(positions, tuple):
        outside |= {"source_positions": positions[0], "target_positions": positions[1]}
        positions = PositionsConfig(kind="learned")
    elif positions.kind not in ("sinusoidal", "none"):
        raise ModelLoadError(
            f'positions of kind "{positions.kind}" are not supported with torch.nn.Transformer, '
            "where positions are added to the embeddings; pass sinusoidal, none, or two learned "
            "tables."
        )
    weights = transformer.state_dict() | {name: _rows(part) for name, part in outside.items()}
    bias: Tensor | None = getattr(unembedding, "bias", None)
    weights |= {} if bias is None else {"unembedding_bias": bias}
    embedding = EmbeddingConfig(transformer.d_model**0.5 if scale is None else scale)
    stacks = {name: stack_of(transformer, name, positions, embedding) for name in STACKS}
    model = _build(_config(transformer, weights, stacks, tokens), weights)
    attach_tokenizer(model, as_tokenizer(tokenizer))
    model.agreement = _agreement(model, transformer)
    return model


def _rows(part: Matrix) -> Tensor:
    return part if isinstance(part, Tensor) else part.weight


def _config(
    transformer: nn.Transformer,
    weights: dict[str, Tensor],
    stacks: dict[str, StackConfig],
    tokens: TokensConfig,
) -> Config:
    """The configuration; matrices with equal values are tied or shared."""
    source, target = weights["source_embedding"], weights["target_embedding"]
    unembedding = weights.get("unembedding")
    lengths = [len(rows) for name, rows in weights.items() if name.endswith("_positions")]
    shared = _are_equal(source, target)
    return Config(
        d_model=transformer.d_model,
        d_vocab=len(target),
        n_ctx=min(lengths, default=UNBOUNDED),
        encoder=stacks["encoder"],
        decoder=stacks["decoder"],
        tied=unembedding is not None and _are_equal(unembedding, target),
        bias_u="unembedding_bias" in weights,
        unembeds=unembedding is not None,
        shared=shared,
        d_vocab_source=None if shared else len(source),
        tokens=tokens,
        name=type(transformer).__name__,
    )


def _are_equal(first: Tensor, second: Tensor) -> bool:
    return first is second or (first.shape == second.shape and torch.equal(first, second))


def _build(config: Config, weights: dict[str, Tensor]) -> Transformer:
    """The model with a copy of the weights, on their device.

    Raises:
        ModelLoadError: a weight belongs to no part, is of another shape, or is not finite.
    """
    table = table_of(config)
    used = {key for weight in table.values() for key in weight.keys}
    extra = sorted(set(weights) - used - {"unembedding"})
    if extra:
        raise ModelLoadError(
            f"{extra[0]} belongs to no part of a torch.nn.Transformer that is supported."
        )
    names = {key: key for key in weights}
    device = weights["target_embedding"].device
    return build(config, table, names, StateDictSource(weights), None, device)


def _agreement(model: Transformer, transformer: nn.Transformer) -> float:
    """The largest relative difference of the two outputs, for the streams of a few tokens.

    Raises:
        ModelLoadError: the difference is more than rounding.
    """
    ids = random_ids(model, min(N_TOKENS, model.config.n_ctx))
    with torch.no_grad():
        batches = model.check(*ids)
        contexts = model.contexts(batches)
        entries = zip(model.stacks, batches, contexts, strict=True)
        streams = [stack.embed(batch, context) for stack, batch, context in entries]
        computed = model.stream(batches)
    with evaluating(transformer):
        expected = _output(transformer, streams)
    rounding = expected_rounding(model)
    return check_agreement(computed, expected, "torch.nn.Transformer", rounding)


def _output(transformer: nn.Transformer, streams: list[Tensor]) -> Tensor:
    """The module's output for two streams ``[batch pos d_model]``.

    Gradients are enabled to disable the module's fast path, which computes the tanh approximation
    of GELU even if the exact one is configured.
    """
    source, target = streams
    mask = torch.ones(2 * target.shape[1:2], dtype=torch.bool, device=target.device).triu(1)
    with torch.enable_grad():
        if transformer.batch_first:
            return transformer(source, target, tgt_mask=mask).detach()
        output = transformer(source.transpose(0, 1), target.transpose(0, 1), tgt_mask=mask)
    return output.detach().transpose(0, 1)
