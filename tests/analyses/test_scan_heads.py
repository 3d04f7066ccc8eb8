"""Heads over a corpus, against loops over whole patterns."""

import math
import re
import string
import sys
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from math import log

import pytest
import torch
from allocations import allocated
from architectures import assert_close, build, build_new, padded
from declared import Call, Command, Declared, EachPrompt, Made, Symmetric, example, odd, small
from permuted import tables_of

import interp
from analyses import PartialScan, estimate_scan_heads, scan_heads
from analyses.methods.heads import every_attention
from analyses.results import interval
from analyses.scan_heads.cells import in_random_order
from analyses.scan_heads.corpus_pass import planned
from analyses.scan_heads.effects import drawn_tokens
from analyses.scan_heads.sketch import Sketch
from analyses.scan_heads.totals import Sizes, Totals, lower_ends
from interp import run
from interp.errors import InvalidInput, OutOfResources
from interp.execution import Start
from interp.points import Place, Point

MODULE = sys.modules["analyses.scan_heads.corpus_pass"]
MEASURE = sys.modules["analyses.scan_heads.measure"]
CODE = [prompt.text for prompt in interp.read_prompts("repeated")][:7]
D_VOCAB = 13


def rows(*lengths: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(D_VOCAB, (n,), generator=generator) for n in lengths]


ROWS = rows(8, 5, 2, 7, 1, 8, 6)
SIZES = Sizes(
    units=4,
    statistics=3,
    stacks=1,
    vocab=D_VOCAB,
    layers=2,
    d_model=12,
    farthest=15,
    longest=16,
    sample=20,
    counters=64,
)


def arrays(result) -> dict[str, torch.Tensor]:
    """The numbers of a result by name, NaN replaced."""
    tops = {name: getattr(result, name) for name in ("top_queries", "top_keys", "top_pairs")}
    return {
        **{name: getattr(result, name) for name in ("mean", "low", "high", "control", "distances")},
        **{f"{name} share": top.share for name, top in tops.items()},
        **{f"{name} ids": top.ids.double() for name, top in tops.items()},
    }


def assert_same(scan, other, bound: float = 1e-12) -> None:
    for name, tensor in arrays(scan).items():
        assert_close(tensor.nan_to_num(-9), arrays(other)[name].nan_to_num(-9), bound, name)


# ---- statistics by loops ------------------------------------------------------------------------


def of_pattern(weights, seen_by, sets_of, offsets, *, crossing):
    """Statistics of one pattern ``[query key]``, each the mean of a list over queries.

    ``seen_by(i)`` are the keys that a query sees, ``sets_of(i, keys)`` sets of them by name.
    """
    lists: dict[str, list[float]] = {}
    for i, row in enumerate(weights.tolist()):
        visible = seen_by(i)
        if len(visible) == 1 or sum(row) == 0:
            continue
        nats = -sum(row[j] * log(row[j]) for j in visible if row[j] > 0)
        numbers = {"entropy": nats, "normalized entropy": nats / log(len(visible))}
        sets = {"first position": [0] if (i > 0 or crossing) and 0 in visible else []}
        if not crossing:
            at = sum(row[j] * j for j in visible) / sum(row)
            variance = sum(row[j] * (j - at) ** 2 for j in visible) / sum(row)
            distance = sum(row[j] * abs(i - j) for j in visible)
            numbers |= {"distance": distance, "distance variance": variance}
            sets |= {name: {i + by} & {*visible} for name, by in offsets.items()}
            sets |= sets_of(i, [j for j in visible if j not in (0, i)])
        numbers |= {name: sum(row[j] for j in keys) for name, keys in sets.items() if keys}
        for name, number in numbers.items():
            lists.setdefault(name, []).append(number)
    return {name: sum(values) / len(values) for name, values in lists.items()}


def sets_of_tokens(ids, strings, *, causal):
    """The sets of keys of a query, by its tokens."""

    def sets_of(i, keys):
        sets = {"duplicate-token": [j for j in keys if ids[j] == ids[i]]}
        if causal:
            sets["induction"] = [j for j in keys if ids[j - 1] == ids[i]]
        if strings is not None:
            sets["same word"] = [j for j in keys if is_word(strings, i, j)]
            for kind, has in KINDS.items():
                members = [j for j in keys if has(strings[j])]
                sets[f"same {kind}"] = members if has(strings[i]) else []
        return sets

    return sets_of


