"""What neurons respond to, and what they do."""

from functools import partial

import pytest
import torch
from architectures import ANYWHERE, BARE, HEADLESS, assert_close, build, build_new, padded
from declared import Call, Command, Declared, EachPrompt, Made, Symmetric, odd, small

import interp
from analyses import ablate, neurons, top_texts
from interp import NO_NORM, Config, MLPConfig, StackConfig
from interp.errors import InvalidInput


def rows(lengths=(4, 6, 2, 5, 6, 3)) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return padded([torch.randint(13, (n,), generator=generator) for n in lengths], "left")


def test_each_neuron_has_its_own_top_tokens():
    model, texts = build("gpt2"), rows()
    description = neurons(model, texts, layer=1, neurons=[7, 2], top=4, ablate=0)
    for row, n in enumerate((7, 2)):
        alone = top_texts(model, texts, of=f"L1N{n}", top=4)
        for name in ("value", "text", "pos", "strips"):
            actual, expected = getattr(description, name)[row], getattr(alone, name)
            torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12, equal_nan=True)
        assert_close(description.control[row], alone.control[0])
        assert description.snippets[row] == alone.snippets
        assert description.mean[row] == pytest.approx(alone.mean)
        assert_close(description.quantiles[row, :1], alone.quantiles[[alone.levels.index(0.5)]])
    every = interp.run(model, texts, record="post").cache["post", 1][texts >= 0]
    assert_close(description.active, (every[:, [7, 2]] > 0).double().mean(0).float(), 1e-6)


def test_the_ablation_is_that_of_the_first_texts():
    model, texts = build("gpt2"), rows()
    description = neurons(model, (row[row >= 0] for row in texts), layer=1, ablate=4, rows=2)
    whole = ablate(model, texts[:4], units="neurons", layers=[1])
    assert_close(description.ablation.clean, whole.clean)
    assert_close(description.ablation.ablated, whole.ablated)
    assert description.ablation.metric == whole.metric
    assert len(description.to_prompt_frame()) == 4 * 10


def test_neurons_are_counted():
    model, texts = build("gpt2"), rows()
    one, two = (neurons(model, texts, layer=1, neurons=n, ablate=2) for n in ([7], [7, 2]))
    assert one.headline().startswith("1 neuron of L1MLP on 6 texts")
    assert "largest effect of 1 neuron (" in one.headline()
    assert one.headline().endswith(" of 1 largest activation")
    assert two.headline().startswith("2 neurons of L1MLP on 6 texts")
    assert two.headline().endswith(" of 2 largest activations")


def test_batches_do_not_matter():
    model, texts = build("llama"), rows()
    few, many = (neurons(model, texts, layer=0, rows=n, ablate=3) for n in (2, 64))
    assert_close(few.direct_effects.promoted_logits, many.direct_effects.promoted_logits)
    assert_close(few.direct_effects.control, many.direct_effects.control)
    assert torch.equal(few.direct_effects.promoted, many.direct_effects.promoted)
    assert few.direct_effects.sum_error <= 1e-10
    assert_close(few.ablation.ablated, many.ablation.ablated)
    assert_close(few.control, many.control)


def test_a_planted_neuron_is_found_with_what_it_reads_and_writes():
    """It reads one token, and writes along the logit of another."""
    config = Config(
        12, 13, 16, decoder=StackConfig(1, BARE, MLPConfig(10, "relu"), NO_NORM, ANYWHERE)
    )
    model = build_new(config)
    unit = torch.nn.functional.normalize
    with torch.no_grad():
        model.blocks[0].attn.W_O[:] = 0
        model.W_E[:], model.unembed.weight[:] = unit(model.W_E), unit(model.unembed.weight)
        model.blocks[0].mlp.W_in[:, 4], model.blocks[0].mlp.b_in[4] = model.W_E[5], 0
        model.blocks[0].mlp.W_out[4] = model.W_U[:, 7]
    texts = torch.arange(13).repeat(6, 1).roll(3, -1)
    frame = neurons(model, texts, layer=0, neurons=[4], top=1).to_frame().iloc[0]
    assert (frame["token"], frame["promoted_tokens"].split()[0]) == ("5", "7")
    assert frame["value"] == pytest.approx(1)
    assert frame["control"] == pytest.approx(1)  # of its token, not of the context
    assert frame["cosine"] == pytest.approx(float(model.W_E[5].detach() @ model.W_U[:, 7].detach()))
    assert frame["logit"] > frame["logit_control"]


def test_models_without_linear_logits_have_no_direct_effects():
    for name in ("bert-types", HEADLESS):
        description = neurons(build(name), rows(), layer=1, top=2)
        assert description.direct_effects is None
        assert "promoted_tokens" not in description.to_frame()
        assert (description.ablation is None) is (name is HEADLESS)
        assert "direct effects" not in description.summary()
    assert "cosine" in description.to_frame()
    assert description.to_prompt_frame().empty


