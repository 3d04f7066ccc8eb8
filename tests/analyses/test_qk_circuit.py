"""Which tokens a head attends to: scores of the model where nothing but embeddings is written."""

import pytest
import torch
from architectures import ARCHITECTURES, CLIPPED, assert_close, build, covering
from changed_basis import in_another_basis
from declared import Call, Declared, Made, Symmetric, Without, example, odd, small
from permuted import of_each_head

from analyses import qk
from interp import load, run
from interp.errors import InvalidInput, InvalidTokens

IDS = torch.arange(13)


@pytest.mark.parametrize("name", ["llama", "phi"])
def test_scores_are_those_of_layer_0_above_the_mean_key(name):
    model = build(name)
    prompts = torch.cartesian_prod(IDS, torch.tensor([5]))  # [key query]
    scores = run(model, prompts, record="scores").cache["scores", 0][:, 2, 1, 0]
    result = qk(model, 0, 2, [5], offset=1, top=13)
    expected = (scores - scores.mean()).sort(descending=True)
    assert torch.equal(result.keys.top[0], expected.indices)
    assert_close(result.keys.values[0], expected.values)


def test_queries_of_a_key_are_the_largest_of_its_column():
    model = build("gpt2")
    every = qk(model, 1, 0, IDS, top=13)
    matrix = torch.zeros(13, 13, dtype=torch.float64).scatter_(1, every.keys.top, every.keys.values)
    result = qk(model, 1, 0, [2, 9], top=3)
    expected = matrix.T[[2, 9]].topk(3)
    assert torch.equal(result.queries.top, expected.indices)
    assert_close(result.queries.values, expected.values)
    assert_close(result.queries.controls, matrix.mean(0)[[2, 9], None].expand(2, 3))
    assert_close(result.keys.controls, matrix.mean(0)[result.keys.top])
    assert_close(matrix.mean(1), torch.zeros(13, dtype=torch.float64))
    assert result.spread == pytest.approx(float(matrix.square().mean().sqrt()))
    largest = qk(model, 1, 0, top=2)
    assert torch.equal(largest.keys.tokens, matrix.amax(1).topk(2).indices)
    assert torch.equal(largest.queries.tokens, matrix.amax(0).topk(2).indices)


def test_singular_vectors_add_up_to_the_scores():
    """Of heads without biases and norms of queries, which are no part of W_Q W_Kᵀ."""
    result = qk(build("llama"), 1, 2, IDS, offset=3, top=13)
    rebuilt = torch.zeros(13, 13, dtype=torch.float64)
    for _, readings in result.to_singular_frame().query("end == '+'").groupby("component"):
        queries, keys = (
            torch.tensor(
                readings.sort_values(f"{side}_token", key=lambda labels: labels.astype(int))[
                    f"{side}_token_reading"
                ].to_numpy()
            )
            for side in ("query", "key")
        )
        rebuilt += readings["singular_value"].iloc[0] * torch.outer(queries, keys)
    expected = torch.zeros_like(rebuilt).scatter_(1, result.keys.top, result.keys.values)
    assert_close(rebuilt - rebuilt.mean(1, keepdim=True), expected)


def test_the_bias_is_what_a_model_without_it_lacks():
    """The biases of queries and of the norm together, as in a model where both are folded."""
    model = build("gpt2").processed()
    without = build("gpt2").processed()
    head = 1
    with torch.no_grad():
        without.blocks[1].attn.b_Q[head] = 0
    biased, unbiased = (qk(variant, 1, head, IDS, top=13) for variant in (model, without))
    values, others = (
        torch.zeros(13, 13, dtype=torch.float64).scatter_(1, result.keys.top, result.keys.values)
        for result in (biased, unbiased)
    )
    bias = torch.zeros(13, 13, dtype=torch.float64).scatter_(1, biased.keys.top, biased.key_bias)
    assert_close(values - others, bias)
    assert_close(biased.query_bias, bias[0])
    assert_close(qk(build("gpt2"), 1, head, IDS, top=13).key_bias, biased.key_bias)
    assert unbiased.key_bias.abs().max() < 1e-12
    assert bias.abs().max() > 0.01
    assert qk(build("phi"), 1, head).key_bias.isnan().all()  # a norm of queries follows


def test_scores_by_offset_are_means_over_positions():
    model = build("t5")
    result = qk(model, 1, 0, attention="encoder", positions=4)
    assert result.offsets.tolist() == [-3, -2, -1, 0, 1, 2, 3]
    causal = qk(model, 1, 0, attention="decoder", positions=4)
    assert causal.offsets.tolist() == [0, 1, 2, 3]
    assert float(causal.by_offset.mean()) == pytest.approx(0, abs=1e-12)
    window = qk(build("gemma2"), 0, 0, positions=6)
    assert window.offsets.tolist() == [0, 1, 2]


