"""Direct logit attribution: exact sums, known circuits, and what is refused."""

from dataclasses import replace

import pytest
import torch
from architectures import (
    ARCHITECTURES,
    D_VOCAB,
    HEADLESS,
    PAIRS,
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
    Without,
    example,
    odd,
    small,
)

import interp
from analyses import DirectLogitAttribution
from analyses import direct_logit_attribution as analyse
from analyses.direct_logit_attribution import attributed_logits
from interp.errors import InvalidInput, InvalidTokens
from interp.loading import MODEL_FOLDER
from interp.zoo.card import read_card
from training.recipes.rasp import random_rows

BOUND = 1e-10
LINEAR = [name for name, config in ARCHITECTURES.items() if config.head is None]
KNOWN = [name for name in interp.bundled() if read_card(MODEL_FOLDER / name).circuit is not None]


def prompts_of(name: str):
    tokens = tokens_of(name)
    return tokens if name in PAIRS else tokens[0]


def attributed(name: str, **settings) -> DirectLogitAttribution:
    settings = {"target": 3} | settings
    return analyse(build(name), prompts_of(name), **settings)


# ---- sums -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", covering(LINEAR))
@pytest.mark.parametrize("by", ["component", "head"])
def test_terms_sum_to_the_logit_and_to_the_difference(name, by):
    """Σ terms = logit, for every prompt; with a distractor, the difference of two logits."""
    model, tokens = build(name), tokens_of(name)
    with torch.no_grad():
        logits = model(*tokens)[:, 1]
    cap = model.unembed.soft_cap
    of_target, of_distractor = (attributed(name, target=t, pos=1, by=by) for t in (3, (5, 0)))
    assert_close(cap(of_target.effect.sum(0)), logits[:, 3], BOUND)
    assert_close(cap(of_distractor.effect.sum(0)), logits[torch.arange(2), [5, 0]], BOUND)
    difference = attributed(name, target=3, distractor=(5, 0), pos=1, by=by)
    assert_close(difference.effect.sum(0), of_target.value - of_distractor.value, BOUND)
    assert max(attribution.error for attribution in (of_target, of_distractor, difference)) <= BOUND
    # The two sides of each term are the terms of the two logits.
    assert of_target.of_target is None
    assert_close(difference.of_target, of_target.effect, BOUND)
    assert_close(difference.of_target - difference.effect, of_distractor.effect, BOUND)
    frame = difference.to_frame()
    sides = (frame["to_target"] - frame["to_distractor"]).to_numpy()
    assert_close(torch.tensor(sides), torch.tensor(frame["effect"].to_numpy()), BOUND)
    assert "to_target" not in of_target.to_frame()


def test_the_error_that_is_stated_is_that_of_the_sum():
    attribution = attributed("gpt2")
    worse = replace(attribution, effect=attribution.effect * 1.5)
    assert worse.error == pytest.approx(0.5 * float(attribution.value.abs().max()))
    assert f"within {worse.error:.1e} logits" in worse.summary()


def test_every_bias_is_a_term_and_none_is_missing():
    names = [part.name for part in attributed("biased-seed").parts if part.kind == "bias"]
    assert names == ["L0.b_O", "L1.b_O", "b_U"]
    names = [part.name for part in attributed("opt-post").parts if part.kind == "bias"]
    assert names == [
        *("L0.b_O", "L0.b_out", "L1.b_O", "L1.b_out"),
        *("L0.ln1.bias", "L0.ln2.bias", "L1.ln1.bias", "L1.ln2.bias"),
    ]


@pytest.mark.parametrize("name", ["gemma2", "phi", "t5", "uneven-pair"])
def test_heads_and_sources_are_finer_sums(name):
    """Σ heads of a layer = its component; Σ tokens of a head = the head."""
    whole, heads, sources = (attributed(name, by=by) for by in ("component", "head", "source"))
    assert_close(sources.effect, heads.effect)
    by_head = [n for n, part in enumerate(heads.parts) if part.head is not None]
    assert_close(sources.by_source.sum(-1), heads.effect[by_head])
    together = {}
    for part, values in zip(heads.parts, heads.effect, strict=True):
        key = part.name if part.head is None else f"{part.name[: -len(f'H{part.head}')]} heads"
        together[key] = together.get(key, 0) + values
    assert list(together) == [part.name for part in whole.parts]
    assert_close(torch.stack([*together.values()]), whole.effect)


