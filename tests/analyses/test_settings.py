"""Settings that mean nothing: each analysis names the setting, before it runs the model."""

from pathlib import Path

import pytest
import torch
from architectures import build
from without_annotation_checks import printed_by

from analyses import (
    attribute_edges,
    direct_logit_attribution,
    logit_lens,
    positions,
    prune,
)
from interp.errors import InvalidInput
from interp.metrics import logit_diff


@pytest.mark.slow
def test_every_analysis_names_an_odd_setting_before_it_runs_the_model():
    """In a process of its own: see ``odd_settings.py``."""
    assert printed_by(Path(__file__).with_name("odd_settings.py")) == ""


@pytest.mark.parametrize("by", ["component", "source"])
def test_a_figure_of_a_prompt_that_is_not_there_is_refused(by):
    model, tokens = build("gpt2"), torch.tensor([[1, 2, 3], [4, 5, 6]])
    for result in (
        logit_lens(model, tokens),
        direct_logit_attribution(model, tokens, target=3, by=by),
    ):
        assert result.figure(prompt=1) is not None
        for prompt in (2, -1):
            with pytest.raises(InvalidInput, match=f"prompt={prompt} must be .* from 0 to 1"):
                result.figure(prompt=prompt)


def test_a_figure_of_a_table_of_positions_that_is_not_there_is_refused():
    result = positions(build("gpt2"), longest=8)
    assert result.similarity_figure(0) is not None
    for number in (1, -1):
        with pytest.raises(InvalidInput, match=f"number={number} must be .* from 0 to 0"):
            result.similarity_figure(number)
    with pytest.raises(InvalidInput, match="adds no positions"):
        positions(build("llama"), longest=8).similarity_figure()


def test_a_figure_of_a_circuit_without_edges_is_refused():
    model, clean = build("gpt2"), torch.tensor([[1, 2, 3], [4, 5, 6]])
    corrupt, metric = (clean + 1) % 13, logit_diff(1, 2)
    scores = attribute_edges(model, clean, corrupt, metric=metric, check=0).scores
    pruned = prune(scores, model, clean, corrupt, metric=metric, sizes=[0.5], draws=1)
    assert pruned.circuit_figure(1) is not None
    with pytest.raises(InvalidInput, match="count=0 must be an integer of at least 1"):
        pruned.circuit_figure(0)