@pytest.mark.parametrize(("layer", "head", "best"), [(0, 5, 1), (0, 3, 2)])
def test_heads_by_offset_are_seen_in_the_weights(layer, head, best):
    """Of python-2l, those that head_roles calls previous-token and offset -2."""
    result = qk(load("python-2l"), layer, head)
    assert int(result.offsets[result.by_offset.argmax()]) == best
    assert result.by_offset.std() > 3 * result.spread
    assert f"highest at {best}" in result.summary().splitlines()[0]
    induction = qk(load("python-2l"), 1, 0)
    assert induction.by_offset.std() < induction.spread / 10


def test_the_offset_matters_with_rotary_positions_alone():
    near, far = (qk(build("llama"), 1, 1, [3], offset=offset) for offset in (1, 5))
    assert near.offset == 1
    assert (near.keys.values - far.keys.values).abs().max() > 0.01
    assert "at offset 5" in far.summary()
    near, far = (qk(build("gpt2"), 1, 1, [3], offset=offset) for offset in (1, 5))
    assert near.offset is None
    assert torch.equal(near.keys.values, far.keys.values)


@pytest.mark.parametrize("name", covering([n for n in ARCHITECTURES if n not in CLIPPED]))
def test_numbers_do_not_depend_on_the_basis_of_heads(name):
    model = build(name)
    attention = None if len(model.stacks) == 1 else "cross"
    plain, rotated = (
        qk(variant, 0, 1, top=5, positions=3, attention=attention)
        for variant in (model, in_another_basis(model))
    )
    assert torch.equal(plain.keys.top, rotated.keys.top)
    assert_close(plain.keys.values, rotated.keys.values, 1e-10)
    if attention is None:
        assert_close(plain.by_offset, rotated.by_offset, 1e-10)
    assert_close(plain.singular.values, rotated.singular.values, 1e-10)
    assert_close(plain.singular.first, rotated.singular.first, 1e-10)


def test_cross_attention_reads_the_encoder_and_has_no_offsets():
    result = qk(build("t5"), 1, 0, [3], attention="cross")
    assert result.name == "cross.L1H0"
    assert len(result.offsets) == 0
    assert "with the offset" not in result.summary()
    with pytest.raises(InvalidInput, match="no offset in common"):
        result.offset_figure()
    with pytest.raises(InvalidInput, match="an encoder–decoder has"):
        qk(build("t5"), 1, 0)


def test_figures_show_tokens_in_their_cells():
    result = qk(load("python-2l"), 1, 0, ["self", "return"], top=3)
    for direction, largest in (("keys", result.keys), ("queries", result.queries)):
        figure = result.figure(direction)
        assert list(figure.layout.yaxis.ticktext) == ["self", "return"]
        assert len(figure.data[0].text[0]) == len(largest.top_labels[0]) == 3
        assert "offset 1" in figure.layout.title.text
    assert list(result.offset_figure().data[0].x) == list(range(32))


def test_bad_input_is_refused():
    model = load("python-2l")
    with pytest.raises(InvalidTokens, match="is 4 tokens: 'i' 'mport' '·o' 's'"):
        qk(model, 0, 0, "import os")
    with pytest.raises(InvalidInput, match="positions=1 must be an integer of at least 2"):
        qk(model, 0, 0, positions=1)
    with pytest.raises(InvalidInput, match="top=0"):
        qk(model, 0, 0, top=0)
    with pytest.raises(InvalidInput, match="direction='out' should be keys or queries"):
        qk(model, 0, 0).figure("out")


# ---- declared for the tests of all analyses -------------------------------------------------


DECLARED = Declared(
    analysis=qk,
    made=Made(lambda: qk(example.model(), 1, 0, ["a", "b"])),
    call=Call(
        (small.MODEL, 0, 0),
        {},
        {
            **dict.fromkeys(("layer", "head"), odd.INDEX),
            "tokens": odd.TOKENS,
            "offset": odd.OFFSET,
            "positions": (*odd.COUNT, 1),
            "top": odd.COUNT,
            "attention": odd.CHOICE,
            "first_mlp": odd.SWITCH,
        },
        runs=False,
    ),
    command=Without("the command circuits is that of composition"),
    of_each_prompt=Without("it reads weights alone"),
    of_each_pair=Without("it reads weights alone"),
    symmetric=Symmetric(
        {
            "": of_each_head(qk, positions=4),
            "given tokens": lambda case: of_each_head(qk, tokens=case.some, positions=4)(case),
        }
    ),
)
