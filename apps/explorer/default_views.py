"""The initial view of each model: a prompt that it gets right, and the head that matters most.

A model without prompts of its own opens on a sentence.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from weakref import WeakKeyDictionary

import interp
from analyses.methods.components import aligned_prompts
from apps.defaults import default_metric, default_prompts
from apps.explorer.offered import model_of, source_of
from apps.explorer.view import Head, View
from interp.errors import InterpError, InvalidInput
from interp.loading import AT_STEP
from interp.prompts import Prompt, read_prompts

EXAMPLES = "examples"
"""The name of the model's own prompt set, in the field ``prompts`` of a view."""

SENTENCE = "When Mary and John went to the store, John gave a drink to"
"""The prompt of a model that has none of its own."""
CORRUPT = "When Mary and John went to the store, Mary gave a drink to"
"""Its counterpart, which makes it a minimal pair."""
PAIRS = (
    Prompt(SENTENCE, target=" Mary", distractor=" John", corrupt=CORRUPT),
    Prompt(
        "Sarah bought a lamp. Peter bought a chair. Sarah bought a lamp. Peter bought a",
        target=" chair",
        distractor=" lamp",
        corrupt="Sarah bought a lamp. Peter bought a chair. Sarah bought a lamp. Sarah bought a",
    ),
    Prompt(
        "The capital of France is the city of",
        target=" Paris",
        distractor=" Berlin",
        corrupt="The capital of Germany is the city of",
    ),
)
"""Indirect object, induction, a fact: what a model without prompts opens on if it is right."""
REPEATED = 4
"""Number of tokens that are repeated where the vocabulary lacks the words of the sentence."""
TRIED = 4
"""The most prompts of a card that are tried, until the model is right."""


@dataclass(frozen=True)
class Opening:
    """The initial view of a model.

    Attributes:
        prompt: the index of the prompt in :func:`examples`.
        head: the head whose ablation changes the model's metric most; ``None`` if not measured.
        prompts: what sweeps run over: ``examples``, or ``""`` for the prompt alone if the examples
            would take longer than two seconds.
        attention: which attention is shown, in an encoder–decoder.
        method: the method of ablation.
    """

    prompt: int = 0
    head: Head | None = None
    prompts: str = ""
    attention: str = ""
    method: str = View.method


OPENING = {
    "addition-mod-113": Opening(0, Head(0, 0), EXAMPLES),
    "dates": Opening(11, Head(0, 2), EXAMPLES, attention="cross", method="zero"),
    "induction-by-hand": Opening(1, Head(0, 0), EXAMPLES),
    "python-2l": Opening(1, Head(0, 5), EXAMPLES),
    "python-4l": Opening(4, Head(0, 7)),
    "python-mlm": Opening(11, Head(3, 2), EXAMPLES),
    "rasp-duplicates": Opening(2, Head(0, 0), EXAMPLES),
    "rasp-fraction": Opening(3, Head(1, 0), EXAMPLES),
    "rasp-histogram": Opening(3, Head(0, 0), EXAMPLES),
    "rasp-reverse": Opening(1, Head(0, 0), EXAMPLES),
}
"""The initial views by the name of the model."""


def examples(model: str) -> list[Prompt]:
    """The prompts that belong to a model; minimal pairs if it has any."""
    for pairs in (True, False):
        try:
            return read_prompts(default_prompts(source_of(model), pairs=pairs))
        except InvalidInput:
            continue
    return []


def default_view(model: str, page: str = "heads") -> View:
    """The initial view of a model."""
    opening, prompts = OPENING.get(_name(model), Opening()), examples(model)
    view = View(
        page=page,
        model=model,
        metric=default_metric(source_of(model)),
        head=opening.head,
        prompts=opening.prompts,
        attention=opening.attention,
        method=opening.method,
    )
    if _name(model) in OPENING:
        return with_prompt(view, prompts[opening.prompt])
    try:
        return with_prompt(view, _opening_prompt(model_of(model), prompts))
    except InterpError:  # the page shows why the model can't be loaded
        return view


