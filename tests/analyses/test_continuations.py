"""Sampled texts: those of ``generate``, with the numbers of a plain forward over each."""

from dataclasses import replace

import pytest
import torch
from architectures import (
    ARCHITECTURES,
    DECODERS,
    GENERATORS,
    HEADLESS,
    assert_close,
    build,
    covering,
    in_turn,
    padded,
    tokens_of,
    with_eos,
)
from declared import (
    Call,
    Command,
    Declared,
    EachPrompt,
    Made,
    Symmetric,
    example,
    odd,
    small,
)
from declared.prompts import OF_ENCODERS, OF_IMAGES
from permuted import ENCODERS
from torch import Tensor

import interp
from analyses import continuations
from interp import PAD, Config, EmbeddingConfig, Transformer
from interp.errors import InvalidInput, InvalidTokens

NEW = 4
ROWS = [torch.tensor(ids) for ids in ([3, 1, 4, 1], [5, 9], [2, 6, 5, 3, 5, 8])]


def prompts_of(name: str):
    tokens = tokens_of(name)
    return tokens if len(tokens) > 1 else tokens[0]


def log_p_of(model: Transformer, *tokens: Tensor, first: int) -> Tensor:
    """What a plain forward predicts of the tokens from a column on, ``[token vocab]``."""
    with torch.no_grad():
        return model(*tokens)[0, first - 1 : -1].log_softmax(-1)


@pytest.mark.parametrize(
    ("name", "temperature"), in_turn(GENERATORS, [0.7, 1.0], ["gpt2", "gemma2", "t5"], 1)
)
def test_numbers_are_those_of_the_models_own_prediction_of_each_token(name, temperature):
    """Of the prompt and the sample alone; at another temperature they are no others."""
    model, (*sources, prompts) = build(name), tokens_of(name)
    settings = {"new_tokens": NEW, "temperature": temperature}
    result = continuations(model, prompts_of(name), samples=3, seed=2, **settings)
    first = prompts.shape[1]
    for prompt, row in enumerate(prompts):
        source = [tokens[prompt : prompt + 1] for tokens in sources]
        texts = model.generate(
            *(tokens.expand(3, -1) for tokens in [*source, row[None]]),
            max_new_tokens=NEW,
            temperature=temperature,
            seed=2,
        )
        assert torch.equal(result.new_ids[prompt], texts[:, first:])
        for sample, text in enumerate(texts):
            log_p = log_p_of(model, *source, text[None], first=first)
            expected = -log_p.gather(-1, text[first:, None])[:, 0]
            assert_close(result.surprisal[prompt, sample], expected)
            assert_close(result.entropy[prompt, sample], -(log_p.exp() * log_p).sum(-1))
            above = (-log_p < expected[:, None]).sum(-1)
            assert torch.equal(result.rank[prompt, sample], above + 1)
            drawn_from = -(log_p / 0.7).log_softmax(-1).gather(-1, text[first:, None])[:, 0]
            assert (result.surprisal[prompt, sample] - drawn_from).abs().max() > 1e-9


@pytest.mark.parametrize("name", covering(GENERATORS, ["llama", "t5"]))
def test_a_greedy_text_is_the_argmax_of_a_plain_forward_and_a_sampled_one_is_not(name):
    """In the order of its tokens, each after a forward over those before it."""
    model, (*sources, prompts) = build(name), tokens_of(name)
    greedy = continuations(model, prompts_of(name), new_tokens=NEW, temperature=0, samples=3)
    assert greedy.new_ids.shape == (2, 1, NEW)
    assert model.needs_length or (greedy.rank == 1).all()
    for prompt, row in enumerate(prompts):
        source = [tokens[prompt : prompt + 1] for tokens in sources]
        text = torch.cat([row, greedy.new_ids[prompt, 0]])
        for end in range(len(row), len(text)):
            with torch.no_grad():
                logits = model(*source, text[None, :end])[0, -1]
            assert logits.argmax() == text[end]
    sampled = continuations(model, prompts_of(name), new_tokens=NEW, samples=3, temperature=99)
    assert (sampled.rank > 1).any()


def test_the_same_seed_gives_the_same_texts_and_another_does_not():
    model, prompts = build("llama"), padded(ROWS, "left")
    first, same, other = (
        continuations(model, prompts, new_tokens=NEW, seed=seed) for seed in (1, 1, 2)
    )
    assert torch.equal(first.new_ids, same.new_ids)
    assert torch.equal(first.surprisal, same.surprisal)
    assert (first.new_ids != other.new_ids).any(-1).all()
    assert (first.new_ids[:, :1] != first.new_ids[:, 1:]).any(-1).all()


