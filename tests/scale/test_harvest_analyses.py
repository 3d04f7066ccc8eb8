"""Probes and lenses of a harvest are those of the prompts that were harvested."""

import pandas as pd
import pytest
import torch
from architectures import assert_close, build, build_new, padded, tokens_of

from analyses import erase, estimate_scan_heads, probe, scan_heads, top_texts, train_lens
from analyses.methods.components import labelled_activations
from analyses.results import Result
from interp.errors import InvalidInput, NotRecorded
from interp.harvests import harvest

LENGTHS = (4, 3, 6, 2, 5, 3, 6, 2, 7, 4)
LABELS = ["a", "b"] * 5
STREAMS = ["resid_pre", "mlp_out", ("resid_post", -1)]


@pytest.fixture(scope="module")
def model():
    return build("gpt2")


@pytest.fixture(scope="module")
def prompts():
    return padded(
        [row[:n] for row, n in zip(tokens_of("gpt2", 10, 7)[0], LENGTHS, strict=True)], "right"
    )


@pytest.fixture(scope="module")
def stored(model, prompts, tmp_path_factory):
    return harvest(model, prompts, STREAMS, tmp_path_factory.mktemp("harvest"), shard_rows=9)


@pytest.mark.parametrize("pos", [-1, 1])
def test_a_probe_reads_the_activations_of_prompts(model, prompts, stored, pos):
    of_harvest, of_prompts = (
        probe(model, source, LABELS, at=["mlp_out", "resid_pre"], pos=pos, folds=5)
        for source in (stored, prompts)
    )
    assert torch.equal(of_harvest.correct, of_prompts.correct)
    assert of_harvest.provenance == of_prompts.provenance
    read, run = (
        labelled_activations(model, source, LABELS, at="mlp_out", pos=pos).activations
        for source in (stored, prompts)
    )
    for place, activations in run.items():
        assert_close(read[place], activations)
        assert not torch.allclose(read[place], activations.roll(1, 0))


def test_labels_are_erased_from_the_activations_of_a_harvest(model, prompts, stored):
    of_harvest, of_prompts = (
        erase(model, source, LABELS, at="mlp_out", metric="loss") for source in (stored, prompts)
    )
    assert_close(of_harvest.erased, of_prompts.erased, 1e-9)


def test_a_lens_is_trained_on_the_streams_of_prompts(model, prompts, stored):
    settings = {"steps": 4, "rows": 3, "lr": 1e-2}
    of_harvest, of_prompts = (train_lens(model, p, **settings) for p in (stored, prompts))
    for name in ("logit_lens", "tuned_lens", "training_kl"):
        assert_close(getattr(of_harvest, name), getattr(of_prompts, name), 1e-9, name)
    other = train_lens(model, prompts.flip(0), **settings)
    assert not torch.allclose(of_harvest.training_kl, other.training_kl)
    mixed = train_lens(model, stored, held_out=prompts[:3], **settings)
    assert mixed.logit_lens.shape == (2, 3)


def test_a_stopped_training_on_a_harvest_is_continued(model, stored):
    settings = {"steps": 4, "rows": 3, "lr": 1e-2}
    calls = iter([False, True])
    part = train_lens(model, stored, cancelled=lambda: next(calls), **settings)
    assert len(part.training_kl) == 2
    whole = train_lens(model, stored, **settings)
    resumed = train_lens(model, stored, resume=part, **settings)
    assert torch.equal(resumed.training_kl, whole.training_kl)


def test_harvests_of_other_models_or_places_are_refused(model, prompts, stored):
    other = build_new("gpt2", seed=1)
    with pytest.raises(InvalidInput, match=r"activations of 'unnamed', whose weights hash to"):
        probe(other, stored, LABELS, at="mlp_out")
    with pytest.raises(InvalidInput, match="whose weights hash to"):
        train_lens(other, stored)
    with pytest.raises(NotRecorded, match="is not stored"):
        probe(model, stored, LABELS, at="z")
    with pytest.raises(InvalidInput, match="9 labels were given for 10 prompts"):
        probe(model, stored, LABELS[:9], at="mlp_out")


def test_a_lens_needs_every_stream(model, prompts, tmp_path):
    few = harvest(model, prompts, "resid_pre", tmp_path)
    with pytest.raises(NotRecorded, match=r"resid_post.* is not stored; this harvest has"):
        train_lens(model, few)


def assert_same_tables(result: Result, other: Result) -> None:
    """The same bits."""
    pd.testing.assert_frame_equal(result.to_frame(), other.to_frame(), check_exact=True)


@pytest.mark.parametrize("name", ["gpt2", "t5", "bert"])
def test_heads_are_scanned_on_the_texts_of_a_harvest(tmp_path, name):
    """Whole, in the order of the corpus, with their types of tokens; whatever is stored of them."""
    model, inputs = build(name), tokens_of(name, 6, 5)
    tokens = inputs[0] if len(inputs) == 1 else tuple(inputs)
    place = ("resid_post", 0, *(["decoder"] if len(inputs) > 1 else []))
    stored = harvest(model, tokens, place, tmp_path / "stored", shard_rows=7)
    assert_same_tables(scan_heads(model, stored), scan_heads(model, tokens))
    head = {"of": "L1H1"} if len(inputs) == 1 else {"of": "cross.L1H1"}
    assert_same_tables(top_texts(model, stored, **head), top_texts(model, tokens, **head))
    others = harvest(model, _reversed(tokens), place, tmp_path / "others")
    scan, other = scan_heads(model, stored), scan_heads(model, others)
    assert not scan.to_frame().equals(other.to_frame())


def test_a_scan_of_prompts_is_continued_on_their_harvest(model, prompts, stored):
    calls = iter([False, True])
    part = scan_heads(model, prompts, rows=2, cancelled=lambda: next(calls))
    whole = scan_heads(model, prompts, rows=2)
    assert_same_tables(scan_heads(model, stored, rows=2, resume=part.partial), whole)
    assert estimate_scan_heads(model, stored).seconds > 0
    with pytest.raises(InvalidInput, match="whose weights hash to"):
        scan_heads(build_new("gpt2", seed=1), stored)


def _reversed(tokens):
    """The prompts with their tokens in another order."""
    return tokens.flip(-1) if torch.is_tensor(tokens) else tuple(x.flip(-1) for x in tokens)