_openings = WeakKeyDictionary[interp.Transformer, Prompt]()


def _opening_prompt(model: interp.Transformer, prompts: Sequence[Prompt]) -> Prompt:
    """The first of a model's own prompts that it answers right, or :func:`opening_prompt`.

    Tried when the model is first opened.
    """
    if model not in _openings:
        own = (first_right(model, prompts[:TRIED]) or prompts[0]) if prompts else None
        _openings[model] = own or opening_prompt(model)
    return _openings[model]


def opening_prompt(model: interp.Transformer) -> Prompt:
    """A prompt for a model without prompts; the empty one if the model reads no text.

    For a decoder, the first of :data:`PAIRS` that it answers right; if it answers none, the first
    that it can read. An encoder fills a mask at the end of a sentence, and the decoder of an
    encoder–decoder has written the sentence up to its end. Where the vocabulary lacks the words, a
    few of its tokens are repeated.
    """
    mask = model.config.tokens.mask
    try:
        if model.config.encoder is None:
            return first_right(model, PAIRS) or _readable(model)
        sentence = Prompt(SENTENCE, prefix=SENTENCE)
        if mask is not None and len(model.stacks) == 1:
            sentence = Prompt(f"{SENTENCE} {model.to_string([mask])}.")
        for stack in model.stacks:
            model.to_tokens(sentence.text, stack=stack.name)
    except InterpError:
        return _of_vocabulary(model)
    return sentence if len(model.stacks) > 1 else Prompt(sentence.text)


def first_right(model: interp.Transformer, prompts: Sequence[Prompt]) -> Prompt | None:
    """The first prompt whose target a decoder predicts; ``None`` if there is none."""
    return next((prompt for prompt in prompts if _is_right(model, prompt)), None)


def _is_right(model: interp.Transformer, prompt: Prompt) -> bool:
    """Whether the target is the most probable token, and a corrupted prompt aligns."""
    try:
        target = model.to_single_token(prompt.target or "")
        logits = interp.run(model, prompt.text).require_logits()
    except InterpError:
        return False
    return int(logits[0, -1].argmax()) == target and _is_aligned(model, prompt)


def _readable(model: interp.Transformer) -> Prompt:
    """The sentence without an answer, as a pair if the tokens of its counterpart align.

    Raises:
        InvalidTokens: the vocabulary lacks its letters.
    """
    model.to_tokens(SENTENCE)
    pair = Prompt(SENTENCE, corrupt=CORRUPT)
    return pair if _is_aligned(model, pair) else Prompt(SENTENCE)


def _of_vocabulary(model: interp.Transformer) -> Prompt:
    """A few tokens of the vocabulary, twice; the empty prompt if the model reads no text."""
    special = {token for token in asdict(model.config.tokens).values() if type(token) is int}
    ids = [token for token in range(model.config.d_vocab) if token not in special][:REPEATED]
    try:
        text = str(model.to_string(ids * 2))
        for stack in model.stacks:
            model.to_tokens(text, stack=stack.name)
    except InterpError:
        return Prompt("")
    return Prompt(text, prefix=text) if len(model.stacks) > 1 else Prompt(text)


def _is_aligned(model: interp.Transformer, pair: Prompt) -> bool:
    try:
        aligned_prompts(model, [pair])
    except InterpError:
        return False
    return True


def with_prompt(view: View, prompt: Prompt) -> View:
    """The view with another prompt; clears the selection within the prompt but keeps the heads."""
    return replace(
        view,
        text=prompt.text,
        target=prompt.target or "",
        distractor=prompt.distractor or "",
        corrupt=prompt.corrupt or "",
        prefix=prompt.prefix or "",
        chat=False,
        hidden="",
        position=None,
        query=None,
        key=None,
        other_key=None,
        term="",
        traced="",
        node="",
        groups=(),
    )


def _name(model: str) -> str:
    match = AT_STEP.fullmatch(model)
    return match["model"] if match else model
