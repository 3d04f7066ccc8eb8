"""erase: afterwards the label can't be read where it was, and what depends on it is lost."""

from dataclasses import replace

import pytest
import torch
from architectures import assert_close, build, padded
from declared import Call, Command, Declared, Made, Symmetric, Without, example, odd, small
from torch.nn.functional import one_hot

import interp
from analyses import erase
from analyses.erase.erasure import Erasure
from interp import edits, metrics, run
from interp.errors import InterpError

METRIC = metrics.logit(3)


def drawn(n: int = 24) -> torch.Tensor:
    return torch.randint(6, (n, 5), generator=torch.Generator().manual_seed(0))


def labels_of(prompts: torch.Tensor) -> torch.Tensor:
    return prompts[:, -1] % 3


def test_the_numbers_are_those_of_a_run_with_the_erased_activations():
    """And there, the covariance with the labels is 0; before, it is not."""
    model, rows = build("gpt2"), [row[: 3 + n % 3] for n, row in enumerate(drawn())]
    prompts = padded(rows, "left")
    labels = torch.stack([row[0] for row in rows]) % 2
    erasure = erase(model, prompts, labels, metric=METRIC, at="mlp_out", pos=1)
    z = one_hot(labels, 2).double()
    z = z - z.mean(0)
    for layer in range(2):
        x = torch.stack(
            [run(model, row[None], record="all").cache["mlp_out", layer][0, 1] for row in rows]
        )
        erased = Erasure.of(x, z)(x)
        edit = edits.replace("mlp_out", erased[:, None], layer=layer, pos=1)
        done = run(model, prompts, edits=[edit], record=[("mlp_out", layer)])
        assert_close(erasure.erased[layer], METRIC(done.logits, done.batch))
        there = torch.stack(
            [
                output[real][1]
                for output, real in zip(done.cache["mlp_out", layer], prompts >= 0, strict=True)
            ]
        )
        assert (z.mT @ there).abs().max() < 1e-12 * len(rows)
        assert (z.mT @ x).abs().max() > 0.1
    assert_close(erasure.clean, METRIC(model(prompts), model.batch(prompts)))


def test_what_a_model_answers_with_depends_on_its_label():
    """`` ) ] } `` after python text: erased from the last stream, the answer is lost."""
    model, prompts = interp.load("python-4l"), interp.read_prompts("python-brackets")
    targets = tuple(model.to_single_token(prompt.target) for prompt in prompts)
    texts, labels = [p.text for p in prompts], [p.target for p in prompts]
    erasure = erase(model, texts, labels, metric=metrics.prob(targets))
    frame = erasure.to_frame()
    last = frame[frame["layer"] == 3].iloc[0]
    assert last["effect"] < -0.4
    assert last["significant"]
    assert abs(last["control"]) < 0.1
    first = frame[frame["layer"] == 0].iloc[0]
    assert abs(first["effect"]) < 0.05
    assert "erased at resid_post 3" in erasure.summary()


def test_the_directions_of_a_probe_can_be_taken_out_instead():
    model, prompts = build("gpt2"), drawn()
    labels = labels_of(prompts)
    leace, of_probe = (
        erase(model, prompts, labels, metric=METRIC, at="resid_pre", method=method)
        for method in ("leace", "probe")
    )
    x = run(model, prompts, record=[("resid_pre", 1)]).cache["resid_pre", 1][:, -1]
    without = Erasure.of_probe(x, one_hot(labels, 3).double())(x)
    edit = edits.replace("resid_pre", without[:, None], layer=1, pos=-1)
    done = run(model, prompts, edits=[edit])
    assert_close(of_probe.erased[1], METRIC(done.logits, done.batch))
    assert (of_probe.erased - leace.erased).abs().max() > 1e-3
    assert "a probe's directions removed at resid_pre" in of_probe.summary()


def test_a_place_that_nothing_reads_has_no_effect():
    """The last stream at a position that no prediction is made of."""
    model, prompts = build("gpt2"), drawn()
    erasure = erase(model, prompts, prompts[:, 0] % 2, metric=METRIC, pos=0)
    assert_close(erasure.erased[1], erasure.clean)
    assert not torch.allclose(erasure.erased[0], erasure.clean)


def test_random_labels_are_removed_as_well_where_prompts_are_few():
    """Of as many dimensions as prompts, any labels are all of some directions."""
    model, prompts = build("gpt2"), drawn(8)
    erasure = erase(model, prompts, [0, 1] * 4, metric=METRIC)
    assert erasure.removed_control.min() > 0
    assert (erasure.control - erasure.clean).abs().max() > 1e-3
    assert erasure.removed.max() < 1


def test_a_cancelled_call_is_resumed():
    model, prompts = build("gpt2"), drawn()
    whole = erase(model, prompts, labels_of(prompts), metric=METRIC)
    seen = []
    part = erase(
        model,
        prompts,
        labels_of(prompts),
        metric=METRIC,
        memory=2.0**17,
        progress=lambda done, total: seen.append((done, total)),
        cancelled=lambda: bool(seen),
    )
    assert part.partial is not None
    assert part.erased.isnan().any()
    assert seen[-1][0] < seen[-1][1] == 12
    resumed = erase(model, prompts, labels_of(prompts), metric=METRIC, resume=part.partial)
    assert_close(resumed.erased, whole.erased)
    assert resumed.partial is None
    assert replace(resumed, provenance=whole.provenance).summary() == whole.summary()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"labels": [1] * 6}, "the same label"),
        ({"at": "pattern"}, "axes"),
        ({"metric": "luck"}, "metric="),
        ({"pos": 9}, "9"),
    ],
)
def test_what_cannot_be_asked_is_refused(changed, message):
    settings = {"labels": [0, 1] * 3, "metric": METRIC} | changed
    with pytest.raises(InterpError, match=message):
        erase(build("gpt2"), drawn(6), settings.pop("labels"), **settings)


# ---- declared for the tests of all analyses -------------------------------------------------


DECLARED = Declared(
    analysis=erase,
    made=Made(
        lambda: erase(example.model(), ["ab", "cb", "xa", "ya"], "bbaa"), ("effect", "effect")
    ),
    call=Call(
        (small.MODEL, small.LABELLED, small.LABELS),
        {},
        {
            "labels": odd.LABELS,
            "metric": odd.CHOICE,
            "at": odd.POINTS,
            "pos": odd.POSITION,
            "method": (*odd.CHOICE, odd.NOTHING),
            "stack": odd.CHOICE,
            "seed": odd.SEED,
            **odd.SWEPT,
        },
    ),
    command=Command(
        "erase",
        ("--model", "rasp-histogram", "--metric", "kl"),
        "erase",
        "erased at resid_post 0",
        "metric=None at=None pos=-1 method=leace",
    ),
    of_each_prompt=Without("what is erased depends on all prompts"),
    of_each_pair=Without("what is erased depends on all prompts"),
    symmetric=Symmetric(
        {
            "": lambda case: erase(
                case.model, case.clean, case.is_long, metric=case.metric, at=("resid_pre", "z")
            )
        },
        not_compared=("control", "removed_control"),
    ),
)
