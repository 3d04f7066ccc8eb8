"""Token ids are checked before the forward: what can't be fed is refused by what is wrong."""

import numpy as np
import pytest
import torch
from architectures import (
    D_VOCAB,
    GENERATORS,
    N_CTX,
    PAIRS,
    assert_identical,
    build,
    tokens_of,
)
from tables import each

from interp import PAD, InterpError, Transformer, load, run
from interp.errors import InvalidTokens
from interp.model.stack import Stack

MODEL, PAIR = build("gpt2"), build("marian")


def every_way_in(model: Transformer, *tokens: object) -> list:
    """Each entry point that takes tokens, ready to be called."""
    ways = [
        lambda: model(*tokens),
        lambda: run(model, *tokens),
        lambda: model.run_with_cache(*tokens),
        lambda: model.run_with_hooks(*tokens),
    ]
    generates = model.config.decoder is not None
    return [*ways, lambda: model.generate(*tokens, max_new_tokens=1)] if generates else ways


def refused(message: str, model: Transformer, *tokens: object) -> None:
    for enter in every_way_in(model, *tokens):
        with pytest.raises(InvalidTokens, match=message):
            enter()


@pytest.fixture(autouse=True)
def no_forward(monkeypatch, request):
    """Wherever tokens are refused, no forward was begun."""
    if "refused" in request.node.name:

        def forward(*args, **kwargs):
            raise AssertionError("a forward was run")

        monkeypatch.setattr(Stack, "forward", forward)


@each("empty", [[], [[]], torch.zeros(0), torch.zeros(2, 0), torch.zeros(0, 5)])
def test_an_empty_prompt_is_refused(empty):
    refused("empty", MODEL, empty if isinstance(empty, list) else empty.long())
    refused("empty", build("bert"), empty if isinstance(empty, list) else empty.long())


def test_a_prompt_over_the_context_is_refused():
    refused(f"{N_CTX + 1} tokens.*context of {N_CTX}", MODEL, torch.zeros(2, N_CTX + 1).long())
    row = torch.full((2, N_CTX + 3), PAD)
    row[1, : N_CTX + 2] = 1
    row[0, 0] = 1
    refused(f"{N_CTX + 2} tokens.*context of {N_CTX}", MODEL, row)


def test_a_prompt_that_fills_the_context_is_read():
    """The converse."""
    assert MODEL(torch.zeros(2, N_CTX).long()).shape == (2, N_CTX, D_VOCAB)


@each("wrong", [D_VOCAB, D_VOCAB + 1000, -2, -100, 2**40])
def test_an_id_outside_the_vocabulary_is_refused(wrong):
    """By its id, row and position."""
    ids = torch.zeros(3, 4).long()
    ids[1, 2] = wrong
    refused(f"id {wrong} at row 1, position 2.*0..{D_VOCAB - 1}", MODEL, ids)
    refused(f"id {wrong} at row 1, position 2", PAIR, ids, torch.zeros(3, 2).long())
    refused(f"id {wrong} at row 1, position 2", PAIR, torch.zeros(3, 2).long(), ids)


