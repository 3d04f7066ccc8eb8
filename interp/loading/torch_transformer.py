"""``torch.nn.Transformer``: the form of "Attention Is All You Need" (Vaswani et al. 2017).

PyTorch's module reads and gives out streams; what stands around it (embeddings, positions, the
unembedding) is its owner's, and is named here:

    logits = transformer(scale · W_E[source] + W_pos, scale · W_E[target] + W_pos) · W_U + b_U

with the target masked causally. Unlike the paper's, its towers end in a norm each.
"""

import torch
from torch import Tensor, nn

from interp.config import Config, EmbeddingConfig, PositionsConfig, StackConfig, TokensConfig
from interp.errors import ModelLoadError
from interp.loading.agreement import agreement
from interp.loading.assemble import filled
from interp.loading.live import TRIED
from interp.loading.source import Live
from interp.loading.special_tokens import attach, given_tokenizer
from interp.loading.torch_parts import TOWERS, stack_of
from interp.loading.torch_table import table_of
from interp.transformer import Transformer

Matrix = nn.Embedding | nn.Linear | Tensor
"""Rows: a tensor, or a module's ``weight``."""
WAVES = PositionsConfig(kind="sinusoidal", layout="interleaved")
"""Sines at the even dimensions, cosines at the odd ones (Vaswani et al. 2017, §3.5)."""
UNNAMED = TokensConfig()
"""No special tokens."""
ANY_LENGTH = 2**20
"""Waves never end."""


def from_torch(  # noqa: PLR0913 - each is one thing that stands around the module
    transformer: nn.Transformer,
    source_embedding: Matrix,
    target_embedding: Matrix,
    unembedding: Matrix | None = None,
    *,
    scale: float | None = None,
    positions: PositionsConfig | tuple[Matrix, Matrix] = WAVES,
    tokens: TokensConfig = UNNAMED,
    tokenizer: object = None,
) -> Transformer:
    """Our form of a ``torch.nn.Transformer`` and of what stands around it; weights are copied.

    Then both read the same few streams; the largest difference of what they give out is kept as
    the model's ``agreement``. It is read by ``model(source, target)``.

    Args:
        transformer: the module; norms first or last, with or without biases, either layout.
        source_embedding: W_E of the encoder's tokens, ``[vocab d_model]``. If all its numbers are
            the target embedding's, the two are one.
        target_embedding: W_E of the decoder's tokens.
        unembedding: W_U as a ``Linear`` has it, ``[vocab d_model]``, and its bias; tied if all its
            numbers are the target embedding's. ``None``: the model gives out its last stream.
        scale: what embeddings are multiplied by; ``None`` means √d_model, 1.0 leaves them.
        positions: what is added to them: waves (alternating, unless a ``PositionsConfig`` says
            otherwise), nothing (``PositionsConfig("none")``), or two learned tables
            ``[position d_model]``, the source's and the target's.
        tokens: the special tokens; ``decoder_start`` is where generated texts begin.
        tokenizer: reads and writes text.

    Raises:
        ModelLoadError: the module's parts are not PyTorch's own or differ from layer to layer, or
            what it gives out differs from what ours does.
    """
    around = {"source_embedding": source_embedding, "target_embedding": target_embedding}
    around |= {} if unembedding is None else {"unembedding": unembedding}
    if isinstance(positions, tuple):
        around |= {"source_positions": positions[0], "target_positions": positions[1]}
        positions = PositionsConfig(kind="learned")
    elif positions.kind not in ("sinusoidal", "none"):
        raise ModelLoadError(
            f'positions of kind "{positions.kind}": a torch.nn.Transformer knows of positions only '
            "what is added to its embeddings: waves, two learned tables, or nothing."
        )
    held = transformer.state_dict() | {name: _rows(part) for name, part in around.items()}
    bias: Tensor | None = getattr(unembedding, "bias", None)
    held |= {} if bias is None else {"unembedding_bias": bias}
    embedding = EmbeddingConfig(transformer.d_model**0.5 if scale is None else scale)
    stacks = {name: stack_of(transformer, name, positions, embedding) for name in TOWERS}
    model = _built(_config(transformer, held, stacks, tokens), held)
    attach(model, given_tokenizer(tokenizer))
    model.agreement = _checked(model, transformer)
    return model


