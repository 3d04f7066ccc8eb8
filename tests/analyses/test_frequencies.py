"""frequencies: those that a model adds with are named, and none where there is no order."""

from dataclasses import replace
from math import tau

import pytest
import torch
from architectures import assert_close, build
from declared import Call, Command, Declared, Made, Symmetric, Without, example, odd, small

import interp
from analyses import frequencies
from interp import NO_NORM, AttentionConfig, Config, MLPConfig, PositionsConfig, StackConfig
from interp.errors import InvalidInput
from training.evaluations.fourier import explained
from training.recipes.addition_mod_113 import P, every_sum, logits_of

NAME, PROMPT = "addition-mod-113", "16 102 ="


@pytest.fixture(scope="module")
def addition():
    return interp.load(NAME)


@pytest.fixture(scope="module")
def addition_frequencies(addition):
    return frequencies(addition, PROMPT)


def planted(p: int, k: int, *, seed: int = 0) -> interp.Transformer:
    """A model of p residues whose embedding is one wave, and whose neurons read sums of two.

    It attends to both residues alike, so that its stream is the sum of their embeddings.
    """
    attention = AttentionConfig(1, 4, bias_q=False, bias_k=False, bias_v=False, bias_o=False)
    stack = StackConfig(1, attention, MLPConfig(6, "relu"), NO_NORM, PositionsConfig("none"))
    model = interp.Transformer(Config(4, p, 3, decoder=stack)).double()
    generator = torch.Generator().manual_seed(seed)
    angle = tau * k * torch.arange(p).double() / p
    with torch.no_grad():
        for weights in model.parameters():
            weights.copy_(torch.randn(weights.shape, generator=generator).double())
        attn = model.blocks[0].attn
        attn.W_Q.zero_()
        attn.W_V.copy_(torch.eye(4)[None])
        attn.W_O.copy_(2 * torch.eye(4)[None])
        mixed = torch.stack([angle.cos(), angle.sin()], -1) @ torch.randn(2, 4).double()
        model.W_E.copy_(mixed)
    return model


@pytest.mark.slow
def test_addition_names_its_frequencies(addition_frequencies):
    assert list(addition_frequencies.key_frequencies()) == [27, 10, 9]
    assert addition_frequencies.key_frequencies()[27] > 0.4
    frame = addition_frequencies.to_frame()
    logits = frame[frame["name"] == "logits"]
    assert list(logits["frequency"].head(3)) == [27, 10, 9]
    assert addition_frequencies.summary().startswith(f"{NAME}: frequencies 27, 10, 9 have 97 %")


@pytest.mark.slow
def test_nearly_every_neuron_of_addition_has_one_frequency(addition_frequencies):
    frame = addition_frequencies.to_neuron_frame()
    assert frame["tuned"].mean() == pytest.approx(0.94, abs=0.005)
    assert set(frame[frame["tuned"]]["frequency"]) == {27, 10, 9}
    assert (frame["control"] < 0.2).all()


def test_shares_of_the_logits_are_those_of_cosines_of_the_sum(addition, addition_frequencies):
    """Where the logits are functions of a + b − c, which these nearly are."""
    every = logits_of(addition, every_sum())[:, :P].view(P, P, P)
    numbers = torch.arange(P)
    distance = (numbers[:, None, None] + numbers[:, None] - numbers) % P
    of_sums = torch.zeros(P).index_add(0, distance.flatten(), every.flatten())[distance]
    shares = explained(of_sums)
    assert sum(shares.values()) == pytest.approx(1.0, abs=1e-4)
    for k in (27, 10):
        assert addition_frequencies.share["logits"][k - 1].item() == pytest.approx(
            shares[k], abs=0.05
        )


def test_an_untrained_model_has_no_frequencies(addition):
    torch.manual_seed(0)
    untrained = interp.Transformer(replace(addition.config, d_vocab=38))
    spectrum = frequencies(untrained, torch.tensor([[4, 9, 37]]), residues=range(37))
    assert not spectrum.key_frequencies()
    assert not spectrum.to_neuron_frame()["tuned"].any()
    assert "no frequency stands out" in spectrum.summary()


