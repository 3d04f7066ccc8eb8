"""Composition from small factors is that of the matrices multiplied out, with norms folded in."""

import pytest
import torch
from architectures import (
    ARCHITECTURES,
    CLIPPED,
    assert_close,
    build,
    build_new,
    covering,
    tokens_of,
)
from changed_basis import in_another_basis
from torch import Tensor
from torch.linalg import matrix_norm

from analyses.methods.circuits.composition import KINDS, head_pairs
from interp import AttentionConfig, Config, StackConfig
from interp.errors import InvalidInput

SINGLE = {"seed", "sinusoidal-encoder"}
"""Architectures of a single layer."""
LAYERNORM = ["gpt2", "gptj", "neox"]
EYE = torch.eye(12, dtype=torch.float64)
CENTRING = EYE - 1 / 12


def ratio(a: Tensor, b: Tensor) -> Tensor:
    return matrix_norm(a @ b) / (matrix_norm(a) * matrix_norm(b))


def multiplied_out(model, offset: int = 0, C: Tensor = EYE) -> dict[tuple[str, str, str], Tensor]:
    """The composition of all pairs, from C S C and C Y C of the model."""
    heads = [
        (layer, head, block.attn)
        for layer, block in enumerate(model.blocks)
        for head in range(block.attn.n_heads)
    ]
    ratios = {}
    for layer, head, attn in heads:
        S = C @ attn.S(head).form() @ C
        for later, reader, other in heads:
            Y, S_later = (C @ x.form() @ C for x in (other.Y(reader, offset), other.S(reader)))
            if later > layer:
                pair = (f"L{layer}H{head}", f"L{later}H{reader}")
                ratios["Q", *pair], ratios["K", *pair] = ratio(S, Y), ratio(S, Y.mT)
                ratios["V", *pair] = ratio(S, S_later)
    return ratios


def by_name(model, offset: int = 0) -> dict[tuple[str, str, str], Tensor]:
    pairs = head_pairs(model, offset)
    cells = (~pairs.composition.isnan()).nonzero().tolist()
    return {
        (KINDS[kind], pairs.heads[writer], pairs.heads[reader]): pairs.composition[
            kind, writer, reader
        ]
        for kind, writer, reader in cells
    }


def assert_equal_pairs(pairs, expected, bound=1e-12):
    assert pairs.keys() == expected.keys()
    assert pairs
    numbers = (torch.stack([values[name] for name in expected]) for values in (pairs, expected))
    assert_close(*numbers, bound)


@pytest.mark.parametrize("offset", [0, 3])
@pytest.mark.parametrize("name", ["gpt2", "llama", "gptj", "neox", "rotary-only"])
def test_it_is_that_of_matrices_multiplied_out(name, offset):
    """With norms folded in, and what a LayerNorm subtracts left out."""
    model = build(name)
    folded = model.processed(center_writing=False, center_unembed=False)
    centring = CENTRING if name in LAYERNORM else EYE
    assert_equal_pairs(by_name(model, offset), multiplied_out(folded, offset, centring))


def test_without_folding_it_is_another():
    folded, raw = by_name(build("gpt2")), multiplied_out(build("gpt2"))
    assert any(abs(folded[name] - raw[name]) > 0.01 for name in raw)


@pytest.mark.parametrize("name", ["bert", "opt-post"])
def test_norms_between_two_steps_are_folded_in(name):
    """S₁ L₁ L₂ Y₂ᵀ, with L = C diag(gain) of the two norms of a post-norm block."""
    first, second = build(name).blocks
    between = CENTRING @ first.ln1.gain.diag() @ CENTRING @ first.ln2.gain.diag()
    S, Y = first.attn.S(1).form() @ between, second.attn.Y(2).form()
    pairs = by_name(build(name))
    assert_close(pairs["K", "L0H1", "L1H2"], ratio(S, Y.mT))
    assert_close(pairs["Q", "L0H1", "L1H2"], ratio(S, Y))
    assert_close(pairs["V", "L0H1", "L1H2"], ratio(S, second.attn.S(2).form()))


