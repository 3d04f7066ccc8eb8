"""Statistics of attention: what masses sum to, what uniform heads have, and heads that align."""

import sys
from datetime import date, timedelta
from functools import partial

import pytest
import torch
from architectures import (
    ARCHITECTURES,
    SINKS,
    assert_close,
    build,
    build_new,
    covering,
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
    example,
    odd,
    small,
)
from pandas.testing import assert_frame_equal

import interp
from analyses import attention_statistics
from analyses.attention_statistics import WEIGHTINGS
from analyses.results import Moments
from interp import PAD, computation_graph, run
from interp.errors import InvalidInput, InvalidTokens
from training.calendar import FORMATS, WrittenDate
from training.evaluations.alignment import FIELDS, PREDICTING, alignment
from training.recipes.dates import encode

SINGLE = [name for name, config in ARCHITECTURES.items() if len(config.stacks) == 1]
ROWS = [torch.tensor(row) for row in ([3, 1, 4, 1, 5], [9, 2], [6, 5, 3, 5])]
CLASSES = {"odd": [1, 3, 5, 9], "six": 6}


def statistic(result, name, weighting="attention"):
    """``[layer head prompt]``."""
    return result.value[WEIGHTINGS.index(weighting), ..., result.statistics.index(name)]


def with_zeros(name, **heads):
    """The model with the queries, or the values, of head 1 of layer 0 set to zero."""
    model = build_new(name)
    attn = model.stacks[0].block(0).attn
    with torch.no_grad():
        for weight, bias in heads.items():
            getattr(attn, weight)[1].zero_()
            if getattr(attn, bias.lower()) is not None:
                getattr(attn, bias)[1].zero_()
    return model


def test_the_headline_names_the_head_furthest_above_uniform_attention():
    result = attention_statistics(build("gpt2"), padded(ROWS, "left"))
    first, second = result.to_largest_frame()["name"].head(2)
    assert f"furthest above uniform attention: {first} (" in result.headline()
    assert f"{second} (" not in result.headline()
    (conclusion,) = result.conclusion()
    assert conclusion.startswith(result.headline())
    assert f"{second} (" in conclusion


@pytest.mark.parametrize("name", covering(name for name in SINGLE if name not in SINKS))
def test_masses_on_disjoint_classes_sum_to_one(name):
    """Σ_K mass(K) = 1, by attention, by values and by uniform weights."""
    result = attention_statistics(build(name), padded(ROWS, "left"), classes=CLASSES)
    indices = [result.statistics.index(label) for label in (*CLASSES, "other")]
    for masses in (result.value, result.uniform):
        total = masses[..., indices].sum(-1)
        assert_close(total, torch.ones_like(total))
    assert 0 < statistic(result, "odd").min() < 1


@pytest.mark.parametrize("name", SINKS)
def test_with_sinks_they_sum_to_what_is_not_the_sinks(name):
    """By values, where weights are divided by their sum, and by uniform weights, to one."""
    result = attention_statistics(build(name), padded(ROWS, "left"), classes=CLASSES)
    indices = [result.statistics.index(label) for label in (*CLASSES, "other")]
    total = result.value[..., indices].sum(-1)
    assert bool((total[0] < 1).all())
    assert_close(total[1], torch.ones_like(total[1]))
    assert_close(result.uniform[..., indices].sum(-1), torch.ones_like(result.uniform[..., 0]))


def test_masses_on_classes_that_overlap_do_not():
    overlapping = {"odd": [1, 3, 5, 9], "three": 3}
    result = attention_statistics(build("gpt2"), padded(ROWS, "left"), classes=overlapping)
    total = sum(statistic(result, label) for label in (*overlapping, "other"))
    assert total.max() > 1.01


@pytest.mark.parametrize("name", ["seed", "gpt2", "llama", "gemma2", "bert"])
def test_a_head_without_queries_is_uniform(name):
    """Zero Q: entropy log n and normalized entropy 1; all other heads have less."""
    result = attention_statistics(
        with_zeros(name, W_Q="b_Q"), padded(ROWS, "right"), classes=CLASSES
    )
    uniform = result.value[0, 0, 1]
    assert_close(uniform.nan_to_num(-1), result.uniform[0].nan_to_num(-1))
    assert_close(statistic(result, "normalized entropy")[0, 1], torch.ones(3).double())
    assert statistic(result, "normalized entropy")[0, 0].max() < 1 - 1e-6
    n = torch.arange(2, 6).double()  # the first query has no choice
    nats = n.log().mean() if name != "bert" else n[-1].log()
    if name != "gemma2":  # whose window hides keys from the last queries
        assert_close(statistic(result, "entropy")[0, 1, 0], nats)


