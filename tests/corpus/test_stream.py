"""A corpus is measured as its texts would be one by one, however it is read."""

import itertools

import pytest
import torch
from architectures import D_VOCAB, assert_close, build, covering, padded

import interp
from analyses.methods.corpus.measures import measure_of
from analyses.methods.corpus.stream import Settings, Streamed, stream_corpus
from analyses.methods.corpus.strips import shuffled_values, strips
from interp import PAD
from interp.errors import InvalidInput, UnknownPlace
from interp.prompts.texts import joined, pools_of

LENGTHS = (4, 2, 6, 1, 5, 3, 6, 2)


def texts_of(lengths=LENGTHS, seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(D_VOCAB, (n,), generator=generator) for n in lengths]


def stream(model, texts, of, by=None, **settings) -> Streamed:
    settings = {"top": 5, "rows": 3} | settings
    return stream_corpus(model, texts, measure_of(model, of, by), Settings(**settings))


def assert_same(streamed: Streamed, expected: Streamed) -> None:
    assert_close(streamed.value, expected.value)
    for name in ("text", "pos", "key"):
        assert torch.equal(getattr(streamed, name), getattr(expected, name)), name
    assert torch.equal(streamed.distribution.counts, expected.distribution.counts)
    for name in ("n_texts", "n_tokens", "sha256", "sources"):
        assert getattr(streamed, name) == getattr(expected, name), name


# ---- what is measured: each text by itself ------------------------------------------------------


def cells_of_one(model, row: torch.Tensor, of: str, by: str | None) -> dict[tuple, float]:
    """The values of a text, alone, by position and key, read from an ordinary run."""
    layer, unit = 1, int(of[3:]) if of[:2] == "L1" else 0
    cache = interp.run(model, row[None], record="all").cache
    if by == "attention":
        pattern = cache["pattern", layer][0, unit]
        scores = cache["scores", layer][0, unit]
        seen = scores > -torch.inf
        n = len(row)
        return {
            (q, k): float(pattern[q, k])
            for q, k in itertools.product(range(n), range(n))
            if seen[q, k] and seen[q].sum() > 1
        }
    x = {
        "write": lambda: cache["result", layer][0, :, unit].norm(dim=-1),
        None: lambda: cache["post", layer][0, :, unit],
        "norm": lambda: cache["resid_post", layer][0].norm(dim=-1),
    }[by]()
    return {(n, 0): float(value) for n, value in enumerate(x)}


@pytest.mark.parametrize(
    ("of", "by"), [("L1H2", "attention"), ("L1H2", "write"), ("L1N3", None), ("place", "norm")]
)
@pytest.mark.parametrize("name", covering(["gpt2", "gemma2", "bert"], ["gpt2", "bert"]))
@pytest.mark.parametrize("lowest", [False, True])
def test_the_largest_are_those_of_every_text_by_itself(name, of, by, lowest):
    model, rows = build(name), texts_of()
    measured = ("resid_post", 1) if of == "place" else of
    streamed = stream(model, iter(rows), measured, None if of == "place" else by, lowest=lowest)
    cells = {
        (text, *cell): value
        for text, row in enumerate(rows)
        for cell, value in cells_of_one(model, row, of, by).items()
    }
    sign = 1 if lowest else -1
    expected = sorted(cells, key=lambda cell: (sign * round(cells[cell], 9), cell))[:5]
    where = zip(
        streamed.text[0].tolist(), streamed.pos[0].tolist(), streamed.key[0].tolist(), strict=True
    )
    assert list(where) == expected
    wanted = torch.tensor([cells[cell] for cell in expected], dtype=torch.float64)
    assert_close(streamed.value[0], wanted)
    assert streamed.distribution.n == len(cells)
    assert_close(
        streamed.distribution.mean[0], torch.tensor(list(cells.values())).double().mean(), 1e-6
    )


@pytest.mark.parametrize("name", covering(["gpt2", "llama", "t5"]))
@pytest.mark.parametrize("of", ["L1H0", "L1N2", "norm"])
def test_any_batches_pools_and_padding_give_the_same(name, of, monkeypatch):
    model, rows = build(name), texts_of()
    of = ("resid_pre", 1) if of == "norm" else of
    if name == "t5":
        of = ("resid_pre", 1, "decoder") if isinstance(of, tuple) else f"decoder.{of}"
        pairs = list(zip(rows, reversed(rows), strict=True))
        whole = tuple(padded(list(sequences), "left") for sequences in zip(*pairs, strict=True))
        one_by_one = [(a[None], b[None]) for a, b in pairs]
    else:
        whole, one_by_one = padded(rows, "left", extra=1), rows
    together = stream(model, whole, of, rows=64)
    assert_same(stream(model, iter(one_by_one), of, rows=2), together)
    monkeypatch.setattr("analyses.methods.corpus.stream.POOL", 3)
    assert_same(stream(model, iter(one_by_one), of, rows=2), together)


