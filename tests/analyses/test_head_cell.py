"""One cell of a head step by step: its score, its weight, and what the head writes for it."""

import pandas as pd
import pytest
import torch
from architectures import ARCHITECTURES, SINKS, build, covering, tokens_of
from declared import Call, Declared, EachPrompt, Made, Symmetric, Without, example, odd, small
from declared.prompts import row_of

from analyses import head_cell
from analyses.head_cell import PARTS
from analyses.methods.attribution import Head
from analyses.methods.heads import every_attention
from interp import run
from interp.errors import InvalidInput

BOUND = 1e-12


def prompt_of(model, name: str, number: int = 1):
    """One prompt; of an encoder–decoder, one pair."""
    tokens = tokens_of(name)
    pair = len(model.stacks) > 1
    return (
        tuple(part[number : number + 1] for part in tokens)
        if pair
        else tokens[0][number : number + 1]
    )


def attentions(name: str):
    """Every attention of a model, with its last layer and last head."""
    model = build(name)
    for kind in every_attention(model):
        yield model, kind.name, len(kind.layers) - 1, kind.layers[-1].n_heads - 1


def recorded(model, prompt, layer, head, attention, point: str):
    of = Head.of(model, layer, head, attention)
    place = of.place(getattr(of.attn.points, point))
    return run(model, *model.batches(prompt), record=place).cache[place][0].detach()


@pytest.mark.parametrize("name", covering(ARCHITECTURES))
def test_products_soft_cap_and_bias_give_the_recorded_score(name):
    """cap(Σ_i q_i k_i / scale) + bias; the converse: without the largest product, it differs."""
    for model, attention, layer, head in attentions(name):
        prompt = prompt_of(model, name)
        scores = recorded(model, prompt, layer, head, attention, "scores")[head]
        queries = len(scores)
        for query in (0, queries - 1):
            cell = head_cell(model, prompt, layer, head, query=query, attention=attention)
            attn = Head.of(model, layer, head, attention).attn
            score = scores[query, cell.key]
            bias = cell.terms[PARTS.index("position bias")]
            total = attn.soft_cap(cell.products.sum()) + bias
            bound = BOUND * max(1, float(cell.products.abs().sum()), float(bias.abs()))
            assert abs(total - score) <= bound
            assert cell.error <= bound
            largest = cell.products.abs().max()
            less = cell.products.sum() - cell.products[cell.products.abs().argmax()]
            assert abs(attn.soft_cap(less) + bias - score) > 1e-6 * largest


@pytest.mark.parametrize("name", covering(ARCHITECTURES))
def test_the_softmax_of_the_row_is_the_recorded_pattern(name):
    """With the sink as one more score; the converse: without it, rows with sinks differ."""
    for model, attention, layer, head in attentions(name):
        prompt = prompt_of(model, name)
        cell = head_cell(model, prompt, layer, head, attention=attention)
        row = recorded(model, prompt, layer, head, attention, "pattern")[head, cell.query]
        sink = [] if cell.sink != cell.sink else [cell.sink]
        softmax = torch.cat([cell.scores, cell.scores.new_tensor(sink)]).softmax(-1)
        assert (softmax[: len(row)] - row).abs().max() <= BOUND
        assert (cell.pattern - row).abs().max() <= BOUND
        assert bool(sink) == (name in SINKS)
        without = (cell.scores.softmax(-1) - row).abs().max()
        assert (without > 1e-3) == (name in SINKS)
        moved = cell.scores.clone()
        moved[cell.key] = -torch.inf
        if int((cell.scores > -torch.inf).sum()) > 1:
            assert (moved.softmax(-1) - row).abs().max() > 1e-3


@pytest.mark.parametrize("name", covering(ARCHITECTURES))
def test_what_is_written_for_all_keys_is_what_the_head_writes(name):
    """Σ_j A_j v_j W_O is the recorded result; without one key, it is not."""
    for model, attention, layer, head in attentions(name):
        prompt = prompt_of(model, name)
        result = recorded(model, prompt, layer, head, attention, "result")
        of_last = head_cell(model, prompt, layer, head, attention=attention)
        visible = of_last.to_key_frame()["key"].tolist()
        cells = [
            head_cell(model, prompt, layer, head, key=key, attention=attention) for key in visible
        ]
        whole = result[of_last.query, head]
        total = sum(cell.written for cell in cells)
        assert (total - whole).abs().max() <= BOUND * max(1, float(whole.abs().max()))
        for cell in cells:
            assert cell.written_norms[cell.key] == pytest.approx(float(cell.written.norm()))
        assert (total - of_last.written - whole).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("gpt2", {"content"}),
        ("llama", {"content", "rotation"}),
        ("phi", {"content", "rotation"}),
        ("gemma2", {"content", "rotation", "soft-cap"}),
        ("bloom", {"content", "position bias"}),
        ("t5", {"content", "position bias"}),
    ],
)
def test_parts_of_the_score_are_those_that_the_model_has(name, there):
    model = build(name)
    attention = "decoder" if len(model.stacks) > 1 else None
    cell = head_cell(model, prompt_of(model, name), 0, 1, query=3, key=1, attention=attention)
    assert {
        part for part, value in zip(PARTS, cell.terms, strict=True) if abs(value) > 1e-9
    } == there
    for part in PARTS:
        assert (f"({part})" in cell.formulas()["score"]) == (part in there)


