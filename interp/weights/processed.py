"""Equivalent weights that are easier to interpret: folded norms, centred outputs.

Different weights may compute the same function. Four steps change the weights, as TransformerLens
does at loading (Elhage et al. 2021, "Handling layer normalization"):

    fold_norms          gains and biases of norms go into the matrices that read them
    fold_value_biases   b_V goes into b_O, as each row of A sums to 1
    center_writing      outputs to the stream get mean zero, which every LayerNorm subtracts
    center_unembed      logits of each position get mean zero, on which no softmax depends

Each step is exact, or is refused with its name. The given model is not changed, and no random
numbers are drawn.
"""

import torch

from interp.errors import InvalidInput
from interp.model import (
    Attention,
    Experts,
    LayerNorm,
    LearnedPositions,
    Network,
    PositionEmbedding,
    Unembedding,
)
from interp.weights.add_biases import add_biases
from interp.weights.folding import center, center_writing, fold_norms, fold_value_biases

PARALLEL = ("parallel", "parallel_tied")
NORM_BEFORE = ("pre", "sandwich", *PARALLEL)
"""Placements with a norm before each sub-layer that no other part reads."""


def processed(
    model: Network,
    *,
    norms: bool,
    writing: bool,
    unembed: bool,
    value_biases: bool,
) -> Network:
    """A new model with the same outputs; see :meth:`interp.Transformer.processed`.

    Args:
        model: the model, which is not changed.
        norms: whether to fold norms.
        writing: whether to centre outputs to the stream.
        unembed: whether to centre the unembedding.
        value_biases: whether to fold value biases.

    Raises:
        InvalidInput: steps would change what this model computes; the message names all of them.
    """
    obstacles = {
        "fold_norms": _obstacle_to_norms(model) if norms else None,
        "center_writing": _obstacle_to_writing(model) if writing else None,
        "center_unembed": _obstacle_to_unembed(model) if unembed else None,
        "fold_value_biases": _obstacle_to_value_biases(model) if value_biases else None,
    }
    model.require_whole("processed")
    refused = {name: reason for name, reason in obstacles.items() if reason is not None}
    if refused:
        reasons = (
            f"{name}=True would change what this model computes: {reason}"
            for name, reason in refused.items()
        )
        remedy = ", ".join(f"{name}=False" for name in refused)
        raise InvalidInput(f"{' '.join(reasons)} Pass {remedy}.")
    view = add_biases(model, norms=norms, values=value_biases)
    with torch.no_grad():
        if norms:
            fold_norms(view)
        if writing:
            center_writing(view)
        if value_biases:
            for attention in (part for part in view.modules() if isinstance(part, Attention)):
                fold_value_biases(attention)
        if unembed and isinstance(view.unembed, Unembedding):
            center(view.unembed.weight, axis=0)
            center(view.unembed.b_U)
    return view.to(model.dtype)


# ---- reasons to refuse a step -------------------------------------------------------------


def _obstacle_to_norms(model: Network) -> str | None:
    last = model.stacks[-1]
    if model.pooler is not None and last.final_norm.layout(last.end):
        return "its pooler reads the last norm as well."
    for stack in model.stacks:
        placement = model.config.stacks[stack.name].norm.placement
        if placement not in NORM_BEFORE:
            return (
                f'norms of its {stack.name} have placement="{placement}", where more than one '
                "matrix reads them."
            )
        parts = list(stack.modules())
        biased = any(isinstance(norm, LayerNorm) and norm.bias is not None for norm in parts)
        if biased and any(isinstance(part, Experts) for part in parts):
            return "its experts have no biases into which those of the norms could go."
    return None


def _obstacle_to_writing(model: Network) -> str | None:
    for stack in model.stacks:
        config = model.config.stacks[stack.name]
        if config.norm.kind != "layernorm" or config.norm.placement not in ("pre", *PARALLEL):
            return f"not every part that reads the stream of its {stack.name} is a LayerNorm."
        if not config.norm.final:
            return f"its {stack.name} has no last norm, so its last stream keeps the mean."
        if not all(layer.attention.normed for layer in config.layer_kinds):
            return f"attention of a layer of its {stack.name} reads the stream without a norm."
        if config.embedding.norm is not None:
            return "its embedding is normed, and the gain of that norm adds a mean."
        if isinstance(stack.entry, PositionEmbedding) and not isinstance(
            stack.entry, LearnedPositions
        ):
            return "its sinusoidal positions are not weights and can't be centred."
    return None


def _obstacle_to_value_biases(model: Network) -> str | None:
    for stack in model.config.stacks.values():
        attentions = [layer.attention for layer in stack.layer_kinds]
        if any(
            attention.sinks and (attention.bias_v or stack.norm.bias) for attention in attentions
        ):
            return "its attention has sinks, so that rows of its pattern do not sum to one."
        if any(
            attention.clip is not None and (attention.bias_v or stack.norm.bias)
            for attention in attentions
        ):
            return "its values are clipped after their bias is added."
    return None


def _obstacle_to_unembed(model: Network) -> str | None:
    if not isinstance(model.unembed, Unembedding):
        return "it has no logits."
    if model.config.n_classes is not None:
        return "its logits are scores of classes, which may be read without a softmax."
    return "its logits are soft-capped." if model.config.logit_cap is not None else None
