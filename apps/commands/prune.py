"""``interp prune``: how small is a circuit that does what the model does?"""

from typing import Literal

import analyses
from analyses import Pruning
from analyses.methods.attribution import TOLERANCE
from apps.commands.inputs import Inputs
from interp.errors import InvalidInput


def prune(
    inputs: Inputs,
    *,
    scores: str = "conductance",
    rank: Literal["size", "signed"] = "size",
    method: str = "resample",
    metric: str = "logit-diff",
    heldout: str | None = None,
) -> Pruning:
    """Score all edges, and run circuits that consist of the highest-ranked ones alone.

    Args:
        inputs: the model and the pairs of prompts.
        scores: how edges are scored; exact patches every edge, which is slow.
        rank: ``size``: rank edges by |score|; ``signed``: by the part of the metric they carry.
        method: what a patched edge carries.
        metric: the name of a metric of tokens.
        heldout: pairs to run circuits on: a file, a bundled set, or a share of the prompts such as
            0.5, which is then not used for scoring; by default those that edges are scored on.
    """
    scored, heldout_inputs = _divided(inputs, heldout)
    pairs, measured = scored.pairs, scored.token_metric(metric)
    edges = analyses.attribute_edges(
        inputs.model,
        *pairs,
        metric=measured,
        method=scores,
        tolerance=TOLERANCE,
        check=0,
        **inputs.how(analyses.attribute_edges),
    )
    return analyses.prune(
        edges.scores,
        inputs.model,
        *pairs,
        metric=measured,
        rank=rank,
        method=method,
        heldout=None
        if heldout_inputs is None
        else (*heldout_inputs.pairs, heldout_inputs.token_metric(metric)),
        **inputs.how(analyses.prune),
    )


def _divided(inputs: Inputs, heldout: str | None) -> tuple[Inputs, Inputs | None]:
    """The prompts that edges are scored on, and those that circuits are run on if they differ."""
    if heldout is None:
        return inputs, None
    try:
        share = float(heldout)
    except ValueError:
        return inputs, inputs.of_file(heldout)
    if not 0 < share < 1:
        raise InvalidInput(
            f"--heldout {heldout} should be a share between 0 and 1, a file or a bundled set."
        )
    return inputs.divided(share)
