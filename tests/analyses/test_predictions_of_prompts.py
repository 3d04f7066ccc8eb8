"""Predictions: those of the forward, and ablated together as the sweep ablates a group."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from architectures import (
    ARCHITECTURES,
    PAIRS,
    assert_close,
    assert_identical,
    build,
    build_new,
    covering,
    in_turn,
    padded,
    tokens_of,
)
from declared import (
    Call,
    Command,
    Declared,
    EachPrompt,
    Made,
    Symmetric,
    Without,
    example,
    odd,
    small,
)
from torch import Tensor

import interp
from analyses import ablate, predictions
from analyses.methods.components.components import components_of
from interp import PAD, TokensConfig, metrics, run
from interp.errors import InvalidInput, UnknownPlace
from interp.metrics import measure

PREDICTING = [
    name for name, config in ARCHITECTURES.items() if config.unembeds and config.n_classes is None
]
MASK = 7
SOME = ["gpt2", "bert", "t5"]
METHODS = ["zero", "mean", "resample"]


def prompts_of(name: str):
    tokens = tokens_of(name, batch=3)
    return tokens if len(tokens) > 1 else tokens[0]


def rows() -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(13, (n,), generator=generator) for n in (4, 2, 6)]


def two_heads(name: str) -> list[str]:
    """The first and the last head."""
    heads = components_of(build(name)).heads
    return [heads[0].name, heads[-1].name]


@pytest.mark.parametrize("name", covering(PREDICTING, SOME))
def test_the_most_probable_tokens_are_those_of_the_forward(name):
    model = build(name)
    predicted = predictions(model, prompts_of(name), top=4, targets=3, distractors=[1, 2, 3])
    with torch.no_grad():
        logits = model(*tokens_of(name, batch=3))[:, -1]
    p = logits.softmax(-1)
    for prompt, p_next in enumerate(p):
        by_size = sorted(range(len(p_next)), key=lambda id_, row=p_next: -float(row[id_]))
        assert predicted.top[0, prompt].tolist() == by_size[:4]
        assert_close(predicted.probability[0, 0, prompt], p_next[by_size[:4]])
        assert predicted.answer_rank[0, 0, prompt] == by_size.index(3) + 1
        assert predicted.correct[0, prompt] == (by_size[0] == 3)
    assert_close(predicted.answer_probability[0, 0], p[:, 3])
    rows, distractors = range(3), [1, 2, 3]
    assert_close(predicted.logit_difference[0], logits[:, 3] - logits[rows, distractors])
    assert (predicted.pos == tokens_of(name)[-1].shape[1] - 1).all()


@pytest.mark.parametrize(("name", "method"), in_turn(PREDICTING, METHODS, SOME, 1))
def test_ablated_together_is_what_the_sweep_of_a_group_gives(name, method):
    model, members = build(name), two_heads(name)
    predicted = predictions(
        model, prompts_of(name), targets=3, ablate=members, method=method, seed=2
    )
    causal = model.config.is_causal
    for metric, values in {
        metrics.logit(3): predicted.answer_logit[:, 0],
        metrics.prob(3): predicted.answer_probability[:, 0],
        **({metrics.loss(): predicted.loss} if causal else {}),
    }.items():
        swept = ablate(
            model, prompts_of(name), units={"set": members}, metric=metric, method=method, seed=2
        )
        assert_close(values[0], swept.clean)
        assert_close(values[1], swept.ablated[0])
    divergence = ablate(
        model, prompts_of(name), units={"set": members}, metric="kl", method=method, seed=2
    )
    assert_close(predicted.kl.nanmean(-1), divergence.ablated[0])
    assert predicted.effect.nan_to_num().abs().max() > 1e-6 or not causal


def test_the_mean_is_that_of_the_reference():
    """Each prompt has the numbers that it has in a sweep over all, if these are its reference."""
    model, together, members = build("gpt2"), padded(rows(), "left"), ["L0H1", "L1H2"]
    swept = ablate(model, together, units={"set": members}, metric="loss")
    for number, row in enumerate(rows()):
        predicted = predictions(model, row[None], ablate=members, reference=together)
        assert_close(predicted.loss[1], swept.ablated[0, number : number + 1])
        assert predicted.replacement == "its mean over all tokens of 3 reference prompts"
        alone = predictions(model, row[None], ablate=members)
        assert (alone.loss[1] - predicted.loss[1]).abs() > 1e-9


@pytest.mark.parametrize("method", ["zero", "mean"])
def test_nothing_ablated_is_inert(method):
    model, tokens = build("llama"), prompts_of("llama")
    plain = predictions(model, tokens, method=method)
    with torch.no_grad():
        p = model(tokens)[:, -1].softmax(-1)
    assert_identical(plain.probability[0, 0], p.gather(-1, plain.top[0]))
    assert (plain.runs, plain.kl, plain.ablated_names, plain.method) == (("plain",), None, (), "")
    edited = predictions(model, tokens, ablate=["L1H0"], method=method)
    assert_identical(edited.surprisal[0], plain.surprisal[0])
    assert_identical(edited.top[0], plain.top[0])
    with pytest.raises(InvalidInput, match="Nothing was ablated"):
        _ = plain.effect


def test_what_has_no_effect_changes_nothing():
    """A head that writes nothing: plain and ablated are the same, bit for bit."""
    model = build_new("gpt2")
    with torch.no_grad():
        model.blocks[1].attn.W_O[2].zero_()
    predicted = predictions(model, prompts_of("gpt2"), ablate=["L1H2"])
    assert_identical(predicted.surprisal[1], predicted.surprisal[0])
    assert (predicted.kl == 0).all()


@pytest.mark.parametrize("side", ["left", "right"])
def test_surprisal_is_the_loss_of_each_token_wherever_padding_stands(side):
    model, together = build("gpt2"), padded(rows(), side, extra=1)
    predicted = predictions(model, together, ablate=["L0H0"], method="zero")
    done = run(model, together)
    assert_close(predicted.loss[0], measure(metrics.loss(), done.logits, done.batch))
    frame = predicted.to_token_frame()
    for number, row in enumerate(rows()):
        prompt_frame = frame[frame["prompt"] == number]
        assert prompt_frame["pos"].tolist() == list(range(len(row)))
        assert prompt_frame["id"].tolist() == row.tolist()
        log_p = model(row[None])[0].log_softmax(-1)
        expected = [-log_p[i, token].item() for i, token in enumerate(row[1:])]
        assert_close(torch.tensor(prompt_frame["surprisal"].tolist()[1:]), torch.tensor(expected))
        assert prompt_frame["surprisal"].isna().tolist() == [True] + [False] * (len(row) - 1)
    assert predicted.surprisal[0][together == PAD].isnan().all()


def test_later_tokens_change_no_surprisal_before_them():
    model, tokens = build("gpt2"), prompts_of("gpt2")
    other = torch.cat([tokens[:, :3], (tokens[:, 3:] + 1) % 13], 1)
    predicted, changed = (
        predictions(model, ids, ablate=["L0H0", "L1H1"], method="zero") for ids in (tokens, other)
    )
    assert_identical(changed.surprisal[..., :3], predicted.surprisal[..., :3])
    assert (changed.surprisal[..., 3:] != predicted.surprisal[..., 3:]).any()


@pytest.mark.parametrize("name", covering(PAIRS, ["t5"]))
def test_of_a_pair_the_decoder_is_read(name):
    model, (source, target) = build(name), tokens_of(name)
    predicted = predictions(model, (source, target), ablate=two_heads(name), method="zero")
    with torch.no_grad():
        log_p = model(source, target).log_softmax(-1)
    expected = -log_p[:, :-1].gather(-1, target[:, 1:, None])[..., 0]
    assert_close(predicted.surprisal[0, :, 1:], expected)
    assert torch.equal(predicted.ids, target)
    assert predicted.effect[:, 1:].abs().max() > 1e-6


# ---- encoders --------------------------------------------------------------------------------


def masked_model() -> interp.Transformer:
    return build(replace(ARCHITECTURES["bert"], tokens=TokensConfig(mask=MASK)))


def test_an_encoder_is_read_at_its_mask_and_surprised_there_alone():
    model, hidden = masked_model(), torch.tensor([[1, 2, 3, 4, 5], [6, 1, 3, 2, 2]])
    tokens = hidden.clone()
    tokens[0, 1], tokens[1, 3] = MASK, MASK
    predicted = predictions(model, tokens, targets=[2, 9], ablate=["L0H1"])
    log_p = model(tokens).log_softmax(-1)
    assert predicted.pos.tolist() == [1, 3]
    assert_close(predicted.surprisal[0, [0, 1], [1, 3]], -log_p[[0, 1], [1, 3], [2, 9]].detach())
    assert predicted.surprisal.isfinite().sum() == 4
    loss = ablate(
        model,
        tokens,
        units={"set": ["L0H1"]},
        metric=metrics.masked_loss(torch.tensor([[0, 2, 0, 0, 0], [0, 0, 0, 9, 0]])),
    )
    assert_close(predicted.loss, torch.stack([loss.clean, loss.ablated[0]]))
    assert predictions(model, tokens).surprisal.isnan().all()


def test_several_masks_are_known_from_the_text_before():
    model, hidden = masked_model(), torch.tensor([[1, 2, 3, 4, 5]])
    tokens = torch.tensor([[1, MASK, 3, MASK, 5]])
    with pytest.raises(InvalidInput, match="2 mask tokens"):
        predictions(model, tokens)
    predicted = predictions(model, tokens, pos=3, hidden=hidden)
    done = run(model, tokens)
    assert_close(predicted.loss[0], measure(metrics.masked_loss(hidden), done.logits, done.batch))
    assert predicted.surprisal[0, 0].isfinite().tolist() == [False, True, False, True, False]
    with_target = predictions(model, tokens, pos=3, targets=4)
    assert_identical(with_target.surprisal[0, 0, 3], predicted.surprisal[0, 0, 3])
    assert with_target.surprisal.isfinite().sum() == 1
    with pytest.raises(InvalidInput, match="one for one"):
        predictions(model, tokens, pos=3, hidden=hidden[:, :4])


# ---- what is shown ---------------------------------------------------------------------------


def test_a_bundled_model_is_described_in_words():
    model, prompts = interp.load("python-4l"), interp.read_prompts("python-keywords")[:4]
    texts = [prompt.text for prompt in prompts]
    predicted = predictions(
        model,
        texts,
        targets=[prompt.target for prompt in prompts],
        distractors=[prompt.distractor for prompt in prompts],
        ablate=["L0H5", "L1H0"],
    )
    lines = predicted.summary().splitlines()
    assert f"comes first in {int(predicted.correct[0].sum())} of 4" in lines[0]
    assert lines[1].startswith("with L0H5, L1H0 ablated (mean): loss")
    assert (
        lines[2] == "what is ablated is replaced with its mean over all tokens of these 4 prompts"
    )
    tokens, prompt_frame = predicted.to_token_frame(), predicted.to_prompt_frame()
    by_prompt = tokens.groupby("prompt")["surprisal"].mean()
    assert by_prompt.tolist() == pytest.approx(prompt_frame["loss"][:4].tolist(), rel=1e-6)
    title = predicted.figure().layout.title.text
    assert title == "Change of each token's surprisal, with L0H5, L1H0 ablated (mean)"
    top = model.top(texts[0], 3)
    assert predicted.to_frame()["id"][:3].tolist() == [row.id for row in top.rows]


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"ablate": "L0H0"}, InvalidInput, "different names of components"),
        ({"ablate": ["L7H0"]}, UnknownPlace, "no component 'L7H0'"),
        ({"ablate": ["L0H0"], "method": "resample"}, InvalidInput, "prompt"),
        ({"hidden": torch.tensor([[1, 2]])}, InvalidInput, "mask token"),
        ({"pos": 9}, InvalidInput, "no position 9"),
    ],
)
def test_what_cannot_be_asked_is_refused(settings, error, message):
    with pytest.raises(error, match=message):
        predictions(build("gpt2"), torch.tensor([[1, 2]]), **settings)


# ---- declared for the tests of all analyses -------------------------------------------------


def numbers_of_prompts(model, prompts, n, ablated="L1H0"):
    result = predictions(model, prompts, targets=3, distractors=2, ablate=[ablated], method="zero")
    numbers = {"surprisal": result.surprisal.nan_to_num(-1.0), "kl": result.kl[None]}
    real = result.kl.isfinite()
    return [
        {
            **{name: x[:, i, real[i]] for name, x in numbers.items()},
            "probability": result.probability[:, :, i],
            "answers": result.answer_logit[..., i],
        }
        for i in range(n)
    ]


def of_case(method):
    """With the attention of a layer ablated."""
    return lambda case: predictions(
        case.model,
        case.clean,
        targets=case.target,
        distractors=case.distractor,
        ablate=["L0ATTN"],
        method=method,
    )


DECLARED = Declared(
    analysis=predictions,
    made=Made(
        lambda: predictions(
            example.model(), ["abcab", "xyxy"], targets="b", distractors="a", ablate=["L1H0"]
        ),
        Without("to_frame has rows for each prompt"),
    ),
    call=Call(
        (small.MODEL, small.CLEAN),
        {},
        {
            "pos": (odd.TEXT, odd.BROKEN, odd.LISTED, True),
            "top": odd.COUNT,
            "targets": odd.TOKEN,
            "distractors": odd.TOKEN,
            "hidden": (small.CLEAN,),
            "ablate": (
                *(odd.TEXT, odd.BELOW, odd.BROKEN, odd.LISTED, odd.NOTHING),
                *(["L9H0"], ["L0H0", "L0H0"], [odd.TEXT]),
            ),
            "method": (*odd.CHOICE, odd.NOTHING),
            **odd.SAMPLED,
        },
    ),
    command=Command(
        "predict",
        ("--ablate", "L1H0", "--ablate", "L1H1"),
        "predict",
        "Predictions on 24 prompts",
        "pos=None likeliest=10 ablate=None method=mean reference=None",
        more=("prompts.csv", "prompts.parquet", "tokens.csv", "tokens.parquet"),
    ),
    of_each_prompt=EachPrompt(numbers_of_prompts),
    of_each_pair={
        head: partial(numbers_of_prompts, ablated=head)
        for head in ("encoder.L1H0", "decoder.L1H2", "cross.L0H1")
    },
    symmetric=Symmetric({"": of_case("mean"), "zeros": of_case("zero")}, not_compared=("id",)),
)
