"""The largest cells of a corpus, shown in proportion."""

from functools import partial

import pandas as pd
import pytest
import torch
from architectures import build, padded
from declared import Call, Command, Declared, EachPrompt, Made, Symmetric, example, odd, small
from permuted import tables_of

import interp
from analyses import top_texts
from analyses.methods.components.components import components_of
from interp.errors import InvalidInput
from interp.prompts import pools_of

CODE = [prompt.text for prompt in interp.read_prompts("repeated")]


def rows() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randint(13, (n,), generator=generator) for n in (4, 6, 2, 5, 6)]
    return padded(drawn, "left")


def test_the_induction_head_attends_to_what_followed_the_same_token():
    """Its top cells lie on the token after an earlier copy, and are gone in random order."""
    model = interp.load("python-2l")
    cells = top_texts(model, CODE, of="L1H0", top=8)
    for text, pos, key in zip(cells.text, cells.pos, cells.key, strict=True):
        ids = model.to_tokens(CODE[text])[0]
        assert ids[key - 1] == ids[pos]
    assert (cells.value > 0.9).all()
    assert (cells.control < 0.1).all()
    assert cells.quantiles[cells.levels.index(0.5)] < 0.001
    frame = cells.to_frame()
    assert list(frame["rank"]) == list(range(1, 9))
    for row in frame.itertuples():
        assert f"«{row.key_token}»" in row.context
        assert f"‹{row.token}›" in row.context


def test_a_head_that_attends_to_its_own_token_does_so_in_any_order():
    cells = top_texts(interp.load("python-2l"), CODE, of="L0H1", top=8)
    assert torch.equal(cells.key, cells.pos)
    assert (cells.control > 0.9).all()


def test_the_cells_at_bos_are_the_largest_where_they_count():
    model = interp.load("python-2l")
    cells = top_texts(model, CODE, of="L1H0", bos=True, top=5)
    assert (cells.key == 0).all()
    assert "<|bos|>" in cells.summary().splitlines()[0]


def test_a_batch_of_long_texts_has_fewer(monkeypatch):
    monkeypatch.setattr("interp.prompts.texts.CELLS", 50)
    (pool,) = pools_of(build("gpt2"), rows(), 8)
    batches = [(numbers.tolist(), *texts) for numbers, texts in pool.split(2)]
    assert [numbers for numbers, _ in batches] == [[0, 2], [3], [1], [4]]
    assert [text.ids.shape for _, text in batches] == [(2, 4), (1, 5), (1, 6), (1, 6)]


@pytest.mark.parametrize("of", ["L1H2", "L1N3", "L1MLP"])
def test_batches_iterators_and_files_give_the_same(of, tmp_path):
    model = build("gpt2")
    texts = rows()
    whole = top_texts(model, texts, of=of, rows=64)
    stream = top_texts(model, (row[row >= 0] for row in texts), of=of, rows=2)
    for name in ("value", "control", "strips"):
        actual, expected = getattr(stream, name), getattr(whole, name)
        torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12, equal_nan=True)
    assert torch.equal(stream.text, whole.text)
    assert stream.provenance.tokens == whole.provenance.tokens
    assert stream.snippets == whole.snippets


def test_the_lowest_are_the_other_end():
    model, texts = build("gpt2"), rows()
    high, low = (
        top_texts(model, texts, of="L1N3", end=end, top=100) for end in ("highest", "lowest")
    )
    assert torch.equal(high.value.sort().values, low.value.sort().values)
    assert low.value[0] == high.value[-1] < 0
    assert "lowest" in low.summary()


