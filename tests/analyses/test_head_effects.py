"""Where heads attend, what they write and what their ablation does; labels where these agree."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from architectures import assert_close, build, tokens_of
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
from declared.prompts import Rows

import interp
from analyses import HeadEffects, ablate_heads, direct_logit_attribution, head_effects
from analyses.head_effects.answer_attention import CLASSES, classes_of_tokens
from analyses.head_effects.labels import (
    AGAINST,
    DIRECT_ONLY,
    ELSEWHERE,
    INDIRECT,
    MOVES,
    SUPPRESSES,
    Evidence,
    label_of,
)
from analyses.results import NONE
from interp import Transformer, run
from interp.errors import InvalidInput
from interp.metrics import logit_diff

IOI = ["L23H3", "L23H0", "L24H4", "L20H0", "L29H1"]


def of_set(model: Transformer, prompts: str, *, swapped: bool = False, **settings) -> HeadEffects:
    """The heads on a bundled prompt set; with target and distractor swapped if asked for."""
    read = interp.read_prompts(prompts)
    target, distractor = [p.target for p in read], [p.distractor for p in read]
    if swapped:
        target, distractor = distractor, target
    texts = [p.text for p in read]
    return head_effects(model, texts, target=target, distractor=distractor, **settings)


def labels(result: HeadEffects) -> dict[str, str]:
    frame = result.to_frame()
    with_label = frame[frame["label"] != NONE]
    return dict(zip(with_label["name"], with_label["label"], strict=True))


# ---- models with a known circuit ------------------------------------------------------------


def negated(head: int) -> Transformer:
    """The induction model, in which a head of layer 1 writes the opposite."""
    model = deepcopy(interp.load("induction-by-hand"))
    with torch.no_grad():
        model.blocks[1].attn.W_O[head].neg_()
    return model


def test_the_heads_of_an_induction_circuit_are_labelled():
    """The induction head moves the target; the previous-token head acts through its keys."""
    result = of_set(interp.load("induction-by-hand"), "letters")
    assert labels(result) == {"L0H0": INDIRECT, "L1H0": MOVES}
    frame = result.to_frame().set_index("name")
    assert frame.loc["L1H0", "on_target"] == pytest.approx(1.0, abs=1e-3)
    assert frame.loc["L1H0", "to_target"] == pytest.approx(12.0, abs=1e-3)
    assert frame.loc["L1H0", "to_distractor"] == pytest.approx(0.0, abs=1e-3)
    assert frame.loc["L0H1", "missing"] == "no effect"


def test_a_head_that_lowers_the_token_it_attends_to_suppresses_or_works_against():
    """By whether that token is the distractor or the target; neither is said to move a token."""
    assert labels(of_set(negated(0), "letters", swapped=True))["L1H0"] == SUPPRESSES
    assert labels(of_set(negated(0), "letters"))["L1H0"] == AGAINST
    raising_the_distractor = of_set(interp.load("induction-by-hand"), "letters", swapped=True)
    assert labels(raising_the_distractor)["L1H0"] == AGAINST


def test_heads_have_no_label_without_the_mechanism():
    """Texts without a repetition; the untrained twin of a model; fewer than five prompts."""
    model = interp.load("induction-by-hand")
    texts = ["abcde", "fghij", "klmno", "pqrst", "uvwxy", "ABCDE"]
    assert labels(head_effects(model, texts, target="z", distractor="Z")) == {}
    assert labels(of_set(interp.load("python-2l@0"), "repeated")) == {}
    trained = labels(of_set(interp.load("python-2l"), "repeated"))
    assert {"L1H0": MOVES, "L0H5": INDIRECT}.items() <= trained.items()
    few = head_effects(model, ["abcab", "xyzxy"], target=["c", "z"], distractor="e")
    assert labels(few) == {}
    assert set(few.to_frame()["missing"]) == {"no intervals with fewer than 5 prompts"}


# ---- the three kinds of evidence ------------------------------------------------------------


def test_evidence_is_that_of_attribution_and_ablation():
    model, (tokens,) = build("gpt2"), tokens_of("gpt2")
    result = head_effects(model, tokens, target=3, distractor=5, heads=["L1H2", "L0H1"])
    assert result.cells["name"] == ("L0H1", "L1H2")
    direct = direct_logit_attribution(model, tokens, target=3, distractor=5, by="head")
    rows = [[part.name for part in direct.parts].index(name) for name in result.cells["name"]]
    assert_close(result.direct, direct.effect[rows], 0)
    assert_close(result.of_target, direct.of_target[rows], 0)
    ablation = ablate_heads(model, tokens, metric=logit_diff(3, 5))
    assert_close(result.effect, ablation.effect[[0, 1], [1, 2]])
    pattern = run(model, tokens, record="pattern").cache["pattern", 1][:, 2, -1]
    assert_close(result.strongest[1], pattern.amax(-1))
    frame = result.to_evidence_frame().set_index(["name", "quantity"])
    assert frame.loc[("L1H2", "ablation"), "mean"] == pytest.approx(float(result.effect[1].mean()))


def test_classes_of_tokens_are_disjoint_and_in_order_of_precedence():
    """Target, distractor, first, self, previous, rest; padding is in none."""
    model = build("gpt2")
    batch = model.batch(torch.tensor([[3, 7, 5, 3, 8, 9], [-1, -1, 1, 5, 8, 5]]))
    answers = torch.tensor([[3, 2], [5, 5]])
    classes = classes_of_tokens(batch, torch.tensor([5, 5]), answers)
    assert classes.sum(0).tolist() == batch.is_real.int().tolist()
    names = [
        [CLASSES[int(column.int().argmax())] if column.any() else "" for column in rows.T]
        for rows in classes.unbind(1)
    ]
    assert names == [
        ["target", "rest", "distractor", "target", "previous", "self"],
        ["", "", "first", "distractor", "previous", "distractor"],
    ]


def test_the_token_with_the_most_attention_is_named_with_its_occurrence():
    result = of_set(interp.load("induction-by-hand"), "letters")
    row = result.cells["name"].index("L1H0")
    frame = result.to_prompt_frame().query("name == 'L1H0'")
    assert frame["strongest"].tolist() == result.strongest[row].tolist()
    texts = [prompt.text for prompt in interp.read_prompts("letters")]
    targets = [prompt.target for prompt in interp.read_prompts("letters")]
    attended = [f"·{text}"[key] for text, key in zip(texts, frame["key"], strict=True)]  # after BOS
    assert attended == targets
    assert all(key_class.startswith("target") for key_class in frame["key_class"])


def test_a_cancelled_call_has_what_was_measured_and_is_resumed():
    model, (tokens,) = build("gpt2"), tokens_of("gpt2")
    tokens = tokens.repeat(3, 1)
    settings, heads_done = {"target": 3, "distractor": 5}, list[int]()
    whole = head_effects(model, tokens, **settings)
    part = head_effects(
        model,
        tokens,
        **settings,
        memory=2.0**17,
        progress=lambda done, _: heads_done.append(done),
        cancelled=lambda: bool(heads_done) and heads_done[-1] > 1,
    )
    unmeasured = part.effect.isnan().any(-1)
    assert 0 < int(unmeasured.sum()) < len(unmeasured)
    frame = part.to_frame().set_index("name")
    names = [name for name, none in zip(part.cells["name"], unmeasured, strict=True) if none]
    assert set(frame.loc[names, "missing"]) == {"ablation was not measured"}
    assert "cancelled: " in part.summary()
    again = head_effects(model, tokens, **settings, memory=2.0**17, resume=part.partial)
    assert_close(again.effect, whole.effect)


# ---- rules ----------------------------------------------------------------------------------

HELPING = Evidence("target", 1.0, 0.2, 1, -1.0, True, True)


@pytest.mark.parametrize(
    ("change", "label", "missing"),
    [
        ({}, MOVES, ""),
        ({"attends": "distractor", "to_target": 0.1, "to_distractor": -0.9}, SUPPRESSES, ""),
        ({"attends": "self"}, ELSEWHERE, ""),
        ({"direct": -1, "ablation": 1.0}, AGAINST, ""),
        ({"attends": "", "direct": 0}, INDIRECT, ""),
        ({"ablation": 0.0}, DIRECT_ONLY, ""),
        # What contradicts a label, or lacks.
        ({"ablation": 1.0}, "", "both the head and its ablation raise the difference"),
        ({"direct": -1}, "", "both the head and its ablation lower the difference"),
        ({"attends": ""}, "", "attends to no class"),
        ({"to_target": 0.1, "to_distractor": -0.9}, "", "writes for the distractor"),
        ({"attends": "distractor"}, "", "writes for the target"),
        ({"ablation": 0.0, "is_large_directly": False}, "", "no effect of ablation"),
        ({"direct": 0, "is_large_by_ablation": False}, "", "no direct effect"),
        ({"direct": 0, "ablation": 0.0}, "", "no effect"),
        ({"ablation": float("nan")}, "", "ablation was not measured"),
    ],
)
def test_a_label_needs_all_its_evidence(change, label, missing):
    named, lacks = label_of(Evidence(**{**vars(HELPING), **change}))
    assert named == label
    assert missing in lacks
    assert bool(named) != bool(lacks)


def test_the_largest_heads_come_first_with_or_without_a_label():
    result = of_set(interp.load("python-2l"), "repeated")
    frame = result.to_frame()
    assert frame["size"].is_monotonic_decreasing
    assert len(frame) == 16
    assert result.drawing().labels == frame["name"].tolist()
    assert [*result.drawing().marks] == ["to the target", "to the distractor", "mean ablation"]
    lines = result.summary(top=7).splitlines()
    assert [line.split()[0] for line in lines[1:8]] == frame["name"].head(7).tolist()
    assert "no label: " in lines[7]


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("gpt2", {"distractor": None}, "give a distractor"),
        ("gpt2", {"distractor": 3}, "are the same token"),
        ("gpt2", {"heads": "L0H0"}, "should be names of heads"),
        ("t5", {}, "models with one stack"),
    ],
)
def test_what_has_no_two_sides_is_refused(name, settings, message):
    with pytest.raises(InvalidInput, match=message):
        head_effects(build(name), tokens_of(name)[0], **{"target": 3, "distractor": 5} | settings)


# ---- a pretrained model ---------------------------------------------------------------------


@pytest.mark.real
def test_the_heads_of_smollm2_on_ioi():
    """The largest by direct effect lowers the distractor: it moves no name."""
    result = of_set(interp.load("smollm2-135m"), "ioi", heads=IOI)
    frame = result.to_frame().set_index("name")
    assert labels(result) == {
        "L23H3": SUPPRESSES,
        "L20H0": INDIRECT,
        "L29H1": ELSEWHERE,
        "L24H4": AGAINST,
        "L23H0": DIRECT_ONLY,
    }
    assert frame["attends"].to_dict() == {
        "L23H3": "distractor",
        "L20H0": "distractor",
        "L29H1": "self",
        "L24H4": "target",
        "L23H0": "target",
    }
    suppressing, moving = frame.loc["L23H3"], frame.loc["L23H0"]
    assert suppressing["strongest_key"].startswith("distractor 2 of 2")
    assert suppressing["to_distractor"] == pytest.approx(-2.39, abs=0.05)
    assert abs(suppressing["to_target"]) < 0.15
    assert moving["to_target"] > 3 * moving["to_distractor"] > 0
    assert moving["low"] < 0 < moving["high"]  # later heads make up for it


# ---- what the tests of all analyses have to know --------------------------------------------


def numbers_of_prompts(model: Transformer, prompts: Any, n: int) -> Rows:
    """Attention that sums to 1, and two sides that sum to the effect."""
    result = head_effects(model, prompts, target=3, distractor=5, method="zero")
    bound = 1e-12 if model.dtype == torch.float64 else 1e-5
    for shares in (result.shares.sum(-1), result.uniform.sum(-1)):
        assert_close(shares, torch.ones_like(shares), bound)
    frame = result.to_prompt_frame()
    sides = torch.tensor((frame["to_target"] - frame["to_distractor"]).tolist())
    assert_close(sides, torch.tensor(frame["direct"].tolist()), bound)
    tensors = ("shares", "uniform", "strongest", "key", "direct", "of_target", "effect")
    return [{name: getattr(result, name)[:, i] for name in tensors} for i in range(n)]


DECLARED = Declared(
    analysis=head_effects,
    made=Made(
        lambda: head_effects(
            example.model(),
            ["abcab", "xyzxy", "klmkl", "pqrpq", "uvwuv"],
            target=[*"czmrw"],
            distractor="e",
            heads=["L1H0", "L0H0", "L0H1"],
        ),
        Without("to_frame has the means of several quantities, to_prompt_frame their parts"),
    ),
    call=Call(
        (small.MODEL, small.CLEAN),
        {"target": 1, "distractor": 12},
        {
            "target": (*odd.TOKEN, odd.NOTHING, 12),
            "distractor": (*odd.TOKEN, odd.NOTHING, 1),
            "pos": (odd.TEXT, odd.BROKEN, odd.LISTED),
            "heads": (odd.TEXT, odd.BELOW, odd.BROKEN, odd.LISTED, [], ["L9H0"], [[]]),
            "method": odd.CHOICE,
            **odd.SAMPLED,
            **odd.SWEPT,
        },
    ),
    command=Command(
        "head-effects",
        (),
        "head-effects",
        "L1H0 (moves the target)",
        "head=None method=mean",
        more=("evidence.csv", "evidence.parquet"),
    ),
    of_each_prompt=EachPrompt(numbers_of_prompts),
    of_each_pair=Without("it takes models with one stack"),
    symmetric=Symmetric(
        {
            "": lambda case: head_effects(
                case.model, case.clean, target=case.target, distractor=case.distractor
            )
        },
        not_compared=("control",),
    ),
)
