"""Checks a view against its model, and leaves out what the model lacks."""

from dataclasses import replace
from typing import Any

import interp
from analyses.methods.components import components_of
from analyses.methods.heads import AttentionName, attentions_of
from apps.defaults import default_metric
from apps.explorer.offered import source_of
from apps.explorer.view import DEFAULT, Head, View
from interp.errors import InterpError

MAX_CHARACTERS = 20_000
"""Largest number of characters of a prompt; the model's context is usually shorter."""
PROMPTS = {"text": "prompt", "corrupt": "corrupted prompt", "prefix": "decoder's prefix"}
"""The fields that have a prompt, with their names on the page."""


def has_chat(model: interp.Transformer) -> bool:
    """Whether the model has a chat template."""
    return model.tokenizer is not None and model.tokenizer.chat is not None


def text_read(view: View, model: interp.Transformer, text: str) -> str:
    """What the model reads for a text that was entered: the text, or a chat with this message.

    Raises:
        InvalidInput: the chat template can't be used.
    """
    return model.chat(text).text if view.chat and text else text


def token_roles(view: View, model: interp.Transformer) -> list[str] | None:
    """Whose each token of the prompt is, if it is sent as a chat message and this is known."""
    if not (view.chat and view.text):
        return None
    chat = model.chat(view.text)
    return None if chat.unmarked else [*chat.roles]


def validated(view: View, model: interp.Transformer) -> tuple[View, tuple[str, ...]]:
    """The view without what this model lacks, and a note on each field that was left out."""
    notes: list[str] = []
    if view.chat and not has_chat(model):
        notes.append(f"chat=True: {view.model} has no chat template; the prompt is read as it is.")
        view = replace(view, chat=False)
    view, lacking = _within_prompt(view, model)
    lacking = [*notes, *lacking]
    changes: dict[str, Any] = {}
    blocks = heads_of(view, model)
    heads = [head for head in (view.head, *view.heads) if head is not None]
    lacking += [f"{view.model} has no head {head}." for head in heads if not _has(blocks, head)]
    changes["heads"] = tuple(head for head in view.heads if _has(blocks, head))
    if view.head is not None and not _has(blocks, view.head):
        changes["head"] = None
    components = components_of(model)
    names = {each.name for each in (*components.heads, *components.sublayers)}
    absent = [
        component
        for component in (view.component, *view.trail)
        if component and component not in names and not is_input(component)
    ]
    if absent:
        lacking.append(f"{view.model} has no component {absent[0]}.")
        changes |= {"component": "", "trail": ()}
    n_layers = len(model.stacks[-1].blocks)
    if view.layer is not None and not 0 <= view.layer < n_layers:
        lacking.append(f"layer={view.layer}: {view.model} has layers 0 to {n_layers - 1}.")
        changes["layer"] = None
    if not view.metric:
        changes["metric"] = default_metric(source_of(view.model))
    return replace(view, **changes), tuple(lacking)


def is_input(component: str) -> bool:
    """Whether a name is that of an embedding or a bias, which reads no other component."""
    last = component.rpartition(".")[2]
    return last.endswith("embed") or last in ("bias", "b_O", "b_out", "b_U")


def _within_prompt(view: View, model: interp.Transformer) -> tuple[View, list[str]]:
    """The view without positions that its prompt lacks, and a note on each."""
    lengths = [n_tokens(view, model, stack.name) for stack in model.stacks]
    ends = {
        "position": lengths[-1],
        "query": lengths[0 if view.attention == "encoder" else -1],
        "key": lengths[0 if view.attention in ("encoder", "cross") else -1],
    }
    ends["other_key"] = ends["key"]
    notes = [
        f"{name}={getattr(view, name)}: the prompt has positions 0 to {end - 1}."
        for name, end in ends.items()
        if end is not None and not _is_within(getattr(view, name), name, end)
    ]
    beyond = {note.partition("=")[0]: None for note in notes}
    return replace(view, **beyond), notes


