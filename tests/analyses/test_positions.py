"""positions: exact where the scheme is known, and fitted where a table was learned."""

from dataclasses import replace
from math import log, sin, tau

import pytest
import torch
from architectures import (
    ALIBI,
    BUCKETS,
    GRIDS,
    PARTIAL,
    ROTARY,
    SINES,
    assert_close,
    build,
    build_new,
    scaled,
)
from declared import Call, Command, Declared, Made, Symmetric, Without, example, odd, small

import interp
from analyses import positions
from interp import PositionsConfig
from interp.errors import InvalidInput
from interp.model.attention.attention import Attention


def decoder(
    positions_config: PositionsConfig, n_ctx: int = 40, **attention: object
) -> interp.Transformer:
    """A model with these positions."""
    config = build("gpt2").config
    stack = replace(config.decoder, positions=positions_config)
    if attention:
        stack = replace(stack, attention=replace(stack.attention, **attention))
    return build_new(replace(config, decoder=stack, n_ctx=n_ctx))


def with_table(table: torch.Tensor) -> interp.Transformer:
    """A model whose learned positions are ``table``."""
    config = replace(build("gpt2").config, n_ctx=len(table), d_model=table.shape[1])
    model = build_new(config)
    with torch.no_grad():
        model.W_pos.copy_(table)
    return model


def recurrence(n: int, noise: float, *, seed: int = 0) -> torch.Tensor:
    """Rotations by three angles in six of 24 dimensions, and noise: p_{k+1} = p_k R + noise."""
    generator = torch.Generator().manual_seed(seed)
    angles = torch.arange(n)[:, None].double() * torch.tensor([0.3, 0.7, 1.3])
    basis = torch.linalg.qr(torch.randn(24, 6, generator=generator).double()).Q.mT
    noises = torch.randn(n, 24, generator=generator).double()
    return torch.cat([angles.sin(), angles.cos()], -1) @ basis + noise * noises


def only(model: interp.Transformer, **settings: object):
    (scheme,) = positions(model, **settings).schemes
    return scheme


# ---- sinusoidal ----------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("base", [2.0, 100.0, 10_000.0])
def test_a_shift_of_sinusoidal_positions_is_a_rotation(layout, base):
    """p_{k+n} = p_k R(n), R(n) R(n)ᵀ = 1, R(m) R(n) = R(m + n); eigenvalues e^{±i n ω}."""
    model = decoder(replace(SINES, layout=layout, base=base))
    entry, d = model.stacks[0].entry, model.d_model
    table = entry.table()
    for n in (-3, 1, 2, 17):
        R = entry.shift(n)
        before, after = (table[:-n], table[n:]) if n > 0 else (table[-n:], table[:n])
        assert_close(before @ R, after)
        assert_close(R @ R.mT, torch.eye(d).double())
        assert_close(R @ entry.shift(4), entry.shift(n + 4))
    scheme = only(model)
    assert scheme.errors.max() <= 1e-12
    assert_close(scheme.moduli, torch.ones(d).double())
    rates = base ** -(torch.arange(0, d, 2).double() / d)
    assert_close(scheme.angles.sort().values, torch.cat([rates, -rates]).sort().values)


def test_the_rotation_of_another_base_or_layout_is_no_shift():
    table = decoder(SINES).stacks[0].entry.table()
    for other in (replace(SINES, base=9_000.0), replace(SINES, layout="interleaved")):
        R = decoder(other).stacks[0].entry.shift(1)
        assert (table[:-1] @ R - table[1:]).abs().max() > 1e-3


def test_dates_has_shifts_that_are_linear():
    for scheme in positions(interp.load("dates")).schemes:
        assert scheme.kind == "sinusoidal"
        assert scheme.r2.min() >= 0.95
        assert scheme.control.max() <= 0.06
        assert scheme.errors.max() <= 1e-6  # the table is stored in float32


# ---- learned -------------------------------------------------------------------------------------


def test_the_map_of_a_planted_recurrence_is_found():
    """Its eigenvalues are those planted; noise of variance s² leaves R² below 1."""
    scheme = only(with_table(recurrence(120, 0.0)))
    assert scheme.r2.min() >= 1 - 1e-9
    large = scheme.moduli > 0.5
    assert_close(scheme.moduli[large], torch.ones(6).double(), 1e-6)
    planted = torch.tensor([0.3, 0.7, 1.3]).double()
    assert_close(scheme.angles[large].abs().sort().values, planted.repeat_interleave(2), 1e-6)
    noisy = only(with_table(recurrence(120, 0.1)))
    ceiling = 3 / (3 + 24 * 0.1**2)  # of the variance, what is no noise
    assert ceiling - 0.1 < noisy.r2.min()
    assert noisy.r2.max() < ceiling + 0.02
    assert noisy.control.max() <= 0.06


