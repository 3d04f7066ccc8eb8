"""A Config reads back what it writes, and refuses by name what no model can be."""

import json
from dataclasses import FrozenInstanceError, fields, is_dataclass, replace

import pytest
from architectures import ARCHITECTURES, BARE, N_CTX, PLAIN, build
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import each

import interp.config
from interp import (
    NO_NORM,
    AttentionConfig,
    Config,
    EmbeddingConfig,
    ExpertsConfig,
    HeadConfig,
    LayerConfig,
    MLPConfig,
    NormConfig,
    PatchConfig,
    PositionsConfig,
    ScalingConfig,
    StackConfig,
    TokensConfig,
)
from interp.errors import InvalidConfig

STACK = StackConfig(2, PLAIN, MLPConfig(8))
WHOLE = Config(12, 13, N_CTX, decoder=STACK)
GRID = PositionsConfig("grid")
sizes = st.integers(1, 2**40)
positive = st.floats(min_value=1e-6, max_value=1e6)


@st.composite
def attentions(draw) -> AttentionConfig:
    kv_heads, shared = draw(st.integers(1, 64)), draw(st.integers(1, 8))
    return AttentionConfig(
        kv_heads * shared,
        2 * draw(st.integers(2, 64)),
        draw(st.sampled_from([None, kv_heads])),
        *(draw(st.booleans()) for _ in range(4)),
        draw(st.none() | positive),
    )


