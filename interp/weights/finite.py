"""Refuses weights that hold NaN or infinity, of which no analysis has an answer."""

from math import isfinite

from interp.errors import InvalidInput
from interp.model import Network
from interp.weights.hash import weight_state


def check_finite_weights(model: Network) -> None:
    """Check that all weights are finite numbers, which takes one pass over them.

    A model that is loaded has finite weights, but they may be changed later, for example by a step
    of training that diverges.

    Raises:
        InvalidInput: a weight holds NaN or infinity; the message names it.
    """
    _, sums = weight_state(model)
    for (name, weight), total in zip(model.named_parameters(), sums, strict=True):
        # A sum of finite numbers may overflow.
        if isfinite(total) or bool(weight.isfinite().all()):
            continue
        wrong = (~weight.isfinite()).nonzero()
        raise InvalidInput(
            f"{name} of {model.config.name or 'this model'}, {list(weight.shape)}, is NaN or "
            f"infinite at {len(wrong)} of {weight.numel()} indices, first at {wrong[0].tolist()}. "
            "Analyses need finite weights: load the model anew, or find what changed this weight."
        )
