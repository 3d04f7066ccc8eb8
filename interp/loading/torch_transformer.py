"""``torch.nn.Transformer``: the form of "Attention Is All You Need" (Vaswani et al. 2017).

PyTorch's module reads and gives out streams; what stands around it (embeddings, positions, the
unembedding) is its owner's, and is named here:

    logits = transformer(scale · W_E[source] + W_pos, scale · W_E[target] + W_pos) · W_U + b_U

with the target masked causally. Unlike the paper's, its towers end in a norm each.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as everyone writes it

from interp.config import (
    Activation,
    AttentionConfig,
    Config,
    EmbeddingConfig,
    MLPConfig,
    NormConfig,
    PositionsConfig,
    StackConfig,
    TokensConfig,
)
from interp.errors import ModelLoadError
from interp.loading.assemble import filled
from interp.loading.live import FAR, FAR_IN_HALF, TRIED
from interp.loading.source import Live
from interp.loading.special_tokens import attach, given_tokenizer
from interp.loading.weight import Table, at, each_layer, linear, norm, under
from interp.transformer import Transformer

Matrix = nn.Embedding | nn.Linear | Tensor
"""Rows: a tensor, or a module's ``weight``."""
WAVES = PositionsConfig(kind="sinusoidal", layout="interleaved")
"""Sines at the even dimensions, cosines at the odd ones (Vaswani et al. 2017, §3.5)."""
UNNAMED = TokensConfig()
"""No special tokens."""
ANY_LENGTH = 2**20
"""Waves never end."""
SIDES = {"encoder": "source", "decoder": "target"}
TOWERS: dict[str, type[nn.Module]] = {
    "encoder": nn.TransformerEncoder,
    "decoder": nn.TransformerDecoder,
}
LAYERS: dict[str, type[nn.Module]] = {
    "encoder": nn.TransformerEncoderLayer,
    "decoder": nn.TransformerDecoderLayer,
}
NORMS = {"encoder": ("norm1", "norm2"), "decoder": ("norm1", "norm2", "norm3")}
FUNCTIONS: dict[object, Activation] = {
    F.relu: "relu",
    torch.relu: "relu",
    F.gelu: "gelu",
    F.silu: "silu",
    torch.tanh: "tanh",
}
MODULES: dict[type[nn.Module], Activation] = {
    nn.ReLU: "relu",
    nn.GELU: "gelu",
    nn.SiLU: "silu",
    nn.Tanh: "tanh",
}

_One = TypeVar("_One")


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
    stacks = {name: _stack(transformer, name, positions, embedding) for name in TOWERS}
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


def _stack(
    transformer: nn.Transformer, name: str, positions: PositionsConfig, embedding: EmbeddingConfig
) -> StackConfig:
    """One tower, whose layers must be alike."""
    tower: Any = transformer.get_submodule(name)
    _own(tower, TOWERS[name])
    layers: list[Any] = [_own(layer, LAYERS[name]) for layer in tower.layers]
    norms = [getattr(layer, part) for layer in layers for part in NORMS[name]]
    norms += [] if tower.norm is None else [tower.norm]
    first = _alike("norm_first", (bool(layer.norm_first) for layer in layers))
    return StackConfig(
        n_layers=len(layers),
        attention=_alike("attention", (_attention(layer.self_attn) for layer in layers)),
        mlp=_alike("MLP", (_mlp(layer) for layer in layers)),
        norm=replace(
            _alike("norms", (_norm(_own(part, nn.LayerNorm)) for part in norms)),
            placement="pre" if first else "post",
            final=tower.norm is not None,
        ),
        positions=positions,
        embedding=embedding,
    )


def _own(part: nn.Module, kind: type[nn.Module]) -> nn.Module:
    """A part that is PyTorch's own: of any other nobody knows what it computes.

    Raises:
        ModelLoadError: it is another.
    """
    if type(part) is not kind:
        raise ModelLoadError(
            f"This torch.nn.Transformer has a {type(part).__name__} where {kind.__name__} is known "
            "here."
        )
    return part


def _alike(what: str, values: Iterable[_One]) -> _One:
    """The one value that all layers have.

    Raises:
        ModelLoadError: they differ.
    """
    first, *others = values
    other = next((value for value in others if value != first), None)
    if other is not None:
        raise ModelLoadError(f"Layers differ in {what}: {first} and {other}.")
    return first


def _attention(part: Any) -> AttentionConfig:  # noqa: ANN401 - its biases may be missing
    """Several heads.

    Raises:
        ModelLoadError: it attends to keys that are no token's.
    """
    if part.add_zero_attn or part.bias_k is not None:
        raise ModelLoadError("add_zero_attn and add_bias_kv of attention are not known here.")
    biased = part.in_proj_bias is not None
    return AttentionConfig(
        part.num_heads,
        part.head_dim,
        bias_q=biased,
        bias_k=biased,
        bias_v=biased,
        bias_o=part.out_proj.bias is not None,
    )