@each("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.bool])
def test_ids_that_are_no_whole_numbers_are_refused(dtype):
    refused(f"whole numbers.*{dtype}", MODEL, torch.ones(2, 3).to(dtype))


@each("wrong", [[[1, 2], [3]], [[1.5]], [None], [[1, "a"]], [[2**70]], object()])
def test_what_is_no_array_of_ids_is_refused(wrong):
    refused("whole numbers", MODEL, wrong)


@each("shape", [(), (1, 2, 3), (1, 1, 1, 1)])
def test_ids_of_more_or_fewer_axes_are_refused(shape):
    refused("batch pos", MODEL, torch.ones(shape).long())


def test_a_row_of_padding_alone_is_refused():
    ids = torch.tensor([[1, 2], [PAD, PAD]])
    refused("Row 1 holds no token, only padding", MODEL, ids)
    refused("Row 1 holds no token, only padding", PAIR, ids, [[1], [2]])
    refused("Row 1 holds no token, only padding", PAIR, [[1], [2]], ids)


def test_a_row_that_a_mask_empties_is_refused():
    ids, mask = torch.ones(2, 3).long(), torch.tensor([[1, 0, 0], [0, 0, 0]])
    with pytest.raises(InvalidTokens, match="Row 1 holds no token"):
        MODEL(ids, mask=mask)
    with pytest.raises(InvalidTokens, match="Row 1 holds no token"):
        run(MODEL, ids, mask=mask)


def test_a_mask_of_another_shape_is_refused():
    with pytest.raises(InvalidTokens, match=r"mask is \(2, 4\).*tokens are \(2, 3\)"):
        MODEL(torch.ones(2, 3).long(), mask=torch.ones(2, 4))


def test_the_wrong_number_of_inputs_is_refused():
    ids = torch.ones(2, 3).long()
    refused("token ids; got 2 inputs", MODEL, ids, ids)
    refused("token ids; got 0 inputs", MODEL)
    refused("source and target; got 3 inputs", PAIR, ids, ids, ids)
    refused("source and target; got 0 inputs", PAIR)
    for enter in every_way_in(PAIR, ids)[:-1]:  # generate starts from decoder_start
        with pytest.raises(InvalidTokens, match="source and target; got 1 inputs"):
            enter()


def test_source_and_target_of_unequal_rows_are_refused():
    refused(
        r"the same number of rows; got 2 and 3",
        PAIR,
        torch.ones(2, 3).long(),
        torch.ones(3, 3).long(),
    )


def test_text_without_a_tokenizer_is_refused():
    for enter in every_way_in(MODEL, "text"):
        with pytest.raises(InterpError, match="no tokenizer"):
            enter()


def test_token_errors_belong_to_the_family_and_exit_with_2():
    with pytest.raises(InterpError) as caught:
        MODEL([])
    assert isinstance(caught.value, ValueError)
    assert caught.value.exit_code == 2


# What can be fed.


@each("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64])
def test_ids_of_every_whole_type_are_read(dtype):
    (ids,) = tokens_of("gpt2")
    assert_identical(MODEL(ids.to(dtype)), MODEL(ids))


def test_lists_and_arrays_and_single_rows_are_read():
    (ids,) = tokens_of("gpt2")
    for same in (ids.tolist(), ids.numpy(), np.asarray(ids, dtype=np.int32)):
        assert_identical(MODEL(same), MODEL(ids))
    for row in (ids[0], ids[0].tolist(), tuple(ids[0].tolist())):
        assert_identical(MODEL(row), MODEL(ids[:1]))


@pytest.mark.parametrize("name", GENERATORS)
def test_a_single_token_is_read(name):
    model = build(name)
    tokens = [torch.tensor([[3]])] * len(model.stacks)
    assert model(*tokens).shape == (1, 1, D_VOCAB)
    assert bool(model(*tokens).isfinite().all())


@pytest.mark.parametrize("name", ["gpt2", *PAIRS])
def test_the_tokens_given_are_left_as_they_were(name):
    model, tokens = build(name), [ids.clone() for ids in tokens_of(name)]
    for ids in tokens:
        ids[0, -1] = PAD
    before = [ids.clone() for ids in tokens]
    for enter in every_way_in(model, *tokens):
        enter()
    for ids, was in zip(tokens, before, strict=True):
        assert_identical(ids, was)


# Texts for the decoder of a pair.


def test_a_text_for_a_paired_decoder_begins_with_its_start_token_and_stays_open():
    model, source = load("dates"), "3 March 2021"
    ids = model.to_tokens("2021-03", stack="decoder")
    assert model.to_string(ids[0]) == "<|start|>2021-03"
    assert_identical(model.to_tokens("<|start|>2021-03", stack="decoder"), ids)
    with torch.no_grad():
        assert_identical(model(source, "2021-03"), model(model.to_tokens(source), ids))
    assert_identical(run(model, source, "2021-03").logits, run(model, source, ids).logits)
    written = model.generate(source, "2021-03", max_new_tokens=4)
    assert model.to_string(written) == ["<|start|>2021-03-03<|end|>"]


def test_a_text_for_its_encoder_is_read_as_ever():
    model = load("dates")
    assert model.to_string(model.to_tokens("3 March 2021")) == ["3 March 2021<|end|>"]
    assert_identical(
        model.to_tokens("3 March 2021", stack="encoder"), model.to_tokens("3 March 2021")
    )
    assert_identical(
        model.to_tokens("2021", stack="decoder")[:, 1:], model.to_tokens("2021")[:, :-1]
    )


@pytest.mark.parametrize("stack", ["decodr", ""])
def test_a_stack_that_is_not_there_is_refused_for_texts(stack):
    with pytest.raises(InterpError, match="this model has encoder and decoder"):
        load("dates").to_tokens("2021", stack=stack)
