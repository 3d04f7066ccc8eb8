"""What writers write, computed for some prompts at a time, and what replaces it."""

import sys

import pytest
import torch
from architectures import assert_close, build, padded

from analyses.methods.circuits.written import replaced, written
from interp import computation_graph
from interp.model.network import Network

MODULE = sys.modules[written.__module__]
ROWS = [torch.tensor(ids) for ids in ([1, 2, 3, 4], [5, 6], [7, 8, 9], [3, 1, 2])]
NAMES = ["gpt2", "llama", "t5"]


def model_and_prompts(name):
    """The model and prompts of several lengths, padded."""
    model = build(name)
    rows = (padded(ROWS, "left"), padded(ROWS[::-1], "right"))
    return model, model.check(*rows[: len(model.stacks)])


def numbers_of_stacks(model):
    stacks = [stack.name for stack in model.stacks]
    graph = computation_graph(model)
    return {w.name: stacks.index(w.stack) if w.stack else 0 for w in graph.writers}


@pytest.mark.parametrize("name", NAMES)
def test_some_prompts_at_a_time_write_what_all_together_write(name, monkeypatch):
    model, batches = model_and_prompts(name)
    whole = written(model, batches)
    monkeypatch.setattr(MODULE, "ROWS", 3)
    parts = written(model, batches)
    assert parts.keys() == whole.keys()
    for writer, expected in whole.items():
        assert_close(parts[writer], expected, what=writer)
    some = list(whole)[::3]
    assert list(written(model, batches, some)) == some


@pytest.mark.parametrize("name", NAMES)
def test_a_mean_is_over_the_tokens_of_all_prompts_and_of_no_padding(name, monkeypatch):
    model, batches = model_and_prompts(name)
    whole, stacks = written(model, batches), numbers_of_stacks(model)
    monkeypatch.setattr(MODULE, "ROWS", 3)
    means = replaced(model, batches, batches, "mean")
    for writer, values in whole.items():
        real = batches[stacks[writer]].is_real
        assert_close(
            means[writer], values if values.ndim == 1 else values[real].mean(0), what=writer
        )
        if values.ndim > 1:
            assert (means[writer] - values.mean((0, 1))).abs().max() > 1e-6  # with padding


def test_zeros_need_no_forward(monkeypatch):
    model, batches = model_and_prompts("gpt2")
    monkeypatch.setattr(Network, "stream", lambda *_: pytest.fail("the model was run"))
    zeros = replaced(model, batches, batches, "zero")
    assert set(zeros) == {writer.name for writer in computation_graph(model).writers}
    assert all(not value.any() for value in zeros.values())
    with pytest.raises(pytest.fail.Exception):
        replaced(model, batches, batches, "mean")
