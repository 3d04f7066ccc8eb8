"""A score as a sum over pairs of features: it is whole, and the largest pairs are those of all."""

from importlib import import_module

import pytest
import torch
from architectures import assert_close, build, padded, tokens_of
from test_attached import drawn, viewed
from test_feature_graphs import AFTER_NORM, SKIP, transcoded
from test_feature_terms import of_attention

import interp
from analyses import FeatureScoreTerms, explain_scores
from analyses.explain_scores import feature_pairs
from interp import Place, Point, Transformer, run
from interp.dictionaries import DictionaryTransformer
from interp.errors import InvalidInput
from interp.model import untouched

cross_layer = import_module("tests.dictionaries.test_cross_layer")
places = import_module("tests.dictionaries.test_cross_layer_places")
ACROSS = "across layers"
BOUND = 1e-9
EXACT = 1e-12
EVERY = 10**6
CELL = {"query": 3, "key": 1}


def of_stream(name: str, *places: Place) -> DictionaryTransformer:
    """A model with an autoencoder of the stream at some places."""
    model = build(name)
    return interp.with_dictionaries(model, [drawn(model, place, place) for place in places])


def view_of(name: str, of: object) -> DictionaryTransformer:
    """A model with dictionaries of its MLPs, of its attentions, of the stream, or of all layers."""
    if of == ACROSS:
        return interp.with_dictionaries(build(name), cross_layer.drawn(name))
    if isinstance(of, tuple):
        return transcoded(name, of)
    return of_attention(name, of) if isinstance(of, Point) else of_stream(name, of)


def by_feature(view: Transformer, prompts: object, **settings: object) -> FeatureScoreTerms:
    """The terms of a head of layer 1."""
    result = explain_scores(view, prompts, 1, 1, by="feature", **(CELL | settings))
    assert isinstance(result, FeatureScoreTerms)
    return result


VIEWS = [
    *((name, ()) for name in ("gpt2", "llama", "neox", "gemma2", "set-encoder")),
    ("neox", (SKIP,)),
    ("gemma2", (SKIP, AFTER_NORM)),
    *((name, Point.Z) for name in ("gpt2", "llama", "gemma2")),
    *((name, Point.ATTN_OUT) for name in ("gpt2", "gemma2")),
    *((name, Place(Point.RESID_POST, 0)) for name in ("gpt2", "llama", "bert", "bloom")),
    *((name, Place(Point.RESID_PRE, 1)) for name in ("gpt2", "gemma2")),
    ("gpt2", Place(Point.RESID_MID, 0)),
    ("gpt2", Place(Point.RESID_PRE, 0)),
    ("gpt2", Place(Point.ATTN_IN, 1)),
    ("llama", Place(Point.NORMALIZED, 1, "ln1")),
    ("bert", Place(Point.NORMALIZED, 0, "ln2")),
    ("gpt2", ACROSS),
    ("gemma2", ACROSS),
]


@pytest.mark.parametrize(("name", "of"), VIEWS, ids=str)
def test_pairs_and_the_rest_sum_to_the_score(name, of):
    """Of the model without dictionaries, its control too; without the error they do not."""
    view, (tokens, *_) = view_of(name, of), tokens_of(name)
    plain = explain_scores(build(name), tokens, 1, 1, **CELL)
    result = by_feature(view, tokens, pairs=EVERY)
    assert result.n_rest == 0
    assert result.error < BOUND
    assert_close(result.value, plain.value)
    assert_close(result.effect.sum(0), plain.effect.sum((0, 1)), BOUND)
    assert_close(result.control.sum(0), plain.control.sum((0, 1)), BOUND)
    for end, names in enumerate((result.query_writers, result.key_writers)):
        errors = torch.tensor([" error" in writer for writer in names])
        assert errors.any()
        is_error = errors[result.pairs[:, end]]
        assert result.effect[is_error].sum(0).abs().max() > 1e-6
        assert any("F" in writer for writer in names)


@pytest.mark.parametrize("name", ["gemma2", "mixtral", "bert"])
def test_several_dictionaries_of_any_block_sum_to_the_score(name):
    """Of the stream, of heads and of an MLP at once; those after the head are left out."""
    result = by_feature(viewed(name), tokens_of(name)[0])
    assert result.error < BOUND
    assert any("F" in writer for writer in result.key_writers)


