"""Texts with and without a vector: the same at strength 0, and each as it is by itself."""

import pytest
import torch
from architectures import (
    DECODERS,
    GENERATORS,
    HEADLESS,
    assert_close,
    build,
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
    Without,
    example,
    odd,
    small,
)
from declared.prompts import OF_ENCODERS, OF_IMAGES
from permuted import ENCODERS, tables_of
from torch import Tensor

import interp
from analyses import steer
from analyses.methods.components.components import components_of
from analyses.methods.components.replacements import Replacements
from analyses.steer.steering import contrast_vector, stream_place
from interp import PAD, edits
from interp.errors import InterpError, InvalidInput, InvalidTokens

NEW = 4


def vector(seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(12, generator=generator, dtype=torch.float64)


def prompts_of(name: str):
    tokens = tokens_of(name)
    return tokens if len(tokens) > 1 else tokens[0]


def rows() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(13, (n,), generator=generator) for n in (4, 2, 6, 5, 3)]


@pytest.mark.parametrize(
    ("name", "temperature"), in_turn(GENERATORS, [0.0, 1.0], ["gpt2", "gemma2", "mixtral", "t5"], 1)
)
def test_strength_0_is_the_plain_model_bit_for_bit_and_another_is_not(name, temperature):
    model, settings = build(name), {"new_tokens": NEW, "temperature": temperature}
    steering = steer(
        model, prompts_of(name), layer=0, vector=vector(), strengths=(0, 9), **settings
    )
    tokens = tokens_of(name)
    plain = model.generate(*tokens, max_new_tokens=NEW, temperature=temperature)
    for generated in (steering.plain, steering.steered[0], steering.steered_control[0]):
        assert torch.equal(generated, plain[:, tokens[-1].shape[1] :])
    assert (steering.kl[0] == 0).all()
    assert (steering.control[0] == 0).all()
    assert (steering.kl[1] > 1e-6).all()
    assert steering.same[0].tolist() == [NEW, NEW]


@pytest.mark.parametrize("at", ["resid_pre", "mlp_out", "resid_post"])
def test_steered_texts_and_divergences_are_those_of_edited_runs(at):
    """Left-padded prompts, each compared with runs of it alone."""
    model, v = build("llama"), vector()
    steering = steer(
        model, padded(rows(), "right"), layer=-1, at=at, vector=v, strengths=(2,), new_tokens=NEW
    )
    edit = edits.add(at, 2 * v, layer=1)
    for prompt, row in enumerate(rows()):
        plain = model.generate(row[None], max_new_tokens=NEW)
        steered = model.generate(row[None], max_new_tokens=NEW, edits=[edit])
        assert torch.equal(steering.plain[prompt], plain[0, len(row) :])
        assert torch.equal(steering.steered[0, prompt], steered[0, len(row) :])
        plain_log_p, steered_log_p = (
            interp.run(model, plain, edits=made).logits[0, len(row) - 1 : -1].log_softmax(-1)
            for made in ([], [edit])
        )
        assert_close(
            steering.kl[0, prompt], (plain_log_p.exp() * (plain_log_p - steered_log_p)).sum(-1)
        )


def test_the_vector_is_the_difference_of_means():
    model, positive, negative = build("gpt2"), padded(rows(), "left"), padded(rows()[::-2], "right")
    place = stream_place(model, "resid_mid", 1)

    def mean(prompts: Tensor, pos: int | None) -> Tensor:
        streams = [
            interp.run(model, row[row != PAD][None], record=place).cache[place][0]
            for row in prompts
        ]
        return torch.stack([x.mean(0) if pos is None else x[pos] for x in streams]).mean(0)

    for pos in (-1, 0, None):
        direction = contrast_vector(model, positive, negative, place, pos)
        assert_close(direction, mean(positive, pos) - mean(negative, pos))
        steered = steer(
            model,
            positive,
            layer=1,
            at="resid_mid",
            contrast=(positive, negative),
            pos=pos,
            new_tokens=1,
        )
        assert_close(steered.vector, direction)
    assert steered.stream_norm == pytest.approx(
        float(
            interp.run(model, positive, record=place)
            .cache[place]
            .norm(dim=-1)[positive != PAD]
            .mean()
        )
    )