def test_the_quantiles_and_the_shares_are_of_all_cells():
    cells = top_texts(build("gpt2"), rows(), of="L1N3", top=100)
    assert cells.n_cells == len(cells.value) == cells.n_tokens == 23
    assert cells.mean == pytest.approx(cells.value.mean().item())
    assert cells.bucket_shares.sum() == pytest.approx(1)
    values = cells.value.sort().values
    wanted = [values[max(0, -(-int(level * 1000) * 23 // 1000) - 1)] for level in cells.levels]
    assert cells.quantiles.tolist() == pytest.approx([float(value) for value in wanted], rel=0.022)
    assert list(cells.to_quantile_frame()["level"])[3] == 0.5


def test_a_figure_shows_the_tokens_and_their_values():
    cells = top_texts(interp.load("python-2l"), CODE, of="L1H0", top=4)
    trace = cells.figure().data[0]
    for row, (snippet, value) in enumerate(zip(cells.snippets, cells.value, strict=True)):
        at = snippet.positions.index(int(cells.key[row]))
        assert trace.z[row][at] == pytest.approx(float(value))
        assert (
            f"«{snippet.key_token}»".replace("<", "&lt;").replace(">", "&gt;")
            == trace.text[row][at]
        )
        gaps = [n for n, pos in enumerate(snippet.positions) if pos < 0]
        assert all(trace.z[row][n] is None for n in gaps)
    marked = [line.x0 for line in cells.distribution_figure().layout.shapes]
    assert marked == pytest.approx(cells.value.tolist())


def test_a_corpus_that_repeats_itself_is_noted():
    model = interp.load("python-2l")
    repeated = top_texts(model, 2 * CODE, of="L1H0", top=6).summary()
    assert repeated.endswith("the corpus repeats itself: these are 3 different contexts")
    assert "repeats itself" not in top_texts(model, CODE, of="L1H0", top=6).summary()


def test_texts_that_are_cut_and_calls_that_are_cancelled_are_noted():
    model = interp.load("python-2l")
    long = "x = 1\n" * model.config.n_ctx
    cells = top_texts(model, [long, *CODE], of="L0H0", rows=4, cancelled=lambda: True)
    assert cells.notes[0].startswith("texts longer than the context were cut, ")
    assert cells.notes[1] == "cancelled after 4 texts"
    assert cells.summary().endswith(cells.notes[1])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"end": "middle"}, "highest, lowest"),
        ({"top": 0}, "top=0 must be an integer of at least 1"),
        ({"rows": -1}, "rows=-1"),
        ({"of": "L1H2", "by": "value"}, "attention, write"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings, message):
    with pytest.raises(InvalidInput, match=message):
        top_texts(build("gpt2"), rows(), **({"of": "L1N3"} | settings))


def test_every_head_and_sublayer_can_be_measured():
    model = build("gemma2")
    parts = components_of(model)
    for component in (*parts.heads, *parts.sublayers):
        assert top_texts(model, rows(), of=component.name, top=1).value.isfinite().all()


# ---- declared for the tests of all analyses -------------------------------------------------


def numbers_of_prompts(model, prompts, n, of="L1H0"):
    """Every cell of each prompt, by position and key."""
    result = top_texts(model, prompts, of=of, top=1000)
    order = (result.pos * 1000 + result.key).argsort(stable=True)
    control = result.control.nan_to_num(-1.0)  # of images
    return [
        {"value": result.value[cells], "control": control[cells]}
        for cells in (order[result.text[order] == i] for i in range(n))
    ]


def of_each_head(case):
    """All cells of the heads of a layer."""
    frames = {}
    for head in range(case.model.blocks[1].attn.n_heads):
        result = top_texts(case.model, case.clean, of=f"L1H{head}", top=999)
        for kind, frame in tables_of(result).items():
            frames.setdefault(kind, []).append(frame.assign(name=f"L1H{head}"))
    return {kind: pd.concat(parts) for kind, parts in frames.items()}


DECLARED = Declared(
    analysis=top_texts,
    made=Made(lambda: top_texts(example.model(), ["abcab", "xyxy"], of="L1H0")),
    call=Call(
        (small.MODEL, small.CLEAN),
        {"of": "L0H0"},
        {
            "of": (
                *(odd.TEXT, odd.BELOW, odd.BROKEN, odd.LISTED, odd.NOTHING),
                *("L9H0", "L0H99", ("resid_post", 9)),
            ),
            "by": odd.CHOICE,
            "top": odd.COUNT,
            "end": (*odd.CHOICE, odd.NOTHING),
            "bos": odd.SWITCH,
            **odd.SAMPLED,
        },
    ),
    command=Command(
        "top-texts",
        ("--of", "L1H0"),
        "top-texts",
        "L1H0 attention on 24 texts",
        "of=L0H0 texts=None by=None end=highest bos=False",
    ),
    of_each_prompt=EachPrompt(numbers_of_prompts),
    of_each_pair={
        of: partial(numbers_of_prompts, of=of)
        for of in ("encoder.L1H0", "decoder.L1H2", "cross.L0H1", "decoder.L0N3")
    },
    symmetric=Symmetric(
        {
            "": of_each_head,
            "a stream": lambda case: top_texts(
                case.model, case.clean, of=("resid_post", 1), top=999
            ),
        },
        not_compared=("rank", "source"),
    ),
)
