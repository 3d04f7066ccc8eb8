"""Heads over a corpus, against loops over whole patterns."""

import re
import string
from collections import Counter
from dataclasses import replace
from math import log

import pytest
import torch
from architectures import ARCHITECTURES, assert_close, build, build_new, padded
from declared import Call, Command, Declared, EachPrompt, Made, Symmetric, Without, odd, small

import interp
from analyses import PartialScan, scan_heads
from analyses.results import interval
from analyses.scan_heads.cells import in_random_order
from analyses.scan_heads.result import WEIGHTINGS
from analyses.scan_heads.sketch import Sketch
from analyses.scan_heads.totals import Totals, lower_ends
from interp import edits, run
from interp.errors import InvalidInput, OutOfResources
from interp.model import every_attention
from interp.points import Place, Point

CODE = [prompt.text for prompt in interp.read_prompts("repeated")][:7]
D_VOCAB = 13


def rows(*lengths: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(D_VOCAB, (n,), generator=generator) for n in lengths]


ROWS = rows(8, 5, 2, 7, 1, 8, 6)


def arrays(result) -> dict[str, torch.Tensor]:
    """The numbers of a result by name, NaN replaced."""
    tops = {name: getattr(result, name) for name in ("top_queries", "top_keys", "top_pairs")}
    return {
        **{name: getattr(result, name) for name in ("mean", "low", "high", "control", "distances")},
        **{f"{name} share": top.share for name, top in tops.items()},
        **{f"{name} ids": top.ids.double() for name, top in tops.items()},
    }


def assert_same(one, other, bound: float = 1e-12) -> None:
    for name, tensor in arrays(one).items():
        assert_close(tensor.nan_to_num(-9), arrays(other)[name].nan_to_num(-9), bound, name)


# ---- statistics by loops ------------------------------------------------------------------------


def of_pattern(weights, queries, keys, texts, *, causal, crossing, window, offsets):
    """Statistics of one pattern ``[query key]``, each the mean of a list over queries."""
    n_query, n_key = weights.shape
    lists: dict[str, list[float]] = {}

    def add(name, value):
        lists.setdefault(name, []).append(value)

    for i in range(n_query):
        seen = [j for j in range(n_key) if crossing or not causal or j <= i]
        visible = [j for j in seen if window is None or i - j < window]
        row = weights[i].tolist()
        total = sum(row)
        if total == 0:
            continue
        if len(visible) > 1:
            nats = -sum(row[j] * log(row[j]) for j in visible if row[j] > 0)
            add("entropy", nats)
            add("normalized entropy", nats / log(len(visible)))
            if not crossing:
                add("distance", sum(row[j] * abs(i - j) for j in visible))
                at = sum(row[j] * j for j in visible) / total
                add("distance variance", sum(row[j] * (j - at) ** 2 for j in visible) / total)
                for name, by in offsets.items():
                    if i + by in visible:
                        add(name, row[i + by])
            if (i > 0 or crossing) and 0 in visible:
                add("first position", row[0])
        if crossing:
            continue
        others = [j for j in visible if j not in (0, i)]
        sets = {"duplicate-token": [j for j in others if keys[j] == queries[i]]}
        if causal:
            sets["induction"] = [j for j in others if keys[j - 1] == queries[i]]
        if texts is not None:
            for kind, has in KINDS.items():
                sets[f"same {kind}"] = [j for j in others if has(texts[i]) and has(texts[j])]
            sets["same word"] = [j for j in others if is_word(texts, i, j)]
        for name, members in sets.items():
            if members and len(visible) > 1:
                add(name, sum(row[j] for j in members))
    return {name: sum(values) / len(values) for name, values in lists.items()}


KINDS = {
    "punctuation": lambda text: (
        text.strip() != "" and not set(text.strip()) - {*string.punctuation}
    ),
    "whitespace": lambda text: text != "" and text.strip() == "",
    "digits": lambda text: text.strip().isdigit(),
}


def is_word(texts, i, j):
    """Whether between two tokens, each goes on the word of the one before it."""
    first, last = min(i, j), max(i, j)
    return all(texts[n][-1].isalnum() and texts[n + 1][0].isalnum() for n in range(first, last))


@torch.no_grad()
def by_hand(model, texts, offsets):
    """For each weighting and head, the values of each text by statistic."""
    values: list[dict[str, list[dict[str, float]]]] = [{}, {}]
    for text in texts:
        batches = model.batches(text)
        for kind in every_attention(model):
            queries, keys = (batches[n].ids[0].tolist() for n in (kind.query, kind.key))
            strings = None if model.tokenizer is None else model.to_str_tokens(text)
            for layer, attn in enumerate(kind.layers):
                pattern, v = kind.places(layer)
                places = [pattern, v, kind.z_place(layer), resid(model, kind, layer)]
                cache = run(model, *batches, record=places, kernel="explicit").cache
                A, stream = cache[pattern][0], cache[places[3]][0]
                each = attn.values(cache[v])[0]
                for head in range(attn.n_heads):
                    norms = (each[:, head] @ attn.W_O[head]).norm(dim=-1)
                    weighted = A[head] * norms
                    weighted = weighted / weighted.sum(-1, keepdim=True)
                    for number, weights in enumerate((A[head], weighted)):
                        numbers = of_pattern(
                            weights,
                            queries,
                            keys,
                            strings,
                            causal=not kind.is_bidirectional,
                            crossing=kind.is_cross,
                            window=getattr(attn.masking.mask, "size", None),
                            offsets=offsets,
                        )
                        if number == 0:
                            z = cache[places[2]][0, :, head] @ attn.W_O[head]
                            share = z.norm(dim=-1) / stream.norm(dim=-1)
                            numbers["write"] = float(share.mean())
                        name = kind.head_name(layer, head)
                        values[number].setdefault(name, []).append(numbers)
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