@pytest.mark.parametrize(
    ("name", "method"), in_turn(GENERATORS, ["zero", "mean"], ["gpt2", "t5"], 1)
)
def test_ablated_texts_are_generated_with_the_edits_of_the_ablation(name, method):
    """Alone, beside a vector of strength 0, and beside a stronger one."""
    model, prompts, tokens = build(name), prompts_of(name), tokens_of(name)
    heads = components_of(model).heads
    members = [heads[0], heads[-1]]
    made = Replacements(model, model.check(*tokens), method).edits_of(members)
    layer = min(1, len(model.stacks[-1].blocks) - 1)
    place = stream_place(model, "resid_pre", layer)
    settings = {"ablate": [head.name for head in members], "method": method, "new_tokens": NEW}

    def generated(*more: interp.edits.Edit) -> Tensor:
        all_edits = [*(edit for _, edit in made), *more]
        return model.generate(*tokens, max_new_tokens=NEW, edits=all_edits)[
            :, tokens[-1].shape[1] :
        ]

    alone = steer(model, prompts, **settings)
    assert (alone.strengths, alone.place, alone.vector.abs().max()) == ((0.0,), "", 0)
    assert torch.equal(alone.steered[0], generated())
    assert (alone.kl > 1e-9).all()
    both = steer(model, prompts, layer=layer, vector=vector(), strengths=(0, 5), **settings)
    assert torch.equal(both.steered[0], generated())
    assert torch.equal(both.steered[1], generated(edits.add(place, 5 * vector())))
    assert torch.equal(both.plain, alone.plain)
    assert alone.summary().startswith(
        f"ablation of {', '.join(alone.ablated_names)} ({method}) on 2"
    )
    assert (
        f"steering at resid_pre {layer} and ablation of {alone.ablated_names[0]}" in both.summary()
    )


def test_the_control_is_a_vector_of_the_same_length():
    model, prompts = build("gpt2"), padded(rows(), "left")
    steering = steer(
        model, prompts, layer=0, vector=vector(), strengths=(1.5,), new_tokens=NEW, seed=3
    )
    drawn = torch.randn(12, generator=torch.Generator().manual_seed(3)).double()
    same_length = drawn * (vector().norm() / drawn.norm())
    other = steer(model, prompts, layer=0, vector=same_length, strengths=(1.5,), new_tokens=NEW)
    assert_close(steering.control, other.kl)
    assert torch.equal(steering.steered_control, other.steered)


def test_a_text_that_ends_early_counts_to_its_end():
    prompts = padded(rows(), "left")
    plain = steer(build("gpt2"), prompts, layer=0, vector=vector(), new_tokens=NEW).plain
    model = build(with_eos(DECODERS["gpt2"], int(plain[0, 1])))
    steering = steer(model, prompts, layer=0, vector=vector(), new_tokens=NEW)
    ended = steering.plain == PAD
    assert ended[0].any()
    assert torch.equal(steering.kl.isnan(), ended.expand_as(steering.kl))
    assert len(steering.to_token_frame()) == 4 * int((~ended).sum())


def test_a_learned_vector_raises_the_logit_that_it_was_learned_for():
    model, prompts = build("gpt2"), padded(rows(), "left")
    v = torch.zeros(12, dtype=torch.float64, requires_grad=True)
    for _ in range(30):
        done = interp.run(
            model, prompts, edits=[edits.add("resid_post", v, layer=1)], keep_graph=True
        )
        loss = -done.logits[:, -1].log_softmax(-1)[:, 7].mean()
        (gradient,) = torch.autograd.grad(loss, v)
        with torch.no_grad():
            v -= gradient
    steering = steer(
        model, prompts, layer=1, at="resid_post", vector=v, strengths=(0, 8), new_tokens=1
    )
    assert (steering.steered[1] == 7).all()
    assert (steering.steered[0] == 7).sum() < len(prompts)


def test_frames_and_summary_show_texts_side_by_side():
    model, ticks = interp.load("induction-by-hand"), []
    steering = steer(
        model,
        ["abcab", "xyzxy"],
        layer=1,
        contrast=(["ab"], ["xyz"]),
        strengths=(0, 50),
        new_tokens=3,
        progress=lambda *n: ticks.append(n),
    )
    assert ticks == [(n, 4) for n in (1, 2, 3, 4)]
    frame = steering.to_prompt_frame()
    assert frame["plain_text"].tolist()[:2] == [model.to_string(ids) for ids in steering.plain]
    assert frame["steered_text"].tolist()[:2] == frame["plain_text"].tolist()[:2]
    assert list(steering.to_frame()["strength"]) == [0, 50]
    same = (steering.steered_control == steering.plain).int().cumprod(-1).sum(-1)
    assert same[0].tolist() == steering.same_control[0].tolist() == [3, 3]
    lines = steering.summary().splitlines()
    assert lines[0].startswith("steering at resid_pre 1 on 2 prompts: strength 50 changes ")
    assert lines[2].startswith("prompt 0: ")
    assert [line.split()[0] for line in lines[3:7]] == ["plain", "strength", "strength", "random"]
    assert steering.figure().data[0].y == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("name", "settings", "error", "message"),
    [
        ("gpt2", {}, InvalidInput, "Give one of vector=, contrast="),
        ("gpt2", {"vector": vector(), "contrast": (1, 2)}, InvalidInput, "Give one of vector="),
        ("gpt2", {"contrast": "ab"}, InvalidInput, r"should be \(positive, negative\)"),
        ("gpt2", {"vector": vector()[:3]}, InvalidInput, r"shape \(3,\)"),
        ("gpt2", {"vector": vector() * torch.nan}, InvalidInput, "finite"),
        ("gpt2", {"vector": vector() * 0}, InvalidInput, "is zero"),
        ("gpt2", {"vector": vector() * 0, "ablate": ["L0H0"]}, InvalidInput, "is zero"),
        ("gpt2", {"vector": vector(), "layer": None}, InvalidInput, "layer=None"),
        ("gpt2", {"ablate": ["L0H0"], "method": "resample"}, InvalidInput, "zero or mean"),
        ("gpt2", {"vector": vector(), "at": "z"}, InvalidInput, "batch pos d_model"),
        ("gpt2", {"vector": vector(), "at": "resid"}, InterpError, "resid"),
        ("gpt2", {"vector": vector(), "layer": 9}, InterpError, "9"),
        ("gpt2", {"vector": vector(), "strengths": ()}, InvalidInput, "strengths="),
        ("gpt2", {"vector": vector(), "strengths": (torch.inf,)}, InvalidInput, "finite"),
        ("gpt2", {"vector": vector(), "new_tokens": 40}, InvalidTokens, "exceed the context"),
        ("bert", {"vector": vector()}, InvalidInput, "can't continue a text"),
        (HEADLESS, {"vector": vector()}, InvalidInput, "can't predict the next token"),
    ],
)
def test_what_can_not_be_steered_is_refused(name, settings, error, message):
    with pytest.raises(error, match=message):
        steer(build(name), padded(rows(), "left"), **({"layer": 0, "new_tokens": 2} | settings))


