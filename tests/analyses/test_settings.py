"""Settings that mean nothing: each analysis names the setting, before it runs the model."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from architectures import build

from analyses import direct_logit_attribution, logit_lens
from interp.errors import InvalidInput

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
