"""The cells of a text where heads of a known kind attend, by its tokens.

    induction         key j with token j − 1 = token i
    duplicate-token   token j = token i
    same …            tokens i and j are of one class: punctuation, whitespace, digits
    same word         tokens i and j are parts of one word

The key is another token than the query (an earlier one, in a causal model) and not the first of its
text, to which heads attend when they find nothing else.
"""

import string
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.errors import InvalidTokens
from interp.model import Batch
from interp.text import Tokenizer
from interp.transformer import TextNetwork

INDUCTION, DUPLICATE, WORD = "induction", "duplicate-token", "same word"
OF_REPETITION = (INDUCTION, DUPLICATE)
"""Those whose control is the same on the text in random order."""
SAME = "same "
"""Begins the name of the mass on tokens of the query's class."""
CLASSES = ("punctuation", "whitespace", "digits")
SPACED = "a b"
"""A text whose tokens contain its space, if tokens show where words begin."""


@dataclass(frozen=True, eq=False)
class TokenKinds:
    """The classes of all tokens of a vocabulary, and whether they begin and end inside a word.

    Attributes:
        members: which tokens are in each class.
        begins: tokens that begin with a character of words; ``None`` if tokens do not show it.
        ends: tokens that end with one.
    """

    members: dict[str, Bool[Tensor, " vocab"]]
    begins: Bool[Tensor, " vocab"] | None
    ends: Bool[Tensor, " vocab"] | None

    @classmethod
    def of(cls, model: TextNetwork) -> "TokenKinds":
        """The kinds of a model's tokens; none without a tokenizer."""
        tokenizer = model.tokenizer
        if tokenizer is None:
            return cls({}, None, None)
        token_ids = [id_ for id_ in range(model.d_vocab) if id_ in tokenizer]
        texts = ["" for _ in range(model.d_vocab)]
        for id_ in token_ids:
            texts[id_] = tokenizer.token_text(id_)
        members = {name: _marks(texts, name, model.device) for name in CLASSES}
        if not _has_spaces_in_tokens(tokenizer):
            return cls(members, None, None)
        begins = torch.tensor([_is_of_word(text[:1]) for text in texts], device=model.device)
        ends = torch.tensor([_is_of_word(text[-1:]) for text in texts], device=model.device)
        return cls(members, begins, ends)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the masses."""
        word = [] if self.begins is None else [WORD]
        return (*(f"{SAME}{name}" for name in self.members), *word)


def cells_of(
    batch: Batch, kinds: TokenKinds, *, bidirectional: bool
) -> dict[str, Bool[Tensor, "prompt query key"]]:
    """The marked cells of some texts, whose padding is on the right."""
    n = batch.ids.shape[1]
    place = torch.arange(n, device=batch.ids.device)
    other = place != place[:, None] if bidirectional else place < place[:, None]
    allowed = other & (place > 0) & batch.is_real[:, None] & batch.is_real[:, :, None]
    same = batch.ids[:, :, None] == batch.ids[:, None]
    cells: dict[str, Tensor] = {}
    if not bidirectional:
        after = torch.zeros_like(same)
        after[..., 1:] = same[..., :-1]
        cells[INDUCTION] = after & allowed
    cells[DUPLICATE] = same & allowed
    for name, members in kinds.members.items():
        each = members[batch.ids]
        cells[f"{SAME}{name}"] = each[:, :, None] & each[:, None] & allowed
    if kinds.begins is not None and kinds.ends is not None:
        word = _words(batch.ids, kinds.begins, kinds.ends)
        cells[WORD] = (word[:, :, None] == word[:, None]) & allowed
    return cells


def in_random_order(batch: Batch, bos: int, seeds: list[int]) -> Batch:
    """Each text with its tokens in a random order; BOS and padding stay where they are."""
    ids = batch.ids.clone()
    for row, seed in enumerate(seeds):
        length = int(batch.is_real[row].sum())
        first = int(int(ids[row, 0]) == bos)
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(length - first, generator=generator).to(ids.device)
        ids[row, first:length] = ids[row, first:length][order]
    return replace(batch, ids=ids)


def _words(
    ids: Int[Tensor, "prompt pos"], begins: Tensor, ends: Tensor
) -> Int[Tensor, "prompt pos"]:
    """The number of each token's word; it continues if a token ends, and the next begins, in it."""
    continues = torch.zeros_like(ids, dtype=torch.bool)
    continues[:, 1:] = ends[ids[:, :-1]] & begins[ids[:, 1:]]
    return (~continues).cumsum(-1)


def _has_spaces_in_tokens(tokenizer: Tokenizer) -> bool:
    """Whether the spaces between words are in tokens."""
    try:
        pieces = [tokenizer.token_bytes(id_) or b"" for id_ in tokenizer.encode(SPACED)]
    except InvalidTokens:  # a vocabulary of few words
        return False
    return b" " in b"".join(pieces).strip()


def _marks(texts: list[str], name: str, device: torch.device) -> Bool[Tensor, " vocab"]:
    return torch.tensor([_is_in(name, text) for text in texts], device=device)


def _is_in(name: str, text: str) -> bool:
    bare = text.strip()
    if name == "whitespace":
        return bool(text) and not bare
    if name == "digits":
        return bare.isdigit()
    return bool(bare) and all(character in string.punctuation for character in bare)


def _is_of_word(character: str) -> bool:
    """Whether a character, or a part of one, belongs to a word."""
    return character.isalnum() or character == "\N{REPLACEMENT CHARACTER}"