def test_where_attention_stays_alone():
    """Of one prompt by the formulas, and what each mean is over."""
    model, ids = build("gpt2"), ROWS[0]
    result = attention_statistics(model, ids, offsets=3, classes=CLASSES)
    pattern = run(model, ids, record="pattern").cache["pattern", 1][0]
    nats = -(pattern * pattern.clamp(min=1e-300).log()).sum(-1)
    i = torch.arange(5)
    expected = {
        "entropy": nats[:, 1:].mean(-1),
        "normalized entropy": (nats[:, 1:] / (i[1:] + 1.0).double().log()).mean(-1),
        "distance": (pattern * (i[:, None] - i).abs()).sum(-1)[:, 1:].mean(-1),
        "first position": pattern[:, 1:, 0].mean(-1),
        "self": pattern.diagonal(0, -2, -1)[:, 1:].mean(-1),
        "previous": pattern.diagonal(-1, -2, -1).mean(-1),
        "offset -3": pattern.diagonal(-3, -2, -1).mean(-1),
        "six": torch.zeros(3).double(),
        "odd": pattern[..., [0, 1, 3, 4]].sum(-1).mean(-1),
    }
    for name, value in expected.items():
        assert_close(statistic(result, name)[1, :, 0], value, what=name)
    assert "next" not in result.statistics


def test_an_encoder_attends_forward():
    result = attention_statistics(build("bert"), ROWS[0], offsets=2)
    pattern = run(build("bert"), ROWS[0], record="pattern").cache["pattern", 0][0]
    for name, by in {"next": 1, "offset +2": 2, "offset -2": -2}.items():
        expected = pattern.diagonal(by, -2, -1).mean(-1)
        assert_close(statistic(result, name)[0, :, 0], expected, what=name)


