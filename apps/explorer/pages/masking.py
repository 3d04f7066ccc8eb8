"""Masks single tokens of a prompt with an encoder's mask token, and unmasks them."""

from dataclasses import replace

import interp
from apps.explorer.view import View
from interp.errors import InterpError


def has_mask(model: interp.Transformer) -> bool:
    """Whether the model is an encoder with a mask token; a decoder predicts no masked tokens."""
    return model.config.decoder is None and model.config.tokens.mask is not None


def toggled(view: View, model: interp.Transformer, position: int) -> View:
    """The view with the token at a position masked, or unmasked if the original token is known.

    The original token becomes the target. Special tokens are left unchanged.
    """
    mask, ids = model.config.tokens.mask if has_mask(model) else None, _ids(model, view.text)
    hidden = _ids(model, view.hidden) if view.hidden else ids
    if mask is None or not _inside(model, ids, position) or len(hidden) != len(ids):
        return view
    if ids[position] == mask and hidden[position] == mask:
        return view
    new = hidden[position] if ids[position] == mask else mask
    changed = [*ids[:position], new, *ids[position + 1 :]]
    text = _text(model, changed)
    if _ids(model, text) != changed:
        # Next to a mask, the same text is tokenized differently, so the masked token is not known.
        return replace(view, text=text, hidden="", target="", distractor="", position=None)
    masks = [n for n, token in enumerate(changed) if token == mask]
    original = _text(model, hidden) if masks else ""
    base = replace(view, text=text, hidden=original, distractor="", target="", corrupt="")
    at = position if position in masks else masks[0] if masks else None
    return base if at is None else answered_at(replace(base, position=at), model, at)


def answered_at(view: View, model: interp.Transformer, position: int) -> View:
    """The view at a position; if a known token is masked there, it becomes the target."""
    if not view.hidden or not has_mask(model):
        return replace(view, position=position)
    ids, hidden = _ids(model, view.text), _ids(model, view.hidden)
    same_length = len(ids) == len(hidden) and position < len(ids)
    if not same_length or ids[position] != model.config.tokens.mask:
        return replace(view, position=position)
    target = str(model.to_string(hidden[position]))
    return replace(view, position=position, target=target, distractor="")


def _inside(model: interp.Transformer, ids: list[int], position: int) -> bool:
    """Whether a position has a token of the text, not a special token that was added to it."""
    tokens = model.config.tokens
    added = {token for token in (tokens.bos, tokens.eos) if token is not None}
    return 0 <= position < len(ids) and ids[position] not in added


def _text(model: interp.Transformer, ids: list[int]) -> str:
    """The text of token ids, without the special tokens that are added to it."""
    tokens = model.config.tokens
    first = 1 if tokens.prepend_bos and ids[0] == tokens.bos else 0
    last = len(ids) - 1 if tokens.append_eos and ids[-1] == tokens.eos else len(ids)
    return str(model.to_string(ids[first:last]))


def _ids(model: interp.Transformer, text: str) -> list[int]:
    """The token ids of a text; empty if the text can't be encoded."""
    try:
        return model.to_tokens(text)[0].tolist()
    except InterpError:
        return []
