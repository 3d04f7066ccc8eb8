"""The weights of an encoder or encoder–decoder as a state dict under TransformerLens's names."""

from pathlib import Path
from typing import Any

import torch

from interp.compat.config import HookedTransformerConfig
from interp.compat.errors import InvalidInput
from interp.compat.source_state import State, attention_state, mlp_state, norm_state
from interp.loading import PREFIX, SafetensorsSource, Source, StateDictSource, fetch, find_folder
from interp.model import (
    Block,
    LearnedPositions,
    MaskedHead,
    RelativeBiasTable,
    TokenTypes,
    Unembedding,
)
from interp.transformer import Transformer

NEXT_SENTENCE = "cls.seq_relationship"
"""The head of next-sentence prediction in files of ``transformers``; the core does not load it."""


def bert_state(model: Transformer, cfg: HookedTransformerConfig) -> State:
    """The weights of a masked language model, and of its pooler if it has one.

    Raises:
        InvalidInput: the model does not have the parts of BERT.
    """
    (stack,) = model.stacks
    entry, types, head = stack.entry, stack.types, stack.final_norm
    is_bert = isinstance(entry, LearnedPositions) and isinstance(types, TokenTypes)
    if not is_bert or not isinstance(head, MaskedHead) or stack.weight_e is None:
        raise InvalidInput("A HookedEncoder has positions, token types and a masked-language head.")
    state: dict[str, Any] = {
        "embed.embed.W_E": stack.weight_e,
        "embed.pos_embed.W_pos": entry.W_pos,
        "embed.token_type_embed.W_token_type": types.W_type,
        **norm_state("embed.ln", stack.embed_norm),
        "mlm_head.W": head.weight.mT,
        "mlm_head.b": head.bias,
        **norm_state("mlm_head.ln", head.norm),
        **_unembedding(model),
    }
    for layer, block in enumerate(model.blocks):
        state |= _block(f"blocks.{layer}.", block, cfg)
    if model.pooler is not None:
        state |= {"pooler.W": model.pooler.weight.mT, "pooler.b": model.pooler.bias}
    return _copied(state)


def t5_state(model: Transformer, cfg: HookedTransformerConfig) -> State:
    """The weights of an encoder–decoder with relative biases.

    Raises:
        InvalidInput: a stack has no relative biases.
    """
    state: dict[str, Any] = {"embed.W_E": model.stacks[0].weight_e, **_unembedding(model)}
    for stack in model.stacks:
        if not isinstance(stack.ranges, RelativeBiasTable):
            raise InvalidInput("A HookedEncoderDecoder has relative biases.")
        state[f"{stack.name}.0.attn.rel_pos_bias.weight"] = stack.ranges.weight
        for layer in range(len(stack.blocks)):
            state |= _block(f"{stack.name}.{layer}.", stack.block(layer), cfg)
        state |= norm_state(f"{stack.name}_final_ln", stack.final_norm)
    return _copied(state)


def next_sentence_state(origin: Any) -> State:
    """The next-sentence head of a live model, a folder or a model of the hub; empty if missing."""
    source = _tensors(origin)
    names = {"nsp_head.W": f"{NEXT_SENTENCE}.weight", "nsp_head.b": f"{NEXT_SENTENCE}.bias"}
    if source is None or not set(names.values()) <= set(source.keys()):
        return {}
    return {
        parameter: source.read(name).mT if parameter.endswith("W") else source.read(name)
        for parameter, name in names.items()
    }


def _tensors(origin: Any) -> Source | None:
    """The stored tensors, under their stored names."""
    if not isinstance(origin, str):
        return StateDictSource(origin.state_dict())
    if find_folder(origin) is not None:  # a model of this package has no such head
        return None
    return SafetensorsSource(fetch(origin)[0] if origin.startswith(PREFIX) else Path(origin))


def _block(at: str, block: Block, cfg: HookedTransformerConfig) -> State:
    state: State = {}
    for name in ("ln1", "ln2", "ln3"):
        state |= norm_state(at + name, getattr(block, name, None))
    for name in ("attn", "cross_attn"):
        attention = getattr(block, name, None)
        state |= {} if attention is None else attention_state(f"{at}{name}.", attention, cfg)
    return state | mlp_state(f"{at}mlp.", block, cfg)


def _unembedding(model: Transformer) -> State:
    """W_U and b_U, without the scale of the logits."""
    unembed = model.unembed
    if not isinstance(unembed, Unembedding):
        raise InvalidInput("This model has no unembedding.")
    weight, bias = unembed.weight, unembed.b_U
    zeros = weight.new_zeros(len(weight))
    return {"unembed.W_U": weight.mT, "unembed.b_U": zeros if bias is None else bias}


def _copied(state: State) -> State:
    with torch.no_grad():
        return {name: weight.detach().clone() for name, weight in state.items()}