def test_the_divisor_is_that_of_the_model():
    """√d_head; another where the configuration has one."""
    assert head_cell(build("gpt2"), prompt_of(build("gpt2"), "gpt2"), 0, 0).divisor == 2
    assert head_cell(build("gptj"), prompt_of(build("gptj"), "gptj"), 0, 0).divisor == 1.5


@pytest.mark.parametrize("name", ["seed", "llama"])
def test_tokens_are_the_extremes_of_what_is_written_through_the_unembedding(name):
    """A v W_O · gain · W_U minus the mean; the gain matters: without it, the logits are others."""
    model = build(name)
    cell = head_cell(model, prompt_of(model, name), -1, 0, key=0, top=3)
    gain = getattr(model.stacks[-1].final_norm, "gain", None)
    plain = cell.written @ model.unembed.W_U.detach()
    through = plain if gain is None else (cell.written * gain.detach()) @ model.unembed.W_U.detach()
    logits = through - through.mean()
    order = logits.argsort(descending=True)
    assert cell.logit_ids.tolist() == [*order[:3].tolist(), *order[-3:].tolist()]
    assert (cell.token_logits - logits[cell.logit_ids]).abs().max() <= BOUND
    if gain is not None:
        assert (cell.token_logits - (plain - plain.mean())[cell.logit_ids]).abs().max() > 1e-3


def test_a_head_without_an_unembedding_has_no_tokens():
    model = build("t5")
    cell = head_cell(model, prompt_of(model, "t5"), 0, 0, attention="encoder")
    assert not len(cell.logit_ids)
    assert "tokens" not in cell.drawings()
    assert "raises" not in cell.summary()


def test_by_hand_the_induction_head_finds_what_followed():
    cell = head_cell(example.model(), "abcab", 1, 0, query=4)
    assert (cell.key, cell.key_tokens[cell.key]) == (2, "b")
    assert cell.weight == pytest.approx(1)
    assert cell.token_labels[0] == "b"
    assert [*cell.drawings()] == ["products", "score", "row", "value", "tokens"]
    assert [*cell.formulas()] == [*cell.drawings()]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"query": 1, "key": 3}, "Key 3 is masked for query 1"),
        ({"query": 9}, "query=9 should be a position"),
        ({"top": 0}, "top"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings, reason):
    model = build("gpt2")
    with pytest.raises(InvalidInput, match=reason):
        head_cell(model, prompt_of(model, "gpt2"), 0, 0, **settings)


def test_several_prompts_are_refused():
    with pytest.raises(InvalidInput, match="of one prompt; got 3"):
        head_cell(small.MODEL, small.CLEAN, 0, 0)


# ---- declared for the tests of all analyses -----------------------------------------------------


def numbers_of(cell):
    names = (
        *("query_vector", "key_vector", "terms", "scores", "pattern"),
        *("value_vector", "written", "written_norms"),
    )
    return {name: getattr(cell, name) for name in names}


def numbers_of_prompts(model, prompts, n):
    return [numbers_of(head_cell(model, row_of(prompts, i), 1, 2, key=0)) for i in range(n)]


def numbers_of_pairs(attention):
    def numbers(model, pair, n):
        rows = [tuple(row_of(prompts, i) for prompts in pair) for i in range(n)]
        cells = [head_cell(model, row, 0, 2, key=0, attention=attention) for row in rows]
        return [numbers_of(cell) for cell in cells]

    return numbers


def of_each_head(case):
    """Of every head of a layer on every prompt."""
    cells = [
        (n, head, head_cell(case.model, case.clean[n : n + 1], 1, head, key=0))
        for n in range(len(case.clean))
        for head in range(case.model.blocks[1].attn.n_heads)
    ]
    frames = {
        name: pd.concat(
            cell.more_frames()[name].assign(prompt=n, layer=1, head=head) for n, head, cell in cells
        )
        for name in ("parts", "keys")
    }
    return frames | {
        "dimensions": pd.concat(
            cell.to_frame().assign(prompt=n, layer=1, head=head) for n, head, cell in cells
        )
    }


DECLARED = Declared(
    analysis=head_cell,
    made=Made(lambda: head_cell(example.model(), "abcab", 1, 0, query=4)),
    call=Call(
        (small.MODEL, small.CLEAN[:1]),
        {"layer": 0, "head": 0},
        {
            **dict.fromkeys(("layer", "head"), odd.INDEX),
            "query": odd.POSITION,
            "key": tuple(value for value in odd.POSITION if value is not odd.NOTHING),
            "attention": odd.CHOICE,
            "top": odd.COUNT,
        },
    ),
    command=Without("the explorer shows it"),
    of_each_prompt=EachPrompt(numbers_of_prompts),
    of_each_pair={kind: numbers_of_pairs(kind) for kind in ("encoder", "decoder", "cross")},
    symmetric=Symmetric({"": of_each_head}),
)