mlps = st.builds(
    MLPConfig,
    sizes,
    st.sampled_from(["relu", "gelu", "gelu_tanh", "gelu_bloom", "quick_gelu", "silu", "tanh"]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
) | st.builds(
    MLPConfig,
    sizes,
    st.just("silu"),
    st.just(value=True),
    st.just(value=False),
    st.just(value=False),
    st.builds(
        lambda n, more, *rest: ExpertsConfig(n + more, n, *rest), sizes, sizes, st.booleans()
    ),
)
norms = st.one_of(
    st.builds(
        NormConfig,
        st.just("layernorm"),
        st.sampled_from(["pre", "post"]),
        st.booleans(),
        st.booleans(),
        st.booleans(),
        positive,
    ),
    st.builds(
        NormConfig,
        st.just("rmsnorm"),
        st.sampled_from(["pre", "post"]),
        st.booleans(),
        st.just(value=True),
        st.just(value=False),
        positive,
        st.booleans(),
    ),
    st.builds(NormConfig, st.just("none"), st.just("pre"), st.booleans()),
)
bases = st.floats(min_value=1.5, max_value=1e7)
layouts = st.sampled_from(["half", "interleaved"])
scalings = st.builds(
    ScalingConfig,
    st.sampled_from(["linear", "dynamic", "llama3", "yarn"]),
    positive,
    sizes,
    beta_fast=positive,
    truncate=st.booleans(),
    amplitude=positive,
)
positions = st.builds(
    PositionsConfig,
    st.sampled_from(["none", "learned", "sinusoidal", "alibi", "buckets"]),
    bases,
    layouts,
) | st.builds(
    PositionsConfig, st.just("rotary"), bases, layouts, st.none() | st.just(4), st.none() | scalings
)
embeddings = st.builds(
    EmbeddingConfig, st.none() | positive, st.none(), st.integers(0, 4), st.none() | norms
) | st.builds(EmbeddingConfig, st.none(), sizes)
stacks = st.builds(
    StackConfig, st.integers(1, 9), attentions(), st.none() | mlps, norms, positions, embeddings
)


@st.composite
def differing(draw, stack: StackConfig) -> StackConfig:
    """The same stack with another MLP in its last layer, if it has one."""
    other = draw(mlps) if stack.mlp else None
    return replace(stack, exceptions=(LayerConfig((stack.n_layers - 1,), mlp=other),))


@st.composite
def configs(draw) -> Config:
    encoder, decoder = draw(
        st.tuples(stacks, stacks) | st.tuples(stacks, st.none()) | st.tuples(st.none(), stacks)
    )
    encoder, decoder = (
        stack if stack is None or draw(st.booleans()) else draw(differing(stack))
        for stack in (encoder, decoder)
    )
    d_vocab = draw(sizes)
    token = st.none() | st.integers(0, d_vocab - 1)
    bos, paired = draw(token), encoder is not None and decoder is not None
    tokens = TokensConfig(
        bos,
        draw(token),
        draw(st.booleans()) if bos is not None else False,
        draw(token) if paired else None,
        stop=() if bos is None else (bos, 0),
    )
    d_model, n_ctx = 2 * draw(sizes), draw(sizes)
    return Config(
        d_model,
        d_vocab,
        n_ctx,
        decoder,
        encoder,
        bias_u=draw(st.booleans()),
        logit_cap=draw(st.none() | positive),
        shared=draw(st.booleans()) and paired,
        tokens=tokens,
        name=draw(st.text()),
    )


@settings(max_examples=60)
@given(config=configs())
def test_what_is_written_is_read_back_equal(config):
    assert Config.from_json(config.to_json()) == config
    assert Config.from_dict(config.to_dict()) == config
    assert Config.from_json(json.dumps(json.loads(config.to_json()))) == config
    assert hash(Config.from_json(config.to_json())) == hash(config)


@settings(max_examples=20)
@given(config=configs(), other=configs())
def test_different_configurations_are_written_differently(config, other):
    assert (config.to_json() == other.to_json()) == (config == other)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_read_back_configuration_builds_the_same_model(name):
    config = ARCHITECTURES[name]
    again = build(Config.from_json(config.to_json()))
    expected = build(name)
    assert list(again.names) == list(expected.names)
    assert again.state_dict().keys() == expected.state_dict().keys()


def test_a_configuration_is_frozen():
    with pytest.raises(FrozenInstanceError):
        WHOLE.d_model = 3


def test_every_field_is_documented():
    for kind in vars(interp.config).values():
        if is_dataclass(kind):
            for field in fields(kind):
                assert field.name in kind.__doc__.split("Attributes:")[1], (kind, field.name)


def turning(**rest: object) -> StackConfig:
    return StackConfig(1, PLAIN, None, NormConfig(), PositionsConfig("rotary", **rest))


def longrope(short: tuple[float, ...], long: tuple[float, ...]) -> ScalingConfig:
    return ScalingConfig("longrope", 2.0, 4, short=short, long=long)


def differs(**rest: object) -> StackConfig:
    return replace(STACK, exceptions=(LayerConfig((1,), **rest),))


def bucketed() -> StackConfig:
    plain, buckets = PositionsConfig("none"), PositionsConfig("buckets")
    other = LayerConfig((1,), positions=buckets)
    return replace(STACK, positions=plain, exceptions=(other,))


def seeing(edge: int, size: int) -> StackConfig:
    return replace(STACK, embedding=EmbeddingConfig(patches=PatchConfig(edge, edge, size)))


def pooled(norm: NormConfig = NormConfig(), **rest: object) -> Config:  # noqa: B008 - frozen
    patches = EmbeddingConfig(patches=PatchConfig(4, 4, 2, mean_pooled=True))
    return Config(12, 7, 5, encoder=StackConfig(1, PLAIN, norm=norm, embedding=patches), **rest)


def unnormed() -> StackConfig:
    attention = replace(PLAIN, normed=False)
    return replace(STACK, attention=attention, norm=NormConfig(placement="post"))


def headed_after_no_norm() -> Config:
    stack = replace(STACK, norm=NormConfig(final=False))
    return replace(WHOLE, decoder=stack, head=HeadConfig(after_norm=True))


def normed() -> StackConfig:
    return replace(STACK, attention=replace(PLAIN, qk_norm=NormConfig()))


def clipped() -> StackConfig:
    return replace(STACK, attention=replace(PLAIN, clip=2.0))


def headed() -> StackConfig:
    return replace(STACK, norm=NormConfig(placement="post", final=False))


def sandwich() -> StackConfig:
    return replace(STACK, norm=NormConfig(placement="sandwich"))


@each(
    ("named", "make"),
    [
        ("n_heads=0", lambda: AttentionConfig(0, 4)),
        ("d_head=-1", lambda: AttentionConfig(2, -1)),
        ("n_kv_heads=0", lambda: AttentionConfig(2, 4, 0)),
        ("n_heads=3.*n_kv_heads=2", lambda: AttentionConfig(3, 4, 2)),
        ("n_heads=2.*n_kv_heads=4", lambda: AttentionConfig(2, 4, 4)),
        ("scale=0", lambda: AttentionConfig(2, 4, scale=0.0)),
        ("scale=-1", lambda: AttentionConfig(2, 4, scale=-1.0)),
        ("scale=nan", lambda: AttentionConfig(2, 4, scale=float("nan"))),
        ("d_mlp=0", lambda: MLPConfig(0)),
        ("(?s)activation.*gelu_tanh", lambda: read("mlp", activation="mish")),
        ("(?s)kind.*layernorm", lambda: read("norm", kind="batchnorm")),
        ("(?s)placement.*pre.*post", lambda: read("norm", placement="between")),
        ("bias=True.*RMSNorm", lambda: NormConfig("rmsnorm")),
        ('placement=.*kind="none"', lambda: NormConfig("none", "post")),
        ("eps=-1", lambda: NormConfig(eps=-1.0)),
        ("eps=nan", lambda: NormConfig(eps=float("nan"))),
        ("(?s)kind.*rotary", lambda: read("positions", kind="relative")),
        ("(?s)layout.*half", lambda: read("positions", layout="thirds")),
        ("base=1.0", lambda: PositionsConfig(base=1.0)),
        ("base=nan", lambda: PositionsConfig(base=float("nan"))),
        ("n_layers=0", lambda: StackConfig(0, PLAIN)),
        (
            "pairs.*d_rotary=3.*d_head=3",
            lambda: StackConfig(
                1, AttentionConfig(2, 3), None, NormConfig(), PositionsConfig("rotary")
            ),
        ),
        ("window=0", lambda: AttentionConfig(2, 4, window=0)),
        ("cap=0.0", lambda: AttentionConfig(2, 4, cap=0.0)),
        ("n_chosen=3.*n_experts=2", lambda: ExpertsConfig(2, 3)),
        ("gated=True", lambda: MLPConfig(4, experts=ExpertsConfig(2, 1))),
        ("d_shared=0", lambda: ExpertsConfig(2, 1, d_shared=0)),
        ("needs n_chosen=2, got 1", lambda: ExpertsConfig(2, 1, margin=0.1)),
        ("margin=-1.0", lambda: ExpertsConfig(2, 2, margin=-1.0)),
        ("each_head.*layernorm", lambda: AttentionConfig(2, 4, qk_norm_over="each_head")),
        ("bias_scale= and rounded=", lambda: PositionsConfig("rotary", rounded=True)),
        ("bias_scale=0", lambda: PositionsConfig("alibi", bias_scale=0.0)),
        ("residual_scale=0", lambda: replace(STACK, residual_scale=0.0)),
        ("residual_scale= needs.*pre", lambda: replace(sandwich(), residual_scale=0.5)),
        (
            "residual_scale= is for",
            lambda: replace(WHOLE, decoder=replace(STACK, residual_scale=0.5), encoder=STACK),
        ),
        ("unit_offset", lambda: NormConfig(unit_offset=True)),
        ("(?s)kind.*yarn", lambda: read("positions", kind="rotary", scaling={"kind": "far"})),
        ("factor=0", lambda: ScalingConfig("linear", 0.0)),
        ("short=.*longrope", lambda: ScalingConfig("longrope", 2.0)),
        ("low < high", lambda: ScalingConfig("llama3", 2.0, low=4.0, high=1.0)),
        ("d_rotary= and scaling=", lambda: PositionsConfig("learned", d_rotary=2)),
        ("first=2 is for sinusoidal", lambda: PositionsConfig("learned", first=2)),
        ("learned=True is for buckets", lambda: PositionsConfig("rotary", learned=True)),
        ("first=-1 is for sinusoidal", lambda: PositionsConfig("sinusoidal", first=-1)),
        ("n_buckets=6", lambda: PositionsConfig("buckets", n_buckets=6)),
        ("d_rotary=6.*d_head=4", lambda: turning(d_rotary=6)),
        ("one number per pair: 2", lambda: turning(scaling=longrope((1.0,), (1.0, 2.0)))),
        ("needs an MLP", lambda: StackConfig(1, PLAIN, None, NormConfig(placement="parallel"))),
        ("layer 2", lambda: replace(STACK, exceptions=(LayerConfig((2,)),))),
        ("n_heads or d_head", lambda: differs(attention=AttentionConfig(4, 3))),
        ("all layers share", lambda: differs(positions=PositionsConfig("none"))),
        ("divided into patches of 3×3", lambda: PatchConfig(8, 9, 3)),
        ("9 patches and 1 special", lambda: replace(WHOLE, decoder=None, encoder=seeing(9, 3))),
        ("grid positions.*set embedding patches=", lambda: replace(STACK, positions=GRID)),
        (
            "all layers share",
            lambda: replace(seeing(4, 2), exceptions=(LayerConfig((1,), positions=GRID),)),
        ),
        ("set n_special=", lambda: PatchConfig(4, 4, 2, n_special=0, mean_pooled=True)),
        ("final=True if there are logits", lambda: pooled(norm=NormConfig(final=False))),
        ("needs another kind", lambda: pooled(norm=NO_NORM, unembeds=False)),
        ("with head= or a pooler", lambda: pooled(pooler=True)),
        ("normed=False.*post", unnormed),
        ("qk_norm=.*decoder alone", lambda: replace(WHOLE, decoder=normed(), encoder=STACK)),
        ("placement=.*decoder alone", lambda: replace(WHOLE, decoder=sandwich(), encoder=STACK)),
        ("W_U would read 4", lambda: replace(WHOLE, tied=True, d_unembed=4)),
        ("head=.*final=False", lambda: replace(WHOLE, head=HeadConfig())),
        ("set head after_norm=True and norm final=True", headed_after_no_norm),
        ("unembeds=False", lambda: replace(WHOLE, unembeds=False, tied=True)),
        ("shared is for", lambda: replace(WHOLE, shared=True)),
        ("d_vocab_source is for", lambda: replace(WHOLE, d_vocab_source=5)),
        ("all layers share", bucketed),
        (
            "more than one pair",
            lambda: turning(d_rotary=2, scaling=ScalingConfig("dynamic", 2.0, 4)),
        ),
        ("scale= and width=", lambda: EmbeddingConfig(scale=2.0, width=3)),
        ("width= and sum_width=", lambda: EmbeddingConfig(width=2, sum_width=3, norm=NormConfig())),
        ("sum_width= needs a norm", lambda: EmbeddingConfig(sum_width=3)),
        (
            'placement="post"',
            lambda: replace(STACK, embedding=EmbeddingConfig(sum_width=3, norm=NormConfig())),
        ),
        ("clip=-1.0 must be", lambda: AttentionConfig(3, 4, clip=-1.0)),
        ("clip= are for a decoder alone", lambda: replace(WHOLE, decoder=clipped(), encoder=STACK)),
        (
            "d_unembed= and head width=",
            lambda: replace(WHOLE, decoder=headed(), d_unembed=4, head=HeadConfig(width=3)),
        ),
        (
            "W_U would read 3",
            lambda: replace(WHOLE, decoder=headed(), tied=True, head=HeadConfig(width=3)),
        ),
        ("d_unembed= and logit_scale=", lambda: replace(WHOLE, d_unembed=4, logit_scale=2.0)),
        ("unembeds=False", lambda: replace(WHOLE, unembeds=False, logit_scale=2.0)),
        ("patches= are for an encoder", lambda: replace(WHOLE, n_ctx=10, decoder=seeing(9, 3))),
        ("append_eos.*eos is None", lambda: TokensConfig(append_eos=True)),
        ("after_eos.*needs append_eos", lambda: TokensConfig(eos=1, after_eos=(2,))),
        ("prepend_bos.*bos is None", lambda: TokensConfig(prepend_bos=True)),
        ("d_model=0", lambda: replace(WHOLE, d_model=0)),
        ("d_vocab=0", lambda: replace(WHOLE, d_vocab=0)),
        ("n_ctx=-5", lambda: replace(WHOLE, n_ctx=-5)),
        ("decoder=.*encoder=", lambda: Config(12, 13, 8)),
        ("d_model=11 is odd", lambda: Config(11, 13, 8, encoder=sinusoidal())),
        ("tokens.bos=13", lambda: replace(WHOLE, tokens=TokensConfig(bos=13))),
        ("tokens.eos=-1", lambda: replace(WHOLE, tokens=TokensConfig(eos=-1))),
        (
            "tokens.after_eos=13",
            lambda: replace(WHOLE, tokens=TokensConfig(eos=1, append_eos=True, after_eos=(13,))),
        ),
        ("tokens.stop=13", lambda: replace(WHOLE, tokens=TokensConfig(stop=(1, 13)))),
        (
            "decoder_start.*encoder–decoder",
            lambda: replace(WHOLE, tokens=TokensConfig(decoder_start=1)),
        ),
    ],
)
def test_an_impossible_combination_is_refused_by_name(named, make):
    with pytest.raises(InvalidConfig, match=named):
        make()


def sinusoidal() -> StackConfig:
    return StackConfig(1, BARE, None, NormConfig(), PositionsConfig("sinusoidal"))


def read(part: str, **changed: object) -> Config:
    """A written configuration, one part of which is changed by hand, read back."""
    values = WHOLE.to_dict()
    values["decoder"][part] |= changed
    return Config.from_dict(values)


def test_a_configuration_written_before_there_were_stop_tokens_is_read():
    values = WHOLE.to_dict()
    del values["tokens"]["stop"]
    assert Config.from_dict(values) == WHOLE


@each(
    ("path", "value", "message"),
    [
        (("widht",), 3, "config has no field 'widht'.*d_model"),
        (("decoder", "n_layer"), 3, r"config\.decoder has no field 'n_layer'.*n_layers"),
        (("decoder", "norm", "x"), 3, r"config\.decoder\.norm has no field 'x'"),
        (("d_model",), "12", r"config\.d_model should be of type int, got '12'"),
        (("d_model",), 12.0, r"config\.d_model should be of type int"),
        (("d_model",), True, r"config\.d_model should be of type int"),
        (("d_model",), None, r"config\.d_model should be of type int"),
        (("tied",), 1, r"config\.tied should be of type bool"),
        (("name",), 3, r"config\.name should be of type str"),
        (("decoder",), 3, r"config\.decoder should be an object"),
        (("decoder",), [], r"config\.decoder should be an object"),
        (("decoder", "attention"), None, r"config\.decoder\.attention"),
        (("decoder", "attention", "scale"), "x", r"config\.decoder\.attention\.scale.*float"),
        (("decoder", "norm", "eps"), None, r"config\.decoder\.norm\.eps should be of type float"),
        (("decoder", "positions", "kind"), 3, "kind"),
        (("decoder", "positions", "kind"), [], "kind"),
    ],
)
def test_a_field_that_does_not_fit_is_named_with_its_path(path, value, message):
    values = WHOLE.to_dict()
    *parents, last = path
    inner = values
    for parent in parents:
        inner = inner[parent]
    inner[last] = value
    with pytest.raises(InvalidConfig, match=message):
        Config.from_dict(values)


@each(
    ("path", "message"),
    [
        (("d_vocab",), r"config.*d_vocab"),
        (("decoder", "n_layers"), r"config\.decoder.*n_layers"),
        (("decoder", "attention"), r"config\.decoder.*attention"),
        (("decoder", "attention", "d_head"), r"config\.decoder\.attention.*d_head"),
        (("decoder", "mlp", "d_mlp"), r"config\.decoder\.mlp.*d_mlp"),
    ],
)
def test_a_missing_field_is_named_with_its_path(path, message):
    values = WHOLE.to_dict()
    *parents, last = path
    inner = values
    for parent in parents:
        inner = inner[parent]
    del inner[last]
    with pytest.raises(InvalidConfig, match=message):
        Config.from_dict(values)


def test_what_has_a_default_may_be_missing():
    """The converse; and whole numbers are good numbers where a float is asked for."""
    attention = {"n_heads": 3, "d_head": 4, "scale": 2}
    values = {"d_model": 12, "d_vocab": 13, "n_ctx": 16}
    config = Config.from_dict(values | {"decoder": {"n_layers": 2, "attention": attention}})
    expected = StackConfig(2, AttentionConfig(3, 4, scale=2.0))
    assert config == Config(12, 13, 16, decoder=expected)


@each("text", ["", "{", "not json", "[1]", "3", '"d_model"', "null"])
def test_what_is_no_object_is_no_configuration(text):
    with pytest.raises(InvalidConfig, match="config"):
        Config.from_json(text)