def test_cross_attention_reads_the_encoder_by_keys_and_values():
    model = build("t5")
    pairs = by_name(model)
    encoder, cross = model.encoder.block(1), model.decoder.block(1).cross_attn
    gain = model.encoder.final_norm.gain.diag()
    S = encoder.ln1.gain.diag() @ encoder.attn.S(0).form()
    W_Q = model.decoder.block(1).ln2.gain.diag() @ cross.W_Q[2]
    assert_close(pairs["K", "encoder.L1H0", "cross.L1H2"], ratio(S, gain @ cross.W_K[2] @ W_Q.mT))
    kinds = {(kind, w.split(".")[0], r.split(".")[0]) for kind, w, r in pairs}
    assert ("Q", "decoder", "cross") in kinds
    assert ("Q", "encoder", "cross") not in kinds
    assert ("V", "encoder", "decoder") not in kinds
    assert ("K", "cross", "decoder") in kinds


@pytest.mark.parametrize(
    "name", covering([n for n in ARCHITECTURES if n not in (*SINGLE, *CLIPPED)])
)
def test_the_basis_of_heads_changes_nothing(name):
    model = build(name)
    other = in_another_basis(model)
    with torch.no_grad():
        tokens = tokens_of(model.config)
        assert_close(other(*tokens), model(*tokens), 1e-10)
    assert_equal_pairs(by_name(other), by_name(model), 1e-10)


def test_a_basis_of_values_alone_changes_composition():
    model = build_new("gpt2")
    with torch.no_grad():
        model.blocks[0].attn.W_V[0] *= torch.tensor([1.0, 2.0, 3.0, 4.0]).double()
    name = ("V", "L0H0", "L1H0")
    assert abs(by_name(model)[name] - by_name(build("gpt2"))[name]) > 0.001


def test_the_baseline_is_that_of_random_rotations():
    """The mean of c² is 1/D, its deviation the spread's, whatever the matrices are."""
    generator = torch.Generator().manual_seed(0)
    model = build_new(
        Config(12, 13, 8, StackConfig(2, AttentionConfig(2, 3), None))
    )  # of few dimensions, so that a few thousand rotations suffice
    model = model.processed()
    pairs = head_pairs(model)
    S = CENTRING @ model.blocks[0].attn.S(0).form()
    Y = model.blocks[1].attn.Y(1).form() @ CENTRING
    noise = torch.randn(20_000, 11, 11, generator=generator, dtype=torch.float64)
    q, r = torch.linalg.qr(noise)
    rotations = q * r.diagonal(0, -2, -1).sign()[:, None]
    basis = torch.linalg.svd(CENTRING)[2][:11]
    squares = ratio(S @ basis.mT @ rotations, basis @ Y).square()
    writer, reader = pairs.heads.index("L0H0"), pairs.heads.index("L1H1")
    baseline, spread = pairs.baseline[0, writer, reader], pairs.spread[0, writer, reader]
    assert_close(baseline.square(), torch.tensor(1 / 11, dtype=torch.float64))
    assert abs(squares.mean() / baseline.square() - 1) < 0.01
    assert abs(squares.std() / (2 * baseline * spread) - 1) < 0.02


def test_gaussian_heads_are_at_the_baseline():
    model = build_new(Config(256, 13, 8, StackConfig(2, AttentionConfig(8, 32), None)))
    pairs = head_pairs(model)
    there = ~pairs.composition.isnan()
    excess = (pairs.composition - pairs.baseline)[there]
    assert there.sum() == 3 * 64
    assert 0.06 < pairs.baseline[there].mean() < 0.065
    assert 0.8 < (excess / pairs.spread[there]).std() < 1.2
    assert (excess.abs() < 0.008).all()


def test_heads_with_weights_of_zero_have_none():
    model = build_new("gpt2")
    with torch.no_grad():
        model.blocks[0].attn.W_V[1] = 0
        model.blocks[1].attn.W_Q[2] = 0
    pairs = by_name(model)
    assert not any("L0H1" in name for name in pairs)
    assert {kind for kind, _, reader in pairs if reader == "L1H2"} == {"V"}


def test_a_single_layer_is_refused():
    with pytest.raises(InvalidInput, match="a single layer of attention"):
        head_pairs(build("seed"))
