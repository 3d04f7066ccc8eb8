"""The final norm and the unembedding of parts of the stream add up to the logits."""

import pytest
import torch
from architectures import ARCHITECTURES, assert_close, build, covering, tokens_of

from analyses.methods.lens.decode import decode, decoded_places, final_scale
from interp import run
from interp.errors import InvalidInput

WRITES = ("attn_out", "cross_attn_out", "mlp_out")
LINEAR = [
    name
    for name, config in ARCHITECTURES.items()
    if all(stack.norm.placement not in ("post", "stream") for stack in config.stacks.values())
    and config.logit_cap is None
    and config.head is None
]
"""The stream is a sum, and the logits are linear in it once the divisor is given."""


@pytest.mark.parametrize("name", covering(LINEAR))
def test_with_the_final_divisor_the_logits_of_all_parts_add_up(name):
    """logits(x_0 + Σ writes) − b = logits(x_0) − b + Σ (logits(write) − b), b = logits(0)."""
    model, tokens = build(name), tokens_of(name)
    stack = model.stacks[-1]
    has = {branch.points.writes.label for step in stack.block(0).steps for branch in step.branches}
    writes = list(decoded_places(model, [label for label in WRITES if label in has]).values())[:-1]
    first = next(iter(decoded_places(model).values()))
    divisor = final_scale(model)
    record = [first, *writes, *([] if divisor is None else [divisor])]
    done = run(model, *tokens, record=record)
    scale = None if divisor is None else done.cache[divisor]
    with torch.no_grad():
        b = decode(model, torch.zeros_like(done.cache[first]), scale)
        parts = [decode(model, done.cache[place], scale) - b for place in (first, *writes)]
        assert_close(sum(parts) + b, done.logits)
        if scale is not None:  # with a divisor each, they do not
            parts = [decode(model, done.cache[place]) - b for place in (first, *writes)]
            assert not torch.allclose(sum(parts) + b, done.logits)


def test_what_names_no_point_is_refused():
    for wrong in (3, None, [3], {"resid_pre"}):
        with pytest.raises(InvalidInput, match="should be one or several of resid_pre"):
            decoded_places(build("gpt2"), wrong)