@pytest.mark.parametrize("n", [30, 120])
def test_no_map_is_found_in_a_random_table(n):
    """Also where positions are fewer than dimensions, and any map fits what it is fitted to."""
    table = torch.randn(n, 36, generator=torch.Generator().manual_seed(1)).double()
    scheme = only(with_table(table))
    assert scheme.r2.abs().max() <= 0.06
    assert scheme.control.abs().max() <= 0.06
    assert "no linear map" in positions(with_table(table)).summary()


def test_a_permuted_recurrence_has_no_map():
    table = recurrence(120, 0.05)
    order = torch.randperm(120, generator=torch.Generator().manual_seed(2))
    assert only(with_table(table)).r2.min() > 0.8
    assert only(with_table(table[order])).r2.max() < 0.06


def test_slow_positions_need_no_map():
    """A table of one slow wave changes little: the identity explains it as well."""
    k = torch.arange(100)[:, None].double() / 100
    table = torch.cat([k.sin(), k.cos(), k], -1) @ torch.randn(3, 12).double()
    assert only(with_table(table)).unchanged[0] > 0.99


@pytest.mark.parametrize("name", ["induction-by-hand", "rasp-reverse"])
def test_one_hot_positions_have_no_map(name):
    assert only(interp.load(name)).r2.max() <= 0.02


def test_frequency_and_similarity_of_planted_waves():
    n = 60
    wave = tau * 7 * torch.arange(n)[:, None].double() / n
    table = torch.cat([wave.sin(), wave.cos()], -1) @ torch.randn(2, 12).double()
    scheme = only(with_table(table))
    assert scheme.spectrum.argmax() == 6
    assert_close(scheme.spectrum[6], torch.tensor(1.0).double())
    assert scheme.spectrum_control.max() < 0.3
    assert_close(scheme.similarity.diagonal(), torch.ones(n).double())
    other = table[3] @ table[11] / table[3].norm() / table[11].norm()
    assert_close(scheme.similarity[3, 11], other)


# ---- attention -----------------------------------------------------------------------------------


def kernel(model: interp.Transformer, vector: torch.Tensor, i: int, j: int) -> float:
    """R(i)q · R(j)k of two equal vectors."""
    rotated = [model.blocks[0].attn.positions.rotated(vector, torch.tensor(pos)) for pos in (i, j)]
    return float(rotated[0] @ rotated[1])


@pytest.mark.parametrize(
    "config",
    [ROTARY, replace(ROTARY, layout="interleaved"), PARTIAL, scaled("yarn", amplitude=1.3)],
    ids=["half", "interleaved", "partial", "scaled"],
)
def test_the_rotary_kernel_is_the_score_of_equal_unit_vectors(config):
    model = decoder(config)
    attn: Attention = model.blocks[0].attn
    scheme = only(model)
    equal = torch.full((attn.d_head,), attn.d_head**-0.5).double()
    for n in (0, 1, 13):
        assert kernel(model, equal, 20, 20 - n) == pytest.approx(scheme.mean[n].item(), abs=1e-12)
    first, _ = attn.positions.pairs.split(torch.arange(config.d_rotary or attn.d_head))
    for pair, dimension in enumerate(first.tolist()):
        unit = torch.eye(attn.d_head).double()[dimension]
        value = kernel(model, unit, 5, 0)
        assert value == pytest.approx(scheme.kernel[pair, 5].item(), abs=1e-12)


