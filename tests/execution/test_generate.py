"""What generation can't do is refused, by the setting's name, before any token is made."""

from dataclasses import replace

import pytest
import torch
from architectures import (
    ARCHITECTURES,
    D_VOCAB,
    N_CTX,
    assert_identical,
    build,
    build_new,
    padded,
    tokens_of,
)
from tables import each

from interp import PAD, Config, EmbeddingConfig, InterpError, StackConfig, Transformer, edits, load
from interp.errors import Cancelled, InvalidEdit, InvalidInput, InvalidTokens, UnknownPlace
from interp.io import cancellable

MODEL = build("gpt2")
(IDS,) = tokens_of("gpt2")


@each(
    ("settings", "message"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens=0.*at least 1"),
        ({"max_new_tokens": -3}, "max_new_tokens=-3.*at least 1"),
        ({"temperature": -0.5}, "temperature=-0.5"),
        ({"temperature": float("nan")}, "temperature=nan"),
        ({"top_k": 0}, "top_k=0.*at least 1"),
        ({"top_k": -1}, "top_k=-1.*at least 1"),
        ({"stop": [D_VOCAB]}, f"stop has '{D_VOCAB}'; expected .*0..{D_VOCAB - 1}"),
        ({"stop": -1}, "stop has '-1'"),
        ({"stop": [True]}, "stop has 'True'"),
        ({"stop": "a"}, "has no tokenizer"),
    ],
)
def test_a_setting_that_means_nothing_is_refused(settings, message):
    with pytest.raises(InterpError, match=message):
        MODEL.generate(IDS, **({"max_new_tokens": 2} | settings))


def test_a_cancelled_generation_ends_after_the_next_token():
    asked: list[bool] = []

    def cancelled(after: int) -> bool:
        asked.append(True)
        return len(asked) > after

    with pytest.raises(Cancelled), cancellable(lambda: cancelled(2)):
        MODEL.generate(IDS, max_new_tokens=6)
    assert len(asked) == 3
    with cancellable(lambda: False):
        generated = MODEL.generate(IDS, max_new_tokens=6)
    assert_identical(generated, MODEL.generate(IDS, max_new_tokens=6))


def test_a_text_of_one_token_ends_a_row():
    model = load("python-2l")
    free = model.generate("def f(", max_new_tokens=8)
    end = int(free[0, -4])
    ended = free[0, : free[0].tolist().index(end, free.shape[1] - 8) + 1]
    for stop in (end, [end], model.to_string(free[0, -4:-3])):
        assert_identical(model.generate("def f(", max_new_tokens=8, stop=stop)[0], ended)
    with pytest.raises(InvalidTokens, match="def f"):
        model.generate("def f(", stop="def f(")


def test_a_text_over_the_context_is_refused_before_it_is_begun():
    with pytest.raises(InvalidTokens, match=rf"5 tokens and 12 new.*{N_CTX}.*at most 11"):
        MODEL.generate(IDS, max_new_tokens=N_CTX - 4)
    longest = padded([IDS[0], IDS[1][:2]], "left", extra=7)
    with pytest.raises(InvalidTokens, match="5 tokens and 12 new"):
        MODEL.generate(longest, max_new_tokens=N_CTX - 4)


def test_padding_does_not_count_against_the_context():
    """The converse."""
    longest = padded([IDS[0], IDS[1][:2]], "left", extra=7)
    text = MODEL.generate(longest, max_new_tokens=N_CTX - 5)
    assert text.shape == (2, N_CTX)


def test_an_encoder_generates_nothing():
    with pytest.raises(InterpError, match="encoder"):
        build("bert").generate(IDS)


def test_a_pair_without_a_start_token_needs_the_targets_beginning():
    stack = StackConfig(1, MODEL.config.decoder.attention)
    model = Transformer(Config(12, 13, N_CTX, decoder=stack, encoder=stack))
    with pytest.raises(InterpError, match="decoder_start is None"):
        model.generate(IDS, max_new_tokens=2)
    assert model.generate(IDS, IDS[:, :1], max_new_tokens=2).shape == (2, 3)


def test_edits_are_checked_as_in_a_run():
    with pytest.raises(UnknownPlace, match="Nearest"):
        MODEL.generate(IDS, max_new_tokens=2, edits=[edits.zero("zz", layer=0)])
    with pytest.raises(InvalidEdit, match="no 'key'"):
        MODEL.generate(IDS, max_new_tokens=2, edits=[edits.zero("z", layer=0, key=0)])
    with pytest.raises(InvalidEdit, match="head 7"):
        MODEL.generate(IDS, max_new_tokens=2, edits=[edits.zero("z", layer=0, head=7)])


def test_logits_that_are_no_numbers_are_refused():
    model = build_new("gpt2")
    with torch.no_grad():
        model.blocks[0].attn.weight_o.fill_(torch.nan)
    for temperature in (0.0, 1.0):
        with pytest.raises(InterpError, match="NaN"):
            model.generate(IDS, max_new_tokens=2, temperature=temperature)


def test_more_candidates_than_tokens_are_all_of_them():
    drawn = {"max_new_tokens": 4, "temperature": 1.0, "seed": 3}
    assert_identical(MODEL.generate(IDS, top_k=99, **drawn), MODEL.generate(IDS, **drawn))


def test_what_comes_back_begins_with_the_prompt_padded_on_the_left():
    ids = padded([IDS[0], IDS[1][:3]], "right", extra=2)
    text = MODEL.generate(ids, max_new_tokens=3)
    assert text.shape == (2, 8)
    assert_identical(text[0, :5], IDS[0])
    assert text[1, :2].tolist() == [PAD, PAD]
    assert_identical(text[1, 2:5], IDS[1][:3])
    assert text.dtype == torch.int64


def test_a_single_row_comes_back_as_a_batch_of_one():
    assert_identical(
        MODEL.generate(IDS[0], max_new_tokens=3), MODEL.generate(IDS[:1], max_new_tokens=3)
    )


def test_no_gradient_is_kept_and_the_grad_mode_is_the_callers():
    before = [None if p.grad is None else p.grad.clone() for p in MODEL.parameters()]
    text = MODEL.generate(IDS, max_new_tokens=2)
    assert torch.is_grad_enabled()
    assert not text.requires_grad
    for parameter, grad in zip(MODEL.parameters(), before, strict=True):
        assert parameter.grad is grad is None or torch.equal(parameter.grad, grad)


def test_new_tokens_have_the_type_of_the_last():
    """Also where the whole text is run again for each token."""
    stack = replace(ARCHITECTURES["gpt2"].decoder, embedding=EmbeddingConfig(n_types=2))
    model = build_new(replace(ARCHITECTURES["gpt2"], decoder=stack))
    (ids,) = tokens_of("gpt2", batch=2, pos=4)
    typed = model.batch(ids, types=torch.tensor([[0, 0, 1, 1], [0, 1, 1, 0]]))
    again = edits.apply("z", lambda z, _: z, layer=0)
    for more in ((), (again,)):
        written = model.generate(typed, max_new_tokens=4, edits=more)
        assert torch.equal(written, model.generate(typed, max_new_tokens=4))
    assert not torch.equal(model.generate(ids, max_new_tokens=4), written)


def test_classes_are_no_tokens_to_go_on_with():
    model = build_new(replace(ARCHITECTURES["gpt2"], tied=False, n_classes=3))
    with pytest.raises(InvalidInput, match="predict the next token"):
        model.generate(*tokens_of("gpt2"), max_new_tokens=1)
