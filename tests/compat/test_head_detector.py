"""Heads that attend as a pattern has it get the highest score."""

from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from interp.compat import head_detector
from interp.compat.head_detector import detect_head
from interp.errors import InvalidInput

pytestmark = pytest.mark.slow

TOKENS = torch.tensor([[1, 2, 3, 2, 3, 4]])


class Model:
    """Two layers of two heads; L1H0 attends as a pattern, the others uniformly."""

    cfg = SimpleNamespace(n_layers=2, n_heads=2, n_ctx=9, device="cpu", dtype=torch.float32)

    def __init__(self, pattern):
        n = TOKENS.shape[1]
        self.uniform = torch.ones(n, n).tril()
        self.uniform /= self.uniform.sum(-1, keepdim=True)
        rows = pattern.sum(-1, keepdim=True)
        self.sharp = torch.where(rows > 0, pattern / rows.clamp(min=1), torch.eye(n))

    def to_tokens(self, text):
        return TOKENS

    def run_with_cache(self, tokens, remove_batch_dim):
        uniform = torch.stack([self.uniform, self.uniform])
        sharp = torch.stack([self.sharp, self.uniform])
        return None, {("pattern", 0, "attn"): uniform, ("pattern", 1, "attn"): sharp}


@pytest.mark.parametrize("name", head_detector.HEAD_NAMES)
def test_a_head_that_attends_as_the_pattern_scores_highest(name):
    pattern = head_detector.PATTERNS[name](TOKENS)
    model = Model(pattern)
    for measure in ("mul", "abs"):
        scores = detect_head(model, "text", name, error_measure=measure)
        assert scores.argmax() == 2
    without = detect_head(model, "text", name, exclude_current_token=True)
    assert without[1, 0] == 1
    some = detect_head(model, ["text", "text"], name, heads=[(0, 1)])
    assert (some == -1).sum() == 3
    assert some.equal(detect_head(model, "text", name, heads={0: [1]}))


def test_patterns_of_a_text():
    pairs = {
        name: [tuple(at) for at in head_detector.PATTERNS[name](TOKENS).nonzero().tolist()]
        for name in head_detector.HEAD_NAMES
    }
    assert pairs["previous_token_head"] == [(at + 1, at) for at in range(5)]
    assert pairs["duplicate_token_head"] == [(3, 1), (4, 2)]
    assert pairs["induction_head"] == [(3, 2), (4, 3)]


def test_what_cannot_be_detected_is_refused():
    model = Model(torch.eye(6))
    for options, message in (
        ({"detection_pattern": "other_head"}, "one of"),
        ({"detection_pattern": torch.ones(6, 6)}, "lower triangular"),
        ({"detection_pattern": torch.eye(5)}, "lower triangular"),
        ({"detection_pattern": "induction_head", "error_measure": "x"}, "mul"),
    ):
        with pytest.raises(InvalidInput, match=message):
            detect_head(model, "text", **options)
    with pytest.raises(InvalidInput, match="one text"):
        detect_head(model, ["a"], "induction_head", cache={})


@pytest.fixture(scope="module")
def theirs():
    lens = pytest.importorskip("transformer_lens")
    cfg = lens.HookedTransformerConfig(
        n_layers=2, d_model=8, d_head=4, n_heads=2, d_mlp=16, n_ctx=9, d_vocab=11, act_fn="gelu",
        device="cpu", seed=0,
    )  # fmt: skip
    with pytest.warns(DeprecationWarning, match="4.0"):
        model = lens.HookedTransformer(cfg)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    model.to_tokens = lambda text: TOKENS
    return model


@pytest.mark.parametrize("name", head_detector.HEAD_NAMES)
@pytest.mark.parametrize("measure", ["mul", "abs"])
@pytest.mark.parametrize("excluded", [{}, {"exclude_bos": True, "exclude_current_token": True}])
def test_scores_are_those_of_transformer_lens(theirs, name, measure, excluded):
    from transformer_lens.head_detector import detect_head as other  # noqa: PLC0415

    ours = detect_head(theirs, "text", name, error_measure=measure, **excluded)
    assert_close(ours, other(theirs, "text", name, error_measure=measure, **excluded))