@pytest.mark.parametrize("config", [ALIBI, BUCKETS], ids=["alibi", "buckets"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_bias_by_offset_is_that_of_the_scores(config, bidirectional):
    """Of queries that are zero, the scores are the bias, and the pattern is the attention."""
    model = decoder(config, n_ctx=12, bidirectional=bidirectional)
    attn: Attention = model.blocks[0].attn
    with torch.no_grad():
        attn.weight_qkv.zero_()
        attn.b_q.zero_()
    done = interp.run(model, torch.arange(12)[None], record=["scores", "pattern"])
    scores, pattern = done.cache["scores", 0][0], done.cache["pattern", 0][0]
    scheme = only(model)
    assert scheme.offsets == tuple(range(-11 if bidirectional else 0, 12))
    for column, n in enumerate(scheme.offsets):
        for query in range(max(n, 0), 12 + min(n, 0)):
            assert_close(scores[:, query, query - n], scheme.bias[:, column])
    if not bidirectional:
        assert_close(pattern[:, -1].flip(-1), scheme.attention)


def test_slopes_are_summarized_as_distances():
    summary = positions(build("bloom")).summary()
    assert "slopes 0.25 to 0.00391" in summary
    assert f"every {log(2) / 0.25:.3g} to {log(2) * 256:.3g} positions" in summary


def test_buckets_are_shown():
    result = positions(build("t5"))
    encoder, after = result.schemes
    assert len(set(encoder.buckets)) > len(set(after.buckets)) - 2
    assert after.buckets[:5] == (0, 1, 2, 3, 4)  # half of eight are of one offset each
    frame = result.to_frame().query("quantity == 'bucket' and where.str.startswith('decoder')")
    assert tuple(frame["value"]) == after.buckets


def test_layers_with_other_positions_stand_apart():
    schemes = positions(build("gemma3")).schemes
    assert [scheme.where for scheme in schemes] == ["decoder, layer 0", "decoder, layer 1"]
    (together,) = positions(build("llama")).schemes
    assert together.where == "decoder, layers 0, 1"


# ---- what it can't be asked --------------------------------------------------------------------


def test_a_model_without_positions_is_refused():
    with pytest.raises(InvalidInput, match="has no positions"):
        positions(build("seed"))


@pytest.mark.parametrize("longest", [1, 0, -3])
def test_a_length_that_is_none_is_refused(longest):
    with pytest.raises(InvalidInput, match="longest="):
        positions(build("gpt2"), longest=longest)


def test_few_positions_are_not_fitted_and_equal_ones_are_reported():
    scheme = only(interp.load("addition-mod-113"))
    assert scheme.offsets == ()
    assert "too few" in scheme.lines()[0]
    shortest = positions(build("gpt2"), longest=2)
    assert "2 positions, too few" in shortest.summary()
    assert len(shortest.schemes[0].moduli) == 0
    table = torch.ones(20, 12).double()
    table[0] = 2.0
    assert only(with_table(table)).unchanged[0].isnan()
    assert only(interp.load("rasp-histogram")).lines() == ["all positions are alike"]
    table = torch.ones(20, 12).double() * sin(1.0)
    assert only(with_table(table)).lines() == ["all positions are alike"]


def test_biases_between_patches_are_those_along_a_row_and_a_column():
    """Of queries that are zero, the scores are the bias."""
    model = build_new(GRIDS["layer_grid"])
    attn: Attention = model.blocks[1].attn
    with torch.no_grad():
        attn.weight_qkv.zero_()
        attn.b_q.zero_()
    images = torch.randn(1, 2, 4, 6, generator=torch.Generator().manual_seed(0)).double()
    scores = interp.run(model, images, record="scores").cache["scores", 1][0]
    *_, along_row, along_column = positions(model).schemes
    assert along_row.where == "encoder, layer 1, along a row"
    assert along_row.offsets == (-2, -1, 0, 1, 2)
    assert along_column.offsets == (-1, 0, 1)
    for column, n in enumerate(along_row.offsets):
        for query in range(max(n, 0), 3 + min(n, 0)):
            assert_close(scores[:, 2 + query, 2 + query - n], along_row.bias[:, column])
    for column, n in enumerate(along_column.offsets):
        query = 2 + 3 * max(n, 0)
        assert_close(scores[:, query, query - 3 * n], along_column.bias[:, column])


# ---- declared for the tests of all analyses -------------------------------------------------


DECLARED = Declared(
    analysis=positions,
    made=Made(lambda: positions(example.model(), longest=12)),
    call=Call(
        (small.MODEL,),
        {},
        {"longest": (*odd.COUNT, 1), "seed": odd.SEED},
        runs=False,
        overflows=False,
    ),
    command=Command("positions", (), "positions", "the shift by 1 is no linear map", "longest=256"),
    of_each_prompt=Without("it reads weights alone"),
    of_each_pair=Without("it reads weights alone"),
    symmetric=Symmetric({"": lambda case: positions(case.model)}),
)
