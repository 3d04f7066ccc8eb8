"""Which cells of a head's pattern are explained: a query and a key, by position or by a rule."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.methods.attribution import PromptScores
from interp.errors import InvalidInput, shorten
from interp.integers import as_integer

KEY_RULES = ("strongest", "previous", "first", "same token", "after same token")
"""How a key is chosen for a query: the most attended one; the token before; the first; the last
earlier token with the query's id; the token after that."""
KeyChoice = int | str | Callable[[Sequence[int], int], int | None]
"""A position, a rule, or a function of the ids of a prompt and a query; ``None`` for no key."""
AGAINST = ("others", "mean", "nothing")
EVERY = "all"
Cell = tuple[int, int, int | None]
"""The positions of a query, of its key, and of the key that it is compared with, if there is one.
"""


@dataclass(frozen=True)
class Choice:
    """How the cells of each prompt are chosen.

    Attributes:
        query: a position, or ``"all"``.
        key: see :data:`KeyChoice`.
        other_key: likewise, for the key of a contrast; ``None`` if there is none.
        cells: prompt, query and key of each cell, in place of ``query`` and ``key``.
        against: what the score of the key is compared with, without ``other_key``.
        most: the largest number of cells of a prompt, spread evenly over all.
    """

    query: int | str
    key: KeyChoice
    other_key: KeyChoice | None
    cells: tuple[tuple[int, int, int], ...] | None
    against: str
    most: int

    def check(self, queries: Sequence[int], keys: Sequence[int]) -> None:
        """Check positions against the numbers of tokens of each prompt, on both sides.

        Raises:
            InvalidInput: a position is not in a prompt.
        """
        if self.cells is not None:
            for prompt, query, key in self.cells:
                _position(query, queries[prompt], f"the query of prompt {prompt}")
                _position(key, keys[prompt], f"the key of prompt {prompt}")
        for prompt, (n_queries, n_keys) in enumerate(zip(queries, keys, strict=True)):
            if self.cells is None and self.query != EVERY:
                _position(self.query, n_queries, f"the query of prompt {prompt}")
            keys_of_call = {"other_key": self.other_key}
            if self.cells is None:
                keys_of_call["key"] = self.key
            for name, choice in keys_of_call.items():
                if as_integer(choice) is not None:
                    _position(choice, n_keys, f"the {name} of prompt {prompt}")

    def of(self, scores: PromptScores, prompt: int, ids: Sequence[int] | None) -> list[Cell]:
        """The cells of a prompt; none if a rule finds no key.

        Args:
            scores: the head's scores on the prompt.
            prompt: index of the prompt.
            ids: the ids of its tokens, if queries and keys are the same tokens.

        Raises:
            InvalidInput: a position is not in the prompt, or a chosen key is masked; the only
                visible key is compared with others; or a rule needs token ids.
        """
        n = len(scores.scores)
        pairs: list[tuple[int | str, KeyChoice]] = []
        if self.cells is not None:
            pairs += [(query, key) for at, query, key in self.cells if at == prompt]
        else:
            pairs += [(at, self.key) for at in (range(n) if self.query == EVERY else [self.query])]
        cells: list[Cell] = []
        for query, choice in pairs:
            at = _position(query, n, f"the query of prompt {prompt}")
            key = _key(choice, scores, ids, at, prompt)
            other = (
                None if self.other_key is None else _key(self.other_key, scores, ids, at, prompt)
            )
            if key is not None and self._can_compare(scores, (at, key, other), choice, prompt):
                cells.append((at, key, other))
        if len(cells) <= self.most:
            return cells
        chosen = torch.linspace(0, len(cells) - 1, self.most).round().long().tolist()
        return [cells[number] for number in chosen]

    def weights(self, scores: PromptScores, cells: Sequence[Cell]) -> Float[Tensor, "cell key"]:
        """The weight of each key's score in the number that is explained, for each cell.

        1 at the key; minus the attention to the others, renormalised, or 1 at the other key.
        """
        queries, keys = (torch.tensor(list(x), device=scores.scores.device) for x in _ends(cells))
        n_keys = scores.scores.shape[1]
        weights = torch.nn.functional.one_hot(keys, n_keys).to(scores.scores)
        if self.other_key is not None:
            others = torch.tensor([other for *_, other in cells], device=keys.device)
            return weights - torch.nn.functional.one_hot(others, n_keys).to(weights)
        if self.against == "nothing":
            return weights
        full = scores.masked(scores.scores[queries], queries)
        is_key = weights.bool()
        weights = weights - full.masked_fill(is_key, -torch.inf).softmax(-1)
        if self.against == "others":
            return weights
        rest = full.softmax(-1).masked_fill(is_key, 0.0).sum(-1, keepdim=True)
        return weights * rest

    def drawn(
        self, scores: PromptScores, cells: Sequence[Cell], generator: torch.Generator
    ) -> list[Cell | None]:
        """For each cell, the same with a random visible key; ``None`` if there is no other key."""
        drawn: list[Cell | None] = []
        for query, key, other in cells:
            visible = scores.visible[query].nonzero()[:, 0].tolist()
            keys = [at for at in visible if at not in (key, other)]
            number = int(torch.randint(max(1, len(keys)), (1,), generator=generator))
            drawn.append((query, keys[number], other) if keys else None)
        return drawn

    def _can_compare(
        self, scores: PromptScores, cell: Cell, choice: KeyChoice, prompt: int
    ) -> bool:
        """Whether there is another key; refused if the query and the key were given.

        Raises:
            InvalidInput: there is none.
        """
        query, key, other = cell
        if self.other_key is not None:
            return other not in (None, key)
        if self.against == "nothing" or int(scores.visible[query].sum()) > 1:
            return True
        if self.query == EVERY or as_integer(choice) is None:
            return False
        raise InvalidInput(
            f"Query {query} of prompt {prompt} sees a single key, which there is no other to "
            'compare with; against="nothing" explains its score alone.'
        )