@pytest.mark.parametrize(("p", "k"), [(11, 3), (12, 5)])
def test_a_planted_frequency_is_found_and_its_shares_add_up(p, k):
    model = planted(p, k)
    spectrum = frequencies(model, torch.tensor([[1, 2]]), residues=range(p))
    planted_share = torch.eye(p // 2).double()[k - 1]
    assert_close(spectrum.share["embedding"], planted_share)
    assert_close(spectrum.share["unembedding"].sum(), torch.tensor(1.0).double())
    assert_close(spectrum.share["logits"].sum(), torch.tensor(1.0).double())
    assert spectrum.neuron_share[0].argmax(-1).eq(k - 1).all()


def test_the_order_of_the_residues_is_what_has_a_frequency():
    """Counted in steps of 2, frequency k is frequency 2k; in random order it is none."""
    model, p, k = planted(13, 3), 13, 3
    steps = [2 * n % p for n in range(p)]
    spectrum = frequencies(model, torch.tensor([[1, 2]]), residues=steps)
    assert spectrum.share["embedding"].argmax() + 1 == 2 * k
    order = torch.randperm(p, generator=torch.Generator().manual_seed(0)).tolist()
    spectrum = frequencies(model, torch.tensor([[1, 2]]), residues=order)
    assert not spectrum.key_frequencies()


def test_a_prompt_with_one_residue_has_one_axis():
    model = planted(11, 3)
    spectrum = frequencies(model, torch.tensor([[4]]), residues=range(11))
    with torch.no_grad():
        post = interp.run(model, torch.arange(11)[:, None], record="post").cache["post", 0][:, 0]
    waves = torch.fft.fft(post, dim=0).abs().square()
    varies = waves[1:].sum(0) > 0
    share = (waves[3] + waves[8]) / waves[1:].sum(0)
    assert_close(spectrum.neuron_share[0][varies, 2], share[varies])
    assert spectrum.template == ("a",)


def test_a_neuron_that_does_not_vary_has_no_frequency():
    model = planted(11, 3)
    with torch.no_grad():
        model.blocks[0].mlp.W_in[:, 2] = 0
    spectrum = frequencies(model, torch.tensor([[1, 2]]), residues=range(11))
    assert spectrum.neuron_share[0][2].isnan().all()
    assert not spectrum.to_neuron_frame()["tuned"][2]


def test_a_model_without_mlps_has_no_neurons():
    spectrum = frequencies(build("seed"), torch.tensor([[1, 2]]), residues=range(5))
    assert spectrum.neuron_share == {}
    assert set(spectrum.share) == {"embedding", "unembedding", "logits"}
    spectrum.figure()


@pytest.mark.parametrize(
    ("name", "prompt", "message"),
    [
        ("python-2l", "1 + 2", "has no residue task"),
        ("induction-by-hand", "abc", "has no residue task"),
        ("dates", "1 May 2020", "single stack"),
        (NAME, "= =", "holds 0"),
        (NAME, ["1 2 =", "3 4 ="], "got 2"),
    ],
)
def test_a_question_without_residues_is_refused_by_name(name, prompt, message):
    with pytest.raises(InvalidInput, match=message):
        frequencies(interp.load(name), prompt)


@pytest.mark.parametrize("residues", [[1, 2], [1, 2, 2, 3]])
def test_residues_that_are_none_are_refused(residues):
    with pytest.raises(InvalidInput, match="all different"):
        frequencies(build("gpt2"), torch.tensor([[1, 2]]), residues=residues)


def test_ids_outside_the_vocabulary_are_refused():
    with pytest.raises(InvalidInput, match="vocabulary"):
        frequencies(build("gpt2"), torch.tensor([[1, 2]]), residues=[1, 2, 99])
    with pytest.raises(InvalidInput, match="no position 7"):
        frequencies(build("gpt2"), torch.tensor([[1, 2]]), residues=[1, 2, 3], pos=7)


# ---- declared for the tests of all analyses -------------------------------------------------


DECLARED = Declared(
    analysis=frequencies,
    made=Made(lambda: frequencies(example.model(), [[2, 3]], residues=range(6))),
    call=Call(
        (small.MODEL, [0, 1, 12]),
        {"residues": range(5)},
        {
            "residues": (
                *(odd.TEXT, odd.BELOW, odd.BROKEN, [], [0, 1], [0, 0, 1], [0, 1, 99]),
                *([odd.TEXT], odd.NOTHING),
            ),
            "pos": (odd.TEXT, odd.BROKEN, odd.LISTED, odd.NOTHING, True, 99, -99),
            "seed": odd.SEED,
        },
    ),
    command=Command(
        "frequencies",
        ("--model", "addition-mod-113"),
        "frequencies",
        "frequencies 27, 10, 9",
        "pos=-1",
    ),
    of_each_prompt=Without("it makes its own prompts of one"),
    of_each_pair=Without("it makes its own prompts of one"),
    symmetric=Symmetric(
        {
            "": lambda case: frequencies(
                case.model, torch.tensor([case.some[:2]]), residues=case.some
            )
        }
    ),
)
