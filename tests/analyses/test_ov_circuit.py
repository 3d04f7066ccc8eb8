"""Which tokens a head promotes: the largest entries of its circuit, whatever is asked for."""

from dataclasses import replace

import pytest
import torch
from architectures import (
    ARCHITECTURES,
    CLIPPED,
    PLAIN,
    assert_close,
    build,
    build_new,
    covering,
)
from changed_basis import in_another_basis
from declared import Call, Declared, Made, Symmetric, Without, example, odd, small
from permuted import of_each_head

from analyses import ov, qk
from analyses.methods.circuits.token_circuits import TokenCircuits
from interp import Config, EmbeddingConfig, MLPConfig, PatchConfig, StackConfig, load
from interp.errors import InvalidInput, InvalidTokens

MODEL = "induction-by-hand"


def formed(model, layer: int, head: int, attention=None, n: int = 13) -> torch.Tensor:
    """The circuit multiplied out, sources down."""
    circuits = TokenCircuits.of(model, layer, head, attention)
    return circuits.values(torch.arange(n)) @ circuits.logits(circuits.output())


def test_promoted_outputs_and_promoters_are_those_of_the_circuit_formed():
    model = build("llama")
    matrix = formed(model, 1, 2)
    result = ov(model, 1, 2, [4, 7], top=3)
    assert result.deviation == pytest.approx(float(matrix.std(correction=0)))
    matrix = matrix / result.deviation
    for largest, scores, mean in (
        (result.promoted, matrix, matrix.mean(0)),
        (result.promoters, matrix.T, None),
    ):
        assert largest.tokens.tolist() == [4, 7]
        expected = scores[[4, 7]].topk(3)
        assert torch.equal(largest.top, expected.indices)
        assert_close(largest.values, expected.values)
        control = (
            scores[[4, 7]].mean(1, keepdim=True).expand(2, 3) if mean is None else mean[largest.top]
        )
        assert_close(largest.controls, control)


def test_without_tokens_those_with_the_largest_entries_are_found():
    model = build("gpt2")
    matrix = formed(model, 0, 1)
    result = ov(model, 0, 1, top=4)
    matrix = matrix / result.deviation
    assert torch.equal(result.promoted.tokens, matrix.amax(1).topk(4).indices)
    assert torch.equal(result.promoters.tokens, matrix.amax(0).topk(4).indices)
    assert float(result.promoted.values[0, 0]) == pytest.approx(float(matrix.max()))
    assert float(result.promoters.values[0, 0]) == pytest.approx(float(matrix.max()))


@pytest.mark.parametrize(("ask", "positions"), [(ov, 0), (qk, 16)])
def test_progress_is_that_of_the_search_and_of_positions(ask, positions):
    """Given tokens are not searched for."""
    read = [(position, positions) for position in range(1, positions + 1)]
    for tokens, searched in ((None, [(13, 13)]), ([4, 7], [])):
        done: list[tuple[int, int]] = []
        ask(build("gpt2"), 0, 1, tokens, progress=lambda *counts, done=done: done.append(counts))
        assert done == searched + read


def test_singular_vectors_add_up_to_the_circuit():
    model = build("gpt2")
    result = ov(model, 1, 0, top=13)
    rebuilt = torch.zeros(13, 13, dtype=torch.float64)
    for _, readings in result.to_singular_frame().query("end == '+'").groupby("component"):
        read, written = (
            torch.tensor(
                readings.sort_values(f"{side}_token", key=lambda labels: labels.astype(int))[
                    f"{side}_token_reading"
                ].to_numpy()
            )
            for side in ("source", "output")
        )
        rebuilt += readings["singular_value"].iloc[0] * torch.outer(read, written)
        assert read.abs().max() == read.max()
    assert_close(rebuilt, formed(model, 1, 0))


@pytest.mark.parametrize(
    "name",
    covering(
        [n for n, config in ARCHITECTURES.items() if config.head is None and n not in CLIPPED]
    ),
)
def test_numbers_do_not_depend_on_the_basis_of_heads(name):
    model = build(name)
    attention = None if len(model.stacks) == 1 else "cross"
    plain, rotated = (
        ov(variant, 0, 1, top=5, attention=attention)
        for variant in (model, in_another_basis(model))
    )
    assert torch.equal(plain.promoted.top, rotated.promoted.top)
    assert_close(plain.promoted.values, rotated.promoted.values, 1e-10)
    assert_close(plain.singular.values, rotated.singular.values, 1e-10)
    assert_close(plain.singular.second, rotated.singular.second, 1e-10)
    if plain.copying is not None:
        assert plain.copying == pytest.approx(rotated.copying, abs=1e-10)