def keys_seen(attn, n_key, *, causal, crossing):
    """The keys that a query sees, by its position."""
    window = getattr(attn.masking.mask, "size", math.inf)

    def seen_by(i):
        keys = range(n_key) if crossing or not causal else range(i + 1)
        return [j for j in keys if i - j < window]

    return seen_by


KINDS = {
    "punctuation": lambda text: (
        text.strip() != "" and not set(text.strip()) - {*string.punctuation}
    ),
    "whitespace": lambda text: text != "" and text.strip() == "",
    "digits": lambda text: text.strip().isdigit(),
}


def is_word(texts, i, j):
    """Whether each token between two positions continues the word of the token before it."""
    first, last = min(i, j), max(i, j)
    return all(texts[n][-1].isalnum() and texts[n + 1][0].isalnum() for n in range(first, last))


@torch.no_grad()
def by_hand(model, texts, offsets):
    """For each weighting and head, the values of each text by statistic."""
    values: list[dict[str, list[dict[str, float]]]] = [{}, {}]
    for text in texts:
        batches = model.batches(text)
        strings = None if model.tokenizer is None else model.to_str_tokens(text)
        for kind in every_attention(model):
            ids, crossing = batches[kind.query].ids[0].tolist(), kind.is_cross
            causal, n_key = not kind.is_bidirectional, batches[kind.key].ids.shape[1]
            sets_of = sets_of_tokens(ids, strings, causal=causal)
            for layer, attn in enumerate(kind.layers):
                seen_by = keys_seen(attn, n_key, causal=causal, crossing=crossing)
                pattern, v = kind.places(layer)
                places = [pattern, v, kind.z_place(layer), resid(model, kind, layer)]
                cache = run(model, *batches, record=places, kernel="explicit").cache
                A, v, z, stream = (cache[place][0] for place in places)
                each = attn.values(cache[places[1]])[0]
                for head in range(attn.n_heads):
                    weighted = A[head] * (each[:, head] @ attn.W_O[head]).norm(dim=-1)
                    weighted = weighted / weighted.sum(-1, keepdim=True)
                    plain, moved = (
                        of_pattern(weights, seen_by, sets_of, offsets, crossing=crossing)
                        for weights in (A[head], weighted)
                    )
                    share = (z[:, head] @ attn.W_O[head]).norm(dim=-1) / stream.norm(dim=-1)
                    plain["write"] = float(share.mean())
                    name = kind.head_name(layer, head)
                    values[0].setdefault(name, []).append(plain)
                    values[1].setdefault(name, []).append(moved)
    return values


def resid(model, kind, layer):
    stacks = model.stacks
    stack = stacks[kind.query].name if len(stacks) > 1 else None
    return Place(Point.RESID_PRE, layer, stack=stack)


def check_by_hand(model, texts, result, offsets, bound=1e-9):
    expected = by_hand(model, texts, offsets)
    first = "first position" if "first position" in result.statistics else "bos"
    compared = 0
    for weighting in range(2):
        for unit, name in enumerate(result.names):
            for column, statistic in enumerate(result.statistics):
                of = "first position" if statistic == first else statistic
                each = [text[of] for text in expected[weighting][name] if of in text]
                assert int(result.n[weighting, unit, column]) == len(each), (name, statistic)
                if each:
                    values = torch.tensor(each, dtype=torch.float64)
                    cell = weighting, unit, column
                    assert_close(result.mean[cell], values.mean(), bound, (name, statistic))
                    of_values = interval(values)
                    for end, of_scan in (
                        (of_values.low, result.low),
                        (of_values.high, result.high),
                    ):
                        assert_close(of_scan[cell].nan_to_num(-9), end.nan_to_num(-9), bound)
                    compared += 1
    assert compared > 5 * len(result.names)


OFFSETS = {"self": 0, "previous": -1, "offset -2": -2}
BOTH = OFFSETS | {"next": 1, "offset +2": 2}


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "gpt-oss"])
def test_statistics_are_those_of_a_loop_over_whole_patterns(name):
    model = build(name)
    offsets = BOTH if name == "bert" else OFFSETS
    result = scan_heads(model, padded(ROWS, "left"), offsets=2, rows=3)
    check_by_hand(model, [row[None] for row in ROWS], result, offsets)


def test_those_of_classes_and_words_too():
    model = interp.load("python-2l").double()
    texts = [*CODE[:4], "x12 = 34 + 5\n    return x12, 34"]
    result = scan_heads(model, texts, offsets=2)
    check_by_hand(model, texts, result, OFFSETS)
    measured = set(result.to_frame()["statistic"])
    assert {"same digits", "same punctuation", "same whitespace", "same word", "bos"} <= measured