# ---- declared for the tests of all analyses -------------------------------------------------


def numbers_of_prompts(model, prompts, n):
    """With a fixed vector, each prompt has the continuation that it has alone."""
    generator = torch.Generator().manual_seed(0)
    fixed = torch.randn(model.d_model, generator=generator, dtype=torch.float64)
    result = steer(model, prompts, vector=fixed, layer=0, new_tokens=3)
    numbers = {"kl": result.kl, "control": result.control, "steered": result.steered.double()}
    return [{name: values[:, i] for name, values in numbers.items()} for i in range(n)]


def of_case(case):
    """Continuations of the prompts, with the strength as a label."""
    settings = {"layer": 1, "contrast": (case.clean, case.corrupt), "new_tokens": 4}
    result = steer(case.model, case.clean, strengths=(0.0, 3.0), **settings)
    return {name: frame.astype({"strength": str}) for name, frame in tables_of(result).items()}


DECLARED = Declared(
    analysis=steer,
    made=Made(
        lambda: steer(
            example.model(), ["abcab", "xy"], layer=1, contrast=("ab", "xyz"), new_tokens=3
        ),
        Without("its tables go by strength, which is a number"),
    ),
    call=Call(
        (small.MODEL, small.CLEAN),
        {"layer": 0, "vector": torch.ones(12), "new_tokens": 2},
        {
            "layer": odd.INDEX,
            "vector": (
                *(*odd.SOMETHING, odd.NOTHING),
                *(torch.ones(4), torch.zeros(12), torch.full((12,), torch.nan)),
            ),
            "contrast": (odd.TEXT, odd.BELOW, odd.LISTED, (small.CLEAN, small.CLEAN, small.CLEAN)),
            "feature": (odd.TEXT, odd.BELOW, odd.LISTED, "L0F0"),
            "at": (*odd.CHOICE, odd.NOTHING, "pattern"),
            "pos": (odd.TEXT, odd.BROKEN, odd.LISTED, True),
            "strengths": (
                *(odd.TEXT, 1.0, [], [odd.TEXT], [torch.nan], [torch.inf], odd.NOTHING),
                *([odd.NOTHING], [[1.0]], [True]),
            ),
            "ablate": (
                *(odd.TEXT, odd.BELOW, odd.BROKEN, odd.LISTED, odd.NOTHING),
                *(["L9H0"], ["L0H0", "L0H0"]),
            ),
            "method": (*odd.CHOICE, odd.NOTHING, "resample"),
            "new_tokens": (*odd.COUNT, 99),
            "temperature": (odd.TEXT, odd.BELOW, odd.LISTED, odd.NOTHING, torch.nan),
            "seed": odd.SEED,
        },
    ),
    command=Command(
        "steer",
        ("--model", "python-2l", "--layer", "1", "--new-tokens", "3"),
        "steer",
        "Steering at resid_pre 1 on 36 prompts",
        "layer=None dictionary=None strength=None new_tokens=20 temperature=0.0 at=resid_pre "
        "feature=None",
    ),
    of_each_prompt=EachPrompt(
        numbers_of_prompts, dict.fromkeys((*OF_ENCODERS, *OF_IMAGES), "continue a text")
    ),
    of_each_pair={"": numbers_of_prompts},
    symmetric=Symmetric({"": of_case}, refused=ENCODERS),
)
