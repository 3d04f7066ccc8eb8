"""In half precision every tensor has the model's dtype, and softmaxes are computed in float32."""

import pytest
import torch
from architectures import ARCHITECTURES, assert_identical, build, covering, distance, tokens_of

from interp import run
from interp.edits import scale

HALF = torch.bfloat16
BOUND = 0.1


@pytest.mark.parametrize("name", covering(ARCHITECTURES))
def test_every_tensor_is_of_the_models_type_by_either_kernel(name):
    """Recorded, derived and edited; and the kernels agree to within rounding."""
    model, tokens = build(name, dtype=HALF), tokens_of(name)
    fused, explicit = (run(model, *tokens, record="all", kernel=k) for k in ("auto", "explicit"))
    for done in (fused, explicit):
        assert {value.dtype for _, value in done.cache.items()} == {HALF}
    assert distance(explicit.logits, fused.logits) <= BOUND
    where = ("scores", 0, model.stacks[-1].name)
    assert run(model, *tokens, edits=[scale(where, 1.0)]).logits.dtype == HALF


@pytest.mark.parametrize("name", ["gpt2", "bloom", "gemma2", "bert", "uneven-pair"])
def test_the_pattern_is_the_softmax_in_float32_rounded_once(name):
    """A = round(softmax(float32(scores))), bit by bit; a softmax in half precision differs."""
    model, tokens = build(name, dtype=HALF), tokens_of(name)
    cache = run(model, *tokens, record=["scores", "pattern"], kernel="explicit").cache
    differs = False
    for place in [place for place in cache if place.point.label == "pattern"]:
        scores, pattern = cache["scores", place.layer, place.stack], cache[place]
        assert_identical(pattern, scores.float().softmax(-1).to(HALF))
        shares = (scores - scores.amax(-1, keepdim=True)).exp()
        differs |= not torch.equal(pattern, shares / shares.sum(-1, keepdim=True))
    assert differs
