"""The messages of a chat: who wrote what."""

from collections.abc import Mapping
from typing import NamedTuple

from interp.errors import InvalidInput, nearest, shorten

ROLES = ("system", "developer", "user", "assistant", "tool")
"""The roles that a message may have, beside those that a template names."""
TEMPLATE = "template"
"""The role of what no message contains, which the template itself writes."""
KEYS = ("role", "content")
MAX_MESSAGES = 10_000


class Message(NamedTuple):
    """A message.

    Attributes:
        role: who wrote it.
        content: what was written.
    """

    role: str
    content: str


def messages_of(messages: object, template: str, source: str = "messages") -> tuple[Message, ...]:
    """Check the messages of a chat.

    Args:
        messages: a list of ``{"role": …, "content": …}``, or a text, which is the user's only
            message.
        template: the template; the roles that are written in it are known.
        source: where they were read, for messages.

    Raises:
        InvalidInput: they are something else, or a role is not known.
    """
    if isinstance(messages, str):
        return (Message("user", str.__str__(messages)),)
    if not isinstance(messages, list | tuple) or not messages:
        raise InvalidInput(
            f'{source} should be a list of {{"role": …, "content": …}} with at least one of them, '
            f"or a text; got {shorten(messages)}."
        )
    if len(messages) > MAX_MESSAGES:
        raise InvalidInput(f"{source} has {len(messages)} messages; at most {MAX_MESSAGES}.")
    return tuple(
        _message(message, template, f"{source}[{number}]")
        for number, message in enumerate(messages)
    )


def _message(message: object, template: str, where: str) -> Message:
    if not isinstance(message, Mapping):
        raise InvalidInput(
            f'{where} should be {{"role": …, "content": …}}, got {shorten(message)}.'
        )
    missing = [key for key in KEYS if key not in message]
    # The rows of a dataset have all keys, with None where there is no value.
    unknown = [key for key in message if key not in KEYS and message[key] is not None]
    if missing or unknown:
        problem = f"lacks {missing[0]!r}" if missing else f"has the unknown key {unknown[0]!r:.40}"
        raise InvalidInput(f"{where} {problem}; a message has a 'role' and a 'content'.")
    texts = [message[key] for key in KEYS]
    for key, text in zip(KEYS, texts, strict=True):
        if not isinstance(text, str):
            raise InvalidInput(f"{where}: {key} should be a text, got {shorten(text)}.")
    role, content = (str.__str__(text) for text in texts)
    named = any(f"{quote}{role}{quote}" in template for quote in ("'", '"'))
    if role not in ROLES and (role == TEMPLATE or not role or not named):
        raise InvalidInput(
            f"{where}: unknown role {shorten(role)}.{nearest(role, ROLES)} Roles are "
            f"{', '.join(ROLES)}, and others that the template names."
        )
    return Message(role, content)