def test_keys_of_cross_attention_are_features_of_the_encoder():
    """And queries those of the decoder, after its own attention."""
    model, prompts = build("t5"), tokens_of("t5")
    last = len(model.stacks[0].blocks) - 1
    places = [
        Place(Point.RESID_POST, last, None, "encoder"),
        Place(Point.RESID_MID, 1, None, "decoder"),
    ]
    view = interp.with_dictionaries(model, [drawn(model, place, place) for place in places])
    result = explain_scores(view, prompts, 1, 0, key=0, attention="cross", by="feature")
    assert result.error < BOUND
    for names, stack in ((result.query_writers, "decoder.L1"), (result.key_writers, "encoder.L")):
        assert any(f"{stack}" in name and "F" in name for name in names)
        assert any(" error" in name for name in names)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_each_term_is_that_of_two_decoder_rows(name):
    """t_ab = (a W_dec,a G W_Q) R (b W_dec,b G W_K)ᵀ / scale, with G = gain / divisor."""
    view, tokens = of_stream(name, Place(Point.RESID_POST, 0)), tokens_of(name)[0]
    result = by_feature(view, tokens, against="nothing", pairs=EVERY)
    cache = run(view, tokens, record="all").cache
    (dictionary,) = view.dictionaries().values()
    block, features = view.blocks[1], cache["features", 0]
    attn, norm = block.attn, block.ln1
    context = view.contexts(view.batches(tokens))[0]

    def vectors(unit, W):
        written = features[..., unit, None] * dictionary.w_dec[unit]
        x = norm.centred(written) / cache["scale", 1, "ln1"] * norm.gain
        return (x @ W)[:, :, None]

    seen = 0
    for (a, b), effect in zip(result.pairs.tolist(), result.effect, strict=True):
        query, key = result.query_writers[a], result.key_writers[b]
        if "F" in query and "F" in key:
            q = vectors(int(query[3:]), attn.W_Q[1])
            q = attn.positions.query(q, context, untouched)[:, 3, 0] / attn.divisor
            k = vectors(int(key[3:]), attn.W_K[attn.kv_head(1)])
            k = attn.positions.key(k, context, untouched)[:, 1, 0]
            assert_close(effect, (q * k).sum(-1).detach(), EXACT)
            seen += 1
    assert seen > 8


def test_a_feature_that_writes_several_layers_is_one_writer():
    """Its keys are those of all its decoders before the head; the terms sum to the score."""
    view, transcoder, tokens = places.deep()
    head = {"query": 4, "key": 1, "against": "nothing"}
    plain = explain_scores(view, tokens, 3, 0, **head)
    result = explain_scores(view, tokens, 3, 0, by="feature", pairs=EVERY, **head)
    assert result.error < BOUND
    assert_close(result.value, plain.value)
    names = result.key_writers
    assert len({*names}) == len(names)
    assert {name for name in names if "error" in name} == {f"L{n} error" for n in range(3)}
    cache = run(view, tokens, record="all").cache
    block, row = view.blocks[3], names.index(next(name for name in names if name[:3] == "L0F"))
    unit, attn, norm = int(names[row][3:]), block.attn, block.ln1
    context = view.contexts(view.batches(tokens))[0]
    q = attn.positions.query(cache["q", 3], context, untouched)[:, 4, 0] / attn.divisor
    written = transcoder.w_dec[0][unit]
    terms: list[torch.Tensor] = []
    for decoder in (written[:3].sum(0), written[0]):
        x = norm.centred(cache["features", 0][..., unit, None] * decoder) / cache["scale", 3, "ln1"]
        k = (x * norm.gain @ attn.W_K[attn.kv_head(0)])[:, :, None]
        k = attn.positions.key(k, context, untouched)[:, 1, 0]
        terms.append((q * k).sum(-1).detach())
    assert_close(result.key_effect[row], terms[0], BOUND)
    assert (terms[0] - terms[1]).abs().max() > 1e-4


@pytest.mark.parametrize("against", ["others", "mean"])
def test_the_largest_pairs_are_kept_whatever_the_blocks(against, monkeypatch):
    """By mean |term| over prompts; the others are one sum, and writers' sums are over all."""
    view, tokens = transcoded("llama"), tokens_of("llama")[0]
    settings = {"query": "all", "key": "previous", "against": against}
    whole = by_feature(view, tokens, pairs=EVERY, **settings)
    size = whole.effect.abs().mean(-1)
    assert (size.diff() <= 0).all()
    for block in (5, 1024):
        monkeypatch.setattr(feature_pairs, "BLOCK", block)
        few = by_feature(view, tokens, pairs=9, **settings)
        assert few.pairs.tolist() == whole.pairs[:9].tolist()
        assert few.n_rest == len(whole.pairs) - 9
        assert_close(few.effect, whole.effect[:9], EXACT)
        assert_close(few.control, whole.control[:9], EXACT)
        assert_close(few.rest, whole.effect[9:].sum(0), EXACT)
        assert few.rest.abs().min() > 1e-6
        assert few.error < BOUND
        for row in range(0, len(whole.query_writers), 3):
            of_writer = whole.effect[whole.pairs[:, 0] == row].sum(0)
            assert_close(few.query_effect[row], of_writer, EXACT)
        for row in range(0, len(whole.key_writers), 3):
            of_writer = whole.effect[whole.pairs[:, 1] == row].sum(0)
            assert_close(few.key_effect[row], of_writer, EXACT)