def test_those_of_the_three_attentions_of_a_pair():
    model = build("t5")
    sources, targets = rows(7, 3, 6, 5, 8, 4), rows(5, 6, 2, 7, 3, 8)
    result = scan_heads(model, (padded(sources, "left"), padded(targets, "right")), offsets=2)
    pairs = [(s[None], t[None]) for s, t in zip(sources, targets, strict=True)]
    check_by_hand(model, pairs, result, BOTH)
    assert set(result.attentions) == {"encoder", "decoder", "cross"}
    assert result.distances[[name.startswith("cross") for name in result.names]].isnan().all()


# ---- batches, order, resuming -------------------------------------------------------------------


def test_they_depend_neither_on_batches_nor_on_the_order_of_texts(monkeypatch):
    model = build("gpt2")
    whole = scan_heads(model, padded(ROWS, "left"), rows=64)
    assert_same(scan_heads(model, iter(ROWS), rows=1), whole)
    monkeypatch.setattr("analyses.methods.heads.query_averages.PART", 40)
    monkeypatch.setattr(MODULE, "POOL", 3)
    monkeypatch.setattr(MEASURE, "RECORDED", 1)  # a text per forward
    small_parts = scan_heads(model, iter(ROWS), rows=2)
    assert_same(small_parts, whole)
    assert small_parts.provenance.tokens == whole.provenance.tokens
    # A text in random order, the control of induction, depends on its number: here all or none.
    turned = scan_heads(model, iter(ROWS[::-1]), rows=2, shuffled=1)
    statistics = [n for n, name in enumerate(whole.statistics) if name not in REPEATED]
    for name in ("mean", "low", "high", "control"):
        pair = (getattr(r, name)[..., statistics].nan_to_num(-9) for r in (turned, whole))
        assert_close(*pair)


REPEATED = ("induction", "duplicate-token")


def stops_after(n: int):
    calls = iter(range(n - 1))
    return lambda: next(calls, None) is None


def test_a_scan_that_was_stopped_ends_with_the_same_bytes(monkeypatch, tmp_path):
    """Wherever it is stopped, and as often; also from a file."""
    monkeypatch.setattr(MODULE, "POOL", 4)
    model = build("gpt2")
    whole = scan_heads(model, iter(ROWS), rows=2, sample=10)
    for stops in ([1], [2], [3], [1, 1, 1]):
        partial = None
        for n in stops:
            cut = scan_heads(
                model, iter(ROWS), rows=2, sample=10, cancelled=stops_after(n), resume=partial
            )
            assert cut.notes[-1] == f"cancelled after {cut.n_texts} texts"
            cut.partial.save(tmp_path / "scan")
            partial = PartialScan.load(tmp_path / "scan")
            assert partial.n_texts == cut.n_texts < len(ROWS)
        resumed = scan_heads(model, iter(ROWS), rows=2, sample=10, resume=partial)
        assert resumed.payload() == whole.payload()


def test_a_scan_that_is_cancelled_among_texts_of_one_token_reads_on_to_one_of_two():
    """Texts of one token, which are read first, have no number that it could return."""
    texts = rows(1, 1, 1, 4, 6)
    cut = scan_heads(build("gpt2"), iter(texts), rows=1, cancelled=lambda: True)
    assert cut.n_texts == 4
    assert not cut.of("distance").isnan().any()
    resumed = scan_heads(build("gpt2"), iter(texts), rows=1, resume=cut.partial)
    assert resumed.n_texts == len(texts)


def test_what_was_measured_is_kept_when_it_fails(monkeypatch):
    monkeypatch.setattr(MODULE, "POOL", 2)
    model = build("gpt2")
    bad = [*ROWS[:4], torch.tensor([1, D_VOCAB])]
    with pytest.raises(InvalidInput, match="text 4") as raised:
        scan_heads(model, iter(bad), rows=2, sample=10)
    assert raised.value.result.n_texts == 4
    mended = [*ROWS[:4], torch.tensor([1, 2])]
    resumed = scan_heads(model, iter(mended), rows=2, sample=10, resume=raised.value.result)
    assert resumed.payload() == scan_heads(model, iter(mended), rows=2, sample=10).payload()