def test_a_head_of_a_pair_gets_its_term_from_the_stack_that_it_attends_to():
    model, (source, target) = build("t5"), tokens_of("t5")
    attribution = analyse(model, (source, target), target=3, by="source")
    heads = [part.name for part in attribution.parts if part.head is not None]
    for name, by_key in zip(heads, attribution.by_source, strict=True):
        of_source, of_target = by_key.split([source.shape[1], target.shape[1]], -1)
        elsewhere = of_target if name.startswith("cross.") else of_source
        assert (elsewhere == 0).all()
        assert (by_key != 0).any()


def test_exchanging_target_and_distractor_changes_the_sign():
    attribution = attributed("llama", target=3, distractor=4)
    exchanged = attributed("llama", target=4, distractor=3)
    assert_close(attribution.effect, -exchanged.effect)
    assert attribution.effect.abs().max() > 0.1


def test_prompts_run_in_parts_change_nothing(monkeypatch):
    together = attributed("gpt2", by="source")
    monkeypatch.setattr(attributed_logits, "ROWS", 1)
    apart = attributed("gpt2", by="source")
    for name in ("value", "effect", "control", "by_source"):
        assert_close(getattr(apart, name), getattr(together, name))


# ---- known circuits ---------------------------------------------------------------------------


def test_the_induction_head_writes_everything_and_takes_it_from_the_token_that_followed():
    model = interp.load("induction-by-hand")
    attribution = analyse(
        model, ["abcab", "xyzqxy"], target=["c", "z"], distractor=["a", "q"], by="head"
    )
    frame = attribution.to_frame()
    assert list(frame["name"][frame["size"] > 1e-3]) == ["L1H0"]
    assert frame["effect"][0] == pytest.approx(float(attribution.value.mean()))
    assert frame["control"][0] < 1e-3
    rows = analyse(model, ["abcab", "xyzqxy"], target=["c", "z"], by="source").to_frame()
    rows = rows[rows["effect"].abs() > 1e-3]
    assert list(zip(rows["name"], rows["token"], rows["key"], strict=True)) == [
        ("L1H0", "c", 3),
        ("L1H0", "z", 3),
    ]


@pytest.mark.parametrize("name", KNOWN)
def test_exactly_what_the_circuit_has_before_the_logits_writes_to_them(name):
    """The terms that are not 0 are the sources of the edges into the logits."""
    model, card = interp.load(name), read_card(MODEL_FOLDER / name)
    rows = [row for row in random_rows(64, seed=2) if len(row) > 2]
    rows = ["aab", "xxy"] if name == "induction-by-hand" else rows
    predicted = interp.run(model, rows).logits[:, 2].argmax(-1)
    others = (predicted + 1) % model.config.d_vocab
    attribution = analyse(model, rows, target=predicted, distractor=others, pos=2, by="head")
    size = attribution.effect.abs().amax(-1)
    writing = {
        part.name
        for part, largest in zip(attribution.parts, size, strict=True)
        if largest > 1e-6 and part.kind != "bias"
    }
    assert writing == {source for source, reader in card.circuit.edges if reader == "logits"}


def test_the_mlp_writes_the_sums_of_modular_addition():
    """The bundled model adds in its MLP: of the logit against others, it writes the most."""
    model = interp.load("addition-mod-113")
    pairs = [(5, 9), (70, 80), (112, 3), (40, 41), (99, 99), (17, 60)]
    tokens = torch.tensor([[a, b, 113] for a, b in pairs])
    sums = [(a + b) % 113 for a, b in pairs]
    attribution = analyse(model, tokens, target=sums, distractor=[(s + 7) % 113 for s in sums])
    frame = attribution.to_frame()
    assert frame["name"][0] == "L0MLP"
    assert frame["significant"][0]
    assert frame["effect"][0] > 0.5 * float(attribution.value.mean())


# ---- what is given, and what is shown ---------------------------------------------------------


PYTHON = ["import os\nimport", "x ="]


def test_a_target_may_be_a_text_of_one_token():
    model = interp.load("python-2l")
    texts = analyse(model, PYTHON, target=" (", distractor=["self", "if"])
    ids = [model.to_single_token(text) for text in (" (", "self", "if")]
    assert torch.equal(
        texts.effect, analyse(model, PYTHON, target=ids[0], distractor=ids[1:]).effect
    )
    assert texts.target == ("·(", "·(")
    assert texts.distractor == ("self", "if")
    assert texts.summary().startswith("logit of ·( minus each prompt's distractor")