def _mlp(layer: Any) -> MLPConfig:  # noqa: ANN401 - a layer of either tower
    return MLPConfig(
        layer.linear1.out_features,
        _activation(layer.activation),
        bias_in=layer.linear1.bias is not None,
        bias_out=layer.linear2.bias is not None,
    )


def _norm(part: Any) -> NormConfig:  # noqa: ANN401 - a LayerNorm, whose weights may be missing
    return NormConfig(gain=part.weight is not None, bias=part.bias is not None, eps=part.eps)


def _activation(function: object) -> Activation:
    """Our name of an activation, a function or a module.

    Raises:
        ModelLoadError: it is not known.
    """
    if isinstance(function, nn.GELU) and function.approximate == "tanh":
        return "gelu_tanh"
    if isinstance(function, nn.Module) and type(function) in MODULES:
        return MODULES[type(function)]
    if not isinstance(function, nn.Module) and function in FUNCTIONS:
        return FUNCTIONS[function]
    known = ", ".join(sorted(set(FUNCTIONS.values())))
    raise ModelLoadError(f"The activation {function!r} is not known here; known are {known}.")


def _same(one: Tensor, other: Tensor) -> bool:
    return one is other or (one.shape == other.shape and torch.equal(one, other))


# ---- its weights --------------------------------------------------------------------------------


def _built(config: Config, held: dict[str, Tensor]) -> Transformer:
    """The model, with a copy of the weights, where they are.

    Raises:
        ModelLoadError: one belongs to no part, is of another shape, or not finite.
    """
    table = _table(config)
    used = {key for weight in table.values() for key in weight.keys}
    extra = sorted(set(held) - used - {"unembedding"})
    if extra:
        raise ModelLoadError(f"{extra[0]} belongs to no part of a torch.nn.Transformer known here.")
    names = {key: key for key in held}
    place = held["target_embedding"].device
    return filled(config, table, names, Live(held), None, place)


def _table(config: Config) -> Table:
    """Queries, keys and values are packed, in this order."""
    lines: Table = {} if config.tied else {"unembed.weight": at("unembedding")}
    lines |= {"unembed.b_U": at("unembedding_bias")} if config.bias_u else {}
    for name, stack in config.stacks.items():
        tower = {
            "weight_e": at(f"{SIDES[name]}_embedding"),
            **each_layer(stack.n_layers, _block(stack, name), "blocks", f"{name}.layers.{{}}."),
            **_norm_lines(stack.norm, "final_norm", f"{name}.norm"),
        }
        if stack.positions.kind == "learned":
            tower["entry.W_pos"] = at(f"{SIDES[name]}_positions")[: config.n_ctx]
        lines |= under(f"{name}.", tower)
    if not config.unembeds:
        del lines["unembed.weight"]
    return lines


def _block(stack: StackConfig, name: str) -> Table:
    if stack.mlp is None:
        raise TypeError("_block: the layers of a torch.nn.Transformer have MLPs.")
    lines = _attention_lines(stack.attention, "attn", "self_attn")
    if name == "decoder":
        lines |= _attention_lines(stack.attention, "cross_attn", "multihead_attn")
    for own, source in enumerate(NORMS[name], start=1):
        lines |= _norm_lines(stack.norm, f"ln{own}", source)
    return lines | {
        **linear("mlp.weight_in", "mlp.b_in", "linear1", biased=stack.mlp.bias_in),
        **linear("mlp.weight_out", "mlp.b_out", "linear2", biased=stack.mlp.bias_out),
    }


def _attention_lines(attention: AttentionConfig, name: str, source: str) -> Table:
    width = attention.n_heads * attention.d_head
    lines = {
        f"{name}.weight_qkv": at(f"{source}.in_proj_weight"),
        **linear(f"{name}.weight_o", f"{name}.b_O", f"{source}.out_proj", biased=attention.bias_o),
    }
    for n, part in enumerate("qkv" if attention.bias_q else ""):
        lines[f"{name}.b_{part}"] = at(f"{source}.in_proj_bias")[n * width : (n + 1) * width]
    return lines


def _norm_lines(config: NormConfig, name: str, source: str) -> Table:
    if not config.gain or (name == "final_norm" and not config.final):
        return {}
    return norm(name, source, bias=config.bias)


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
    error = ((found - expected).abs().max() / expected.abs().max().clamp(min=1.0)).item()
    bound = FAR.get(model.dtype, FAR_IN_HALF)
    if not error <= bound:
        raise ModelLoadError(
            f"What this model gives out differs from torch.nn.Transformer's by {error:.2g} of the "
            f"largest number ({bound:.2g} is allowed): it has a part that is not known here."
        )
    return error


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