def test_features_their_error_and_bias_replace_the_mlp():
    view, tokens = transcoded("neox", (SKIP,)), tokens_of("neox")[0]
    plain = explain_scores(build("neox"), tokens, 1, 1, **CELL)
    result = by_feature(view, tokens)
    parts = ("L0F", "L0 error", "L0 skip", "L0.b_dec")
    rows = [n for n, name in enumerate(result.key_writers) if name.startswith(parts)]
    names = [plain.key_writers.index(name) for name in ("L0MLP", "L0.b_out")]
    replaced = plain.effect.sum(0)[names].sum(0)
    assert_close(result.key_effect[rows].sum(0), replaced, EXACT)
    assert replaced.abs().min() > 1e-6
    others = {name for name in result.key_writers if not name.startswith(parts)}
    assert others == {*plain.key_writers} - {"L0MLP", "L0.b_out"}


def test_of_two_dictionaries_of_the_stream_the_nearer_one_is_read():
    places = [Place(Point.RESID_PRE, 0), Place(Point.RESID_MID, 0), Place(Point.RESID_POST, 1)]
    view, tokens = of_stream("gpt2", *places), tokens_of("gpt2")[0]
    result = by_feature(view, tokens)
    names = {*result.query_writers, *result.key_writers}
    assert "L0 error:resid_mid" in names
    assert not names & {"embed", "pos_embed", "L0H0", "L0 error:resid_pre"}
    assert "L0MLP" in names
    assert 'a dictionary of the stream comes after them: ("resid_pre", 0)' in result.notes[-1]
    assert result.notes[-1] in result.summary()


def test_padding_changes_no_pair():
    view = transcoded("llama")
    rows = [torch.tensor([1, 2, 3, 4, 2]), torch.tensor([5, 6, 5])]
    together = by_feature(view, padded(rows, "left"), query=-1, key=0, pairs=EVERY)
    names = together.to_frame()["name"].tolist()
    for prompt, row in enumerate(rows):
        alone = by_feature(view, row[None], query=-1, key=0, pairs=EVERY)
        terms = dict(zip(_names(together), together.effect[:, prompt].tolist(), strict=True))
        for name, term in zip(_names(alone), alone.effect[:, 0].tolist(), strict=True):
            assert terms[name] == pytest.approx(term, abs=EXACT)
        assert {*_names(alone)} <= {*names}


def _names(result: FeatureScoreTerms) -> list[str]:
    pairs = result.pairs.tolist()
    return [f"{result.query_writers[a]} × {result.key_writers[b]}" for a, b in pairs]


def test_tables_text_and_figure_state_the_rest():
    view, tokens = transcoded("gpt2"), tokens_of("gpt2")[0]
    result = by_feature(view, tokens, pairs=5)
    frame = result.to_frame()
    assert frame["name"].tolist()[-1] == "all others"
    assert len(frame) == 6
    assert frame["effect"].sum() == pytest.approx(float(result.value.mean()))
    drawing = result.drawing()
    assert drawing.labels[-1] == "all others"
    assert drawing.values.sum() == pytest.approx(float(result.value.mean()))
    assert f"{result.n_rest} other pairs" in result.headline()
    assert "5 pairs of" in result.summary()
    assert {*result.more_frames()} == {"writers", "cells"}
    whole = by_feature(view, tokens, pairs=EVERY)
    assert "all others" not in whole.to_frame()["name"].tolist()
    assert "no other pairs" in whole.headline()
    assert result.payload()["result"] == "FeatureScoreTerms"


def test_significance_is_corrected_for_all_pairs():
    """q of the pairs that are kept is no smaller than with all pairs in the table."""
    view = transcoded("gpt2")
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(9, (8, 5), generator=generator)
    few, whole = (by_feature(view, tokens, pairs=n).to_frame() for n in (6, EVERY))
    of_all = whole.set_index("name")["q"]
    rows = few[few["name"] != "all others"]
    assert len(rows) == 6
    assert all(row["q"] >= of_all[row["name"]] - EXACT for row in rows.to_dict("records"))


def test_what_has_no_features_is_refused():
    model, tokens = build("gpt2"), tokens_of("gpt2")[0]
    later = of_stream("gpt2", Place(Point.RESID_POST, 1))
    queries = of_stream("gpt2", Place(Point.MLP_IN, 0))
    for view, settings, message in [
        (model, {}, "takes a model with dictionaries"),
        (later, {}, "takes dictionaries of what L1H1 reads, which is written before layer 1"),
        (queries, {}, r'those before it are of \("mlp_in", 0\)'),
        (transcoded("gpt2"), {"neurons": 2}, 'neurons=2 has no effect with by="feature"'),
        (transcoded("gpt2"), {"check": 1}, "no edit of an edge removes one"),
        (transcoded("gpt2"), {"pairs": 0}, "pairs=0"),
    ]:
        with pytest.raises(InvalidInput, match=message):
            explain_scores(view, tokens, 1, 1, by="feature", **settings)
