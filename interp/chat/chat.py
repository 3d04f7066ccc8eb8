"""A chat as a text of a model, in which every token has the role of who wrote it."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple, NoReturn

import torch
from jaxtyping import Int
from torch import Tensor

from interp.chat.marks import RenderedChat, render_chat
from interp.chat.messages import TEMPLATE, Message, messages_of
from interp.chat.templates import ChatTemplates
from interp.errors import InvalidInput, reason, shorten
from interp.io import Table, parse_json
from interp.transformer import TextNetwork


class Owner(NamedTuple):
    """Whose a token is.

    Attributes:
        message: the index of the message; ``None`` for the template.
        mixed: whether the token also has characters of something else.
    """

    message: int | None = None
    mixed: bool = False


@dataclass(frozen=True)
class ChatTokens:
    """The tokens of a chat.

    Attributes:
        messages: the messages.
        ids: the id of each token.
        labels: the label of each token.
        owners: whose each token is.
        unmarked: why the owners are not known; ``""`` if they are.
    """

    messages: tuple[Message, ...] = ()
    ids: tuple[int, ...] = ()
    labels: tuple[str, ...] = ()
    owners: tuple[Owner, ...] = ()
    unmarked: str = ""


class Chat(str):
    """The text of a chat, whose tokens have roles; it is accepted wherever a text is.

    A token with characters of a message has the role of that message, even if it has other
    characters too (:attr:`mixed`); if it has those of several messages, it has the role of the one
    with the most. All other tokens are the template's: those that it writes by itself, white space
    that it removes from contents, and BOS and EOS that the model adds to every text.
    """

    _tokens: ChatTokens
    _device: torch.device

    def __new__(
        cls,
        text: str,
        tokens: ChatTokens = ChatTokens(),
        device: torch.device = torch.device("cpu"),  # noqa: B008 - can't be changed
    ) -> "Chat":
        """A text with its tokens; :meth:`interp.Transformer.chat` makes it."""
        chat = super().__new__(cls, text)
        chat.__dict__.update(_tokens=tokens, _device=device)
        return chat

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Refuse any change.

        Raises:
            AttributeError: always.
        """
        raise AttributeError(f"A chat can't be changed ({name}); make another with model.chat.")

    @property
    def text(self) -> str:
        """The text as a plain ``str``."""
        return str.__str__(self)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages, each with ``role`` and ``content``."""
        return self._tokens.messages

    @property
    def tokens(self) -> Int[Tensor, "1 pos"]:
        """The token ids, as :meth:`interp.Transformer.to_tokens` makes them of the text."""
        return torch.tensor([self._tokens.ids], device=self._device)

    @property
    def labels(self) -> tuple[str, ...]:
        """The label of each token, in which spaces and newlines are visible."""
        return self._tokens.labels

    @property
    def unmarked(self) -> str:
        """Why it is not known which tokens are whose; ``""`` if it is."""
        return self._tokens.unmarked

    @property
    def roles(self) -> tuple[str, ...]:
        """The role of each token: that of its message, or ``"template"``.

        Raises:
            InvalidInput: it is not known; :attr:`unmarked` says why.
        """
        messages = self._tokens.messages
        return tuple(
            TEMPLATE if number is None else messages[number].role for number in self.numbers
        )

    @property
    def numbers(self) -> tuple[int | None, ...]:
        """The index of the message of each token; ``None`` for the template's.

        Raises:
            InvalidInput: as for :attr:`roles`.
        """
        return tuple(owner.message for owner in self._owners())

    @property
    def mixed(self) -> tuple[int, ...]:
        """Positions of the tokens with characters of a message and of something else.

        Raises:
            InvalidInput: as for :attr:`roles`.
        """
        return tuple(n for n, owner in enumerate(self._owners()) if owner.mixed)

    def positions(self, role: str, message: int | None = None) -> list[int]:
        """The positions of the tokens of a role, for ``pos=`` of edits.

        Args:
            role: a role, or ``"template"``.
            message: only those of the message with this index; negative: from the end.

        Raises:
            InvalidInput: no token has this role; also as for :attr:`roles`.
        """
        if message is not None and message < 0:
            message += len(self.messages)
        positions = [
            place
            for place, (name, number) in enumerate(zip(self.roles, self.numbers, strict=True))
            if name == role and message in (None, number)
        ]
        if not positions:
            where = "" if message is None else f" in message {message}"
            raise InvalidInput(
                f"No token has the role {shorten(role)}{where}; there are "
                f"{', '.join(dict.fromkeys(self.roles))}."
            )
        return positions

    def _owners(self) -> tuple[Owner, ...]:
        if self.unmarked:
            raise InvalidInput(f"It is not known whose each token is: {self.unmarked}.")
        return self._tokens.owners

    def __repr__(self) -> str:
        return self._table().to_text()

    def _repr_html_(self) -> str:
        return self._table().to_html()

    def _table(self) -> Table:
        """One row for neighbouring tokens of the same message."""
        labels = self._tokens.labels
        number = len(self.messages)
        title = f"Chat: {number} message{'s' * (number > 1)}, {len(labels)} tokens"
        if self.unmarked:
            return Table(f"{title}; roles unknown: {self.unmarked}", (), [("text", self.text)])
        roles, rows, place = self.roles, list[tuple[str, str, str]](), 0
        for _, group in groupby(zip(self.numbers, labels, strict=True), lambda pair: pair[0]):
            texts = [label for _, label in group]
            last = place + len(texts) - 1
            span = f"{place}" if last == place else f"{place}–{last}"
            rows.append((roles[place], span, " ".join(texts)))
            place = last + 1
        return Table(title, ("role", "positions", "tokens"), rows)


def chat_of(
    model: TextNetwork,
    messages: object,
    *,
    add_generation_prompt: bool = True,
    continue_final_message: bool = False,
    template: object = None,
    variables: Mapping[str, Any] | None = None,
) -> Chat:
    """The text of messages; the arguments are those of :meth:`interp.Transformer.chat`.

    Raises:
        InvalidInput: as there.
    """
    tokenizer = model.tokenizer
    if tokenizer is None:
        raise InvalidInput("This model has no tokenizer, so it reads no chat.")
    source, special_tokens = _source(tokenizer.chat, template)
    checked = messages_of(messages, source)
    rendered = render_chat(
        source,
        checked,
        {
            **special_tokens,
            "tools": None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt and not continue_final_message,
            **_plain(variables),
        },
        continues=continue_final_message,
    )
    ids = model.to_tokens(rendered.text)[0].tolist()
    spans = tokenizer.spans(rendered.text)
    # BOS is added unless the text begins with it.
    before = int(tokenizer.encode(rendered.text)[0] != ids[0])
    owners = _owners_of(rendered, spans, before, len(ids) - len(spans) - before)
    labels = tuple(tokenizer.display(ids))
    tokens = ChatTokens(checked, tuple(ids), labels, owners, rendered.problem)
    return Chat(rendered.text, tokens, model.device)


def _source(chat: ChatTemplates | None, template: object) -> tuple[str, Mapping[str, str]]:
    """The template, and the texts of the special tokens that it may write.

    Raises:
        InvalidInput: there is none, or ``template`` is no text or names none.
    """
    if chat is None and template is None:
        raise InvalidInput(
            "This model has no chat template: its tokenizer comes without one, as those of models "
            "that were not trained on chats do. Give a template of Jinja as template=."
        )
    if template is not None and not isinstance(template, str):
        raise InvalidInput(f"template={shorten(template)} should be a name or a template.")
    templates = chat or ChatTemplates()
    return templates.choose(template), templates.special_tokens


def _owners_of(
    rendered: RenderedChat, spans: Sequence[tuple[int, int]], before: int, after: int
) -> tuple[Owner, ...]:
    """Whose each token is.

    Args:
        rendered: a text with the contents of messages in it.
        spans: the characters of each token of the text.
        before: number of tokens that the model adds before the text.
        after: number of tokens that it adds after the text.
    """
    messages: list[int | None] = [None] * len(rendered.text)
    for span in rendered.spans:
        messages[span.start : span.end] = [span.message] * (span.end - span.start)
    owners = [_owner(messages[start:end]) for start, end in spans]
    return (*[Owner()] * before, *owners, *[Owner()] * after)


def _owner(messages: Sequence[int | None]) -> Owner:
    """Whose a token is, by the messages of its characters."""
    counts = Counter(messages)
    of_messages = {number: n for number, n in counts.items() if number is not None}
    if not of_messages:
        return Owner()
    return Owner(max(of_messages, key=of_messages.__getitem__), mixed=len(counts) > 1)


def _plain(variables: Mapping[str, Any] | None) -> dict[str, Any]:
    """Variables as JSON values, which have no attributes that a template could use.

    Raises:
        InvalidInput: they are something else.
    """
    try:
        plain = {} if variables is None else parse_json(json.dumps(variables))
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"variables= should be values of JSON by name: {reason(error)}."
        ) from error
    if not isinstance(plain, dict):
        raise InvalidInput(
            f"variables= should be values of JSON by name, got {shorten(variables)}."
        )
    return plain
