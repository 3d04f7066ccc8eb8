"""The multiply-adds of a sweep lie between what is needed and brute force."""

import pytest
import torch
from architectures import build_new

import interp
from benchmarks import sweep_limit


@pytest.mark.slow
def test_a_sweep_computes_little_more_than_is_needed(monkeypatch):
    monkeypatch.setattr(sweep_limit, "ROWS", 8)
    monkeypatch.setattr(sweep_limit, "ROUNDS", 1)
    stack = interp.StackConfig(4, interp.AttentionConfig(4, 8), interp.MLPConfig(64))
    model = build_new(interp.Config(32, 600, 10, decoder=stack), dtype=torch.float32)
    tokens = torch.arange(10)[None]
    rows = [*sweep_limit.shares(model, tokens, interp.metrics.logit_diff(1, 2), 3)]
    many, one = rows[:2]
    assert many.needed < many.swept < many.brute
    assert many.swept < 1.4 * many.needed  # of an edited head's block, all of W_O
    assert (many.swept, many.needed) == pytest.approx((3 * one.swept, 3 * one.needed))
    assert all(row.swept < row.brute for row in rows)
    text = sweep_limit.to_markdown(rows, "Note", "0.1")
    assert "3 prompts" in text
    assert "Note. Measured in" in text