def test_attention_across_stacks_has_keys_of_the_source():
    model, rows = build("t5"), texts_of()
    source, target = padded(rows, "left"), padded(rows[::-1], "right")
    streamed = stream(model, (source, target), "cross.L1H1")
    for value, text, pos, key in zip(
        *(field[0] for field in (streamed.value, streamed.text, streamed.pos, streamed.key)),
        strict=True,
    ):
        source_ids, target_ids = rows[text][None], rows[::-1][text][None]
        pattern = interp.run(model, source_ids, target_ids, record="cross_pattern").cache[
            "cross_pattern", 1
        ]
        assert_close(value, pattern[0, 1, pos, key])
    sees_several = sum(len(a) * len(b) for a, b in zip(rows, rows[::-1], strict=True) if len(a) > 1)
    assert streamed.distribution.n == sees_several


def test_texts_joined_are_the_texts():
    model = build("bert-types")
    batches = [
        model.batch(torch.tensor([[1, 2, 3]]), types=torch.tensor([[0, 1, 1]])),
        model.batch(torch.tensor([[PAD, 4]])),
    ]
    both = joined(batches)
    assert both.tokens.tolist() == [[1, 2, 3], [PAD, 4, PAD]]
    assert both.types.tolist() == [[0, 1, 1], [0, 0, 0]]


# ---- BOS, strips, controls -----------------------------------------------------------------------


def test_cells_at_bos_are_left_out_on_request():
    model, texts = interp.load("python-2l"), ["x = 1", "import os"]
    bos = model.config.tokens.bos
    assert all(int(ids[0]) == bos for ids in model.to_tokens(texts))
    with_bos, without = (
        stream(model, texts, "L1H0", bos=counted, top=100) for counted in (True, False)
    )
    assert (with_bos.key == 0).any()
    assert (without.key > 0).all()
    lengths = (model.to_tokens(texts) != PAD).sum(-1)
    assert with_bos.distribution.n - without.distribution.n == int((lengths - 1).sum())


@pytest.mark.parametrize("of", ["L1H1", "L1N2"])
def test_strips_hold_the_values_along_each_text(of):
    model, rows = build("gpt2"), texts_of()
    measure = measure_of(model, of)
    streamed = stream(model, rows_padded := padded(rows, "right"), of)
    strip = strips(measure, streamed, 2)
    assert strip.shape[:2] == streamed.value.shape
    at = streamed.key if of == "L1H1" else streamed.pos
    assert_close(strip[0].gather(-1, at[0][:, None])[:, 0], streamed.value[0])
    lengths = torch.tensor([len(rows[n]) for n in streamed.text[0]])
    assert ((~strip[0].isnan()).sum(-1) == lengths).all()
    assert rows_padded.shape[1] == strip.shape[-1]


def test_what_depends_on_the_order_of_other_tokens_is_lost_and_what_does_not_stays():
    model = interp.load("induction-by-hand")
    settings = {"draws": 4, "rows": 3, "seed": 0}
    for of, stays in (("L1H0", False), ("L0H0", False)):
        streamed = stream(model, ["abcdefgab", "xyzwvux"], of, top=2)
        control = shuffled_values(measure_of(model, of), streamed, ranks=2, **settings)
        assert (control < 0.9 * streamed.value).all() is not stays
    model = build("gpt2")
    streamed = stream(model, padded(texts_of(), "right"), ("embed"), top=3)
    control = shuffled_values(measure_of(model, "embed"), streamed, ranks=3, **settings)
    assert_close(control, streamed.value)


# ---- files and iterators -------------------------------------------------------------------------


def test_a_file_is_read_as_its_texts(tmp_path):
    model, texts = interp.load("python-2l"), ["x = 1", "import os", "def f(x):"]
    plain, lines = tmp_path / "a.txt", tmp_path / "a.jsonl"
    plain.write_text("\ufeff" + "\r\n\n".join(texts) + "\n")
    lines.write_text("".join(f'{{"text": "{text}", "meta": 3}}\n' for text in texts))
    expected = stream(model, texts, "L0H0")
    for file, numbers in ((plain, (1, 3, 5)), (lines, (1, 2, 3))):
        streamed = stream(model, file, "L0H0")
        assert torch.equal(streamed.value, expected.value)
        assert streamed.sha256 == expected.sha256
        where = {f"{file}:{n}" for n in numbers}
        assert set(streamed.sources.values()) <= where
        assert [pool.sources for pool in pools_of(model, file, 9)] == [tuple(sorted(where))]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"text": "a"}\n{"text": 3}\n', r"a\.jsonl:2: expected an object"),
        ("a.jsonl", b'{"text": "a"}\n\n{"text"\n', r"a\.jsonl:3: not a JSON object"),
        ("a.txt", b"a\nb\xff\n", r"a\.txt:2 is not UTF-8 text \(byte 1"),
        ("a.txt", b"ab\n\xc3\xa9\n", r"a\.txt:2: "),
        ("a.txt", b"\n \n", "The corpus holds no text"),
        ("a.txt", b"", "The corpus holds no text"),
    ],
)
def test_bad_lines_are_named_and_an_empty_corpus_refused(tmp_path, name, content, message):
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(InvalidInput, match=message):
        stream(interp.load("induction-by-hand"), file, "L0H0")


