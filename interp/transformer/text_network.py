"""A model that reads and writes text: a :class:`Network` with a tokenizer."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from jaxtyping import Int
from torch import Tensor

from interp.config import Config
from interp.errors import InvalidInput, InvalidTokens, shorten
from interp.integers import as_integer
from interp.io import Table
from interp.model import PAD, Batch, Network, is_text, whole_numbers
from interp.text import Tokenizer
from interp.transformer.encoding import TextEncoding, as_text, padded, texts_of

if TYPE_CHECKING:
    import interp.chat  # a package above this one, imported when a chat is made


class TextNetwork(Network):
    """A network with a tokenizer, which converts texts to token ids and back.

    Args:
        config: the architecture.
        tokenizer: encodes and decodes text; without one, the model only takes token ids.
    """

    def __init__(self, config: Config, tokenizer: Tokenizer | None = None) -> None:
        if tokenizer is not None and tokenizer.required_rows > config.d_vocab:
            raise InvalidInput(
                f"The tokenizer has {tokenizer.vocab_size} tokens, the model {config.d_vocab}."
            )
        super().__init__(config)
        self.tokenizer = tokenizer

    def to_tokens(
        self,
        texts: str | Sequence[str],
        *,
        prepend_bos: bool | None = None,
        padding_side: str = "right",
        stack: str | None = None,
    ) -> Int[Tensor, "batch pos"]:
        """Token ids of one or several texts.

        If ``config.tokens.prepend_bos`` is set, one BOS token is added before every text (unless
        the text already starts with it). A text for the decoder of an encoder–decoder is preceded
        by ``config.tokens.decoder_start`` and gets no EOS. The same rule applies wherever a text is
        accepted; token ids are never changed.

        Args:
            texts: a text or several.
            prepend_bos: overrides the configuration.
            padding_side: the side, ``right`` or ``left``, on which shorter texts are padded with
                ``interp.PAD``.
            stack: the stack of an encoder–decoder that reads them; by default the first.

        Raises:
            InvalidTokens: a text has no tokens, or there are no texts.
        """
        several = texts_of(texts)
        is_target = stack is not None and self.stack(stack) is not self.stacks[0]
        encoding = TextEncoding(self._tokenizer(), self.config.tokens, prepend_bos)
        rows = [encoding.target(t) if is_target else encoding.prompt(t) for t in several]
        return padded(rows, padding_side, self.device)

    def chat(
        self,
        messages: object,
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        template: str | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> "interp.chat.Chat":
        """The text of a chat as the model was trained on it, with the role of each token.

        The model's chat template is rendered as ``transformers`` renders it, in a sandbox. The
        result is a text, which is accepted wherever a text is; as for every text, the model adds
        BOS if the template does not write it and ``config.tokens.prepend_bos`` is set.

        Args:
            messages: a list of ``{"role": …, "content": …}``, or a text: the user's only message.
            add_generation_prompt: whether the text ends with the beginning of an answer.
            continue_final_message: whether the text ends with the content of the last message, so
                that the model continues it; there is then no other beginning of an answer.
            template: the name of one of the model's templates, or a template of Jinja; by default
                the model's own.
            variables: JSON values by name that the template may read, such as
                ``{"enable_thinking": False}``.

        Raises:
            InvalidInput: the model has no tokenizer or no chat template; a message is no object
                with ``role`` and ``content``, or has an unknown role; the template is not valid,
                fails, refuses the messages or leaves one out; Jinja is not installed.

        Examples:
            >>> model = interp.load("python-2l")
            >>> model.chat("x = 1", template="{% for m in messages %}# {{ m.content }}{% endfor %}")
            Chat: 1 message, 6 tokens
              role      positions  tokens
              template  0–2        <|bos|> # ·
              user      3–5        x ·= ·1
        """
        return import_module("interp.chat").chat_of(
            self,
            messages,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            template=template,
            variables=variables,
        )

    def to_string(self, tokens: Any) -> str | list[str]:  # noqa: ANN401 - ids, checked
        """The text of one id or one row ``[pos]``, or of each row ``[batch pos]``, without padding.

        Raises:
            InvalidTokens: ``tokens`` are not ids, or not in the vocabulary.
        """
        if is_text(tokens):
            raise InvalidTokens(f"to_string takes token ids; got {shorten(tokens)}.")
        rows, is_one = self._rows(tokens)
        texts = [self._tokenizer().decode(row) for row in rows]
        return texts[0] if is_one else texts

    def to_str_tokens(self, tokens: Any) -> list[str] | list[list[str]]:  # noqa: ANN401
        """The text of each token; a list per row, if several rows are given.

        Padding is left out, so that an index is the token's position. A token that is a part of a
        character contains U+FFFD; :meth:`to_labels` shows its bytes.

        Args:
            tokens: a text, or ids ``[pos]``; several texts, or ids ``[batch pos]``.

        Raises:
            InvalidTokens: ``tokens`` are neither texts nor ids in the vocabulary.
        """
        rows, is_one = self._rows(tokens)
        text_of = self._tokenizer().token_text
        texts = [[text_of(id_) for id_ in row if id_ != PAD] for row in rows]
        return texts[0] if is_one else texts

    def to_labels(self, tokens: Any) -> list[str]:  # noqa: ANN401 - a text or ids, checked
        """One label per token, in which spaces, newlines and parts of characters are visible.

        Args:
            tokens: one text, or one row of ids, padding included.

        Raises:
            InvalidTokens: there are several rows, or ids are outside the vocabulary.
        """
        rows, _ = self._rows(tokens)
        if len(rows) != 1:
            raise InvalidTokens(f"Labels are those of one row; got {len(rows)} rows.")
        if self.tokenizer is None:
            return [str(token) for token in rows[0]]
        return self.tokenizer.display(rows[0])

    def label(self, output: int) -> str:
        """The label of one logit: the label of a token, or the index of a class."""
        tokenizer = self.tokenizer
        if tokenizer is None or self.config.n_classes is not None or output not in tokenizer:
            return str(output)
        return tokenizer.display([output])[0]

    def to_single_token(self, text: str) -> int:
        """The id of a text that is exactly one token.

        Raises:
            InvalidTokens: it is several tokens, or none; the message lists them.
        """
        return self._tokenizer().single_token(as_text(text))

    def position_of(
        self,
        prompt: Any,  # noqa: ANN401 - a text or ids, checked
        token: str | int,
        stack: str | None = None,
    ) -> int:
        """The position of a token in a prompt, for ``pos=``: its index among the real tokens.

        Args:
            prompt: one text, or one row of ids.
            token: a text that is exactly one token (a leading space counts), or an id.
            stack: the stack of an encoder–decoder that reads the prompt; by default the last.

        Raises:
            InvalidTokens: the prompt does not contain the token, or several times; the message
                lists the positions.
        """
        ids = self._prompt(prompt, stack)
        wanted = self._token_id(token, "token")
        positions = [position for position, id_ in enumerate(ids) if id_ == wanted]
        if len(positions) == 1:
            return positions[0]
        where = f"at positions {', '.join(map(str, positions))}" if positions else "nowhere"
        raise InvalidTokens(
            f"{shorten(token)} occurs {where} in {shorten(self.to_labels(ids))}; "
            "position_of needs a token that occurs once."
        )

    def encode(self, texts: Any, stack: str) -> Int[Tensor, "batch pos"]:  # noqa: ANN401
        """Token ids of one or several texts for a stack; see :meth:`to_tokens`.

        Raises:
            InvalidTokens: as there, or a text is so long that it exceeds the context in any case.
        """
        n_ctx = self.config.n_ctx
        for text in texts_of(texts):
            if len(text.encode(errors="replace")) <= n_ctx:
                continue  # a token has at least one byte
            fewest = self._tokenizer().fewest_tokens(text)
            if fewest > n_ctx:
                raise InvalidTokens(
                    f"A text of {len(text)} characters has at least {fewest} tokens, over this "
                    f"model's context of {n_ctx}; shorten it or split it into several rows."
                )
        return self.to_tokens(texts, stack=stack)

    def description(self) -> Table:
        """The description of the network, with the size of the tokenizer."""
        tokenizer = self.tokenizer
        row = ("tokenizer", "none" if tokenizer is None else f"{tokenizer.vocab_size} tokens")
        plain = super().description()
        return replace(plain, rows=[*plain.rows, row])

    def _rows(self, tokens: Any) -> tuple[list[list[int]], bool]:  # noqa: ANN401
        """The ids of each row, padding included, and whether a single row was given."""
        if isinstance(tokens, Batch):
            tokens = tokens.tokens
        is_one = isinstance(tokens, str)
        ids = whole_numbers(self.to_tokens(tokens) if is_text(tokens) else tokens)
        if ids.ndim > 2:  # noqa: PLR2004 - batch and pos
            raise InvalidTokens(f"Tokens are [pos] or [batch pos]; got {shorten(tokens)}.")
        is_one = is_one or ids.ndim < 2  # noqa: PLR2004
        return (ids.reshape(1, -1) if is_one else ids).tolist(), is_one

    def _prompt(self, tokens: Any, stack: str | None) -> list[int]:  # noqa: ANN401
        """The ids of one prompt, without padding."""
        batch = self.batch(tokens, stack=stack)
        if len(batch.ids) != 1:
            raise InvalidTokens(f"One prompt was expected; got {len(batch.ids)}.")
        return batch.ids[batch.is_real].tolist()

    def _token_id(self, token: object, name: str) -> int:
        """The id of a token given as a text or an id."""
        if isinstance(token, str):
            return self.to_single_token(token)
        number = as_integer(token)
        if number is None:
            raise InvalidTokens(f"{name}={shorten(token)} should be a text or a token id.")
        return number

    def _tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise InvalidInput("This model has no tokenizer; give it token ids instead of text.")
        return self.tokenizer