def test_a_partial_result_of_another_scan_or_a_damaged_one_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(MODULE, "POOL", 2)
    model = build("gpt2")
    partial = scan_heads(model, iter(ROWS), rows=2, cancelled=stops_after(2)).partial
    for settings, texts, message in [
        ({"rows": 3}, ROWS, "had rows 2, this one has 3"),
        ({"seed": 1}, ROWS, "had seed 0"),
        ({}, [ROWS[1], *ROWS[1:]], "scan of other texts"),
        ({}, ROWS[:1], "scan of other texts"),
    ]:
        with pytest.raises(InvalidInput, match=message):
            scan_heads(model, iter(texts), **({"rows": 2} | settings), resume=partial)
    with pytest.raises(InvalidInput, match="had weights"):
        scan_heads(build("gpt2", seed=1), iter(ROWS), rows=2, resume=partial)
    file = tmp_path / "scan"
    partial.save(file)
    content = bytearray(file.read_bytes())
    content[-9] ^= 1
    file.write_bytes(content)
    with pytest.raises(InvalidInput, match="SHA-256"):
        PartialScan.load(file)
    file.write_bytes(content[:-20])
    with pytest.raises(InvalidInput, match="is not what"):
        PartialScan.load(file)
    lacking = PartialScan(partial.settings, {"counts": partial.tensors["counts"]})
    with pytest.raises(InvalidInput, match="resume= is damaged"):
        scan_heads(model, iter(ROWS), rows=2, resume=lacking)


def test_an_estimate_is_of_all_texts_and_bounds_what_is_kept():
    model = interp.load("python-2l")
    whole = estimate_scan_heads(model, CODE * 10)
    few = estimate_scan_heads(model, CODE * 2)
    assert whole.nbytes == few.nbytes > 0
    assert whole.seconds * whole.tokens_per_second == pytest.approx(
        5 * few.seconds * few.tokens_per_second, rel=0.2
    )  # the tokens of all texts: both numbers are of the same forwards
    assert math.isnan(estimate_scan_heads(model, iter(CODE)).seconds)
    partial = scan_heads(model, CODE, cancelled=lambda: True).partial
    assert sum(tensor.nbytes for tensor in partial.tensors.values()) <= whole.nbytes
    with pytest.raises(InvalidInput, match="holds no text"):
        estimate_scan_heads(model, iter([]))


def test_what_is_kept_does_not_grow_with_the_corpus():
    model = build("gpt2")
    sizes = []
    for times in (3, 12):
        texts = (row for row in ROWS * times)
        partial = scan_heads(model, texts, rows=4, sample=10, cancelled=lambda: False)
        sizes.append(sum(t.nbytes for t in vars(partial.sequences).values() if torch.is_tensor(t)))
    assert sizes[1] < 1.5 * sizes[0]
    totals = [Totals(scan_sizes) for scan_sizes in [SIZES, SIZES]]
    totals[1].draw(torch.arange(500), torch.zeros(500, 4, 3).double(), seed=0)
    totals[0].draw(torch.arange(50), torch.zeros(50, 4, 3).double(), seed=0)
    sizes, other = ({n: t.nbytes for n, t in each.tensors().items()} for each in totals)
    assert sizes == other
    assert sum(sizes.values()) <= SIZES.nbytes


def test_patterns_are_formed_for_one_layer_at_a_time():
    """Eight layers more take less than half of their patterns: what is recorded of them."""
    tokens = torch.randint(D_VOCAB, (8, 160), generator=torch.Generator().manual_seed(0))
    peaks = []
    for layers in (4, 12):
        stack = interp.StackConfig(layers, interp.AttentionConfig(4, 4), None)
        model = interp.Transformer(interp.Config(16, D_VOCAB, 160, decoder=stack))
        peaks.append(allocated(lambda model=model: scan_heads(model, tokens, sample=10))[0])
    of_a_layer = 4 * 8 * 4 * 160 * 160
    assert peaks[1] - peaks[0] < 8 * of_a_layer / 2
    assert peaks[0] > of_a_layer


@pytest.mark.parametrize("name", ["gpt2", "llama", "t5"])
def test_a_forward_records_no_more_than_its_bound(name, monkeypatch):
    model, stored = build(name), []

    def recorded(*args, **settings):
        done = run(*args, **settings)
        stored.append(done.cache.nbytes)
        return done

    monkeypatch.setattr(MEASURE, "run", recorded)
    plan, sizes = planned(model, 4, 1024, 10, 100, 0)
    bound = 16 * plan.bytes_per_token
    for most in (bound, MEASURE.RECORDED):
        monkeypatch.setattr(MEASURE, "RECORDED", most)
        texts = padded([row for row in ROWS if len(row) > 1], "right")
        scan = MODULE.CorpusPass(plan, sizes, rows=64)
        assert scan.read((texts, texts) if name == "t5" else texts, None, None)
        assert (max(stored) <= bound) == (most == bound)
        stored.clear()