# ---- checked arguments ------------------------------------------------------------------------


def as_query(query: object) -> int | str:
    """The checked position of queries.

    Raises:
        InvalidInput: it is neither an integer nor ``"all"``.
    """
    number_of_query = as_integer(query)
    if number_of_query is None and query != EVERY:
        raise InvalidInput(f'query={shorten(query)} should be a position, or "all".')
    return EVERY if number_of_query is None else number_of_query


def as_key(key: Any, name: str) -> KeyChoice:  # noqa: ANN401 - checked here
    """The checked choice of a key.

    Raises:
        InvalidInput: it is no position, rule or function.
    """
    is_rule = isinstance(key, str) and key in KEY_RULES
    if as_integer(key) is None and not is_rule and not isinstance(key, Callable):
        raise InvalidInput(
            f"{name}={shorten(key)} should be a position, a function of a prompt's ids and the "
            f"query, or one of {', '.join(KEY_RULES)}."
        )
    return key


def as_cells(cells: Any, n_prompts: int) -> tuple[tuple[int, int, int], ...]:  # noqa: ANN401 - checked here
    """The checked cells.

    Raises:
        InvalidInput: they are not triples of integers, or of a prompt that there is not.
    """
    triples: list[tuple[int, ...]] = []
    for cell in cells if isinstance(cells, Sequence) and not isinstance(cells, str) else [cells]:
        several = isinstance(cell, Sequence) and not isinstance(cell, str)
        numbers = [as_integer(value) for value in cell] if several else []
        integers = [value for value in numbers if value is not None]
        if len(integers) != 3 or len(numbers) != 3 or not 0 <= integers[0] < n_prompts:  # noqa: PLR2004
            raise InvalidInput(
                f"A cell is (prompt, query, key), with a prompt from 0 to {n_prompts - 1}; got "
                f"{shorten(cell)}."
            )
        triples.append(tuple(integers))
    return tuple((prompt, query, key) for prompt, query, key in triples)


# ---- positions --------------------------------------------------------------------------------


def _ends(cells: Sequence[Cell]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The queries and the keys of cells."""
    return tuple(cell[0] for cell in cells), tuple(cell[1] for cell in cells)


def _position(value: object, n: int, name: str) -> int:
    """A position among ``n`` tokens; negative ones count from the end."""
    number = as_integer(value)
    if number is None or not -n <= number < n:
        raise InvalidInput(
            f"{name} is {shorten(value)}; it should be a position from {-n} to {n - 1}."
        )
    return number % n


def _key(
    choice: KeyChoice, scores: PromptScores, ids: Sequence[int] | None, query: int, prompt: int
) -> int | None:
    """The key that is chosen for a query; ``None`` if a rule finds none.

    Raises:
        InvalidInput: see :meth:`Choice.of`.
    """
    n = scores.scores.shape[1]
    visible = scores.visible[query]
    number = as_integer(choice)
    if choice == "strongest":
        return int(scores.pattern[query].masked_fill(~visible, -1.0).argmax())
    if number is None:
        if ids is None:
            raise InvalidInput(
                f"key={shorten(choice)} reads the tokens of queries and keys, which are of two "
                'stacks, or are patches of images; give a position, or "strongest".'
            )
        found_key = _by_rule(choice, ids, query)
        if found_key is None:
            return None
        key = _position(found_key, n, f"The key that key= gives for query {query}")
        return key if bool(visible[key]) else None
    key = _position(number, n, f"the key of prompt {prompt}")
    if not bool(visible[key]):
        sees = visible.nonzero()[:, 0].tolist()
        raise InvalidInput(
            f"Key {key} of prompt {prompt} is masked for query {query}, which sees the keys "
            f"{sees[0]}..{sees[-1]}, so it has no score."
        )
    return key


def _by_rule(choice: KeyChoice, ids: Sequence[int], query: int) -> int | None:
    """The key of a rule or a function, before it is checked."""
    if callable(choice):
        return choice(ids, query)
    if choice == "first":
        return 0
    if choice == "previous":
        return query - 1 if query > 0 else None
    same = [at for at in range(query) if ids[at] == ids[query]]
    if not same:
        return None
    return same[-1] + (choice == "after same token")
