"""Which models are linear once patterns, divisors of norms and gates are fixed."""

from analyses.methods.attribution import check_linear_logits, unembedding_of
from interp import Transformer, computation_graph
from interp.errors import InvalidInput
from interp.model import Attention


def check_linear_once_frozen(model: Transformer, analysis: str) -> None:
    """Check that a model is linear with patterns, divisors and gates fixed.

    Args:
        model: the model.
        analysis: the name of the analysis, for the error.

    Raises:
        InvalidInput: it is not, or has two stacks.
    """
    if len(model.stacks) > 1:
        raise InvalidInput(f"{analysis} takes models with one stack; this one has two.")
    unembedding_of(model)
    check_linear_logits(model)
    computation_graph(model)
    for _, step in model.stacks[0].branches():
        if isinstance(step.f, Attention) and step.f.has_clip:
            raise InvalidInput(
                "This model clips its queries, keys and values, so what its heads write is not a "
                f"sum of what they read; {analysis} does not take it."
            )