def test_a_text_longer_than_max_length_is_cut():
    model = interp.load("python-2l")
    text = " ".join(CODE)[:400]
    ids = model.to_tokens(text)[0]
    parts = [torch.cat([ids[:1], part]) for part in ids[1:].split(19)]
    cut = scan_heads(model, [text], max_length=20, shuffled=1)
    assert_same(cut, scan_heads(model, iter(parts), max_length=20, shuffled=1))
    assert f"{len(parts) - 1} " in cut.summary()
    whole = scan_heads(model, [text], shuffled=1)
    assert f"on 1 text, {len(ids)} tokens" in repr(whole)


# ---- controls, distances, tokens ----------------------------------------------------------------


def test_known_heads_stand_out_and_none_of_an_untrained_model():
    texts = [prompt.text for prompt in interp.read_prompts("repeated")]
    trained = scan_heads(interp.load("python-2l"), texts, shuffled=1)
    rows_that_do = trained.to_frame().query("stands_out and weighting == 'attention'")
    named = set(zip(rows_that_do["name"], rows_that_do["statistic"], strict=True))
    assert {("L0H5", "previous"), ("L1H0", "induction"), ("L0H0", "self")} <= named
    assert "L0H5 (same word" in trained.headline()
    untrained = scan_heads(interp.load("python-2l@0"), texts, shuffled=1)
    assert not untrained.to_frame()["stands_out"].any()
    assert untrained.headline().startswith("python-2l@0: none of 16 heads stands out on 24 texts")


def test_the_control_of_induction_is_the_same_text_in_random_order():
    model = interp.load("python-2l")
    result = scan_heads(model, CODE[:3], shuffled=1)
    column = result.statistics.index("induction")
    assert (result.mean - result.control)[0, :, column].max() > 0.2
    batch = model.batch(CODE[:2])
    shuffled = in_random_order(batch.padded_right(), model.config.tokens.bos, [5, 6])
    assert torch.equal(shuffled.ids[:, 0], batch.ids[:, 0])
    for row, turned in zip(batch.padded_right().ids, shuffled.ids, strict=True):
        assert not torch.equal(row, turned)
        assert torch.equal(row.sort().values, turned.sort().values)


@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_the_histogram_has_the_mass_at_each_distance(name):
    model, texts = build(name), [row for row in ROWS if len(row) > 1]
    result = scan_heads(model, padded(texts, "right"), rows=2)
    mass = torch.zeros(len(result.names), 2, len(result.lower_ends), dtype=torch.float64)
    for text in texts:
        cache = run(model, text[None], record="pattern").cache
        patterns = torch.cat([cache["pattern", layer][0] for layer in range(2)])
        for i in range(len(text)):
            for j in range(len(text)):
                mass[:, int(j > i), abs(i - j)] += patterns[:, i, j]
    assert_close(result.distances, mass / mass.sum((1, 2), keepdim=True), 1e-9)
    assert (result.distances[:, 1] > 0).any() == (name == "bert")
    frame = result.to_distance_frame()
    total = frame.groupby("name")["share"].sum()
    assert total.to_numpy() == pytest.approx(1)


def test_far_distances_share_a_bucket():
    ends = lower_ends(1000)
    assert ends[:65] == list(range(65))
    assert all(later <= max(earlier + 1, 1.1 * earlier) for earlier, later in pairwise(ends))
    assert ends[-1] <= 1000


def test_tokens_have_their_shares_of_the_mass_off_the_first_token():
    model, texts = build("gpt2"), [row for row in ROWS if len(row) > 1]
    result = scan_heads(model, iter(texts))
    queries, keys, pairs = Counter(), Counter(), Counter()
    for text in texts:
        pattern = run(model, text[None], record="pattern").cache["pattern", 1][0, 2]
        ids = text.tolist()
        for i, query in enumerate(ids):
            for j in range(1, len(ids)):
                queries[query] += float(pattern[i, j])
                keys[ids[j]] += float(pattern[i, j])
            best = max(range(1, len(ids)), key=lambda j: pattern[i, j])
            pairs[query, ids[best]] += float(pattern[i, best])
    unit = result.names.index("L1H2")
    tokens = Counter(int(n) for text in texts for n in text)
    for top, expected in (
        (result.top_queries, queries),
        (result.top_keys, keys),
        (result.top_pairs, pairs),
    ):
        total = sum(expected.values())
        assert top.error[unit] == 0
        for ids, share in zip(top.ids[unit].tolist(), top.share[unit].tolist(), strict=True):
            if ids[0] >= 0:
                key = ids[0] if len(ids) == 1 else tuple(ids)
                assert share == pytest.approx(expected[key] / total, abs=1e-9)
    frequency = tokens[int(result.top_keys.ids[unit, 0])] / sum(tokens.values())
    assert float(result.top_keys.frequency[unit, 0]) == pytest.approx(frequency)


