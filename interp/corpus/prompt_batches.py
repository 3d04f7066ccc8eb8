"""Prompts of any number in batches of about one length, of which few are in memory at a time."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from interp.corpus.texts import Pool, rows_of
from interp.errors import InvalidInput, InvalidTokens
from interp.integers import at_least
from interp.model.batch import Batch
from interp.text.prompt import Prompt
from interp.text_network import TextNetwork

POOL, ROWS = 1024, 64
"""Prompts that are in memory at a time, and of a batch."""


@dataclass(frozen=True, eq=False)
class PromptBatch:
    """Some prompts of about one length.

    Attributes:
        prompts: in the order in which they were given, but others may stand between them.
        batches: of each stack, a row a prompt, padded on the right.
    """

    prompts: tuple[Prompt, ...]
    batches: tuple[Batch, ...]


def prompts_by_length(
    model: TextNetwork, prompts: Iterable[Prompt], *, rows: int = ROWS, pool: int = POOL
) -> Iterator[PromptBatch]:
    """Every prompt once, in batches of about one length among so many consecutive ones.

    Args:
        model: the model that reads them: their text, of an encoder–decoder also its prefix, or the
            target where there is none.
        prompts: as :func:`interp.iter_prompts` gives them; read as they are asked for.
        rows: prompts of a batch, at most.
        pool: prompts that are in memory at a time.

    Raises:
        InvalidTokens: the model can't read a prompt, or it is over the context; the message has
            the source of the prompt.
    """
    rows, pool = at_least(1, rows, "rows"), at_least(1, pool, "pool")
    given = iter(prompts)
    while held := tuple(islice(given, pool)):
        batches = rows_of([row_of(model, prompt) for prompt in held])
        n = len(held)
        for numbers, own in Pool(batches, 0, tuple(p.source for p in held), 0, n, n).split(rows):
            yield PromptBatch(tuple(held[number] for number in numbers.tolist()), own)


def row_of(model: TextNetwork, prompt: Prompt) -> tuple[Batch, ...]:
    """One prompt as checked batches of a row, one a stack.

    Raises:
        InvalidTokens: as :func:`prompts_by_length`.
    """
    text = prompt.text
    given = text if len(model.stacks) == 1 else ([text], [prompt.decoder_text])
    try:
        return tuple(model.batches(given))
    except InvalidInput as error:
        raise InvalidTokens(f"{prompt.source}: {error}") from error
