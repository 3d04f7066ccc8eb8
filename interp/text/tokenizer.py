"""What text is each token? Ids to text and back, and one label a person can read per token.

    text -> ids -> text          `encode` and `decode`: no special token is added or dropped
    id   -> bytes -> label       `token_bytes` and `display`: what one token alone stands for

Reference: Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units".
"""

import json
from collections.abc import Iterable
from operator import index
from pathlib import Path
from typing import Final, SupportsIndex

import tokenizers

from interp.errors import InvalidTokens, ModelLoadError
from interp.files import write_text_whole
from interp.text.token_bytes import spelling_of, unknown_token, visible

PAD_LABEL: Final = "∅"
"""The label of padding: of every id below 0."""


class Tokenizer:
    """A tokenizer of the `tokenizers` library, asked only what an analysis needs.

    It works on a copy of `backend` without truncation and padding: both are state of the backend
    that other code switches on, and would silently shorten or lengthen a prompt here.

    Attributes:
        backend: The copy.
        bos: Id of the token that begins a text, or None.
        eos: Id of the token that ends a text, or None.
        vocab_size: 1 + the largest id, so the fewest embedding rows that fit.
    """

    def __init__(
        self, backend: tokenizers.Tokenizer, *, bos: int | None = None, eos: int | None = None
    ) -> None:
        """Wraps a copy of `backend`.

        Raises:
            InvalidTokens: `bos` or `eos` is not in the vocabulary.
        """
        description = json.loads(backend.to_str()) | {"truncation": None, "padding": None}
        self.backend = tokenizers.Tokenizer.from_str(json.dumps(description))
        self._spelling = spelling_of(description)
        self._added = {
            id_: token.content for id_, token in self.backend.get_added_tokens_decoder().items()
        }
        # Last, because an added token takes the place of a vocabulary entry with the same id.
        self._tokens = {id_: token for token, id_ in self.backend.get_vocab().items()}
        self._tokens |= self._added
        self._unknown = unknown_token(description["model"])
        self.vocab_size: Final[int] = max(self._tokens, default=-1) + 1
        self.bos: Final = None if bos is None else self._checked(bos)
        self.eos: Final = None if eos is None else self._checked(eos)

    @classmethod
    def from_file(
        cls, path: str | Path, *, bos: int | None = None, eos: int | None = None
    ) -> "Tokenizer":
        """Reads a `tokenizer.json`.

        Raises:
            ModelLoadError: There is no such file, or it describes no tokenizer.
            InvalidTokens: `bos` or `eos` is not in the vocabulary.
        """
        path = Path(path)
        if not path.is_file():
            raise ModelLoadError(f"{path} is not a file. Give the path of a tokenizer.json.")
        try:
            backend = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # The library raises bare Exception, whatever is wrong.
            raise ModelLoadError(
                f"{path} describes no tokenizer ({error}). Expected a tokenizer.json, as "
                "Tokenizer.save writes it; the file may be damaged, cut short, or of another kind."
            ) from error
        return cls(backend, bos=bos, eos=eos)

    def named(self, bos: int | None, eos: int | None) -> "Tokenizer":
        """The same tokenizer, told which tokens begin and end a text (those that it has)."""
        own = [None if id_ is None or id_ not in self._tokens else id_ for id_ in (bos, eos)]
        return Tokenizer(self.backend, bos=own[0], eos=own[1])

    def adds(self) -> tuple[list[int], list[int]]:
        """The ids that it would put before and behind a text, were it asked to."""
        if not self.backend.num_special_tokens_to_add(is_pair=False):
            return [], []
        text = next((text for text in ("a", *self._tokens.values()) if self._reads(text)), "")
        whole = self.backend.encode(text, add_special_tokens=True)
        places = [place for place, of in enumerate(whole.sequence_ids) if of is not None]
        first, last = (places[0], places[-1]) if places else (len(whole), len(whole))
        return whole.ids[:first], whole.ids[last + 1 :]

    def save(self, path: str | Path) -> None:
        """Writes a `tokenizer.json`, whole or not at all; `bos` and `eos` are not part of it."""
        text = self.backend.to_str(pretty=True)
        write_text_whole(Path(path), text)

    def encode(self, text: str) -> list[int]:
        """The ids of `text`, with no BOS, EOS or other special token added.

        A special token that is written out in `text` becomes its id.

        Raises:
            InvalidTokens: `text` holds half a surrogate pair, which is no character, or what the
                vocabulary has no token for.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidTokens(
                f"The text holds {text[error.start]!a} at {error.start}, which is no character "
                "and has no UTF-8 form. Was it read with errors='surrogateescape'?"
            ) from error
        try:
            return self.backend.encode(text, add_special_tokens=False).ids
        except Exception as error:  # the library raises nothing narrower
            raise InvalidTokens(
                f"The text {text[:40]!r} can't be written in this vocabulary, which has no token "
                f"for what it does not know ({error})."
            ) from error

    def decode(self, ids: Iterable[SupportsIndex]) -> str:
        """The text of `ids`, special tokens written out, padding (ids below 0) left out.

        Bytes that are no UTF-8 come out as U+FFFD; `token_bytes` has them.

        Raises:
            InvalidTokens: An id is not in the vocabulary.
        """
        known = [self._checked(id_) for id_ in ids if index(id_) >= 0]
        return self.backend.decode(known, skip_special_tokens=False)

    def token_bytes(self, id_: SupportsIndex) -> bytes | None:
        """The bytes that one token stands for, or None for padding and the unknown token.

        With byte-level BPE the bytes of `encode(text)` put together are `text.encode()`. Other
        kinds forget some of the text: SentencePiece may add a space before the first word,
        WordPiece and whole words drop the spaces between words.

        Raises:
            InvalidTokens: The id is not in the vocabulary.
        """
        if index(id_) < 0:
            return None
        known = self._checked(id_)
        token = self._tokens[known]
        if token == self._unknown:
            return None
        return token.encode() if known in self._added else self._spelling.to_bytes(token)

    def display(self, ids: Iterable[SupportsIndex]) -> list[str]:
        """One visible, non-empty label per token: `·the`, `↵····`, `⟨e2 82⟩`, `<|bos|>`, `∅`.

        Spaces show as `·`, newlines `↵`, tabs `⇥`, other control characters as their Unicode
        pictures or an escape, bytes that are part of a character as `⟨hexadecimal⟩`. Padding (ids
        below 0) is `∅`. Labels are for reading: different tokens may share one.

        Raises:
            InvalidTokens: An id is not in the vocabulary.
        """
        return [self._label(id_) for id_ in ids]

    def single_token(self, text: str) -> int:
        """The id of a text that is exactly one token, as a target of a metric has to be.

        Raises:
            InvalidTokens: `text` is several tokens, none, or unknown; the message shows which.
        """
        ids = self.encode(text)
        if len(ids) != 1:
            pieces = " ".join(f"{label!r}" for label in self.display(ids))
            raise InvalidTokens(
                f"{text!r} is {len(ids)} tokens{': ' + pieces if ids else ''}; expected exactly "
                "one. Choose a text that is one token (a leading space counts), or give an id."
            )
        if self._tokens[ids[0]] == self._unknown != text:
            raise InvalidTokens(
                f"{text!r} is not in the vocabulary: it becomes {self._unknown!r}. "
                "Choose a text that the vocabulary has."
            )
        return ids[0]

    def __repr__(self) -> str:
        return (
            f"Tokenizer({self._spelling.kind}, {self.vocab_size} tokens, "
            f"bos={self.bos}, eos={self.eos})"
        )

    def _reads(self, text: str) -> bool:
        """Whether a text is one token or more."""
        try:
            return bool(self.backend.encode(text, add_special_tokens=False).ids)
        except Exception:  # the library raises nothing narrower
            return False

    def _checked(self, id_: SupportsIndex) -> int:
        known = index(id_)
        if known not in self._tokens:
            raise InvalidTokens(
                f"Token id {known} is not in the vocabulary, which has {len(self._tokens)} tokens "
                f"with ids from 0 to {self.vocab_size - 1}. Is it from another tokenizer?"
            )
        return known

    def _label(self, id_: SupportsIndex) -> str:
        if index(id_) < 0:
            return PAD_LABEL
        text = self.token_bytes(id_)
        return visible(self._tokens[index(id_)].encode() if text is None else text)
