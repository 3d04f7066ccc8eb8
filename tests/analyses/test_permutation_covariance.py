"""The exact symmetries of every architecture, and that a broken one is found."""

import sys
from dataclasses import replace

import pytest
import torch
from architectures import (
    ARCHITECTURES,
    GRIDS,
    HEADLESS,
    IMAGES,
    POOLED_IMAGES,
    assert_close,
    build,
    build_new,
    covering,
    distance,
)
from declared import Call, Command, Declared, Made, Symmetric, Without, example, odd, small

import interp
from analyses import permutation_covariance
from analyses.permutation_covariance.bases import change_basis, free_bases, score_bases
from analyses.permutation_covariance.check import Case
from analyses.permutation_covariance.part_checks import check_heads, check_neurons
from analyses.permutation_covariance.parts import head_orders, reorder_heads
from analyses.permutation_covariance.token_checks import check_tokens
from interp import AttentionConfig
from interp.errors import InvalidInput
from interp.model.attention.attention import Attention
from interp.model.mlp import MLP

SYMMETRIES = {"tokens", "heads", "neurons", "batch", "vocabulary", "scores", "values"}
IMAGE_MODELS = {"images": IMAGES, "patches": POOLED_IMAGES, **GRIDS}
MODELS = {**ARCHITECTURES, "headless": HEADLESS, **IMAGE_MODELS}
FAST = ["gpt2", "llama", "bloom", "phi", "mixtral", "t5", "images"]


@pytest.mark.parametrize("name", covering(MODELS, FAST))
def test_every_symmetry_holds_and_every_change_breaks_it(name):
    """Errors within 1e-12; and of each change, an error over 0.01 at the output or at a head."""
    symmetries = permutation_covariance(build(MODELS[name]))
    frame = symmetries.to_frame()
    assert symmetries.holds
    assert set(frame["verdict"]) <= {"holds", "breaks", "no effect"}
    left_out = {note.partition(":")[0] for note in symmetries.notes if "not checked" in note}
    assert set(frame["symmetry"]) | left_out == SYMMETRIES
    broken = frame[frame["change"] != "none"].groupby(["symmetry", "change"])["error"].max()
    assert broken.min() > 0.01


def test_rows_name_every_head_layer_and_the_model():
    frame = permutation_covariance(build("gpt2")).to_frame()
    tokens = frame[(frame["symmetry"] == "tokens") & (frame["change"] == "none")]
    heads = [f"L{layer}H{head}" for layer in range(2) for head in range(3)]
    both = sorted([*heads, *heads, "L0", "L1", "model"])
    assert sorted(tokens["name"]) == both
    assert set(tokens["identity"]) == {"h(Px) = P h(x)", "A(Px) = P A(x) Pᵀ"}
    assert (tokens["bound"] == 1e-12).all()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gemma3", "scores: not checked, since this model normalizes queries and keys"),
        ("olmo", "scores: not checked, since this model clips queries and keys"),
        ("olmo", "values: not checked, since this model clips values"),
        ("alibi-odd", "heads: checked without positions"),
        ("rotary-only", "neurons: not checked, since this model has no MLP"),
        ("images", "vocabulary: not checked, since this model reads images"),
    ],
)
def test_what_does_not_apply_is_noted(name, expected):
    symmetries = permutation_covariance(build(MODELS[name]))
    assert any(note.startswith(expected) for note in symmetries.notes)
    assert expected in symmetries.summary()


def test_a_single_token_or_head_has_no_order():
    config = replace(ARCHITECTURES["gpt2"], n_ctx=1)
    config = replace(config, decoder=replace(config.decoder, attention=AttentionConfig(1, 4)))
    symmetries = permutation_covariance(build(config))
    assert not {"tokens", "heads"} & set(symmetries.to_frame()["symmetry"])
    assert [note.partition(":")[0] for note in symmetries.notes] == ["tokens", "heads"]


@pytest.mark.parametrize("name", ["rasp-histogram", "rasp-fraction", "rasp-duplicates"])
def test_a_program_that_counts_has_no_use_for_positions(name):
    """Without the mask it counts the same whatever the positions are."""
    symmetries = permutation_covariance(interp.load(name))
    assert symmetries.holds
    assert "no effect: tokens with positions" in symmetries.summary().splitlines()[0]
    others = permutation_covariance(interp.load("rasp-reverse"))
    assert "each change breaks its identity" in others.summary().splitlines()[0]


