"""Small models of every variant: what the laws are tested on.

Each architecture is a :class:`Config`; :func:`build` makes it a float64 model whose every weight,
gain and bias is random and well away from zero, so that no term of a formula can hide.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from interp import (
    NO_NORM,
    PAD,
    AttentionConfig,
    AttentionPoolerConfig,
    Config,
    EmbeddingConfig,
    ExpertsConfig,
    HeadConfig,
    LayerConfig,
    MLPConfig,
    NormConfig,
    PatchConfig,
    Place,
    PositionsConfig,
    ScalingConfig,
    StackConfig,
    TokensConfig,
    Transformer,
)
from interp.config import ScalingKind

D_MODEL, D_VOCAB, N_CTX = 12, 13, 16

PLAIN = AttentionConfig(3, 4)
BARE = AttentionConfig(3, 4, bias_q=False, bias_k=False, bias_v=False, bias_o=False)
GROUPED = AttentionConfig(4, 4, 2, bias_q=False, bias_k=False, bias_v=False, bias_o=False)
RMS = NormConfig("rmsnorm", bias=False)
POST = NormConfig(placement="post", final=False)
ANYWHERE = PositionsConfig("none")
SINES = PositionsConfig("sinusoidal")
ALTERNATING_SINES = PositionsConfig("sinusoidal", base=100.0, layout="interleaved")
ROTARY = PositionsConfig("rotary", base=50.0)
ALTERNATING_ROTARY = PositionsConfig("rotary", base=50.0, layout="interleaved")
ALIBI = PositionsConfig("alibi")
PARTIAL = PositionsConfig("rotary", base=50.0, d_rotary=2)
BUCKETS = PositionsConfig("buckets", n_buckets=8, max_distance=9)
GEGLU = MLPConfig(10, "gelu_tanh", gated=True, bias_in=False, bias_out=False)
OFFSET = NormConfig("rmsnorm", "sandwich", bias=False, unit_offset=True)


def scaled(kind: ScalingKind, **rest: Any) -> PositionsConfig:
    """Rotary positions stretched beyond a context of 5 tokens, so that tests cross it."""
    values = {"factor": 3.0, "original_ctx": 5} | rest
    return PositionsConfig("rotary", base=50.0, scaling=ScalingConfig(kind, **values))


def _decoder(stack: StackConfig, **rest: Any) -> Config:
    return Config(D_MODEL, D_VOCAB, N_CTX, decoder=stack, **rest)


def _encoder(stack: StackConfig, **rest: Any) -> Config:
    return Config(D_MODEL, D_VOCAB, N_CTX, encoder=stack, **rest)


def _pair(encoder: StackConfig, decoder: StackConfig, **rest: Any) -> Config:
    tokens = TokensConfig(decoder_start=1)
    return Config(D_MODEL, D_VOCAB, N_CTX, decoder, encoder, tokens=tokens, **rest)


DECODERS = {
    "seed": _decoder(StackConfig(1, BARE, None, NO_NORM, ANYWHERE)),
    "biased-seed": _decoder(StackConfig(2, PLAIN, None, NO_NORM, ANYWHERE), bias_u=True),
    "gpt2": _decoder(StackConfig(2, PLAIN, MLPConfig(10, "gelu_tanh")), tied=True),
    "llama": _decoder(
        StackConfig(2, GROUPED, MLPConfig(10, "silu", gated=True, bias_in=False), RMS, ROTARY)
    ),
    "gptj": _decoder(
        StackConfig(
            2,
            AttentionConfig(4, 4, 1, bias_k=False, bias_o=False, scale=1.5),
            MLPConfig(10, "gelu", bias_out=False),
            NormConfig(bias=False),
            ALTERNATING_ROTARY,
        ),
        bias_u=True,
    ),
    "bloom": _decoder(
        StackConfig(2, AttentionConfig(4, 3), MLPConfig(10), positions=ALIBI), tied=True
    ),
    "alibi-odd": _decoder(
        StackConfig(
            2,
            AttentionConfig(3, 4, bias_q=False, bias_v=False),
            MLPConfig(10, "relu", gated=True, bias_out=False),
            NormConfig(gain=False),
            ALIBI,
        )
    ),
    "sinusoidal": _decoder(
        StackConfig(2, PLAIN, MLPConfig(10, "relu"), NormConfig(gain=False, bias=False), SINES)
    ),
    "rotary-only": _decoder(StackConfig(2, PLAIN, None, RMS, ROTARY)),
    "opt-post": _decoder(StackConfig(2, PLAIN, MLPConfig(10, "relu"), POST)),
    "post-final": _decoder(
        StackConfig(
            2,
            AttentionConfig(4, 3, 2, bias_q=False, scale=2.0),
            None,
            NormConfig("rmsnorm", "post", bias=False, gain=False),
            ALTERNATING_SINES,
        )
    ),
}
DECODERS |= {
    "neox": _decoder(
        StackConfig(2, PLAIN, MLPConfig(10), NormConfig(placement="parallel"), PARTIAL)
    ),
    "phi": _decoder(
        StackConfig(
            2,
            AttentionConfig(3, 4, qk_norm=NormConfig()),
            MLPConfig(10, "gelu_tanh"),
            NormConfig(placement="parallel_tied"),
            PARTIAL,
        ),
        bias_u=True,
    ),
    "gemma2": _decoder(
        StackConfig(
            2,
            replace(GROUPED, scale=1.7, cap=2.0),
            GEGLU,
            OFFSET,
            ROTARY,
            EmbeddingConfig(scale=12**0.5),
            (LayerConfig((0,), replace(GROUPED, scale=1.7, cap=2.0, window=3)),),
        ),
        tied=True,
        logit_cap=3.0,
    ),
    "gemma3": _decoder(
        StackConfig(
            2,
            replace(GROUPED, qk_norm=replace(OFFSET, placement="pre")),
            GEGLU,
            OFFSET,
            scaled("linear"),
            EmbeddingConfig(scale=12**0.5),
            (
                LayerConfig(
                    (1,),
                    replace(GROUPED, qk_norm=replace(OFFSET, placement="pre"), window=2),
                    positions=ALTERNATING_ROTARY,
                ),
            ),
        ),
        tied=True,
    ),
    "olmo2": _decoder(
        StackConfig(
            2,
            replace(GROUPED, qk_norm=RMS, qk_norm_over="heads"),
            MLPConfig(10, "silu", gated=True, bias_in=False, bias_out=False),
            NormConfig("rmsnorm", "write", bias=False),
            scaled("yarn"),
        )
    ),
    "mixtral": _decoder(
        StackConfig(
            2,
            replace(GROUPED, window=4),
            MLPConfig(
                6, "silu", gated=True, bias_in=False, bias_out=False, experts=ExpertsConfig(4, 2)
            ),
            RMS,
            scaled("dynamic"),
        )
    ),
    "qwen-moe": _decoder(
        StackConfig(
            2,
            replace(GROUPED, qk_norm=RMS),
            MLPConfig(10, "silu", gated=True, bias_in=False, bias_out=False),
            RMS,
            scaled("longrope", short=(1.0, 1.5), long=(2.0, 3.0), amplitude=1.2),
            exceptions=(
                LayerConfig(
                    (1,),
                    mlp=MLPConfig(
                        6,
                        "silu",
                        gated=True,
                        bias_in=False,
                        bias_out=False,
                        experts=ExpertsConfig(3, 2, renormalised=False),
                    ),
                ),
            ),
        )
    ),
    "bloom-stream": _decoder(
        StackConfig(
            2,
            AttentionConfig(4, 3),
            MLPConfig(10, "gelu_bloom"),
            NormConfig(placement="stream"),
            ALIBI,
            EmbeddingConfig(norm=NormConfig()),
        ),
        tied=True,
    ),
    "opt-350m": _decoder(
        StackConfig(2, PLAIN, MLPConfig(10, "relu"), POST, embedding=EmbeddingConfig(width=5)),
        d_unembed=5,
        tied=True,
    ),
    "gpt-oss": _decoder(
        StackConfig(
            2,
            AttentionConfig(4, 4, 2, sinks=True),
            MLPConfig(
                6,
                "quick_gelu",
                gated=True,
                clamp=0.9,
                experts=ExpertsConfig(4, 2, bias_router=True),
            ),
            RMS,
            scaled("yarn"),
            exceptions=(LayerConfig((0,), AttentionConfig(4, 4, 2, sinks=True, window=3)),),
        )
    ),
    "cohere": _decoder(
        StackConfig(
            2,
            replace(GROUPED, qk_norm=NormConfig(bias=False), qk_norm_over="each_head"),
            MLPConfig(10, "silu", gated=True, bias_in=False, bias_out=False),
            NormConfig(placement="parallel_tied", bias=False),
            ANYWHERE,
            exceptions=(
                LayerConfig((0,), replace(GROUPED, window=3), positions=ALTERNATING_ROTARY),
            ),
        ),
        tied=True,
        logit_scale=0.7,
    ),
    "granite-moe": _decoder(
        StackConfig(
            2,
            replace(GROUPED, scale=3.0, bias_o=True),
            MLPConfig(
                6,
                "silu",
                gated=True,
                bias_in=False,
                bias_out=False,
                experts=ExpertsConfig(4, 2, renormalised=False, d_shared=5),
            ),
            RMS,
            ROTARY,
            EmbeddingConfig(scale=3.0),
            residual_scale=0.4,
        ),
        logit_scale=0.5,
    ),
    "phimoe": _decoder(
        StackConfig(
            2,
            GROUPED,
            MLPConfig(
                6,
                "silu",
                gated=True,
                bias_in=False,
                bias_out=False,
                experts=ExpertsConfig(4, 2, margin=0.6),
            ),
            NormConfig(),
            ROTARY,
        ),
        bias_u=True,
    ),
    "falcon-rw": _decoder(
        StackConfig(
            2, PLAIN, MLPConfig(10), positions=replace(ALIBI, bias_scale=0.5, rounded=True)
        ),
        tied=True,
    ),
    "llama3": _decoder(
        StackConfig(2, PLAIN, MLPConfig(10, "quick_gelu"), NormConfig(), scaled("llama3"))
    ),
    "olmo": _decoder(
        StackConfig(
            2,
            replace(PLAIN, clip=0.4),
            MLPConfig(10, "silu", gated=True, bias_in=False, bias_out=False),
            NormConfig(gain=False, bias=False),
            ROTARY,
        )
    ),
    "olmo2-clipped": _decoder(
        StackConfig(
            2,
            replace(GROUPED, qk_norm=RMS, qk_norm_over="heads", clip=0.7),
            MLPConfig(10, "silu", gated=True, bias_in=False, bias_out=False),
            NormConfig("rmsnorm", "write", bias=False),
            scaled("yarn"),
        )
    ),
}
ENCODERS = {
    "set-encoder": _encoder(StackConfig(2, PLAIN, MLPConfig(10), NO_NORM, ANYWHERE)),
    "normed-set-encoder": _encoder(
        StackConfig(2, GROUPED, MLPConfig(10, "silu", gated=True), RMS, ANYWHERE)
    ),
    "bert": _encoder(StackConfig(2, PLAIN, MLPConfig(10), POST), tied=True, bias_u=True),
    "bert-types": _encoder(
        StackConfig(
            2,
            PLAIN,
            MLPConfig(10),
            POST,
            embedding=EmbeddingConfig(n_types=2, norm=NormConfig()),
        ),
        head=HeadConfig("gelu"),
        tied=True,
        bias_u=True,
    ),
    "electra": _encoder(
        StackConfig(
            2,
            PLAIN,
            MLPConfig(10),
            POST,
            embedding=EmbeddingConfig(n_types=2, norm=NormConfig(), sum_width=7),
        ),
        head=HeadConfig("gelu", width=7),
        tied=True,
        bias_u=True,
    ),
    "rotary-encoder": _encoder(StackConfig(2, BARE, MLPConfig(10), NormConfig(), ROTARY)),
    "alibi-encoder": _encoder(StackConfig(2, PLAIN, None, NormConfig(), ALIBI)),
    "sinusoidal-encoder": _encoder(StackConfig(1, PLAIN, None, POST, ALTERNATING_SINES)),
}
ENCODERS |= {
    "modernbert": _encoder(
        StackConfig(
            2,
            PLAIN,
            MLPConfig(10, gated=True, bias_in=False, bias_out=False),
            NormConfig(),
            PARTIAL,
            EmbeddingConfig(norm=NormConfig()),
            (
                LayerConfig((0,), replace(PLAIN, normed=False)),
                LayerConfig((1,), replace(PLAIN, window=2), positions=ROTARY),
            ),
        ),
        head=HeadConfig("gelu", bias=False, after_norm=True),
        tied=True,
        bias_u=True,
    ),
}
PAIRS = {
    "marian": _pair(
        StackConfig(2, PLAIN, MLPConfig(10, "silu"), POST, SINES),
        StackConfig(2, PLAIN, MLPConfig(10, "silu"), POST, SINES),
        tied=True,
        bias_u=True,
    ),
    "uneven-pair": _pair(
        StackConfig(2, GROUPED, MLPConfig(10, "relu", gated=True), RMS, ANYWHERE),
        StackConfig(1, GROUPED, MLPConfig(10, "relu"), RMS, ROTARY),
    ),
    "attention-pair": _pair(
        StackConfig(1, AttentionConfig(3, 4, 1, bias_k=False), None, NormConfig(), ALIBI),
        StackConfig(2, AttentionConfig(4, 3, 2, bias_q=False), None, NO_NORM, PositionsConfig()),
    ),
}
PAIRS |= {
    "t5": _pair(
        StackConfig(2, replace(BARE, scale=1.0), MLPConfig(10, "relu"), RMS, BUCKETS),
        StackConfig(2, replace(BARE, scale=1.0), GEGLU, RMS, BUCKETS),
        shared=True,
        tied=True,
        logit_scale=12**-0.5,
    ),
    "bart": _pair(
        StackConfig(1, PLAIN, MLPConfig(10), POST, embedding=EmbeddingConfig(norm=NormConfig())),
        StackConfig(
            2, PLAIN, MLPConfig(10), POST, embedding=EmbeddingConfig(scale=2.0, norm=NormConfig())
        ),
        d_vocab_source=17,
    ),
}
HEADLESS = _decoder(StackConfig(2, PLAIN, MLPConfig(10)), unembeds=False)
"""Gives out its last stream."""
IMAGES = Config(
    D_MODEL,
    D_VOCAB,
    8,
    encoder=StackConfig(
        2,
        PLAIN,
        MLPConfig(10),
        embedding=EmbeddingConfig(patches=PatchConfig(4, 6, 2, channels=2, n_special=2)),
    ),
    bias_u=True,
)
"""Reads images [2 4 6] as six patches behind two learned tokens."""
POOLED_IMAGES = Config(
    D_MODEL,
    1,
    6,
    encoder=StackConfig(
        2,
        PLAIN,
        MLPConfig(10),
        embedding=EmbeddingConfig(
            norm=NormConfig(), patches=PatchConfig(4, 6, 2, channels=2, n_special=0, bias=False)
        ),
    ),
    unembeds=False,
    attention_pooler=AttentionPoolerConfig(PLAIN, MLPConfig(10)),
)
"""Reads images [2 4 6] as six patches, whose sum with their positions is normed."""
GRIDS = {
    kind: Config(
        D_MODEL,
        D_VOCAB,
        8,
        encoder=StackConfig(
            2,
            replace(PLAIN, bias_k=False),
            MLPConfig(10),
            positions=PositionsConfig(kind, learned=kind == "grid"),
            embedding=EmbeddingConfig(
                patches=PatchConfig(4, 6, 2, channels=2, n_special=2, mean_pooled=True)
            ),
        ),
        bias_u=True,
    )
    for kind in ("grid", "layer_grid")
}
"""Read such images with biases between patches; their logits are those of the mean patch."""
UNMASKED = {
    "bidirectional": _decoder(
        StackConfig(2, replace(GROUPED, bidirectional=True), MLPConfig(10), RMS, ROTARY)
    ),
}
"""Decoders whose tokens see later ones."""
ARCHITECTURES = DECODERS | ENCODERS | PAIRS | UNMASKED
GENERATORS = DECODERS | PAIRS
CLIPPED = [
    name
    for name, config in ARCHITECTURES.items()
    if any(stack.attention.clip for stack in config.stacks.values())
]
"""Clip queries, keys and values, in the basis that each head has."""
MASKED = [name for name, config in ARCHITECTURES.items() if config.head is not None]
"""Have the head of a masked language model."""
# Every point, norms before and after, and two stacks: for laws that take many runs a place.
VARIED = ["gpt2", "llama", "post-final", "bert", "uneven-pair"]
COVERING = [
    *("t5", "electra", "gpt-oss", "bloom-stream", "cohere", "gemma2", "olmo2-clipped", "opt-350m"),
]
"""Most kinds of norm, position, MLP, order of steps and stack are in one of these; the slow tests
have all architectures."""
SINKS = ["gpt-oss"]
"""Those whose patterns have rows that sum to less than one."""
HALF, OTHER_HALF = COVERING[::2], COVERING[1::2]
"""Of them, for laws that take a run a place."""
NIGHTLY = [name for name in ARCHITECTURES if name not in COVERING][::2]
"""Of the others, the half that laws which take long, and follow from faster ones, have nightly."""


def covering(
    names: Iterable[Any], some: Iterable[Any] = COVERING, nightly: Iterable[Any] = ()
) -> list[Any]:
    """All ``names`` as parameters of a test; all but ``some`` are marked slow, or ``nightly``."""
    some, nightly = set(some), set(nightly)

    def later(name: Any) -> pytest.MarkDecorator:
        return pytest.mark.nightly if name in nightly else pytest.mark.slow

    return [name if name in some else pytest.param(name, marks=later(name)) for name in names]


def in_turn(
    names: Iterable[str],
    kinds: Sequence[Any],
    some: Iterable[str] = COVERING,
    kinds_a_name: int | None = None,
    nightly: Iterable[str] = (),
) -> list[Any]:
    """Every name with every kind, marked slow; but for one kind of each of ``some``, in turn.

    With ``kinds_a_name``, all but so many kinds of each name, in turn, are marked nightly; of names
    in ``nightly``, all kinds.
    """
    names, some, nightly = list(names), list(some), {*nightly}.difference(some)
    turns = {name: turn for turn, name in enumerate(dict.fromkeys([*some, *names]))}

    def marks(name: str, number: int) -> list[pytest.MarkDecorator]:
        later = (number - turns[name]) % len(kinds)
        if name in nightly or later >= (kinds_a_name or len(kinds)):
            return [pytest.mark.nightly]
        return [] if later == 0 and name in some else [pytest.mark.slow]

    return [
        pytest.param(name, kind, marks=marks(name, number))
        for name in names
        for number, kind in enumerate(kinds)
    ]


@cache
def build(config: Config | str, seed: int = 0, dtype: torch.dtype = torch.float64) -> Transformer:
    """A model that tests share, and so leave as it is; see :func:`build_new`."""
    return build_new(config, seed, dtype)


def build_new(
    config: Config | str, seed: int = 0, dtype: torch.dtype = torch.float64
) -> Transformer:
    """The model, with every parameter drawn anew: gains about ±1, biases and weights about 0."""
    config = ARCHITECTURES[config] if isinstance(config, str) else config
    generator = torch.Generator().manual_seed(seed)
    model = Transformer(config).double()
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            if name.endswith("gain"):
                noise = noise.sign() * (0.6 + 0.4 * noise.abs())
            elif parameter.ndim == 2 and "weight_e" not in name and "W_pos" not in name:
                noise = noise * 1.3 / parameter.shape[1] ** 0.5
            parameter.copy_(noise)
    return model.to(dtype)


def tokens_of(
    config: Config | str, batch: int = 2, pos: int = 5, seed: int = 0
) -> tuple[Tensor, ...]:
    """Random ids for each stack: ``(ids,)``, or ``(source, target)`` of different lengths."""
    config = ARCHITECTURES[config] if isinstance(config, str) else config
    generator = torch.Generator().manual_seed(seed)
    lengths = [pos + 1, pos] if len(config.stacks) > 1 else [pos]
    shapes = [(batch, length) for length in lengths]
    return tuple(torch.randint(config.d_vocab, s, generator=generator) for s in shapes)


def padded(rows: list[Tensor], side: str, extra: int = 0) -> Tensor:
    """The rows side by side, filled up with ``PAD`` on one side."""
    width = max(len(row) for row in rows) + extra
    fills = [torch.full((width - len(row),), PAD) for row in rows]
    pairs = zip(rows, fills, strict=True)
    return torch.stack([torch.cat([r, f] if side == "right" else [f, r]) for r, f in pairs])


def as_where(place: Place) -> tuple[str | int, ...]:
    """The place as edits name it."""
    return tuple(part for part in place.to_json() if part is not None)


def distance(actual: Tensor, expected: Tensor) -> float:
    """max |actual − expected| / max(1, max |expected|); equal infinities are no distance."""
    assert actual.shape == expected.shape, f"{tuple(actual.shape)} is not {tuple(expected.shape)}"
    assert actual.dtype == expected.dtype, f"{actual.dtype} is not {expected.dtype}"
    actual, expected = actual.detach(), expected.detach()
    if not actual.numel():
        return 0.0
    same = actual == expected
    finite = expected.masked_fill(~expected.isfinite(), 0.0).abs().max()
    return float((actual - expected).abs().masked_fill(same, 0.0).max() / finite.clamp(min=1.0))


def assert_close(actual: Tensor, expected: Tensor, bound: float = 1e-12, what: object = "") -> None:
    """Equal to within ``bound``, relative to the largest number expected (if that is over 1)."""
    off = distance(actual, expected)
    assert off <= bound, f"off by {off:.3g}, bound {bound:.3g} {what}"


def assert_identical(actual: Tensor, expected: Tensor) -> None:
    """Equal bit by bit (a zero's sign aside), NaN equal to NaN."""
    torch.testing.assert_close(actual, expected, rtol=0.0, atol=0.0, equal_nan=True)


def with_eos(config: Config, eos: int) -> Config:
    """The same configuration with an end token."""
    return replace(config, tokens=replace(config.tokens, eos=eos))