def test_a_sketch_errs_by_no_more_than_it_says():
    """Exact with a counter for each key; else too small, by at most the error ≤ total / 9."""
    generator = torch.Generator().manual_seed(0)
    keys = (torch.rand(3, 400, generator=generator).square() * 40).long()
    mass = torch.rand(3, 400, generator=generator, dtype=torch.float64)
    true = torch.zeros(3, 40, dtype=torch.float64).scatter_add_(1, keys, mass)
    for size in (40, 8):
        sketch = Sketch(3, size)
        for part in range(0, 400, 50):
            sketch.add(slice(None), keys[:, part : part + 50], mass[:, part : part + 50])
        tokens, masses = sketch.top(8)
        missing = true.gather(1, tokens.clamp(min=0)) - masses
        assert missing.min() > -1e-9
        assert (missing <= sketch.error[:, None] + 1e-9).all()
        assert (sketch.error <= sketch.total / (size + 1) + 1e-9).all()
        assert (sketch.error == 0).all() == (size == 40)
        assert_close(sketch.total, true.sum(1))


# ---- sequences ----------------------------------------------------------------------------------


def test_sequences_are_texts_of_their_decile_with_the_keys_that_are_attended_to():
    model = build("gpt2")
    texts = rows(*[3 + n % 6 for n in range(200)])
    result = scan_heads(model, iter(texts), sample=100)
    chosen = result.sequences
    assert len(set(chosen.text.tolist())) == 100
    assert chosen.decile == (10,) * 10 + (8,) * 3 + (6,) * 3 + (4,) * 3 + (2,) * 3
    unit, column = result.names.index("L1H1"), result.statistics.index("self")
    values = chosen.value[:, unit, column]
    ranks = values.argsort().argsort()
    for decile, text in zip(chosen.decile, chosen.slot[unit, column].tolist(), strict=True):
        assert ranks[text] // 10 + 1 == decile
    assert (values[chosen.slot[unit, column, :10]].diff() <= 0).all()
    at = int(chosen.slot[unit, column, 0])
    pattern = run(model, texts[int(chosen.text[at])][None], record="pattern").cache["pattern", 1][
        0, 1
    ]
    query, key, weight = chosen.cells(unit, at)
    assert_close(weight.double(), pattern[query.long(), key.long()], 1e-3)
    for row in range(len(pattern)):
        assert sorted(key[query == row].tolist()) == [
            n
            for n in sorted(pattern[row].topk(min(8, len(pattern))).indices.tolist())
            if pattern[row, n] > 0.005
        ]
    frame = result.to_sequence_frame()
    assert len(frame) == int((chosen.slot >= 0).sum())


