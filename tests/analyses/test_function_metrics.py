"""A function of the logits as the metric of an analysis: it has the numbers that it computes."""

import pandas as pd
import pytest
import torch
from architectures import assert_close, build, padded, tokens_of

from analyses import (
    ablate,
    ablate_heads,
    attribute_edges,
    attribute_nodes,
    erase,
    explain,
    neurons,
    patch_activations,
    patch_paths,
    prune,
)
from analyses.results import check_metric
from interp import metrics
from interp.errors import InvalidInput

TARGETS, DISTRACTOR = (3, 4, 5, 6), 7
METRIC = metrics.logit_diff(TARGETS, DISTRACTOR)


def margin(logits):
    """The same difference, with targets that belong to the prompts."""
    last = logits[:, -1]
    return last.gather(1, torch.tensor(TARGETS)[:, None])[:, 0] - last[:, DISTRACTOR]


def margin_at_the_end(logits, batch):
    """The same for prompts that are padded on the right."""
    ends = batch.is_real.sum(-1) - 1
    return margin(logits[torch.arange(len(ends)), ends][:, None])


def pruned(model, clean, corrupt, **settings):
    scores = attribute_edges(model, clean, corrupt, check=0, **settings).scores
    return prune(scores, model, clean, corrupt, sizes=[0.2], draws=1, **settings)


ANALYSES = {
    "ablate": lambda model, clean, _, **settings: ablate(model, clean, **settings),
    "ablate, estimated": lambda model, clean, _, **settings: ablate(
        model, clean, estimate=True, **settings
    ),
    "ablate_heads": lambda model, clean, _, **settings: ablate_heads(model, clean, **settings),
    "attribute_edges": attribute_edges,
    "attribute_edges, conductance": lambda *inputs, **settings: attribute_edges(
        *inputs, tolerance=0.05, **settings
    ),
    "attribute_nodes": attribute_nodes,
    "erase": lambda model, clean, _, **settings: erase(
        model, clean, labels=["a", "b", "a", "b"], **settings
    ),
    "explain": explain,
    "neurons": lambda model, clean, _, **settings: neurons(model, clean, layer=0, **settings),
    "patch_activations": patch_activations,
    "patch_activations, estimated": lambda *inputs, **settings: patch_activations(
        *inputs, estimate=True, **settings
    ),
    "patch_paths": patch_paths,
    "prune": pruned,
}


def pair():
    """A model, clean prompts, and corrupted ones that differ in a token."""
    (clean,) = tokens_of("gpt2", 4, 5)
    corrupt = clean.clone()
    corrupt[:, 1] = (corrupt[:, 1] + 1) % 13
    return build("gpt2"), clean, corrupt


@pytest.mark.parametrize("name", ANALYSES)
def test_a_function_has_the_numbers_of_the_metric_that_it_spells(name):
    ours, theirs = (ANALYSES[name](*pair(), metric=m).to_frame() for m in (margin, METRIC))
    if name == "explain":  # what a head writes and reads for an answer needs a logit at a position
        columns = ["name", "effect", "faithfulness"]
        ours, theirs = (table[[c for c in table if c in columns]] for table in (ours, theirs))
    if "name" in ours:
        ours, theirs = (table.sort_values("name", ignore_index=True) for table in (ours, theirs))
    pd.testing.assert_frame_equal(ours, theirs, rtol=1e-9, atol=1e-9)


def test_a_function_of_the_batch_reads_prompts_that_are_padded():
    model, (clean,) = build("gpt2"), tokens_of("gpt2", 4, 5)
    tokens = padded(
        [row[:length] for row, length in zip(clean, (5, 3, 4, 5), strict=True)], "right"
    )
    expected = ablate(model, tokens, metric=METRIC)
    assert_close(ablate(model, tokens, metric=margin_at_the_end).effect, expected.effect)
    with pytest.raises(InvalidInput, match="gets NaN at padding"):
        ablate(model, tokens, metric=margin)


def test_prompts_are_not_divided():
    """An analysis that has to divide them, here into two of four, refuses a function."""
    model, clean, corrupt = pair()
    with pytest.raises(InvalidInput, match=r"of the logits of all 4 prompts.*one of 2"):
        patch_activations(model, clean, corrupt, metric=margin, rows=2)
    few = ablate(model, clean, metric=margin, memory=6e4)
    assert_close(few.effect, ablate(model, clean, metric=METRIC).effect)


def test_one_number_for_several_prompts_is_refused():
    model, clean, corrupt = pair()
    with pytest.raises(InvalidInput, match=r"a single number for 4 prompts.*\[4\]"):
        patch_activations(model, clean, corrupt, metric=lambda logits: logits.sum())
    alone = patch_activations(model, clean[:1], corrupt[:1], metric=lambda logits: logits[0, -1, 3])
    expected = patch_activations(model, clean[:1], corrupt[:1], metric=metrics.logit(3))
    assert_close(alone.effect, expected.effect)


def test_a_partial_result_is_resumed_but_not_saved(tmp_path):
    model, clean, _ = pair()
    calls = iter([False, True])
    part = ablate(model, clean, metric=margin, memory=6e4, cancelled=lambda: next(calls, True))
    whole = ablate(model, clean, metric=margin, memory=6e4)
    assert part.partial is not None
    with pytest.raises(InvalidInput, match=r"a Python function \(margin\), which can't be saved"):
        part.partial.save(tmp_path / "part")
    resumed = ablate(model, clean, metric=margin, memory=6e4, resume=part.partial)
    assert_close(resumed.effect, whole.effect)


@pytest.mark.parametrize("metric", [3, None, "logit_diff"])
def test_the_error_of_what_is_no_metric_has_an_example_of_one(metric):
    with pytest.raises(InvalidInput, match=r"metric=.*logit_diff\(target, .*or a function"):
        check_metric(metric, build("gpt2"))