def test_another_prompt_changes_only_its_own_texts():
    """Wherever padding stands; one call of ``generate`` for all would draw other tokens."""
    model = build("llama")
    result = continuations(model, padded(ROWS, "left"), new_tokens=NEW, samples=2)
    changed = [ROWS[0], torch.tensor([7]), ROWS[2]]
    other = continuations(model, padded(changed, "right", extra=1), new_tokens=NEW, samples=2)
    for prompt, same in enumerate([True, False, True]):
        assert torch.equal(other.new_ids[prompt], result.new_ids[prompt]) == same
        near = torch.allclose(other.entropy[prompt], result.entropy[prompt], rtol=0, atol=1e-12)
        assert near == same
    together = model.generate(padded(ROWS, "left"), max_new_tokens=NEW, temperature=1.0)
    alone = continuations(model, padded(ROWS, "left"), new_tokens=NEW, samples=1)
    assert (together[:, -NEW:] != alone.new_ids[:, 0]).any()


def test_only_the_most_probable_tokens_are_sampled_if_asked():
    model, prompts = build("llama"), padded(ROWS, "right")
    few, all_tokens = (continuations(model, prompts, new_tokens=NEW, top_k=k) for k in (2, None))
    assert set(few.rank.unique().tolist()) == {1, 2}
    assert all_tokens.rank.max() > 2


def test_at_temperature_1_the_mean_surprisal_is_the_entropy_and_at_others_it_is_not():
    """Within four standard errors of the mean of 2000 draws of one token."""
    for temperature, same in {1.0: True, 0.5: False, 2.0: False}.items():
        settings = {"samples": 2000, "new_tokens": 1, "temperature": temperature}
        result = continuations(build("llama"), ROWS[0][None], **settings)
        surprisal, entropy = result.surprisal[0, :, 0], result.entropy[0, 0, 0]
        deviation = surprisal.std() / len(surprisal) ** 0.5
        assert ((surprisal.mean() - entropy).abs() < 4 * deviation) == same, temperature


def test_a_text_ends_with_an_end_token_and_counts_to_it():
    prompts = padded(ROWS, "left")
    free = continuations(build("llama"), prompts, new_tokens=NEW, samples=3)
    assert not free.ended.any()
    eos = int(free.new_ids[0, 0, 1])
    result = continuations(
        build(with_eos(DECODERS["llama"], eos)), prompts, new_tokens=NEW, samples=3
    )
    for prompt, sample in result.ended.nonzero().tolist():
        ids = result.new_ids[prompt, sample].tolist()
        assert ids.index(eos) == int(result.n_tokens[prompt, sample]) - 1
    assert result.ended[0, 0]
    assert not (result.new_ids[~result.ended] == eos).any()
    after = result.new_ids == PAD
    assert after.any()
    for x in (result.surprisal, result.entropy):
        assert torch.equal(x.isnan(), after)
    assert torch.equal(result.rank == 0, after)
    frame, texts = result.to_frame(), result.to_sample_frame()
    assert len(frame) == int((~after).sum()) == texts["n_tokens"].sum()
    by_text = frame.groupby(["prompt", "sample"])["surprisal"].mean()
    assert by_text.tolist() == pytest.approx(texts["loss"].tolist(), rel=1e-12)
    assert frame.groupby("prompt")["pos"].min().tolist() == [len(row) for row in ROWS]


def test_all_texts_at_their_end_leave_numbers_of_the_asked_width():
    greedy = continuations(build("llama"), ROWS[0][None], new_tokens=1, temperature=0)
    model = build(with_eos(DECODERS["llama"], int(greedy.new_ids)))
    result = continuations(model, ROWS[0][None], new_tokens=NEW, temperature=0)
    assert result.new_ids[0, 0].tolist() == [int(greedy.new_ids), *[PAD] * (NEW - 1)]
    assert result.ended.all()


def test_new_tokens_have_the_type_of_the_last_one():
    stack = replace(ARCHITECTURES["gpt2"].decoder, embedding=EmbeddingConfig(n_types=2))
    model = build(Config(12, 13, 16, decoder=stack))
    ids, types = ROWS[0][None], torch.tensor([[0, 0, 1, 1]])
    result = continuations(model, model.batch(ids, types=types), new_tokens=NEW, temperature=0)
    text = torch.cat([ids, result.new_ids[:, 0]], -1)
    typed = [torch.cat([types, torch.full((1, NEW), end)], -1) for end in (1, 0)]
    with torch.no_grad():
        right, wrong = (
            -model(model.batch(text, types=each))[0, 3:-1].log_softmax(-1) for each in typed
        )
    picked = result.new_ids[0, 0][:, None]
    assert_close(result.surprisal[0, 0], right.gather(-1, picked)[:, 0])
    assert not torch.allclose(result.surprisal[0, 0, 1:], wrong.gather(-1, picked)[1:, 0])


