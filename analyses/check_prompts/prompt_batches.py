"""Any number of prompts in batches of similar length, with a bounded number in memory."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from interp.errors import InvalidInput, InvalidTokens
from interp.integers import at_least
from interp.model import Batch
from interp.prompts import Pool, Prompt, rows_of
from interp.transformer import TextNetwork

POOL, ROWS = 1024, 64
"""Number of prompts in memory at a time, and in a batch."""


@dataclass(frozen=True, eq=False)
class PromptBatch:
    """A batch of prompts of similar length.

    Attributes:
        prompts: the prompts in their given order, not necessarily consecutive ones.
        batches: one batch per stack, with one row per prompt, padded on the right.
    """

    prompts: tuple[Prompt, ...]
    batches: tuple[Batch, ...]


def prompts_by_length(
    model: TextNetwork, prompts: Iterable[Prompt], *, rows: int = ROWS, pool: int = POOL
) -> Iterator[PromptBatch]:
    """Yield every prompt once, in batches of similar length.

    Each ``pool`` of consecutive prompts is sorted by length and divided into batches.

    Args:
        model: the model that reads the text of each prompt. The decoder of an encoder–decoder
            reads the prefix, or the target where there is no prefix.
        prompts: an iterable such as :func:`interp.iter_prompts` returns; it is read lazily.
        rows: largest number of prompts in a batch.
        pool: number of prompts in memory at a time.

    Raises:
        InvalidTokens: the model can't read a prompt, or the prompt is longer than the context; the
            message names the source of the prompt.
    """
    rows, pool = at_least(1, rows, "rows"), at_least(1, pool, "pool")
    remaining = iter(prompts)
    while pooled := tuple(islice(remaining, pool)):
        batches = rows_of([row_of(model, prompt) for prompt in pooled])
        n = len(pooled)
        for numbers, stack_batches in Pool(
            batches, 0, tuple(p.source for p in pooled), 0, n, n
        ).split(rows):
            yield PromptBatch(tuple(pooled[number] for number in numbers.tolist()), stack_batches)


def row_of(model: TextNetwork, prompt: Prompt) -> tuple[Batch, ...]:
    """One prompt as checked batches of one row, one batch per stack.

    Raises:
        InvalidTokens: see :func:`prompts_by_length`.
    """
    text = prompt.text
    inputs = text if len(model.stacks) == 1 else ([text], [prompt.decoder_text])
    try:
        return tuple(model.batches(inputs))
    except InvalidInput as error:
        raise InvalidTokens(f"{prompt.source}: {error}") from error
