"""Which weights compute the same, and are easier to read? Folded norms, centred writing.

A Transformer's function leaves its weights some freedom. Four steps use it (as TransformerLens does
at loading; Elhage et al. 2021, "Handling layer normalization"):

    fold_norms          gains and biases of norms go into the matrices that read them
    fold_value_biases   b_V goes into b_O, as the rows of A sum to one
    center_writing      what is written to the stream has mean zero, as every LayerNorm makes it
    center_unembed      logits of each position have mean zero, which no probability notices

Each is exact or refused by name; the model that is given stays as it is.
"""

import torch

from interp.errors import InvalidInput
from interp.model.attention.attention import Attention
from interp.model.embeddings import LearnedPositions, PositionEmbedding
from interp.model.experts import Experts
from interp.model.network import Network
from interp.model.norm import LayerNorm
from interp.model.unembedding import Unembedding
from interp.weights.add_biases import with_room
from interp.weights.folding import center, center_writing, fold_norms, fold_value_biases

PARALLEL = ("parallel", "parallel_tied")
READ_THROUGH_NORMS = ("pre", "sandwich", *PARALLEL)
"""Placements where each sub-layer reads a norm that nothing else reads."""


def processed(
    model: Network,
    *,
    norms: bool,
    writing: bool,
    unembed: bool,
    value_biases: bool,
) -> Network:
    """A new model with the same function; see :meth:`interp.Transformer.processed`.

    Args:
        model: it stays as it is.
        norms: fold_norms.
        writing: center_writing.
        unembed: center_unembed.
        value_biases: fold_value_biases.

    Raises:
        InvalidInput: a step that would change what this model computes, by its name.
    """
    for name, asked, obstacle in (
        ("fold_norms", norms, _keeps_norms),
        ("center_writing", writing, _keeps_means),
        ("center_unembed", unembed, _keeps_logits),
    ):
        reason = obstacle(model) if asked else None
        if reason is not None:
            raise InvalidInput(f"{name}=True would change what this model computes: {reason}")
    made = with_room(model, biased=norms, written=value_biases)
    with torch.no_grad():
        if norms:
            fold_norms(made)
        if writing:
            center_writing(made)
        if value_biases:
            for attention in (part for part in made.modules() if isinstance(part, Attention)):
                fold_value_biases(attention)
        if unembed and isinstance(made.unembed, Unembedding):
            center(made.unembed.weight, axis=0)
            center(made.unembed.b_U)
    return made.to(model.dtype)


# ---- what stands in the way ---------------------------------------------------------------


def _keeps_norms(model: Network) -> str | None:
    if model.pooler is not None and model.stacks[-1].final_norm.layout(model.stacks[-1].end):
        return "its pooler reads the last norm as well."
    for stack in model.stacks:
        placement = model.config.stacks[stack.name].norm.placement
        if placement not in READ_THROUGH_NORMS:
            return (
                f'the norms of its {stack.name} stand in the stream (placement="{placement}"), so '
                "that more than one matrix reads them."
            )
        parts = list(stack.modules())
        biased = any(isinstance(norm, LayerNorm) and norm.bias is not None for norm in parts)
        if biased and any(isinstance(part, Experts) for part in parts):
            return "its experts have no biases that those of the norms could go into."
    return None


def _keeps_means(model: Network) -> str | None:
    for stack in model.stacks:
        own = model.config.stacks[stack.name]
        if own.norm.kind != "layernorm" or own.norm.placement not in ("pre", *PARALLEL):
            return f"not every reader of its {stack.name}'s stream is a LayerNorm."
        if not own.norm.final:
            return f"no norm reads the last stream of its {stack.name}."
        if own.embedding.norm is not None:
            return "its embedding is normed, and the norm's gain writes a mean."
        if isinstance(stack.entry, PositionEmbedding) and not isinstance(
            stack.entry, LearnedPositions
        ):
            return "its positions are waves, which no weight can centre."
    return None


def _keeps_logits(model: Network) -> str | None:
    if not isinstance(model.unembed, Unembedding):
        return "it has no logits."
    if model.config.n_classes is not None:
        return "its logits are scores of classes, which not only a softmax may read."
    return "its logits are capped." if model.config.logit_cap is not None else None