def test_a_file_that_is_absent_or_given_as_a_text_is_refused(tmp_path):
    model, file = interp.load("induction-by-hand"), tmp_path / "a.txt"
    with pytest.raises(InvalidInput, match=r"a\.txt can't be read: No such file"):
        stream(model, file, "L0H0")
    file.write_text("abab")
    with pytest.raises(InvalidInput, match="give the file as Path"):
        stream(model, str(file), "L0H0")


@pytest.mark.parametrize("texts", [[], iter([])])
def test_no_texts_are_refused(texts):
    with pytest.raises(InvalidInput, match=r"no text|empty"):
        stream(interp.load("induction-by-hand"), texts, "L0H0")


def test_a_corpus_without_a_cell_is_refused():
    with pytest.raises(InvalidInput, match="L1H0 has no value in this corpus"):
        stream(build("gpt2"), torch.tensor([[1], [2]]), "L1H0")


def test_a_text_that_can_not_be_read_is_named():
    with pytest.raises(InvalidInput, match="text 1: "):
        stream(build("gpt2"), iter([torch.tensor([1, 2]), torch.tensor([1, D_VOCAB])]), "L0H0")
    with pytest.raises(InvalidInput, match="text 0: expected one text"):
        stream(build("gpt2"), iter([torch.ones(2, 3).long()]), "L0H0")


def test_a_text_longer_than_the_context_is_cut():
    model = interp.load("python-2l")
    n_ctx, bos = model.config.n_ctx, model.config.tokens.bos
    text = "x = 1\n" * n_ctx
    ids = model.to_tokens(text)[0, 1:]
    (pool,) = pools_of(model, [text, "y"], 9)
    n = -(-len(ids) // (n_ctx - 1))
    assert (pool.n_cut, len(pool.sources)) == (n - 1, n + 1)
    assert pool.sources == ("text 0",) * n + ("text 1",)
    rows = pool.batches[0].tokens
    assert (rows[:, 0] == bos).all()
    assert torch.equal(torch.cat([row[row != PAD][1:] for row in rows[:n]]), ids)


def test_a_stream_is_read_in_pools_and_can_be_cancelled(monkeypatch):
    monkeypatch.setattr("analyses.methods.corpus.stream.POOL", 4)
    model, read, ticks = build("gpt2"), [], []
    row = torch.arange(5)

    def endless():
        while True:
            read.append(1)
            yield row

    measure = measure_of(model, "L0H0")
    settings = Settings(top=2, rows=2)
    streamed = stream_corpus(
        model,
        endless(),
        measure,
        settings,
        progress=lambda *n: ticks.append(n),
        cancelled=lambda: len(ticks) == 3,
    )
    assert (len(read), streamed.n_texts, streamed.complete) == (8, 6, False)
    assert ticks == [(2, 4), (4, 4), (6, 8)]
    assert streamed.notes == ("cancelled after 6 texts",)
    assert len(streamed.texts) <= 2


def test_progress_ends_at_the_size_of_the_file(tmp_path):
    file, ticks = tmp_path / "a.txt", []
    file.write_text("abab\nxyx\nqq\n")
    model = interp.load("induction-by-hand")
    measure = measure_of(model, "L0H0")
    stream_corpus(model, file, measure, Settings(rows=2), progress=lambda *n: ticks.append(n))
    assert ticks == [(8, 12), (12, 12)]


# ---- what can be measured ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of", "by", "error", "message"),
    [
        ("L0H9", None, UnknownPlace, "no component"),
        ("L0N10", None, UnknownPlace, "no component"),
        (("pattern", 0), None, InvalidInput, "no value per token. To measure the attention"),
        ("resid", None, UnknownPlace, "resid"),
        ("L0H1", "norm", InvalidInput, "attention, write"),
        ("L0N1", "write", InvalidInput, "applies to heads only"),
    ],
)
def test_what_can_not_be_measured_is_refused(of, by, error, message):
    with pytest.raises(error, match=message):
        measure_of(build("gpt2"), of, by)


def test_neurons_of_experts_are_refused():
    with pytest.raises(UnknownPlace, match="no component"):
        measure_of(build("mixtral"), "L0N1")


def test_activations_that_are_not_finite_are_refused():
    model = interp.Transformer(interp.load("induction-by-hand").config)
    with torch.no_grad():
        model.blocks[0].attn.W_V[:] = torch.nan
    with pytest.raises(InvalidInput, match="not finite"):
        stream(model, torch.tensor([[1, 2, 3]]), ("resid_post", 1))
