"""Templates: prompts in which ``{slots}`` are filled from lists, each entry equally often.

A slot is filled from the list that ``slots`` gives for it, by default the list of the same name.
Slots of one list never have the same entry in the same prompt. No two prompts have the same
filling, and each slot has each of its entries equally often, ± 1 (:mod:`interp.prompts.balanced`):
no target is more frequent than another, so a model that always predicts the same one is right no
more often than by chance.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from random import Random

from interp.errors import InvalidInput
from interp.integers import at_least, integer
from interp.prompts.balanced import Drawn, balanced_rows, count_rows
from interp.prompts.prompt import FIELDS, Prompt, prompt_of
from interp.prompts.template_parts import (
    Entry,
    Pieces,
    check_values,
    filled,
    label_of,
    lists_of_slots,
    variants_of,
)

MAX_BY_DEFAULT = 1000
"""Maximum number of fillings for which ``n`` may be left out; all of them are then used."""
MAX_PROMPTS = 100_000
"""Maximum number of prompts from one template."""
Texts = str | Sequence[str] | None


@dataclass(frozen=True)
class Template:
    """Texts with slots, and the lists from which the slots are filled.

    Attributes:
        text: the prompt, e.g. ``"The capital of {country} is"``; ``{{`` is a literal brace. Several
            texts are variants, which are used equally often.
        lists: the entries of each list, by its name: texts, or records of texts, whose fields are
            written ``{slot.field}``.
        slots: the list of each slot whose list has another name than the slot.
        corrupt: the corrupted text of the minimal pair: one text, or one per variant of ``text``.
        prefix: the input of the decoder of an encoder–decoder; one, or one per variant.
        target: the correct next token; one, or one per variant.
        distractor: the token that the target is compared with; one, or one per variant.
        n: number of prompts; ``None`` for all different ones, if there are at most
            ``MAX_BY_DEFAULT``.
        seed: selects one of the balanced sets of ``n`` prompts.
        source: the file, for messages.
        lines: the line of each key in this file, e.g. of ``"lists.name"``.

    Raises:
        InvalidInput: a slot has no list, a list is empty or unused, an entry occurs twice, a list
            has fewer entries than slots, or a text has braces that are not a slot.

    Examples:
        >>> names = {"lists": {"name": ["Ann", "Bob", "Cy"]}, "slots": {"a": "name", "b": "name"}}
        >>> prompt = interp.Template("{a} met {b}. {a} saw", **names, target=" {b}").fill(seed=0)[0]
        >>> prompt.text, prompt.target
        ('Ann met Cy. Ann saw', ' Cy')
    """

    text: str | Sequence[str]
    lists: Mapping[str, Sequence[Entry]]
    slots: Mapping[str, str] = field(default_factory=dict[str, str])
    corrupt: Texts = None
    prefix: Texts = None
    target: Texts = None
    distractor: Texts = None
    n: int | None = None
    seed: int = 0
    source: str = "template"
    lines: Mapping[str, int] = field(default_factory=dict[str, int], repr=False, compare=False)

    def __post_init__(self) -> None:
        check_values(vars(self), self.where)
        _ = self.slots_of_lists

    def where(self, key: str) -> str:
        """The file and the line of a key; only the file if the line is not known."""
        line = self.lines.get(key)
        return self.source if line is None else f"{self.source}:{line}"

    @cached_property
    def variants(self) -> tuple[Mapping[str, Pieces], ...]:
        """The fields of each variant, parsed."""
        return variants_of({name: getattr(self, name) for name in FIELDS}, self.where)

    @cached_property
    def slots_of_lists(self) -> Mapping[str, tuple[str, ...]]:
        """The slots that are filled from each list."""
        return lists_of_slots(self.variants, self.lists, self.slots, self.where)

    @property
    def n_fillings(self) -> int:
        """Number of different prompts."""
        return count_rows(self._design)

    def fill(self, n: int | None = None, seed: int | None = None) -> list[Prompt]:
        """Different prompts, in which each slot has each of its entries equally often, ± 1.

        Args:
            n: number of prompts; by default that of the template.
            seed: selects one of the balanced sets; by default that of the template.

        Raises:
            InvalidInput: there are fewer different prompts than ``n``, or too many of them and no
                number is given; or the clean and the corrupted text of a filling are equal.
        """
        n = self._number_of_prompts(n)
        seed = integer(self.seed if seed is None else seed, "seed")
        rows = balanced_rows(self._design, n, Random(seed))
        return [self._prompt(number, row) for number, row in enumerate(rows)]

    @property
    def _design(self) -> list[tuple[int, int]]:
        """The number of entries and of slots of the variants and of each list."""
        lists = [(len(self.lists[name]), len(slots)) for name, slots in self.slots_of_lists.items()]
        return [(len(self.variants), 1), *lists]

    def _number_of_prompts(self, n: int | None) -> int:
        place = self.where("n") if n is None else self.source
        n = self.n if n is None else at_least(1, n, "n")
        n_all = self.n_fillings
        if n is None and n_all > MAX_BY_DEFAULT:
            raise InvalidInput(
                f"{self.source} has {n_all} different fillings; give n, the number to take."
            )
        n = n_all if n is None else n
        if n > min(n_all, MAX_PROMPTS):
            only = f"it has only {n_all} different fillings"
            why = only if n > n_all else f"at most {MAX_PROMPTS} are possible"
            raise InvalidInput(
                f"{place}: {n} prompts were requested, but {why}; take fewer"
                f"{', or write longer lists' if n > n_all else ''}."
            )
        return n

    def _prompt(self, number: int, row: Sequence[Drawn]) -> Prompt:
        (variant,), *lists = row
        entries = {
            slot: self.lists[name][entry]
            for (name, slots), drawn in zip(self.slots_of_lists.items(), lists, strict=True)
            for slot, entry in zip(slots, drawn, strict=True)
        }
        label = label_of(entries, variant if len(self.variants) > 1 else None)
        pieces = self.variants[variant]
        texts = {name: filled(of_field, entries) for name, of_field in pieces.items()}
        return prompt_of(texts, f"{self.source}[{number}]{label and f' ({label})'}")