def test_gated_neurons_have_three_cosines():
    frame = neurons(build("llama"), rows(), layer=0, ablate=0).to_frame()
    assert {"cosine", "cosine_gate_out", "cosine_gate_in", "cosine_control"} <= set(frame)


def test_a_figure_is_of_one_neuron():
    description = neurons(build("gpt2"), rows(), layer=1, top=3)
    assert description.figure(4).layout.title.text == "L1N4: the 3 largest activations"
    first = description.to_frame()["name"][0]
    assert description.figure().layout.title.text.startswith(first)
    with pytest.raises(InvalidInput, match="neuron=99 was not measured; there are"):
        description.figure(99)


def test_a_cancelled_call_has_what_was_read():
    description = neurons(build("gpt2"), rows(), layer=1, rows=2, cancelled=lambda: True)
    assert description.notes == ("cancelled after 2 texts",)
    assert description.ablation is None
    assert description.n_texts == 2


def test_a_call_cancelled_before_neurons_are_ablated_has_the_corpus():
    """The second call of ``cancelled`` is that of the forward that means are taken from."""
    answers = iter([False, True])
    description = neurons(build("gpt2"), rows(), layer=1, cancelled=lambda: next(answers))
    assert description.notes == ("cancelled before neurons were ablated",)
    assert description.ablation is None
    assert description.n_texts == len(rows())


@pytest.mark.parametrize(
    ("name", "settings", "error", "message"),
    [
        ("mixtral", {"layer": 0}, InvalidInput, "L0MLP is a mixture of experts"),
        ("seed", {"layer": 0}, InvalidInput, "Layer 0 has no MLP"),
        ("gpt2", {"layer": 2}, InvalidInput, "layer=2 must be an integer from -2 to 1"),
        ("gpt2", {"layer": 0, "neurons": [10]}, InvalidInput, "different indices in 0..9"),
        ("gpt2", {"layer": 0, "neurons": [1, 1]}, InvalidInput, "different indices"),
        ("gpt2", {"layer": 0, "neurons": []}, InvalidInput, "different indices"),
        ("gpt2", {"layer": 0, "stack": "decoder"}, InvalidInput, "stack= is for"),
        (
            "gpt2",
            {"layer": 0, "ablate": -1},
            InvalidInput,
            "ablate=-1 must be an integer of at least 0",
        ),
        (
            "gpt2",
            {"layer": 0, "tokens": 14},
            InvalidInput,
            "tokens=14 must be an integer from 1 to 13",
        ),
        ("gpt2", {"layer": 0, "method": "luck"}, InvalidInput, "luck"),
    ],
)
def test_what_can_not_be_described_is_refused(name, settings, error, message):
    with pytest.raises(error, match=message):
        neurons(build(name), rows(), **settings)


# ---- declared for the tests of all analyses -------------------------------------------------


def numbers_of_prompts(model, prompts, n, stack=None):
    """Every activation of each prompt, and what its ablation does."""
    settings = {"layer": 0, "stack": stack, "top": 1000, "method": "zero"}
    result = neurons(model, prompts, metric=interp.metrics.logit(3), **settings)
    order = result.pos.argsort(dim=-1, stable=True)
    text, value = (cells.gather(-1, order) for cells in (result.text, result.value))
    return [
        {
            "value": torch.stack([v[t == i] for v, t in zip(value, text, strict=True)]),
            "clean": result.ablation.clean[i],
            "ablated": result.ablation.ablated[:, i],
        }
        for i in range(n)
    ]


DECLARED = Declared(
    analysis=neurons,
    made=Made(
        lambda: neurons(interp.load("rasp-reverse"), ["abc", "bca"], layer=1, ablate=2),
        ("effect", "effect"),
    ),
    call=Call(
        (small.MODEL, small.CLEAN),
        {"layer": 0},
        {
            "layer": odd.INDEX,
            "neurons": odd.NUMBERS,
            "stack": odd.CHOICE,
            "top": odd.COUNT,
            "tokens": (*odd.COUNT, 99),
            "bos": odd.SWITCH,
            "ablate": (odd.TEXT, odd.BELOW, odd.BROKEN, odd.LISTED, odd.NOTHING, True),
            "method": (*odd.CHOICE, odd.NOTHING),
            "metric": odd.CHOICE,
            "memory": odd.MEMORY,
            **odd.SAMPLED,
        },
    ),
    command=Command(
        "neurons",
        ("--model", "rasp-reverse", "--neuron", "3", "--neuron", "0", "--layer", "1"),
        "neurons",
        "2 neurons of L1MLP",
        "layer=0 neuron=None stack=None texts=None ablate=32 method=mean bos=False",
    ),
    of_each_prompt=EachPrompt(numbers_of_prompts, {"texts": "no MLP"}),
    of_each_pair={
        stack: partial(numbers_of_prompts, stack=stack) for stack in ("encoder", "decoder")
    },
    symmetric=Symmetric(
        {"": lambda case: neurons(case.model, case.clean, layer=1, top=999, metric=case.metric)},
        not_compared=("rank",),
    ),
)
