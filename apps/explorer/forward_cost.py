"""Whether a forward over the prompt takes so long that it should not run while a page is drawn."""

import interp
from apps.explorer.validate import n_tokens
from apps.explorer.view import View

LONG = 1e10
"""Weights × tokens from which on a forward is a job: about half a second on two processor cores."""


def is_long_forward(view: View, model: interp.Transformer, forwards: int = 1) -> bool:
    """Whether one forward over the view's prompt, or so many of them, takes long."""
    weights = forwards * sum(weight.numel() for weight in model.parameters())
    return weights * sum(n_tokens(view, model, stack.name) or 0 for stack in model.stacks) > LONG
