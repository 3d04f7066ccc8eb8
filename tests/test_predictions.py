"""What a model predicts: its loss, its most probable tokens, and where a token stands."""

import pytest
import torch
from architectures import (
    DECODERS,
    ENCODERS,
    GENERATORS,
    HEADLESS,
    N_CTX,
    assert_close,
    assert_identical,
    build,
    build_new,
    padded,
    tokens_of,
)
from tables import each
from torch.nn.functional import cross_entropy

import interp
from interp import InterpError, Transformer, metrics
from interp.errors import InvalidInput, InvalidTokens

GPT2 = build("gpt2")


@pytest.fixture(scope="module")
def python():
    return interp.load("python-2l")


@pytest.fixture(scope="module")
def dates():
    return interp.load("dates")


# The loss.


@pytest.mark.parametrize("name", GENERATORS)
def test_the_loss_is_cross_entropy_of_the_next_tokens(name):
    model, tokens = build(name), tokens_of(name, batch=3)
    logits = model(*tokens)
    flat = cross_entropy(logits[:, :-1].flatten(0, 1), tokens[-1][:, 1:].flatten())
    assert_close(model.loss(*tokens), flat)
    each_one = model.loss(*tokens, per_token=True)
    assert each_one.shape == (3, tokens[-1].shape[1] - 1)
    assert_close(each_one.mean(), flat)
    assert_close(each_one.mean(-1), metrics.loss()(logits, model.check(*tokens)[-1]))


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_is_no_prediction(side):
    """The mean over a padded batch is that over all predictions of its rows alone."""
    rows = [tokens_of("gpt2", 1, n, seed=n)[0][0] for n in (3, 7, 2)]
    batch = padded(rows, side, extra=1)
    alone = torch.cat([GPT2.loss(row, per_token=True)[0] for row in rows])
    assert_close(GPT2.loss(batch), alone.mean())
    each_one = GPT2.loss(batch, per_token=True)
    assert_close(each_one[~each_one.isnan()], alone)
    masked = GPT2.loss(batch.clamp(min=0), mask=batch >= 0)
    assert_identical(masked, GPT2.loss(batch))


def test_a_model_learns_by_its_loss():
    model, tokens = build_new("gpt2"), tokens_of("gpt2")
    before = model.loss(*tokens, keep_graph=True)
    before.backward()
    with torch.no_grad():
        for weight in model.parameters():
            weight.sub_(1e-3 * weight.grad)
    assert model.loss(*tokens) < before


def test_a_loss_has_no_graph_unless_it_is_asked_for():
    (tokens,) = tokens_of("gpt2")
    with torch.enable_grad():
        assert not GPT2.loss(tokens).requires_grad
        assert not GPT2.loss(tokens, per_token=True).requires_grad
    assert GPT2.loss(tokens, keep_graph=True).requires_grad


@each(
    ("model", "tokens", "message"),
    [
        (build("bert"), ([[1, 2]],), "is an encoder"),
        (Transformer(HEADLESS), ([[1, 2]],), "no logits"),
    ],
)
def test_what_has_no_next_token_has_no_loss(model, tokens, message):
    for per_token in (False, True):
        with pytest.raises(InvalidInput, match=message):
            model.loss(*tokens, per_token=per_token)


def test_single_tokens_have_no_mean_loss():
    with pytest.raises(InvalidInput, match="single token"):
        GPT2.loss([[1], [2]])
    assert GPT2.loss([[1], [2]], per_token=True).shape == (2, 0)


# The most probable tokens.


@pytest.mark.parametrize("name", [*DECODERS, *ENCODERS])
def test_the_table_is_that_of_the_logits(name):
    model, (ids,) = build(name), tokens_of(name, batch=1)
    logits = model(ids)[0, -1].detach()
    table = model.top(ids, 4, answer=5)
    assert [row.rank for row in table.rows] == [1, 2, 3, 4]
    assert [row.id for row in table.rows] == logits.topk(4).indices.tolist()
    for row in (*table.rows, table.answer):
        assert row.logit == pytest.approx(float(logits[row.id]), abs=1e-12)
        assert row.probability == pytest.approx(float(logits.softmax(-1)[row.id]), abs=1e-12)
    assert table.answer.id == 5
    assert table.answer.rank == 1 + int((logits > logits[5]).sum())


def test_every_token_has_its_rank_once():
    (ids,) = tokens_of("gpt2", batch=1)
    ranks = [GPT2.top(ids, 1, answer=token).answer.rank for token in range(GPT2.d_vocab)]
    assert sorted(ranks) == list(range(1, GPT2.d_vocab + 1))
    whole = GPT2.top(ids, 10**6).rows
    assert [row.rank for row in whole] == sorted(ranks)
    assert sum(row.probability for row in whole) == pytest.approx(1)


def test_a_position_is_that_of_the_real_tokens():
    (ids,) = tokens_of("gpt2", batch=1)
    for position in (0, 2, -3):
        alone = GPT2.top(ids[:, : position % 5 + 1]).rows[0]
        padded_row = GPT2.top(padded([ids[0]], "left", extra=2), pos=position).rows[0]
        assert (padded_row.id, padded_row.rank) == (alone.id, 1)
        assert padded_row.logit == pytest.approx(alone.logit, abs=1e-12)


def test_a_pair_predicts_after_its_start_token_or_a_target(dates):
    assert dates.top("3 March 2021", 1, answer="2").answer.rank == 1
    assert dates.top("3 March 2021", 1, target="2021-0", answer="3").answer.rank == 1


