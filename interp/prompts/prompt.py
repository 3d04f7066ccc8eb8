"""A prompt: a text, the tokens compared after it, and its corrupted counterpart."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from interp.errors import InvalidInput, shorten

FIELDS = ("text", "corrupt", "prefix", "target", "distractor")
MESSAGES = {"text": "messages", "corrupt": "corrupt_messages"}
"""Fields in a file that are lists of messages, by the text that a chat template makes of them."""


ChatRenderer = Callable[..., str]
"""Makes a text of messages, as :meth:`interp.Transformer.chat` does."""


@dataclass(frozen=True)
class Prompt:
    """A text, and the tokens compared after it.

    Attributes:
        text: the model's input.
        target: the correct next token; ``None`` if not given.
        distractor: the token that the target is compared with; ``None`` if not given.
        source: where it was read: ``file:line`` (from 1), ``file[row]`` (from 0) for a table, or
            ``file[number]`` and the entries of its slots for a template.
        corrupt: the corrupted text of a minimal pair; ``None`` if not given.
        prefix: the input of the decoder of an encoder–decoder; ``None`` if not given.
    """

    text: str
    target: str | None = None
    distractor: str | None = None
    source: str = ""
    corrupt: str | None = None
    prefix: str | None = None

    @property
    def decoder_text(self) -> str:
        """The input of the decoder of an encoder–decoder: ``prefix``, or the whole ``target``.

        Raises:
            InvalidInput: the prompt has neither.
        """
        text = self.target if self.prefix is None else self.prefix
        if text is None:
            raise InvalidInput(
                f"{self.source}: the decoder of an encoder–decoder reads a 'prefix' or a 'target'; "
                "this prompt has neither."
            )
        return text

    def fields(self) -> dict[str, str]:
        """The given fields, as in a line of JSON."""
        texts = {name: getattr(self, name) for name in FIELDS}
        return {name: text for name, text in texts.items() if text is not None}


def prompt_of(values: Mapping[str, Any], source: str) -> Prompt:
    """The prompt with these fields; ``text`` is required, and ``None`` means not given.

    Args:
        values: texts by field; only the names in ``FIELDS`` may occur.
        source: where they were read, for messages.

    Raises:
        InvalidInput: a field is not a text; ``text`` or ``corrupt`` is empty, or they are equal.
    """
    for field, value in values.items():
        if value is not None and not isinstance(value, str):
            raise InvalidInput(f"{source}: {field} should be a text, got {shorten(value)}.")
    if not values.get("text"):
        raise InvalidInput(f"{source}: the prompt is empty.")
    if values.get("corrupt") in ("", values["text"]):
        raise InvalidInput(
            f"{source}: corrupt should be a text other than the prompt; leave it out if there is "
            "none."
        )
    return Prompt(**values, source=source)


def with_texts(values: Mapping[str, Any], chat: ChatRenderer | None, source: str) -> dict[str, Any]:
    """The fields of a prompt, in which messages are rendered as texts.

    A text ends with the beginning of an answer or, if the last message is the assistant's, with the
    content of that message, so that the target comes next.

    Args:
        values: the fields.
        chat: renders messages; ``None`` if there is no model that could.
        source: where they were read, for messages.

    Raises:
        InvalidInput: a text is given twice; the messages can't be rendered.
    """
    rendered = {name: value for name, value in values.items() if name not in MESSAGES.values()}
    for field, name in MESSAGES.items():
        messages = values.get(name)
        if messages is None:
            continue
        if values.get(field) is not None:
            raise InvalidInput(f"{source}: give {field} or {name}, not both.")
        if chat is None:
            raise InvalidInput(
                f"{source}: {name} are rendered with the chat template of a model; pass "
                "chat=model.chat."
            )
        last = messages[-1] if isinstance(messages, list) and messages else None
        answers = isinstance(last, Mapping) and last.get("role") == "assistant"
        try:
            rendered[field] = chat(messages, continue_final_message=answers)
        except InvalidInput as error:
            raise InvalidInput(f"{source}: {error}") from error
    return rendered