def test_the_position_is_that_of_each_prompt():
    model = build("gpt2")
    rows = [torch.tensor([1, 2, 3, 4]), torch.tensor([5, 6])]
    last = analyse(model, padded(rows, "left"), target=3, pos=1)
    for number, row in enumerate(rows):
        alone = analyse(model, row[None, :2], target=3)
        assert_close(last.effect[:, number], alone.effect[:, 0])
    assert not torch.allclose(last.effect, analyse(model, padded(rows, "left"), target=3).effect)


def test_a_soft_cap_is_stated_and_not_applied():
    attribution = attributed("gemma2")
    assert attribution.soft_cap == 3.0
    assert "before their soft-cap of 3" in attribution.summary()
    assert "soft-cap" not in attributed("gpt2").summary()


def test_the_control_is_the_attribution_of_other_tokens():
    first, same, other = (attributed("gpt2", seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first.control, same.control)
    assert not torch.equal(first.control, other.control)
    every = torch.stack([attributed("gpt2", target=t).effect for t in range(D_VOCAB) if t != 3])
    off = (every - first.control).abs().amax(1).amin(0)
    assert off.max() <= BOUND
    assert first.provenance.seed == 0


def test_frames_have_the_axes_first_and_then_the_effects():
    effects = ["effect", "low", "high", "size", "n", "p", "q", "significant", "control"]
    by_component, by_head, by_source = (
        attributed("gpt2", by=by) for by in ("component", "head", "source")
    )
    assert list(by_component.to_frame()) == ["name", "kind", "layer", *effects]
    frame = by_head.to_frame().set_index("name")
    assert list(frame) == ["kind", "layer", "head", *effects]
    assert frame.loc["L1H2", ["layer", "head"]].tolist() == [1, 2]
    means = {
        part.name: float(m) for part, m in zip(by_head.parts, by_head.effect.mean(-1), strict=True)
    }
    assert frame["effect"].to_dict() == pytest.approx(means)
    rows = by_source.to_frame()
    assert list(rows) == ["prompt", "name", "layer", "head", "key", "token", "effect"]
    assert rows.groupby("prompt")["effect"].sum().tolist() == pytest.approx(
        by_source.by_source.sum((0, 2)).tolist()
    )
    each = by_head.to_prompt_frame()
    assert each[each["prompt"] == 1]["effect"].sum() == pytest.approx(float(by_head.value[1]))


def test_the_largest_terms_are_those_of_either_effect():
    by_head = attributed("marian", by="head")
    frame = by_head.to_frame()
    last = frame["name"].iloc[-1]
    largest, others = by_head.largest_terms({last: -2 * frame["size"].max()}, 3)
    assert largest["name"].tolist() == [*frame["name"].head(2), last]
    assert largest["other"].isna().tolist() == [True, True, False]
    assert [*largest["effect"], *others["effect"]] == pytest.approx(
        [*frame["effect"].iloc[[0, 1, -1]], *frame["effect"].iloc[2:-1]]
    )


def test_figures_are_bars_layers_by_heads_and_heads_by_tokens():
    component, head, source = (
        attributed("marian", by=by).figure() for by in ("component", "head", "source")
    )
    assert component.data[0].type == "bar"
    assert "decoder.L0 heads" in component.layout.yaxis.ticktext
    assert head.layout.yaxis.ticktext == ("decoder.L0", "cross.L0", "decoder.L1", "cross.L1")
    assert head.layout.xaxis.ticktext == ("H0", "H1", "H2", "MLP")
    assert len(source.data[0].z) == 12
    assert len(source.data[0].z[0]) == 11
    assert "logit of 3" in source.layout.title.text


@pytest.mark.parametrize("by", ["component", "head"])
def test_figures_show_both_sides_of_a_difference(by):
    """As marks on bars; by head beside each cell, and as maps on the scale of the difference."""
    result = attributed("gpt2", distractor=5, by=by)
    frame = result.to_frame().set_index("name")
    sides = {"to the target": "to_target", "to the distractor": "to_distractor"}
    figure, *maps = result.drawings().values()
    if by == "component":
        assert not maps
        for name, column in sides.items():
            expected = frame.loc[[*figure.labels], column].tolist()
            assert figure.marks[name].tolist() == pytest.approx(expected)
        assert not attributed("gpt2", by=by).drawing().marks
        return
    assert [*result.drawings()] == ["figure", "target", "distractor"]
    for (name, column), drawing in zip(sides.items(), maps, strict=True):
        assert_close(figure.beside[name].nan_to_num(), drawing.table.nan_to_num(), 0)
        assert drawing.scale == figure.scale
        assert drawing.table[1, 2] == pytest.approx(frame.loc["L1H2", column], rel=1e-6)
    difference = maps[0].table - maps[1].table
    assert_close(difference.nan_to_num(), figure.table.nan_to_num(), 1e-6)
    assert [*attributed("gpt2", by=by).drawings()] == ["figure"]


def test_by_source_the_two_sides_are_those_of_the_two_logits():
    difference, target = (
        attributed("gpt2", by="source", **more) for more in ({"distractor": 5}, {})
    )
    assert_close(difference.of_target_by_source, target.by_source, BOUND)
    assert target.of_target_by_source is None
    frame = difference.to_frame()
    sides = (frame["to_target"] - frame["to_distractor"]).tolist()
    assert sides == pytest.approx(frame["effect"].tolist(), abs=1e-12)
    drawing = difference.drawing(1)
    beside = drawing.beside["to the target"] - drawing.beside["to the distractor"]
    assert_close(beside, drawing.values, BOUND)
    assert " − (" in difference.summary().splitlines()[1]
    assert not target.drawing(1).beside


def test_padding_is_neither_in_the_rows_nor_in_the_figure():
    tokens = padded([torch.tensor([1, 2, 3, 4]), torch.tensor([5, 6])], "left")
    attribution = analyse(build("gpt2"), tokens, target=3, by="source")
    rows = attribution.to_frame()
    assert sorted(rows[rows["prompt"] == 1]["key"].unique()) == [0, 1]
    assert attribution.figure(prompt=1).layout.xaxis.ticktext == ("5", "6")


# ---- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "error", "reason"),
    [
        ({"by": "layer"}, InvalidInput, "is not one of component, head, source"),
        ({"target": D_VOCAB}, InvalidInput, "outside the vocabulary"),
        ({"target": (1, 2, 3)}, InvalidInput, "3 targets were given for 2 prompts"),
        ({"target": "a"}, InvalidInput, "no tokenizer"),
        ({"distractor": -1}, InvalidInput, "outside the vocabulary"),
        ({"pos": 5}, InvalidInput, "position 5 in prompt 0"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings, error, reason):
    with pytest.raises(error, match=reason):
        attributed("gpt2", **settings)


def test_models_without_linear_logits_are_refused():
    with pytest.raises(InvalidInput, match="not linear in the stream"):
        attributed("bert-types")
    with pytest.raises(InvalidInput, match="no logits"):
        analyse(build(HEADLESS), tokens_of(HEADLESS)[0], target=3)


def test_a_target_of_several_tokens_is_refused_with_its_tokens():
    with pytest.raises(InvalidTokens, match="'·' 'x'"):
        analyse(interp.load("python-2l"), PYTHON, target=" x")


def test_a_logit_that_is_nan_is_refused_with_the_first_place_that_is():
    model = build_new("gpt2")
    with torch.no_grad():
        model.blocks[1].mlp.W_in[:, 0] = torch.finfo(torch.float64).max
    with pytest.raises(InvalidInput, match=r"\(\"post\", 1\) is the first"):
        analyse(model, prompts_of("gpt2"), target=3)


def test_an_encoder_decoder_needs_source_and_target():
    with pytest.raises(InvalidInput, match=r"\(source, target\)"):
        analyse(build("t5"), tokens_of("t5")[0], target=3)


# ---- declared for the tests of all analyses -------------------------------------------------


def numbers_of_prompts(model, prompts, n):
    result = analyse(model, prompts, target=3, by="source")
    real = [torch.tensor([token is not None for token in row]) for row in result.tokens]
    return [
        {"terms": result.effect[:, i], "sources": result.by_source[:, i, real[i]]} for i in range(n)
    ]


def of_case(by):
    return lambda case: analyse(
        case.model, case.clean, target=case.target, distractor=case.distractor, by=by
    )


DECLARED = Declared(
    analysis=analyse,
    made=Made(
        lambda: analyse(example.model(), ["abcab", "xyxy"], target="c", by="source"),
        Without("by source, to_frame has a row for each prompt"),
    ),
    call=Call(
        (small.MODEL, small.CLEAN),
        {"target": 1},
        {
            "target": (*odd.TOKEN, odd.NOTHING),
            "distractor": odd.TOKEN,
            "pos": (odd.TEXT, odd.BROKEN, odd.LISTED),
            "by": odd.CHOICE,
            "seed": odd.SEED,
        },
    ),
    command=Command("dla", (), "dla", "L1H", "dictionary=None by=head"),
    of_each_prompt=EachPrompt(numbers_of_prompts),
    of_each_pair={"": numbers_of_prompts},
    symmetric=Symmetric(
        {by: of_case(by) for by in ("component", "head", "source")},
        not_compared=("control",),
        of_experts=("component",),
    ),
)