# ---- a check that can fail -------------------------------------------------------------------


def broken_by(check):
    """The parts of a model at which a check fails."""
    model = build_new("gpt2")
    batches = model.check(torch.arange(12).view(2, 6))
    with torch.no_grad():
        rows = list(check(Case(model, batches, torch.Generator().manual_seed(0))))
    return {row.part for row in rows if row.verdict == "BROKEN"}


def test_a_mask_that_stays_is_found(monkeypatch):
    """A view that keeps the mask in spite of what it was asked for."""
    assert broken_by(check_tokens) == set()
    view = lambda model, **_: model.without(positions=True)  # noqa: E731
    monkeypatch.setattr(
        sys.modules["analyses.permutation_covariance.token_checks"], "stripped", view
    )
    assert "model" in broken_by(check_tokens)


@pytest.mark.parametrize(
    ("check", "part"), [(check_heads, Attention), (check_neurons, MLP)], ids=["heads", "neurons"]
)
def test_a_part_that_knows_its_own_index_is_found(monkeypatch, check, part):
    """What a head, or a neuron, writes is scaled by its index."""
    output = part.output

    def spoilt(self, hidden, tap):
        index = torch.arange(hidden.shape[2]).view(-1, *[1] * (hidden.ndim - 3))
        return output(self, hidden * index, tap)

    assert broken_by(check) == set()
    monkeypatch.setattr(part, "output", spoilt)
    assert "model" in broken_by(check)


# ---- bases -----------------------------------------------------------------------------------


def changed(name, bases):
    """The pattern of an attention, and that under another basis of its queries and keys."""
    attn = build_new(name).blocks[0].attn
    x = torch.randn(6, 12, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    with torch.no_grad():
        before = attn.A(x)
        G = bases(attn, torch.Generator().manual_seed(2))
        change_basis(attn, query=G, key=torch.linalg.inv(G).mT)
        return attn.A(x), before


@pytest.mark.parametrize("name", ["gpt2", "rotary-only", "gptj", "neox", "llama", "gemma2"])
def test_bases_of_scores_commute_with_the_positions(name):
    assert_close(*changed(name, score_bases))


@pytest.mark.parametrize("name", ["rotary-only", "gptj", "neox"])
def test_any_other_basis_changes_what_rotary_positions_do(name):
    assert distance(*changed(name, free_bases)) > 1e-3


def test_any_basis_will_do_without_rotary_positions():
    assert_close(*changed("bloom", free_bases))


def test_bases_of_scores_are_as_many_as_commute():
    """Rotated pairs have 2 free numbers each, dimensions that are not rotated all of theirs."""
    (whole, *_), (part, *_) = (
        score_bases(build(name).blocks[0].attn, torch.Generator().manual_seed(0))
        for name in ("rotary-only", "neox")
    )
    assert int((whole != 0).sum()) == 8
    assert int((part != 0).sum()) == 4 + 4


def test_normalized_queries_have_no_other_basis():
    attn = build("phi").blocks[0].attn
    with pytest.raises(InvalidInput, match="normalizes its queries and keys"):
        score_bases(attn, torch.Generator())


def test_clipped_values_have_no_other_basis():
    attn = build("olmo").blocks[0].attn
    with pytest.raises(InvalidInput, match="clips queries, keys and values in the basis"):
        free_bases(attn, torch.Generator())
    with pytest.raises(InvalidInput, match="clips its queries and keys"):
        score_bases(attn, torch.Generator())


def test_heads_with_biases_of_their_own_have_an_order():
    attn = build_new("bloom").blocks[0].attn
    orders = head_orders(attn, torch.Generator().manual_seed(0))
    with pytest.raises(InvalidInput, match="belong to heads by their index"):
        reorder_heads(attn, *orders)


# ---- declared for the tests of all analyses -------------------------------------------------


DECLARED = Declared(
    analysis=permutation_covariance,
    made=Made(lambda: permutation_covariance(example.model())),
    call=Call((small.MODEL,), {}, {"seed": odd.SEED}, overflows=False),
    command=Command("covariance", (), "covariance", "6 symmetries", ""),
    of_each_prompt=Without("it draws its own prompts"),
    of_each_pair=Without("it draws its own prompts"),
    symmetric=Symmetric(
        {"": lambda case: permutation_covariance(case.model)}, not_compared=("error",)
    ),
)