def _is_within(position: int | None, name: str, end: int) -> bool:
    """Whether a position exists; only that of the prediction may count from the end."""
    return position is None or (-end if name == "position" else 0) <= position < end


def n_tokens(view: View, model: interp.Transformer, stack: str) -> int | None:
    """The number of tokens that a stack reads; ``None`` if they can't be counted."""
    is_decoder_of_two = len(model.stacks) > 1 and stack == model.stacks[-1].name
    text = (view.prefix or view.target) if is_decoder_of_two else view.text
    if not text or len(text) > MAX_CHARACTERS:
        return None
    try:
        return model.to_tokens(text_read(view, model, text), stack=stack).shape[1]
    except InterpError:
        return None


def within_context(view: View, model: interp.Transformer) -> tuple[View, tuple[str, ...]]:
    """The view with prompts that fit :data:`MAX_CHARACTERS` and the model's context.

    Also returns a note on each prompt that was cut.

    The first tokens are cut, since predictions are about what follows the last token.
    """
    stacks = [stack.name for stack in model.stacks]
    of = {"text": stacks[0], "corrupt": stacks[0], "hidden": stacks[0], "prefix": stacks[-1]}
    changes, notes = dict[str, Any](), list[str]()
    for field, stack in of.items():
        whole = getattr(view, field)
        end = whole[-MAX_CHARACTERS:]
        text, n_cut = cut_text(model, end, stack, view) if whole else (whole, 0)
        if text != whole:
            changes[field] = text
        if end != whole and field in PROMPTS:
            notes.append(
                f"The {PROMPTS[field]} has {len(whole):,} characters: its first "
                f"{len(whole) - len(end):,} are left out, so that {MAX_CHARACTERS:,} are left."
            )
        if n_cut and field in PROMPTS:
            notes.append(
                f"The {PROMPTS[field]} is longer than the model's context of {model.config.n_ctx} "
                f"tokens: its first {n_cut} tokens are left out."
            )
    selection = dict.fromkeys(("position", "query", "key", "other_key")) if changes else {}
    return replace(view, **changes, **selection), tuple(notes)


def cut_text(
    model: interp.Transformer, text: str, stack: str, view: View = DEFAULT
) -> tuple[str, int]:
    """The end of a text that fits the model's context, and the number of tokens that were cut.

    A text that the model can't read is returned unchanged; the error is reported elsewhere.

    Args:
        model: the model.
        text: the text that the user entered.
        stack: the stack that reads it.
        view: the view, which says how it is read.
    """
    tokenizer, n_ctx = model.tokenizer, model.config.n_ctx

    def length(text: str) -> int:
        return model.to_tokens(text_read(view, model, text), stack=stack).shape[1]

    try:
        n = length(text)
    except InterpError:
        return text, 0
    if tokenizer is None or n <= n_ctx:
        return text, 0
    ids = tokenizer.encode(text)
    first = n - n_ctx
    rest = tokenizer.decode(ids[first:])
    # The rest of a text may be tokenized differently, into more tokens.
    while first < len(ids) - 1 and length(rest) > n_ctx:
        first += 1
        rest = tokenizer.decode(ids[first:])
    return rest, first


def attention_of(view: View, model: interp.Transformer) -> AttentionName | None:
    """The attention of an encoder–decoder that is shown; ``None`` for a model with one stack."""
    names: dict[str, AttentionName] = {"encoder": "encoder", "cross": "cross"}
    return names.get(view.attention, "decoder") if len(model.stacks) > 1 else None


def heads_of(view: View, model: interp.Transformer) -> list[int]:
    """The number of heads in each layer of the attention that is shown."""
    return [layer.n_heads for layer in attentions_of(model, attention_of(view, model)).layers]


def _has(blocks: list[int], head: Head) -> bool:
    return head.layer < len(blocks) and head.head < blocks[head.layer]
