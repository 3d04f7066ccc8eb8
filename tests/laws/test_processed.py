"""Processed weights compute the same function: each step is exact, or refused by name."""

import shutil
from copy import deepcopy
from dataclasses import replace
from functools import cache

import pytest
import torch
from architectures import (
    ARCHITECTURES,
    HEADLESS,
    assert_close,
    build,
    build_new,
    distance,
    tokens_of,
)

from analyses import verify
from interp import InterpError, load, packed, run
from interp.errors import InvalidInput
from interp.loading import MODEL_FOLDER
from interp.model.attention.attention import Attention
from interp.model.hashing import weight_hash
from interp.model.norm import LayerNorm, ScaledNorm
from interp.model.norm_kinds import OffsetRMSNorm

BOUND = 1e-9
STEPS = ("fold_norms", "center_writing", "center_unembed", "fold_value_biases")
LAYERNORMS = [
    "gpt2",
    "gptj",
    "bloom",
    "alibi-odd",
    "neox",
    "phi",
    "llama3",
    "cohere",
    "rotary-encoder",
]
REFUSED = {
    "fold_norms": [
        *("opt-post", "post-final", "olmo2", "bloom-stream", "bert", "electra", "marian", "bart"),
    ],
    "center_writing": ["seed", "llama", "opt-post", "gemma2", "sinusoidal", "bert", "t5"],
    "center_unembed": ["gemma2"],
    "fold_value_biases": ["olmo"],
}


def only(*steps: str) -> dict[str, bool]:
    return {step: step in steps for step in STEPS}


@cache
def exact_for(step: str) -> list[str]:
    """The architectures for which a step is possible."""
    names = []
    for name in ARCHITECTURES:
        try:
            build(name).processed(**only(step))
        except InterpError:
            continue
        names.append(name)
    return names


def predicted(model, name: str, *, up_to_a_constant: bool) -> torch.Tensor:
    with torch.no_grad():
        logits = model(*tokens_of(name))
    return logits.log_softmax(-1) if up_to_a_constant else logits


@pytest.mark.parametrize("step", STEPS)
def test_a_step_leaves_the_function_as_it_is_or_is_refused_by_name(step):
    names = exact_for(step)
    assert len(names) >= len(LAYERNORMS)
    for name in names:
        model, centred = build(name), step == "center_unembed"
        other = model.processed(**only(step))
        computed, expected = (predicted(m, name, up_to_a_constant=centred) for m in (other, model))
        assert_close(computed, expected, BOUND, name)
    for name in set(ARCHITECTURES) - set(names):
        with pytest.raises(InvalidInput, match=f"^{step}=True"):
            build(name).processed(**only(step))


@pytest.mark.parametrize(
    ("step", "name"), [(step, name) for step, names in REFUSED.items() for name in names]
)
def test_what_would_change_the_function_is_refused(step, name):
    with pytest.raises(InvalidInput, match=f"{step}=True"):
        build(name).processed(**only(step))


@pytest.mark.parametrize("name", LAYERNORMS)
def test_all_steps_together_leave_the_probabilities_as_they_are(name):
    model = build(name)
    other = model.processed()
    computed, expected = (predicted(m, name, up_to_a_constant=True) for m in (other, model))
    assert_close(computed, expected, BOUND)
    assert distance(predicted(other, name, up_to_a_constant=False), model(*tokens_of(name))) > 1e-3


def test_norms_that_are_folded_neither_multiply_nor_add():
    for name in exact_for("fold_norms"):
        model = build(name)
        other = model.processed(**only("fold_norms"))
        for stack in other.stacks:
            for layer in range(len(stack.blocks)):
                for step in stack.block(layer).steps:
                    norm = step.norm.norm
                    if isinstance(norm, ScaledNorm):
                        assert norm.multiplier is None or bool((norm.multiplier == 1).all()), name
                        assert norm.bias is None or bool((norm.bias == 0).all()), name
        gains = [n.multiplier for n in model.modules() if isinstance(n, LayerNorm | OffsetRMSNorm)]
        assert all(gain is None or bool((gain != 1).any()) for gain in gains), name


@pytest.mark.parametrize("name", LAYERNORMS)
def test_all_that_is_written_has_mean_zero(name):
    """So do the streams at every layer; without centring, neither does."""
    model, tokens = build(name), tokens_of(name)
    other = model.processed(**only("center_writing"))
    before, after = (run(m, *tokens, record="all").cache for m in (model, other))
    for place in after:
        if place.point.label in ("resid_pre", "attn_out", "mlp_out", "resid_post"):
            assert float(after[place].mean(-1).abs().max()) < 1e-12
            assert float(before[place].mean(-1).abs().max()) > 1e-3


