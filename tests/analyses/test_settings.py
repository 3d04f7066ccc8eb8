"""Settings that mean nothing: each analysis names the setting, before it runs the model."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from architectures import build

from analyses import (
    attribute_edges,
    direct_logit_attribution,
    logit_lens,
    positions,
    prune,
)
from interp.errors import InvalidInput
from interp.metrics import logit_diff

ROOT = Path(__file__).parents[2]


def test_every_analysis_names_an_odd_setting_before_it_runs_the_model():
    """In a process of its own: see ``odd_settings.py``."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("odd_settings.py"))],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("by", ["component", "source"])
def test_a_figure_of_a_prompt_that_is_not_there_is_refused(by):
    model, tokens = build("gpt2"), torch.tensor([[1, 2, 3], [4, 5, 6]])
    for found in (
        logit_lens(model, tokens),
        direct_logit_attribution(model, tokens, target=3, by=by),
    ):
        assert found.figure(prompt=1) is not None
        for prompt in (2, -1):
            with pytest.raises(InvalidInput, match=f"prompt={prompt} must be .* from 0 to 1"):
                found.figure(prompt=prompt)


def test_a_figure_of_a_table_of_positions_that_is_not_there_is_refused():
    found = positions(build("gpt2"), longest=8)
    assert found.similarity_figure(0) is not None
    for number in (1, -1):
        with pytest.raises(InvalidInput, match=f"number={number} must be .* from 0 to 0"):
            found.similarity_figure(number)
    with pytest.raises(InvalidInput, match="adds no positions"):
        positions(build("llama"), longest=8).similarity_figure()


def test_a_figure_of_a_circuit_without_edges_is_refused():
    model, clean = build("gpt2"), torch.tensor([[1, 2, 3], [4, 5, 6]])
    corrupt, metric = (clean + 1) % 13, logit_diff(1, 2)
    scores = attribute_edges(model, clean, corrupt, metric=metric, check=0).scores
    found = prune(scores, model, clean, corrupt, metric=metric, sizes=[0.5], draws=1)
    assert found.circuit_figure(1) is not None
    with pytest.raises(InvalidInput, match="count=0 must be an integer of at least 1"):
        found.circuit_figure(0)