def test_an_encoder_decoder_starts_from_its_start_token():
    model, source = interp.load("dates"), "1 May 2001"
    result = continuations(model, source, new_tokens=12, samples=2)
    start = torch.tensor([[model.config.tokens.decoder_start]])
    with_start = continuations(model, (source, start), new_tokens=12, samples=2)
    assert torch.equal(result.new_ids, with_start.new_ids)
    assert result.text(0, 0).startswith("2001-05-01")
    assert result.ended.all()
    assert result.lengths.tolist() == [1]


def test_what_is_written_is_listed_the_most_probable_text_first():
    model, ticks = interp.load("python-2l"), []
    texts = ["def f(x):", "for i in"]
    result = continuations(
        model, texts, new_tokens=5, samples=3, progress=lambda *n: ticks.append(n)
    )
    assert ticks == [(1, 2), (2, 2)]
    lines = result.summary().splitlines()
    assert lines[0].startswith("continuations of 2 prompts, 3 samples each at temperature 1: mean ")
    assert lines[1].startswith("prompt 0: ")
    losses = [float(line.split()[0]) for line in lines[2:5]]
    assert losses == sorted(losses)
    best = int(result.loss[0].argmin())
    assert result.text(0, best) in lines[2]
    assert result.labels_of(0, best) == model.to_labels(result.new_ids[0, best])
    assert len(result.summary(prompts=1).splitlines()) == 5
    figure = result.figure()
    assert figure.layout.title.text.startswith("Surprisal of each new token, 3 samples each")
    assert figure.layout.yaxis.ticktext[1] == "prompt 0, sample 1"


@pytest.mark.parametrize(
    ("name", "settings", "error", "message"),
    [
        ("gpt2", {"new_tokens": 11}, InvalidTokens, "6 tokens and 11 new ones exceed"),
        ("gpt2", {"samples": 0}, InvalidInput, "samples=0"),
        ("gpt2", {"temperature": -1}, InvalidInput, "temperature=-1"),
        ("bert", {}, InvalidInput, "can't continue a text"),
        (HEADLESS, {}, InvalidInput, "can't predict the next token"),
    ],
)
def test_what_can_not_be_continued_is_refused(name, settings, error, message):
    """Before any prompt is continued: the longest comes last."""
    ticks: list[object] = []
    with pytest.raises(error, match=message):
        continuations(build(name), padded(ROWS, "left"), progress=ticks.append, **settings)
    assert not ticks


# ---- declared for the tests of all analyses -------------------------------------------------


def numbers_of_prompts(model, prompts, n):
    """Each prompt has the samples that it has alone."""
    result = continuations(model, prompts, new_tokens=3, samples=2)
    numbers = {
        "new_ids": result.new_ids.double(),
        "surprisal": result.surprisal,
        "entropy": result.entropy,
    }
    return [{name: values[i] for name, values in numbers.items()} for i in range(n)]


DECLARED = Declared(
    analysis=continuations,
    made=Made(lambda: continuations(example.model(), ["abcab", "xy"], new_tokens=3, samples=2)),
    call=Call(
        (small.MODEL, small.CLEAN),
        {"new_tokens": 2},
        {
            "new_tokens": (*odd.COUNT, 99),
            "samples": odd.COUNT,
            "temperature": (odd.TEXT, odd.BELOW, odd.LISTED, odd.NOTHING, torch.nan),
            "top_k": tuple(value for value in odd.COUNT if value is not None),
            "seed": odd.SEED,
        },
    ),
    command=Command(
        "continue",
        ("--model", "python-2l", "--new-tokens", "3"),
        "continue",
        "Continuations of 24 prompts, 4 samples each at temperature 1",
        "new_tokens=12 samples=4 temperature=1.0 top_k=None",
        more=("samples.csv", "samples.parquet"),
    ),
    of_each_prompt=EachPrompt(
        numbers_of_prompts, dict.fromkeys((*OF_ENCODERS, *OF_IMAGES), "continue a text")
    ),
    of_each_pair={"": numbers_of_prompts},
    symmetric=Symmetric(
        {"": lambda case: continuations(case.model, case.clean, new_tokens=4, temperature=0)},
        not_compared=("id",),
        refused=ENCODERS,
    ),
)
