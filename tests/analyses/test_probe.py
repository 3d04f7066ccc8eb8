"""probe: what is planted in the stream is read, and what is not is not."""

import pandas as pd
import pytest
import torch
from architectures import assert_close, build, build_new, padded
from declared import Call, Command, Declared, Made, Symmetric, Without, example, odd, small

import interp
from analyses import probe
from analyses.methods.components.labelled import labelled_activations
from analyses.probe.classifiers import CLASSIFIERS
from interp import PAD, run
from interp.errors import InterpError, InvalidInput


def drawn(n: int = 60, length: int = 5, vocabulary: int = 6) -> torch.Tensor:
    """Prompts of a few tokens, whose embeddings are linearly independent."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(vocabulary, (n, length), generator=generator)


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_the_token_is_read_of_its_own_stream_and_of_no_other(kind):
    """The last token of the prompt; at the entry, the first position has no word of it."""
    model, prompts = build("seed"), drawn()
    last = probe(model, prompts, prompts[:, -1], at="resid_pre", kind=kind)
    assert last.correct.all()
    assert "accuracy 1.00" in last.summary()
    assert last.control.double().mean() < 0.35
    before = probe(model, prompts, prompts[:, -1], at="resid_pre", pos=0, kind=kind)
    assert before.correct.double().mean() < 0.35
    assert not before.to_frame()["significant"].any()
    assert last.to_frame()["significant"].all()


def test_attention_moves_a_label_to_where_it_is_read():
    """`` ) ] } `` after python text: not at the first layer, but at the last."""
    prompts = interp.read_prompts("python-brackets")
    labels = [prompt.target for prompt in prompts]
    probes = probe(interp.load("python-4l"), [p.text for p in prompts], labels)
    accuracy = probes.correct.double().mean(-1)
    assert accuracy[-1] == 1
    assert accuracy[0] < accuracy[-1]
    entry = probe(interp.load("python-4l"), [p.text for p in prompts], labels, at="resid_pre")
    assert entry.correct[0].double().mean() < 0.7
    assert set(entry.labels) == {")", "]", "}"}


def test_labels_that_no_activation_knows_are_read_by_chance():
    model, prompts = build("gpt2"), drawn()
    labels = torch.arange(60)[torch.randperm(60, generator=torch.Generator().manual_seed(5))] % 3
    probes = probe(model, prompts, labels)
    assert probes.correct.double().mean() < 0.55
    assert not probes.to_frame()["significant"].any()


def test_the_headline_differs_if_no_place_exceeds_both_controls():
    """For a label that the first position does not have, and not for one that the last one has."""
    model, prompts = build("seed"), drawn()
    last = probe(model, prompts, prompts[:, -1], at="resid_pre")
    labels = [0] * 54 + [1] * 6  # the constant answer is right for nine in ten
    first = probe(model, prompts, labels, at="resid_pre", pos=0)
    frame = first.to_frame()
    assert (frame["accuracy"] <= frame["constant"]).all()
    assert "are read no better than by the controls, best at" in first.headline()
    assert "are read best at" in last.headline()


def test_by_chance_one_in_twenty_matters():
    """Of labels that are drawn without regard to the prompts, in 30 draws."""
    model, prompts = build("seed"), drawn(12)
    generator = torch.Generator().manual_seed(6)
    draws = [
        probe(model, prompts, torch.randperm(12, generator=generator) % 2, folds=2, seed=n)
        for n in range(30)
    ]
    assert sum(probes.to_frame()["significant"].any() for probes in draws) <= 4


def test_a_prompt_is_predicted_by_probes_of_other_folds():
    """Of a label whose prompts are all in one fold, no probe was fitted to any."""
    model, prompts = build("seed"), drawn()
    labels = prompts[:, -1]
    probes = probe(model, prompts, labels, at="resid_pre", folds=(labels == 3).long())
    assert not probes.correct[:, labels == 3].any()
    assert (labels == 3).sum() > 1


def test_padding_and_the_order_of_prompts_change_nothing():
    model = build("llama")
    rows = [row[: 3 + n % 3] for n, row in enumerate(drawn(24))]
    labels, folds = [int(row[0]) % 2 for row in rows], [n % 4 for n in range(24)]
    order = torch.randperm(24, generator=torch.Generator().manual_seed(1)).tolist()

    def asked(side: str, order: list[int]) -> torch.Tensor:
        batch = padded([rows[n] for n in order], side)
        settings = {"at": ["resid_post", "z"], "folds": [folds[n] for n in order]}
        return probe(model, batch, [labels[n] for n in order], **settings).correct

    expected = asked("left", list(range(24)))
    assert asked("right", list(range(24))).equal(expected)
    assert asked("right", order).equal(expected[:, order])


def test_what_is_read_is_what_a_run_records():
    model, rows = build("gpt2"), [row[: 3 + n % 3] for n, row in enumerate(drawn(6))]
    activations = labelled_activations(
        model, padded(rows, "left"), [n % 2 for n in range(6)], at=["z", "mlp_out"], pos=1
    )
    z, out = (places[1] for places in activations.places.values())
    for number, row in enumerate(rows):
        cache = run(model, row[None], record=[z, out]).cache
        assert_close(activations.rows_at(z)[number], cache[z][0, 1].flatten())
        assert_close(activations.rows_at(out)[number], cache[out][0, 1])
    assert activations.cells["name"] == ["z 0", "z 1", "mlp_out 0", "mlp_out 1"]


def test_the_decoder_and_the_encoder_of_a_pair_are_read():
    model = build("t5")
    source, target = drawn(24), drawn(24).flip(0)
    probes = probe(model, (source, target), source[:, -1] % 2, at="resid_pre", stack="encoder")
    assert probes.correct[0].all()
    assert probe(model, (source, target), target[:, -1] % 2, at="resid_pre").correct[0].all()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"labels": [0, 1]}, "2 labels were given for 6"),
        ({"labels": [1] * 6}, "the same label"),
        ({"labels": [0, 0, 1, 1, 1, 2]}, "Only one prompt has the label '2'"),
        ({"kind": "forest"}, "kind='forest'"),
        ({"folds": 1}, "folds=1"),
        ({"folds": 7}, "folds=7"),
        ({"folds": [0, 1]}, "folds="),
        ({"labels": [0, None] * 3}, "no label for prompt 1"),
        ({"labels": torch.tensor([0, 1, 0, 1, torch.nan, 0])}, "no label for prompt 4"),
        ({"folds": [0] * 6}, "folds="),
        ({"at": "pattern"}, "axes"),
        ({"at": "resid_past"}, "resid_past"),
        ({"at": "embed"}, "every layer has"),
        ({"pos": 9}, "9"),
    ],
)
def test_what_cannot_be_asked_is_refused(changed, message):
    settings = {"labels": [0, 1] * 3, "at": "resid_post"} | changed
    with pytest.raises(InterpError, match=message):
        probe(build("gpt2"), drawn(6), settings.pop("labels"), **settings)


def test_activations_that_are_not_finite_are_refused():
    model = build_new("gpt2")
    with torch.no_grad():
        for block in model.blocks:  # finite, but not their sum
            block.mlp.b_out.fill_(torch.finfo(torch.float64).max)
    with pytest.raises(InvalidInput, match="not finite"):
        probe(model, drawn(6), [0, 1] * 3)


# ---- declared for the tests of all analyses -------------------------------------------------


def of_case(case):
    """Whether a prompt is long, predicted between prompts of even and of odd length, both ways."""
    folds = (case.clean != PAD).sum(-1) % 2
    result = probe(case.model, case.clean, case.is_long, at=("resid_post", "z"), folds=folds)
    rows = [
        {"name": place, "prompt": prompt, "correct": float(correct)}
        for place, row in enumerate(result.correct)
        for prompt, correct in enumerate(row)
    ]
    return {"accuracy": pd.DataFrame(rows)}


DECLARED = Declared(
    analysis=probe,
    made=Made(
        lambda: probe(example.model(), ["ab", "cb", "xa", "ya"], "bbaa", folds=2),
        ("correct", "accuracy"),
    ),
    call=Call(
        (small.MODEL, small.LABELLED, small.LABELS),
        {"folds": 2},
        {
            "labels": odd.LABELS,
            "at": odd.POINTS,
            "pos": odd.POSITION,
            "kind": (*odd.CHOICE, odd.NOTHING),
            "folds": (*odd.COUNT, 1, 5, [0, 0, 0, 0], [[0, 1]], [0, 0.5, 1, torch.nan]),
            "stack": odd.CHOICE,
            "seed": odd.SEED,
        },
    ),
    command=Command(
        "probe",
        ("--model", "rasp-histogram"),
        "probe",
        "at resid_post 0: accuracy 1.00",
        "at=None pos=-1 kind=ridge folds=5",
    ),
    of_each_prompt=Without("a probe is fitted to all prompts"),
    of_each_pair=Without("a probe is fitted to all prompts"),
    symmetric=Symmetric({"": of_case}),
)