def test_the_head_that_was_set_to_copy_promotes_what_it_attends_to():
    result = ov(load(MODEL), 1, 0, ["a", "Q"])
    assert result.promoted.labels == ("a", "Q")
    assert [top[0] for top in result.promoted.top_labels] == ["a", "Q"]
    assert result.copying == pytest.approx(1, abs=1e-4)
    assert result.copying_control.abs().max() < 0.05
    assert "copying +1.00" in result.summary().splitlines()[0]


def test_the_first_mlp_changes_what_is_read():
    model = build("gpt2")
    plain, behind = (
        ov(model, 1, 0, [3], top=13, first_mlp=behind_mlp) for behind_mlp in (False, True)
    )
    assert (plain.promoted.values - behind.promoted.values).abs().max() > 0.1
    assert "behind the first MLP" in behind.summary()
    assert "MLP" not in plain.summary()


def test_sources_of_cross_attention_are_tokens_of_the_encoder():
    model = build("bart")  # which has 17 of them, and 13 in the decoder
    result = ov(model, 1, 0, 16, attention="cross")
    assert result.promoted.tokens.tolist() == [16]
    assert result.copying is None
    assert result.name == "cross.L1H0"
    with pytest.raises(InvalidTokens, match=r"within 0\.\.12"):
        ov(model, 1, 0, 16, attention="decoder")


def test_logits_of_classes_are_outputs_too():
    config = replace(build("gpt2").config, tied=False, n_classes=5)
    result = ov(build_new(config), 0, 0, [2], top=9)
    assert result.promoted.top.shape == (1, 5)
    assert result.copying is None
    assert "no copying" in result.summary()


def test_figures_show_tokens_in_their_cells():
    result = ov(load(MODEL), 1, 0, ["a", "Q"], top=3)
    for direction in ("out", "in"):
        figure = result.figure(direction)
        assert list(figure.layout.yaxis.ticktext) == ["a", "Q"]
        assert [row[0] for row in figure.data[0].text] == ["a", "Q"]
    with pytest.raises(InvalidInput, match="direction='up' should be out or in"):
        result.figure("up")


def test_bad_input_is_refused():
    model = load(MODEL)
    with pytest.raises(InvalidTokens, match=r"'ab' is 2 tokens: 'a' 'b'"):
        ov(model, 1, 0, ["ab"])
    with pytest.raises(InvalidTokens, match="holds no token"):
        ov(model, 1, 0, [])
    with pytest.raises(InvalidTokens, match="ids should be within"):
        ov(model, 1, 0, [10_000])
    with pytest.raises(InvalidInput, match="head=99 must be an integer from"):
        ov(model, 1, 99)
    with pytest.raises(InvalidInput, match="layer=7 must be"):
        ov(model, 7, 0)
    with pytest.raises(InvalidInput, match="top=0"):
        ov(model, 1, 0, top=0)
    with pytest.raises(InvalidInput, match="not linear"):
        ov(build("bert-types"), 0, 0)
    with pytest.raises(InvalidInput, match="no unembedding"):
        ov(build("t5"), 0, 0, attention="encoder")
    with pytest.raises(InvalidInput, match="reads images"):
        ov(build_new(_of_images()), 0, 0)


def _of_images() -> Config:
    patches = EmbeddingConfig(patches=PatchConfig(4, 6, 2, channels=2, n_special=2))
    return Config(12, 7, 8, encoder=StackConfig(2, PLAIN, MLPConfig(10), embedding=patches))


# ---- declared for the tests of all analyses -------------------------------------------------


DECLARED = Declared(
    analysis=ov,
    made=Made(lambda: ov(example.model(), 1, 0, "a")),
    call=Call(
        (small.MODEL, 0, 0),
        {},
        {
            **dict.fromkeys(("layer", "head"), odd.INDEX),
            "tokens": odd.TOKENS,
            "top": odd.COUNT,
            "attention": odd.CHOICE,
            "first_mlp": odd.SWITCH,
            "seed": odd.SEED,
        },
        runs=False,
    ),
    command=Without("the command circuits is that of composition"),
    of_each_prompt=Without("it reads weights alone"),
    of_each_pair=Without("it reads weights alone"),
    symmetric=Symmetric({"": of_each_head(ov)}),
)