def test_an_encoder_predicts_at_its_mask_token():
    model = interp.load("python-mlm")
    ids = model.to_tokens("def f(x):")
    ids[0, 2] = model.config.tokens.mask
    logits = model(ids)[0, 2].detach()
    assert model.top(ids, 1).rows[0].id == int(logits.argmax())
    assert model.top(ids, 1, pos=2) == model.top(ids, 1, pos="mask") == model.top(ids, 1)
    assert model.top(ids, 1, pos=-1) != model.top(ids, 1)


def test_the_table_prints_its_rows(python):
    table = python.top("import os", 3, answer="\n")
    lines = repr(table).splitlines()
    assert lines[1].split() == ["rank", "token", "id", "probability", "logit"]
    assert [line.split()[0] for line in lines[2:5]] == ["1", "2", "3"]
    assert f"↵ has rank {table.answer.rank}" in lines[0]
    assert table.rows[0].token in table._repr_html_()


def test_a_token_that_the_tokenizer_lacks_is_named_by_its_id(python):
    assert python.label(10**6) == "1000000"
    assert GPT2.label(3) == "3"


@each(
    ("arguments", "options", "message"),
    [
        (([[1, 2], [3, 4]],), {}, "One prompt was expected; got 2"),
        (([1, 2],), {"k": 0}, "k=0"),
        (([1, 2],), {"pos": 2}, "position 2 in prompt 0, which has 2 tokens"),
        (([1, 2],), {"answer": 13}, r"answer=13 is outside the vocabulary 0\.\.12"),
        (([1, 2],), {"answer": "x"}, "no tokenizer"),
        (([1, 2],), {"target": [1]}, "got 2 inputs"),
        (("text",), {}, "no tokenizer"),
    ],
)
def test_what_can_not_be_predicted_is_refused(arguments, options, message):
    with pytest.raises(InterpError, match=message):
        GPT2.top(*arguments, **options)


def test_logits_that_are_not_numbers_have_no_order():
    model = build_new("gpt2")
    with torch.no_grad():
        model.W_U.fill_(torch.nan)
    with pytest.raises(InvalidInput, match="NaN"):
        model.top([1, 2])


# Where a token stands.


def test_a_position_is_found_by_token_or_id(python):
    text = "def f(x):\n    return x"
    ids = python.to_tokens(text)[0].tolist()
    for position, id_ in enumerate(ids):
        if ids.count(id_) == 1:
            assert python.position_of(text, id_) == position
            assert python.position_of([interp.PAD, interp.PAD, *ids], id_) == position
    assert python.to_str_tokens(text)[python.position_of(text, "return")] == "return"


def test_a_token_that_stands_there_never_or_twice_is_refused(python):
    with pytest.raises(InvalidTokens, match=r"'x' occurs at positions 1, 4 in .*once"):
        python.position_of("x = x", "x")
    with pytest.raises(InvalidTokens, match=r"'y' occurs nowhere in .*·="):
        python.position_of("x = x", "y")
    with pytest.raises(InvalidTokens, match="One prompt was expected; got 2"):
        python.position_of(["a", "b"], "a")


def test_a_prompt_of_a_pair_is_read_by_the_stack_that_is_named(dates):
    assert dates.position_of("3 March", "March", stack="encoder") == 2
    assert dates.position_of("2021-03", "-") == 5
    with pytest.raises(InterpError, match="stack='enc': this model has encoder and decoder"):
        dates.position_of("3", "3", stack="enc")


# Text of tokens.


def test_the_texts_of_the_tokens_make_the_text(python):
    text = "def f(x):\n    return 'é'"
    texts = python.to_str_tokens(text)
    assert len(texts) == python.to_tokens(text).shape[1]
    assert python.to_str_tokens(python.to_tokens(text)[0]) == texts
    assert "".join(texts[1:7]) == text[: len("".join(texts[1:7]))]
    several = python.to_str_tokens([text, "import os"])
    assert several == [texts, python.to_str_tokens("import os")]


def test_one_id_is_decoded_in_every_form(python):
    token = python.to_single_token("x")
    for same in (token, torch.tensor(token), [token], torch.tensor([token])):
        assert python.to_string(same) == "x"
        assert python.to_str_tokens(same) == ["x"]
        assert python.to_labels(same) == ["x"]
    assert python.to_string([[token], [token]]) == ["x", "x"]
    assert python.to_labels("x")[-1] == "x"
    assert python.to_string([]) == ""


@each(
    ("call", "wrong", "message"),
    [
        ("to_string", 10**6, "Token id 1000000 is not in the vocabulary"),
        ("to_string", "text", "takes token ids; got 'text'"),
        ("to_string", [[[1]]], "batch pos"),
        ("to_string", 1.5, "whole numbers"),
        ("to_string", None, "whole numbers.*None"),
        ("to_labels", ["a", "b"], "one row; got 2"),
        ("to_labels", [1.5], "whole numbers"),
        ("to_tokens", [], "No text"),
        ("to_single_token", "a b c d", "tokens"),
    ],
)
def test_what_is_no_text_and_no_token_is_refused(python, call, wrong, message):
    with pytest.raises(InterpError, match=message):
        getattr(python, call)(wrong)


def test_a_prompt_over_the_context_is_still_refused():
    with pytest.raises(InvalidTokens, match=f"context of {N_CTX}"):
        GPT2.top([1] * (N_CTX + 1))
