"""Checks a view against its model, and leaves out what the model lacks."""

import re
from dataclasses import replace
from typing import Any

import interp
from apps.defaults import default_metric
from apps.explorer.view import Head, View
from interp.errors import InterpError
from interp.interventions.components import components_of
from interp.interventions.replacements import METHODS
from interp.model.attentions import AttentionName, attentions_of

SUBLAYER = re.compile(r"(H\d+|MLP|ATTN)$")
"""End of the names of heads, MLPs and attention; other components are embeddings and biases."""


def validated(view: View, model: interp.Transformer) -> tuple[View, tuple[str, ...]]:
    """The view without what this model lacks, and a note on each field that was left out."""
    changes: dict[str, Any] = {}
    blocks = heads_of(view, model)
    heads = [head for head in (view.head, *view.heads) if head is not None]
    lacking = [f"{view.model} has no head {head}." for head in heads if not _has(blocks, head)]
    changes["heads"] = tuple(head for head in view.heads if _has(blocks, head))
    if view.head is not None and not _has(blocks, view.head):
        changes["head"] = None
    known = components_of(model)
    names = {each.name for each in (*known.heads, *known.sublayers)}
    absent = [
        own for own in (view.component, *view.trail) if SUBLAYER.search(own) and own not in names
    ]
    if absent:
        lacking.append(f"{view.model} has no component {absent[0]}.")
        changes |= {"component": "", "trail": ()}
    if view.method not in METHODS:
        lacking.append(
            f"There is no ablation method {view.method!r}; the methods are {', '.join(METHODS)}."
        )
        changes["method"] = View.method
    if not view.metric:
        changes["metric"] = default_metric(view.model)
    return replace(view, **changes), tuple(lacking)


def within_context(view: View, model: interp.Transformer) -> tuple[View, tuple[str, ...]]:
    """The view with prompts that fit the model's context, and a note on each that was cut.

    The first tokens are cut, since predictions are about what follows the last token.
    """
    stacks = [stack.name for stack in model.stacks]
    of = {"text": stacks[0], "corrupt": stacks[0], "hidden": stacks[0], "prefix": stacks[-1]}
    names = {"text": "prompt", "corrupt": "corrupted prompt", "prefix": "decoder's prefix"}
    changes, notes = dict[str, Any](), list[str]()
    for field, stack in of.items():
        given = getattr(view, field)
        text, n_cut = cut_text(model, given, stack) if given else (given, 0)
        if n_cut:
            changes[field] = text
        if n_cut and field in names:
            notes.append(
                f"The {names[field]} is longer than the model's context of {model.config.n_ctx} "
                f"tokens: its first {n_cut} tokens are left out."
            )
    selection = dict.fromkeys(("position", "query", "key")) if changes else {}
    return replace(view, **changes, **selection), tuple(notes)


def cut_text(model: interp.Transformer, text: str, stack: str) -> tuple[str, int]:
    """The end of a text that fits the model's context, and the number of tokens that were cut.

    A text that the model can't read is returned unchanged; the error is reported elsewhere.
    """
    tokenizer, n_ctx = model.tokenizer, model.config.n_ctx
    try:
        n = model.to_tokens(text, stack=stack).shape[1]
    except InterpError:
        return text, 0
    if tokenizer is None or n <= n_ctx:
        return text, 0
    ids = tokenizer.encode(text)
    first = n - n_ctx
    kept = tokenizer.decode(ids[first:])
    # The rest of a text may be tokenized differently, into more tokens.
    while first < len(ids) - 1 and model.to_tokens(kept, stack=stack).shape[1] > n_ctx:
        first += 1
        kept = tokenizer.decode(ids[first:])
    return kept, first


def attention_of(view: View, model: interp.Transformer) -> AttentionName | None:
    """The attention of an encoder–decoder that is shown; ``None`` for a model with one stack."""
    names: dict[str, AttentionName] = {"encoder": "encoder", "cross": "cross"}
    return names.get(view.attention, "decoder") if len(model.stacks) > 1 else None


def heads_of(view: View, model: interp.Transformer) -> list[int]:
    """The number of heads in each layer of the attention that is shown."""
    return [layer.n_heads for layer in attentions_of(model, attention_of(view, model)).layers]


def _has(blocks: list[int], head: Head) -> bool:
    return head.layer < len(blocks) and head.head < blocks[head.layer]