def _rows(part: Matrix) -> Tensor:
    return part if isinstance(part, Tensor) else part.weight


# ---- what the module is -------------------------------------------------------------------------


def _config(
    transformer: nn.Transformer,
    held: dict[str, Tensor],
    stacks: dict[str, StackConfig],
    tokens: TokensConfig,
) -> Config:
    """The whole model; matrices that hold the same numbers are one."""
    source, target = held["source_embedding"], held["target_embedding"]
    unembedding = held.get("unembedding")
    tables = [len(rows) for name, rows in held.items() if name.endswith("_positions")]
    shared = _same(source, target)
    return Config(
        d_model=transformer.d_model,
        d_vocab=len(target),
        n_ctx=min(tables, default=ANY_LENGTH),
        encoder=stacks["encoder"],
        decoder=stacks["decoder"],
        tied=unembedding is not None and _same(unembedding, target),
        bias_u="unembedding_bias" in held,
        unembeds=unembedding is not None,
        shared=shared,
        d_vocab_source=None if shared else len(source),
        tokens=tokens,
        name=type(transformer).__name__,
    )


def _same(one: Tensor, other: Tensor) -> bool:
    return one is other or (one.shape == other.shape and torch.equal(one, other))


# ---- its weights --------------------------------------------------------------------------------


def _built(config: Config, held: dict[str, Tensor]) -> Transformer:
    """The model, with a copy of the weights, where they are.

    Raises:
        ModelLoadError: one belongs to no part, is of another shape, or not finite.
    """
    table = table_of(config)
    used = {key for weight in table.values() for key in weight.keys}
    extra = sorted(set(held) - used - {"unembedding"})
    if extra:
        raise ModelLoadError(f"{extra[0]} belongs to no part of a torch.nn.Transformer known here.")
    names = {key: key for key in held}
    place = held["target_embedding"].device
    return filled(config, table, names, Live(held), None, place)


# ---- does it compute the same? ------------------------------------------------------------------


def _checked(model: Transformer, transformer: nn.Transformer) -> float:
    """The largest difference of what both give out for a few tokens, of the largest number.

    Raises:
        ModelLoadError: it is so large that the two compute different things.
    """
    generator = torch.Generator().manual_seed(0)
    tried = min(TRIED, model.config.n_ctx)
    sizes = [model.config.vocabulary_of(stack.name) for stack in model.stacks]
    ids = [torch.randint(size, (1, tried), generator=generator) for size in sizes]
    with torch.no_grad():
        batches = model.check(*ids)
        contexts = model.contexts(batches)
        entries = zip(model.stacks, batches, contexts, strict=True)
        streams = [stack.embed(batch, context) for stack, batch, context in entries]
        found = model.stream(batches)
    trains = transformer.training
    transformer.eval()
    try:
        expected = _given_out(transformer, streams)
    finally:
        transformer.train(trains)
    return agreement(found, expected, "torch.nn.Transformer")


def _given_out(transformer: nn.Transformer, streams: list[Tensor]) -> Tensor:
    """What the module makes of two streams ``[batch pos d_model]``.

    With gradients on, which keeps it off its fast path: there it takes GELU's tanh form for erf.
    """
    source, target = streams
    mask = torch.ones(2 * target.shape[1:2], dtype=torch.bool, device=target.device).triu(1)
    with torch.enable_grad():
        if transformer.batch_first:
            return transformer(source, target, tgt_mask=mask).detach()
        swapped = transformer(source.transpose(0, 1), target.transpose(0, 1), tgt_mask=mask)
    return swapped.detach().transpose(0, 1)
