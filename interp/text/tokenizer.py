"""Tokenizer: text to ids and back, and a printable label for each token.

    text -> ids -> text          `encode` and `decode`: no special token is added or dropped
    id   -> bytes -> label       `token_bytes` and `display`: one token by itself

Reference: Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units".
"""

import json
from bisect import bisect_right
from collections.abc import Callable, Iterable
from copy import copy
from functools import cached_property
from itertools import accumulate, pairwise
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, SupportsIndex, TypeVar

import tokenizers

from interp.errors import InterpError, InvalidTokens, ModelLoadError, first_line, shorten
from interp.io import is_file, write_text_whole
from interp.text.growth import NormalizedLength
from interp.text.token_bytes import (
    bytes_kept,
    token_format,
    tokens_by_id,
    unknown_token,
    visible,
)
from interp.text.tokenizer_file import MAX_CHARACTERS, read_backend

if TYPE_CHECKING:
    import interp.chat  # a package above this one

MASK_TOKENS: Final = ("[MASK]", "<mask>", "<|mask|>")
"""Names of the mask token in tokenizers."""
PAD_LABEL: Final = "∅"
"""The label of padding, which is every id below 0."""
_Result = TypeVar("_Result")


class Tokenizer:
    """A tokenizer of the `tokenizers` library, with the methods that an analysis needs.

    It uses a copy of `backend` without truncation and padding: other code may have enabled them,
    which would silently shorten or lengthen a prompt.

    Attributes:
        backend: The copy.
        bos: Id of the beginning-of-sequence token, or None.
        eos: Id of the end-of-sequence token, or None.
        vocab_size: 1 + the largest id.
        required_rows: The smallest number of embedding rows that a model needs: 1 + the largest id
            of a token other than a special one. Some models have no row for a special token that
            their tokenizer has, such as Gemma 3 1B for `<image_soft_token>`.
        chat: The chat templates of the model, which `interp.chat` reads; None if there are none.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        bos: int | None = None,
        eos: int | None = None,
        chat: "interp.chat.ChatTemplates | None" = None,
    ) -> None:
        """Wrap a copy of `backend`.

        Raises:
            InvalidTokens: `bos` or `eos` is not in the vocabulary.
        """
        self.chat = chat
        text = backend.to_str()
        self._set(tokenizers.Tokenizer.from_str(text), json.loads(text))
        self._set_special_tokens(bos, eos)

    def _set(self, backend: tokenizers.Tokenizer, description: dict[str, Any]) -> None:
        """Set the backend, without a copy, and what is read from its description."""
        backend.no_truncation()
        backend.no_padding()
        self.backend = backend
        self._format = token_format(description)
        self._normalized_length = NormalizedLength(description, MAX_CHARACTERS)
        added = backend.get_added_tokens_decoder()
        self._added = {id_: token.content for id_, token in added.items()}
        # An added token replaces a vocabulary entry with the same id.
        self._tokens = tokens_by_id(description["model"]) | self._added
        self._unknown = unknown_token(description["model"])
        self._dropped = bytes(set(range(256)) - set(bytes_kept(description)))
        special = {id_ for id_, token in added.items() if token.special}
        self.vocab_size: int = max(self._tokens, default=-1) + 1
        self.required_rows: int = max(self._tokens.keys() - special, default=-1) + 1

    def _set_special_tokens(self, bos: int | None, eos: int | None) -> None:
        self.bos: int | None = None if bos is None else self._check_id(bos)
        self.eos: int | None = None if eos is None else self._check_id(eos)

    @classmethod
    def from_file(
        cls,
        path: str | Path,
        *,
        bos: int | None = None,
        eos: int | None = None,
        configure: Callable[[tokenizers.Tokenizer], object] | None = None,
        chat: "interp.chat.ChatTemplates | None" = None,
    ) -> "Tokenizer":
        """Read a `tokenizer.json`; `configure` is called with the backend, and may change it.

        Raises:
            ModelLoadError: The file is missing, or does not describe a tokenizer.
            InvalidTokens: `bos` or `eos` is not in the vocabulary.
        """
        path = Path(path)
        if not is_file(path):
            raise ModelLoadError(f"{path} is not a file. Give the path of a tokenizer.json.")

        def refusal(why: str) -> ModelLoadError:
            return ModelLoadError(
                f"{path} does not describe a tokenizer ({why}). Expected a tokenizer.json, as "
                "Tokenizer.save writes it; the file may be damaged, truncated or of another kind."
            )

        def read() -> Tokenizer:
            backend, description = read_backend(path)
            if configure is not None:
                configure(backend)
            tokenizer = cls.__new__(cls)
            tokenizer.chat = chat
            tokenizer._set(backend, description)
            tokenizer._set_special_tokens(bos, eos)
            return tokenizer

        return _translated(read, refusal)

    def with_special_tokens(self, bos: int | None, eos: int | None) -> "Tokenizer":
        """The same tokenizer with other BOS and EOS ids; ids that it lacks become None.

        Both have the same backend.
        """
        other = copy(self)
        other._set_special_tokens(*(id_ if id_ in self._tokens else None for id_ in (bos, eos)))
        return other

    def added_ids(self) -> tuple[list[int], list[int]]:
        """The special token ids that the backend's post-processor adds before and after a text."""
        if not self.backend.num_special_tokens_to_add(is_pair=False):
            return [], []
        text = next((text for text in ("a", *self._tokens.values()) if self._has_tokens(text)), "")
        whole = _translated(
            lambda: self.backend.encode(text, add_special_tokens=True),
            lambda why: ModelLoadError(f"The tokenizer can't add its special tokens ({why})."),
        )
        places = [place for place, of in enumerate(whole.sequence_ids) if of is not None]
        first, last = (places[0], places[-1]) if places else (len(whole), len(whole))
        return whole.ids[:first], whole.ids[last + 1 :]

    def mask_id(self) -> int | None:
        """The id of the mask token, if there is one among the added tokens."""
        return next((id_ for id_, token in self._added.items() if token in MASK_TOKENS), None)

    def save(self, path: str | Path) -> None:
        """Write a `tokenizer.json` atomically; `bos`, `eos` and `chat` are not part of it."""
        text = self.backend.to_str(pretty=True)
        write_text_whole(Path(path), text)

    def encode(self, text: str) -> list[int]:
        """The ids of `text`, with no BOS, EOS or other special token added.

        A special token that appears literally in `text` becomes its id.

        Raises:
            InvalidTokens: `text` is longer than `MAX_CHARACTERS`, before or after normalization;
                it contains a lone surrogate, which is not a character, or something that the
                vocabulary cannot encode.
        """
        if len(text) > MAX_CHARACTERS:
            raise InvalidTokens(
                f"A text of {len(text)} characters is too long to be tokenized as one; split it "
                f"into parts of at most {MAX_CHARACTERS}."
            )
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidTokens(
                f"The text holds {text[error.start]!a} at {error.start}, which is not a character "
                "and has no UTF-8 form. Was it read with errors='surrogateescape'?"
            ) from error
        return _translated(
            lambda: self._encoded(text),
            lambda why: InvalidTokens(
                f"The text {text[:40]!r} can't be encoded in this vocabulary, which has no unknown "
                f"token ({why})."
            ),
        )

    def spans(self, text: str) -> list[tuple[int, int]]:
        """The start and the end of the characters of each token of `encode(text)`.

        A token that is a part of a character has the whole character. If the tokens do not spell
        the text byte by byte, the spans are those of the backend, which may leave out white space;
        a token of white space alone then has that between its neighbours, and an added token its
        own text.

        Raises:
            InvalidTokens: As for `encode`.
        """
        ids = self.encode(text)
        pieces = [self.token_bytes(id_) or b"" for id_ in ids]
        if b"".join(pieces) == text.encode():
            starts = [0, *accumulate(len(char.encode()) for char in text)]
            ends = [0, *accumulate(map(len, pieces))]
            return [
                (bisect_right(starts, start) - 1, bisect_right(starts, max(start, end - 1)))
                for start, end in pairwise(ends)
            ]
        spans, before = list[tuple[int, int]](), 0
        offsets = self.backend.encode(text, add_special_tokens=False).offsets
        for id_, (start, end) in zip(ids, offsets, strict=True):
            # An added token may take the white space beside it, which is no part of it.
            place = text.find(self._added[id_], start, end) if id_ in self._added else -1
            if place >= 0:
                start, end = place, place + len(self._added[id_])  # noqa: PLW2901
            spans.append((start, end) if start < end else (min(before, start), end))
            before = max(before, end)
        return spans

    def fewest_tokens(self, text: str) -> int:
        """A lower bound of the number of tokens of `text`, without tokenizing it.

        It is 0 if the tokenizer may drop any character.
        """
        remaining = text.encode(errors="replace").translate(None, self._dropped)
        return -(-len(remaining) // self._longest)

    @cached_property
    def _longest(self) -> int:
        """The number of bytes of the longest token."""
        return max((len(self.token_bytes(id_) or b"") for id_ in self._tokens), default=0) or 1

    def _encoded(self, text: str) -> list[int]:
        if not self._normalized_length.is_bounded(text):
            raise InvalidTokens(
                f"The tokenizer makes more than {MAX_CHARACTERS} characters of a text of "
                f"{len(text)} when it normalizes it; split the text, or use another tokenizer.json."
            )
        return self.backend.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Iterable[SupportsIndex]) -> str:
        """The text of `ids`, with special tokens and without padding (ids below 0).

        Bytes that are invalid UTF-8 become U+FFFD; `token_bytes` returns them.

        Raises:
            InvalidTokens: An id is not in the vocabulary.
        """
        valid = [self._check_id(id_) for id_ in ids if index(id_) >= 0]
        return _translated(
            lambda: self.backend.decode(valid, skip_special_tokens=False),
            lambda why: InvalidTokens(f"The ids {shorten(valid)} can't be decoded ({why})."),
        )

    def __contains__(self, id_: int) -> bool:
        """Whether a token has this id."""
        return id_ in self._tokens

    def token_text(self, id_: SupportsIndex) -> str:
        """The text that one token represents, with spaces; U+FFFD for parts of a character.

        Raises:
            InvalidTokens: The id is not in the vocabulary.
        """
        encoded = self.token_bytes(id_)
        return self._tokens[index(id_)] if encoded is None else encoded.decode("utf-8", "replace")

    def token_bytes(self, id_: SupportsIndex) -> bytes | None:
        """The bytes that one token represents, or None for padding and the unknown token.

        With byte-level BPE the concatenated bytes of `encode(text)` are `text.encode()`. Other
        formats are lossy: SentencePiece may add a space before the first word, WordPiece and whole
        words drop the spaces between words.

        Raises:
            InvalidTokens: The id is not in the vocabulary.
        """
        if index(id_) < 0:
            return None
        token_id = self._check_id(id_)
        token = self._tokens[token_id]
        if token == self._unknown:
            return None
        return token.encode() if token_id in self._added else self._format.to_bytes(token)

    def display(self, ids: Iterable[SupportsIndex]) -> list[str]:
        """One printable, non-empty label per token: `·the`, `↵····`, `⟨e2 82⟩`, `<|bos|>`, `∅`.

        Spaces show as `·`, newlines `↵`, tabs `⇥`, other control characters and those without
        width as `⟨U+200B⟩`, parts of a UTF-8 character as `⟨hexadecimal⟩`, padding (ids below 0)
        as `∅`. Different tokens may share a label.

        Raises:
            InvalidTokens: An id is not in the vocabulary.
        """
        return [self._label(id_) for id_ in ids]

    def single_token(self, text: str) -> int:
        """The id of a text that is exactly one token, e.g. a target of a metric.

        Raises:
            InvalidTokens: `text` is several tokens, none, or the unknown token.
        """
        ids = self.encode(text)
        if len(ids) != 1:
            pieces = " ".join(f"{label!r}" for label in self.display(ids))
            raise InvalidTokens(
                f"{text!r} is {len(ids)} tokens{': ' + pieces if ids else ''}; expected exactly "
                "one. Give a text that is one token (a leading space counts), or a token id."
            )
        if self._tokens[ids[0]] == self._unknown != text:
            raise InvalidTokens(
                f"{text!r} is not in the vocabulary: it becomes {self._unknown!r}. "
                "Give a text that the vocabulary has."
            )
        return ids[0]

    def __repr__(self) -> str:
        return (
            f"Tokenizer({self._format.kind}, {self.vocab_size} tokens, "
            f"bos={self.bos}, eos={self.eos})"
        )

    def _has_tokens(self, text: str) -> bool:
        """Whether the text encodes to at least one token."""
        try:
            return bool(self.encode(text))
        except InvalidTokens:
            return False

    def _check_id(self, id_: SupportsIndex) -> int:
        number = index(id_)
        if number not in self._tokens:
            raise InvalidTokens(
                f"Token id {number} is not in the vocabulary, which has {len(self._tokens)} tokens "
                f"with ids from 0 to {self.vocab_size - 1}. Was it encoded by another tokenizer?"
            )
        return number

    def _label(self, id_: SupportsIndex) -> str:
        if index(id_) < 0:
            return PAD_LABEL
        text = self.token_bytes(id_)
        return visible(self._tokens[index(id_)].encode() if text is None else text)


def _translated(work: Callable[[], _Result], refusal: Callable[[str], InterpError]) -> _Result:
    """The result of ``work``; errors of the library become errors of this package."""
    try:
        return work()
    except InterpError:
        raise
    except Exception as error:  # the library raises no narrower type
        raise refusal(first_line(error)) from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # of Rust; it has no public class
            raise
        raise refusal(first_line(error)) from error