def test_logits_have_mean_zero():
    for name in exact_for("center_unembed"):
        model = build(name)
        other = model.processed(**only("center_unembed"))
        centred, before = (predicted(m, name, up_to_a_constant=False) for m in (other, model))
        assert float(centred.mean(-1).abs().max()) < 1e-12, name
        assert float(before.mean(-1).abs().max()) > 1e-3, name


@pytest.mark.parametrize("name", ["gpt2", "llama", "gptj", "bert", "marian"])
def test_value_biases_are_written_by_the_output_bias(name):
    other = build(name).processed(**only("fold_value_biases"))
    for part in other.modules():
        if isinstance(part, Attention):
            assert part.b_v is None or bool((part.b_v == 0).all())
            written = torch.zeros_like(part.W_O[0, 0]) if part.b_O is None else part.b_O
            assert_close(part.constant_output, written)


def test_the_model_given_stays_as_it_is():
    model = build("gpt2")
    before = [weight.clone() for weight in model.parameters()]
    other = model.processed()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert model.config.tied
    assert not other.config.tied
    assert other.tokenizer is model.tokenizer
    with torch.no_grad():
        other.W_E.zero_()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_a_model_without_logits_has_none_to_centre():
    model = build(HEADLESS)
    with pytest.raises(InvalidInput, match="no logits"):
        model.processed(**only("center_unembed"))
    other = model.processed(center_unembed=False)
    tokens = tokens_of("gpt2")
    assert_close(run(other, *tokens).stream, run(model, *tokens).stream, BOUND)


def test_precision_is_that_of_the_model():
    model = build("gpt2", dtype=torch.float32)
    other = model.processed()
    assert other.dtype == torch.float32
    tokens = tokens_of("gpt2")
    computed, expected = (m(*tokens).log_softmax(-1) for m in (other, model))
    assert_close(computed, expected, 1e-5)


def test_scores_of_classes_are_not_centred():
    """Centring would set the score of a single class to zero."""
    stack = replace(ARCHITECTURES["gpt2"].decoder, n_layers=1)
    model = build_new(replace(ARCHITECTURES["gpt2"], decoder=stack, tied=False, n_classes=1))
    with pytest.raises(InvalidInput, match="scores of classes"):
        model.processed()
    (ids,) = tokens_of("gpt2")
    assert_close(model.processed(center_unembed=False)(ids), model(ids), BOUND)


def test_norms_that_a_pooler_reads_are_not_folded():
    model = build_new(replace(ARCHITECTURES["rotary-encoder"], pooler=True))
    with pytest.raises(InvalidInput, match="pooler"):
        model.processed()


def test_all_steps_that_are_refused_are_named_at_once():
    """So that the next call can leave out all of them."""
    with pytest.raises(InvalidInput) as refusal:
        build("gemma2").processed()
    refused = ["center_writing", "center_unembed"]
    assert [step for step in STEPS if f"{step}=True" in str(refusal.value)] == refused
    assert str(refusal.value).endswith("Pass center_writing=False, center_unembed=False.")
    build("gemma2").processed(**dict.fromkeys(refused, False))


@pytest.mark.parametrize(("name", "embeddings"), [("t5", 1), ("marian", 2), ("sinusoidal", 1)])
def test_weights_that_stacks_share_stay_shared(name, embeddings):
    """And buffers have the model's dtype."""
    model = build(name, dtype=torch.float32)
    view = model.processed(**only("fold_value_biases"))
    for transformer in (model, view):
        assert len({id(stack.weight_e) for stack in transformer.stacks}) == embeddings
    assert all(tensor.dtype == torch.float32 for tensor in (*view.parameters(), *view.buffers()))


VIEWS = {
    "processed": lambda model, folder: model.processed(),
    "fold_norms": lambda model, folder: model.processed(**only("fold_norms")),
    "packed": lambda model, folder: packed(model),
    "load, bundled": lambda model, folder: load("induction-by-hand"),
    "load, a folder": lambda model, folder: load(folder),
    "verify": lambda model, folder: verify(model),
    "weight_hash": lambda model, folder: weight_hash(model),
    "deepcopy": lambda model, folder: deepcopy(model),
    "generate": lambda model, folder: model.generate([[1, 2]], temperature=1.0, max_new_tokens=2),
}


@pytest.mark.parametrize("view", VIEWS)
def test_nothing_consumes_the_random_state(view, tmp_path):
    """The random numbers that a caller draws next do not depend on the views used before."""
    model = build("gpt2", dtype=torch.float32)
    folder = shutil.copytree(MODEL_FOLDER / "induction-by-hand", tmp_path / "model")
    before = torch.get_rng_state()
    VIEWS[view](model, folder)
    assert torch.equal(before, torch.get_rng_state())