def test_the_sample_is_drawn_by_the_seed_whatever_the_batches():
    model, texts = build("gpt2"), rows(*[3] * 60)
    drawn = [
        scan_heads(model, iter(texts), sample=10, rows=n, seed=seed).sequences.text.tolist()
        for n, seed in ((64, 0), (7, 0), (64, 1))
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    totals = Totals(SIZES)
    counts = torch.zeros(50)
    for seed in range(400):
        totals = Totals(replace(SIZES, sample=10))
        totals.draw(torch.arange(50), torch.zeros(50, 4, 3).double(), seed)
        counts[totals.sampled] += 1
    assert counts.sum() == 4000
    assert 50 < counts.min() < counts.max() < 115  # each 80 times, with a deviation of 8


# ---- massive activations and effects ------------------------------------------------------------


def with_massive(model, token: int):
    """A token whose embedding has an entry of 5000."""
    with torch.no_grad():
        model.W_E[token] = 1e-3
        model.W_E[token, 3] = 5000.0
    return model


def test_massive_activations_are_counted_where_they_are():
    model = with_massive(build_new("llama"), 7)
    texts = [torch.tensor([7, *row.tolist()]) for row in ROWS[:6]] + [torch.tensor([1, 7, 2])]
    texts = [text[:8] for text in texts]
    result = scan_heads(model, iter(texts), rows=2)
    rows_of_dimension = result.to_massive_frame()
    counted = Counter()
    for text in texts:
        cache = run(model, text[None], record="resid_post").cache
        for layer in range(2):
            size = cache["resid_post", layer][0].abs()
            massive = (size > 100) & (size > 1000 * size.median())
            for position, dimension in massive.nonzero().tolist():
                counted[layer, dimension] += 1
                counted[layer, dimension, "first"] += position == 0
    assert len(rows_of_dimension) == sum(len(key) == 2 for key in counted) > 0
    for row in rows_of_dimension.itertuples():
        assert row.count == counted[row.layer, row.dimension]
        assert row.at_first == counted[row.layer, row.dimension, "first"]
    assert "massive activations in dimension 3" in result.summary()
    masses = torch.zeros(2, 8, dtype=torch.float64)
    sampled = [texts[n] for n in result.sequences.text.tolist()]
    for text in sampled:
        done = run(model, text[None], record=["pattern", "resid_post"]).cache
        x = done["resid_post", 0]
        massive = (x.abs() > 100) & (x.abs() > 1000 * x.abs().median())
        start = Start(1, x.masked_fill(massive, 0))
        without = run(model, text[None], start=start, record="pattern").cache["pattern", 1]
        for row, patterns in enumerate((done["pattern", 1], without)):
            both = torch.cat([done["pattern", 0], patterns], 1)
            masses[row] += both[0, :, 1:, 0].mean(-1) / len(sampled)
    assert_close(result.sinks.value, masses[0], 1e-9)
    assert_close(result.sinks.without, masses[1], 1e-9)
    assert (masses[0] - masses[1]).abs().max() > 0.01
    assert len(result.to_sink_frame()) == len(result.names)
    plain = scan_heads(build("llama"), iter(ROWS))
    assert plain.sinks is None
    assert plain.to_massive_frame().empty


def test_effects_are_those_of_mean_ablation_on_the_surprisal():
    model = interp.load("python-2l").double()
    result = scan_heads(model, CODE, effects=True)
    effects = result.class_effects
    plan, _ = planned(model, 4, 1024, 100, 8, 0)
    sampled = [model.batch(CODE[n]) for n in result.sequences.text.tolist()]
    prompts, targets, classes = drawn_tokens(plan, sampled, 8)
    assert tuple(classes) == effects.target
    z = run(model, prompts, record="z").cache["z", 0]
    mean = z[prompts != interp.PAD].mean(0)

    def ablate(z, hook):
        return torch.cat([z[:, :, :5], mean[5].expand_as(z[:, :, 5:6]), z[:, :, 6:]], 2)

    at_targets = torch.arange(len(targets)), torch.tensor(targets)
    hooks = [("blocks.0.attn.hook_z", ablate)]
    plain, ablated = (
        -logits[:, -1].log_softmax(-1)[at_targets].detach()
        for logits in (model(prompts), model.run_with_hooks(prompts, fwd_hooks=hooks))
    )
    assert_close(effects.clean, plain, 1e-9)
    assert_close(effects.effect[result.names.index("L0H5")], ablated - plain, 1e-9)
    assert effects.effect.shape == (16, len(effects.target))
    assert {"repetition", "other"} <= set(effects.target)
    frame = result.to_effect_frame()
    whole = frame[frame["target_class"] == "all"].set_index("name")
    unit = result.names.index("L0H5")
    assert whole.loc["L0H5", "effect"] == pytest.approx(float(effects.effect[unit].mean()))
    per_class = frame[frame["name"] == "L0H5"].set_index("target_class")["n"]
    assert per_class["all"] == per_class.drop("all").sum() == len(effects.target)
    assert_close(result.of("effect"), effects.effect.abs().mean(-1))
    figure = result.scatter_figure("previous", "effect")
    assert list(figure.data[0].y) == pytest.approx(result.of("effect").tolist())
    assert "largest |effect| of mean ablation" in result.summary()


# ---- images, and what it refuses ----------------------------------------------------------------


def test_images_have_statistics_without_tokens():
    patches = interp.PatchConfig(4, 6, 2, channels=2, n_special=2)
    plain = interp.AttentionConfig(3, 4)
    stack = interp.StackConfig(
        2, plain, interp.MLPConfig(10), embedding=interp.EmbeddingConfig(patches=patches)
    )
    model = build(interp.Config(12, 7, 8, encoder=stack, bias_u=True))
    pixels = torch.randn(6, 2, 4, 6, generator=torch.Generator().manual_seed(0)).double()
    result = scan_heads(model, pixels)
    assert "induction" not in result.statistics
    assert result.to_token_frame().empty
    pattern = run(model, pixels, record="pattern").cache["pattern", 0]
    previous = pattern.diagonal(-1, -2, -1).mean((0, 2))
    assert_close(result.of("previous")[:3], previous, 1e-9)
    assert int(result.n[0, 0, 0]) == 6


def test_what_it_refuses():
    model = build("gpt2")
    for texts, settings, message in [
        (rows(1, 1), {}, "None of the 2 texts has two tokens"),
        ([], {}, "holds no text"),
        (ROWS, {"sample": 3}, "sample=3"),
        (ROWS, {"offsets": 0}, "offsets=0"),
        (ROWS, {"shuffled": 0}, "shuffled=0"),
        (ROWS, {"max_length": 1}, "max_length=1"),
    ]:
        with pytest.raises(InvalidInput, match=re.escape(message)):
            scan_heads(model, iter(texts), **settings)
    with pytest.raises(OutOfResources, match="statistics of 6 heads with 100 texts keep"):
        scan_heads(model, iter(ROWS), memory=1000)
    with pytest.raises(InvalidInput, match="effects=True measures the prediction of next tokens"):
        scan_heads(build("bert"), iter(ROWS), effects=True)
    with pytest.raises(InvalidInput, match="was not measured; there are entropy"):
        scan_heads(model, iter(ROWS)).of("surprise")
    with pytest.raises(InvalidInput, match="should be attention or value-weighted"):
        scan_heads(model, iter(ROWS)).of("self", "values")


def test_attention_that_is_not_a_number_is_named():
    model = build_new("gpt2")
    with torch.no_grad():
        model.blocks[0].attn.W_Q[0] = torch.finfo(torch.float64).max
    with pytest.raises(InvalidInput, match=r'\("pattern", 0\) is not finite'):
        scan_heads(model, iter(ROWS))


# ---- declared for the tests of all analyses -------------------------------------------------


def numbers_of_prompts(model, prompts, n):
    """The statistics of each prompt with plain attention."""
    sequences = scan_heads(model, prompts).sequences
    values = sequences.value[sequences.text.argsort()].nan_to_num(-1)
    return [{"values": values[i]} for i in range(n)]


def by_head_and_statistic(case):
    """All tables, without random orders, which depend on the number of a text.

    Tokens of equal shares, of which the smaller ids come first, have the rank of the first.
    """
    tables = tables_of(scan_heads(case.model, case.clean))
    del tables["to_largest_frame"], tables["to_sequence_frame"]
    frame, tokens = tables["to_frame"], tables["to_token_frame"]
    equal = ["layer", "head", "kind", tokens["share"].round(12)]
    tokens = tokens.assign(rank=tokens.groupby(equal)["rank"].transform("min"))
    return tables | {
        "to_frame": frame[~frame["statistic"].isin(REPEATED)],
        "to_token_frame": tokens,
    }


DECLARED = Declared(
    analysis=scan_heads,
    made=Made(
        lambda: scan_heads(example.model(), ["abcxabc", "xyxyzxy", "aab"] * 3, effects=True),
    ),
    call=Call(
        (small.MODEL, small.CLEAN),
        {},
        {
            "offsets": (*odd.COUNT, 10**30),
            "sample": odd.COUNT,
            "shuffled": odd.COUNT,
            "max_length": odd.COUNT,
            "targets": odd.COUNT,
            "effects": odd.SWITCH,
            "memory": odd.MEMORY,
            "resume": odd.SOMETHING,
            **odd.SAMPLED,
        },
    ),
    command=Command(
        "heads",
        (),
        "heads",
        "L0H0 previous 1.00",
        "offsets=4 max_length=1024 sample=100 shuffled=8 effects=False targets=8 texts=None",
        more=tuple(
            f"{name}.{kind}"
            for name in ("distances", "tokens", "sequences")
            for kind in ("csv", "parquet")
        ),
    ),
    of_each_prompt=EachPrompt(numbers_of_prompts),
    of_each_pair={"": numbers_of_prompts},
    symmetric=Symmetric({"": by_head_and_statistic}),
)