@pytest.mark.parametrize("name", ["gpt2", "llama", "gptj", "olmo2", "bert"])
def test_value_weights_are_the_lengths_of_what_is_moved(name):
    """A_ij ‖v_j W_O‖ / Σ_j A_ij ‖v_j W_O‖, each vector formed; key/value heads are shared."""
    model, ids = build(name), ROWS[0]
    result = attention_statistics(model, ids)
    cache = run(model, ids, record=["pattern", "v"]).cache
    attn = model.blocks[1].attn
    for head in range(attn.n_heads):
        v = cache["v", 1][0, :, head * attn.kv_heads // attn.n_heads]
        weights = cache["pattern", 1][0, head] * (v @ attn.W_O[head]).norm(dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        expected = weights.diagonal(-1).mean().detach()
        assert_close(statistic(result, "previous", "value-weighted")[1, head, 0], expected)
        assert statistic(result, "previous")[1, head, 0] != pytest.approx(float(expected), abs=1e-6)


def test_scaling_the_values_of_a_head_changes_nothing():
    model, other = build("gpt2"), build_new("gpt2")
    with torch.no_grad():
        other.blocks[1].attn.W_O[2] *= 5
    plain, scaled = (attention_statistics(m, padded(ROWS, "left")) for m in (model, other))
    assert_close(scaled.value.nan_to_num(-1), plain.value.nan_to_num(-1))


def test_a_head_that_writes_nothing_has_no_value_weights():
    """It has attention all the same; the summary names it, and tables leave it out."""
    result = attention_statistics(with_zeros("gpt2", W_V="b_V"), padded(ROWS, "left"))
    assert statistic(result, "entropy", "value-weighted")[0, 1].isnan().all()
    assert not statistic(result, "entropy").isnan().any()
    assert "write nothing (no value weights): L0H1" in result.summary()
    weighted = result.to_frame().query("weighting == 'value-weighted'")
    assert "L0H1" not in set(weighted["name"])
    assert {"L0H0", "L0H2", "L1H1"} <= set(weighted["name"])
    assert not result.to_frame()["mean"].isna().any()


def test_prompts_that_are_too_short_are_left_out_and_counted():
    result = attention_statistics(build("gpt2"), padded(ROWS, "right"), offsets=6)
    frame = result.to_frame().query("name == 'L0H0' and weighting == 'attention'")
    n = frame.set_index("statistic")["n"].to_dict()
    assert (n["self"], n["previous"], n["offset -2"], n["offset -4"]) == (3, 3, 2, 1)
    assert "offset -5" not in n
    assert "no prompt has a query for: offset -5, offset -6" in result.summary()
    assert not result.to_prompt_frame()["value"].isna().any()


def test_a_query_whose_attention_is_forced_is_left_out():
    result = attention_statistics(build("gpt2"), torch.tensor([[3, PAD], [4, 5]]))
    assert statistic(result, "normalized entropy")[..., 0].isnan().all()
    assert not statistic(result, "normalized entropy")[..., 1].isnan().any()
    for name in ("entropy", "distance", "self"):
        assert statistic(result, name)[..., 0].isnan().all()
        assert not statistic(result, name)[..., 1].isnan().any()


@pytest.mark.parametrize("begins", [True, False])
def test_the_first_token_is_bos_where_it_is(begins):
    """And the first position where a model adds no BOS, or some prompt has none."""
    model = interp.load("python-2l")
    ids = model.to_tokens(["import os", "def f"])
    result = attention_statistics(model, ids if begins else ids[:, 1:3])
    assert ("bos" in result.statistics) == begins
    assert ("first position" in result.statistics) != begins


def test_some_queries_only():
    model, tokens = build("gpt2"), padded(ROWS, "left")
    last = torch.zeros_like(tokens, dtype=torch.bool)
    last[:, -1] = True
    result = attention_statistics(model, tokens, queries=last)
    pattern = run(model, tokens, record="pattern").cache["pattern", 1]
    assert_close(statistic(result, "previous")[1], pattern[:, :, -1, -2].T)


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_few_prompts_at_a_time_give_the_same(name, monkeypatch):
    tokens = padded(ROWS, "left")
    whole = attention_statistics(build(name), tokens, classes=CLASSES)
    monkeypatch.setattr(sys.modules[attention_statistics.__module__], "CHUNK", 1)
    seen = []
    few = attention_statistics(
        build(name), tokens, classes=CLASSES, progress=lambda *at: seen.append(at)
    )
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert_close(few.value.nan_to_num(-1), whole.value.nan_to_num(-1))
    assert_close(few.uniform.nan_to_num(-1), whole.uniform.nan_to_num(-1))
    for prompt, row in enumerate(ROWS):
        alone = attention_statistics(build(name), row[None], classes=CLASSES)
        assert_close(
            alone.value[..., 0, :].nan_to_num(-1), few.value[..., prompt, :].nan_to_num(-1)
        )


@pytest.mark.parametrize("name", ["bert", "rotary-encoder", "gpt2", "phi"])
def test_permuting_heads_permutes_their_statistics(name):
    model, tokens = build_new(name), padded(ROWS, "left")
    before = attention_statistics(model, tokens, classes=CLASSES)
    attn = model.stacks[0].block(0).attn
    order = torch.tensor([2, 0, 1])
    with torch.no_grad():
        for weight in ("W_Q", "W_K", "W_V", "W_O"):
            getattr(attn, weight).copy_(getattr(attn, weight)[order].clone())
        for bias in ("b_Q", "b_K", "b_V"):
            if getattr(attn, bias.lower()) is not None:
                getattr(attn, bias).copy_(getattr(attn, bias)[order].clone())
    after = attention_statistics(model, tokens, classes=CLASSES)
    assert_close(after.value[:, 0].nan_to_num(-1), before.value[:, 0, order].nan_to_num(-1))
    assert_close(after.value[:, 1].nan_to_num(-1), before.value[:, 1].nan_to_num(-1), 1e-10)


# ---- encoder–decoders ---------------------------------------------------------------------------


@pytest.mark.parametrize("attention", ["encoder", "decoder", "cross"])
def test_the_attentions_of_a_pair(attention):
    model = build("t5")
    source, target = padded(ROWS, "left"), padded(ROWS[::-1], "right")
    result = attention_statistics(model, (source, target), attention=attention, classes=CLASSES)
    assert ("previous" in result.statistics) == (attention != "cross")
    assert ("next" in result.statistics) == (attention == "encoder")
    total = sum(statistic(result, label) for label in (*CLASSES, "other"))
    assert_close(total, torch.ones_like(total))
    assert result.summary().startswith(f"{attention} attention, ")
    graph = [writer.name for writer in computation_graph(model).writers if writer.head is not None]
    names = [name for name in graph if name.startswith(f"{attention}.")]
    assert list(result.to_frame()["name"].unique()) == names
    assert list(result.figure().layout.yaxis.ticktext) == names
    assert f" {attention}.L" in result.summary()


@pytest.fixture(scope="module")
def dates():
    """The model and 309 dates: ids of sources and targets, and the field of each source token."""
    model, first = interp.load("dates"), date(1950, 1, 1)
    days = [first + timedelta(days=353 * n) for n in range(103)]
    return model, *encode(model, [WrittenDate.of(day, form) for day in days for form in FORMATS])


@pytest.mark.parametrize("field", FIELDS)
def test_dates_aligns_as_its_card_has_it(dates, field):
    """Where a field is predicted, one cross-attention head attends to it: L1H0, L0H2, L0H3."""
    model, sources, targets, fields = dates
    predicting = torch.zeros_like(targets, dtype=torch.bool)
    predicting[:, PREDICTING[field]] = True
    result = attention_statistics(
        model,
        (sources, targets),
        attention="cross",
        queries=predicting,
        classes={name: fields == number for number, name in enumerate(FIELDS)},
    )
    figures = interp.card("dates").figures
    best = figures[f"cross-attention head that aligns the {field} best"]
    mass = result.of(field)
    layer, head = divmod(int(mass.argmax()), mass.shape[1])
    assert f"L{layer}H{head}" == best
    card = figures[f"its attention to the {field} where that is predicted"]
    assert float(mass.max()) == pytest.approx(card, abs=0.02)
    lines = [line.split() for line in result.summary().split("\n")]
    assert next(words[1] for words in lines if words[0] == field) == f"cross.{best}"
    expected = alignment(model, sources, targets, fields)
    assert_close(mass, expected.scores[field], 1e-5)
    uniform = result.uniform[..., result.statistics.index(field)].mean(-1)
    assert_close(uniform, torch.full_like(uniform, expected.uniform[field]), 1e-5)


# ---- prompts that are not held in memory --------------------------------------------------------


def rows_of_length(n):
    """Rows of 1 to 7 tokens, of which the shortest lack some statistics."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(1, 10, (1 + i % 7,), generator=generator).tolist() for i in range(n)]


@pytest.mark.parametrize("backwards", [False, True])
def test_a_stream_has_the_means_and_intervals_of_a_list(monkeypatch, backwards):
    """In any order of the prompts; windows of 4 hold the 22 prompts in six parts."""
    rows = rows_of_length(22)
    tokens = padded([torch.tensor(row) for row in rows], "right")
    whole = attention_statistics(build("gpt2"), tokens, classes=CLASSES)
    monkeypatch.setattr(sys.modules[attention_statistics.__module__], "WINDOW", 4)
    texts = iter(rows[::-1] if backwards else rows)
    stream = attention_statistics(build("gpt2"), texts, classes=CLASSES)
    assert_frame_equal(stream.to_frame(), whole.to_frame(), rtol=0, atol=1e-12)
    assert stream.to_frame()["n"].nunique() > 1
    assert stream.summary() == whole.summary()
    assert "on 22 prompts" in stream.headline()


def test_a_stream_holds_one_window(monkeypatch):
    """Of 80 prompts, 8 at a time are measured, and no number of each is kept."""
    monkeypatch.setattr(sys.modules[attention_statistics.__module__], "WINDOW", 8)
    model, rows = build("gpt2"), rows_of_length(7)
    sizes = []

    def measured(values):
        sizes.append(values.shape[-1])
        return of(values)

    of = Moments.of
    monkeypatch.setattr(Moments, "of", measured)
    result = attention_statistics(model, (rows[i % 7] for i in range(80)))
    assert result.n_prompts == 80
    assert set(sizes) == {8}
    assert sum(x.numel() for x in (result.value, result.uniform)) < 1000


def test_what_a_stream_refuses():
    model, marks = build("gpt2"), torch.ones(1, 3, dtype=torch.bool)
    for wrong, match in [
        ({"queries": marks}, "read as a stream"),
        ({"classes": {"a": marks}}, "read as a stream"),
        ({"classes": {"bos": 1}}, "can't be called bos"),
    ]:
        with pytest.raises(InvalidInput, match=match):
            attention_statistics(model, iter([[1, 2, 3]]), **wrong)
    with pytest.raises(InvalidInput, match="holds no text"):
        attention_statistics(model, iter([]))
    with pytest.raises(InvalidInput, match="no numbers of single prompts"):
        attention_statistics(model, iter([[1, 2, 3]])).to_prompt_frame()


# ---- what it refuses ----------------------------------------------------------------------------


def test_what_it_refuses():
    model, ids = build("gpt2"), torch.tensor([[1, 2, 3]])
    for wrong, match in [
        ({"attention": "cross"}, "this model has one stack"),
        ({"offsets": 0}, "offsets=0 must be an integer from 1"),
        ({"classes": {"other": 1}}, "can't be called other"),
        ({"classes": {"self": 1}}, "can't be called self"),
        ({"classes": {"a": torch.tensor([True])}}, r"classes\['a'\] should have an entry for each"),
        ({"queries": torch.tensor([[1, 1, 1]])}, "queries= should be a boolean tensor"),
        ({"queries": torch.zeros(1, 3, dtype=torch.bool)}, "selects no token"),
    ]:
        with pytest.raises(InvalidInput, match=match):
            attention_statistics(model, ids, **wrong)
    with pytest.raises(InvalidInput, match="an encoder–decoder has encoder, decoder, cross"):
        attention_statistics(build("t5"), tokens_of("t5"))
    with pytest.raises(InvalidTokens, match="is 10 tokens"):
        attention_statistics(interp.load("python-2l"), "a = 1", classes={"long": "lambda x: x"})
    with pytest.raises(InvalidInput, match="should be attention or value-weighted"):
        attention_statistics(model, ids).of("entropy", "values")
    with pytest.raises(InvalidInput, match="entropia"):
        attention_statistics(model, ids).of("entropia")


def test_half_precision_is_averaged_in_float32():
    tokens = padded(ROWS, "left")
    half = attention_statistics(build("gpt2", dtype=torch.bfloat16), tokens, classes=CLASSES)
    assert half.value.dtype == torch.float32
    exact = attention_statistics(build("gpt2"), tokens, classes=CLASSES)
    assert_close(half.value.nan_to_num(-1).double(), exact.value.nan_to_num(-1), 0.1)


def test_attention_that_is_not_a_number_is_named():
    model = build_new("gpt2")
    with torch.no_grad():
        model.blocks[0].attn.W_Q[0] = torch.finfo(torch.float64).max
    with pytest.raises(InvalidInput, match=r'\("pattern", 0\) is not finite'):
        attention_statistics(model, torch.tensor([[1, 2, 3]]))


# ---- declared for the tests of all analyses -------------------------------------------------


def numbers_of_prompts(model, prompts, n, **settings):
    result = attention_statistics(model, prompts, **settings)
    numbers = {"values": result.value, "uniform": result.uniform}
    return [{name: x[..., i, :].nan_to_num(-1) for name, x in numbers.items()} for i in range(n)]


DECLARED = Declared(
    analysis=attention_statistics,
    made=Made(
        lambda: attention_statistics(example.model(), ["abcab", "xyxy"], classes={"a": "a"}),
        ("value", "mean"),
    ),
    call=Call(
        (small.MODEL, small.CLEAN),
        {},
        {
            "offsets": (*odd.COUNT, 10**30),
            "classes": (
                *(odd.TEXT, odd.BELOW, odd.LISTED),
                *({"a": odd.NOTHING}, {"a": odd.BROKEN}, {"a": 99}, {3: 1}),
            ),
            "attention": odd.CHOICE,
            "queries": (odd.TEXT, odd.BELOW, odd.LISTED, torch.ones(3, 4)),
        },
    ),
    command=Command(
        "patterns",
        (),
        "patterns",
        "L0H0 (previous 1.00)",
        "offsets=8 classes=None attention=None",
    ),
    of_each_prompt=EachPrompt(numbers_of_prompts),
    of_each_pair={
        kind: partial(numbers_of_prompts, attention=kind)
        for kind in ("encoder", "decoder", "cross")
    },
    symmetric=Symmetric(
        {"": lambda case: attention_statistics(case.model, case.clean, classes={"some": case.some})}
    ),
)
