"""Does a head attend to the token that the model is about to copy from far back in its context?

    row       … haystack … CUE n1 n2 … nk … haystack … CUE n1 n2 … n(k−1)
    score     share of ni that the model predicts, and whose place in the needle has the most of
              the head's attention where ni is predicted
    control   the share whose place has the most attention on the row without CUE n1 … nk there

(Wu et al. 2024, "Retrieval Head Mechanistically Explains Long-Context Factuality"). The needle is
teacher forced: each row is one forward, in which the model reads the correct earlier tokens of the
needle. Where it predicts each of them, that is its own generation; where it does not, the score
does not count the token. How many it predicts is said: a model that copies nothing has no such
heads. Text is used where the tokenizer writes it with trained tokens, else random tokens, on which
the score is that of an induction head.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from analyses.head_census.kinds import Case, Family, Kind, Measured, NotShown, Task
from analyses.methods.heads import attentions_of, pattern_at
from analyses.results import percent
from interp import run
from interp.metrics import prob

SENTENCES = (
    " The road to the village was long and dry.",
    " In the evening the children played near the river.",
    " Most of the houses were built from grey stone.",
    " A small shop at the corner sold bread and milk.",
    " It had rained for three days without a break.",
    " The old man walked slowly and said nothing.",
    " Behind the hill there was a field of yellow flowers.",
    " Nobody remembered when the bridge had been closed.",
)
CUE = " The five words that open the door are:"
WORDS = (
    " apple river stone cloud table horse garden window paper silver music winter bread castle "
    "island ladder mirror forest needle button candle pencil bottle feather"
)
CUE_TOKENS, NEEDLE_TOKENS = 2, 5
"""Length of cue and needle of random tokens."""
LONGEST = 120
"""The most tokens of a row."""
LEAST_HAYSTACK = 8
"""The fewest tokens around a needle."""
LONGEST_CUE, FEWEST_WORDS = 16, 12
"""The most tokens of the cue, and the fewest words of one token, for rows of text."""
RETRIEVAL = Kind(
    "retrieval",
    "share of needle tokens that are predicted and attended to most",
    'Wu et al. 2024, "Retrieval Head"',
)
Row = Int[Tensor, " _"]
Parts = Callable[[torch.Generator], tuple[Row, Row, Row]]
"""Draws haystack, cue and needle."""


@dataclass(frozen=True, eq=False)
class Needle:
    """A row with a needle, and the same without.

    Attributes:
        ids: with the needle.
        without: without it.
        places: where the tokens of the needle are.
        queries: where they are predicted.
    """

    ids: Row
    without: Row
    places: Int[Tensor, " step"]
    queries: Int[Tensor, " step"]


def measure(case: Case) -> list[Measured]:
    """The share of needle tokens that each head retrieves, by row."""
    if not case.predicts_next:
        raise NotShown("this model predicts no next tokens")
    text = _text_parts(case)
    needles = _needles(case, text or _random_parts(case))
    score, control = torch.zeros(2, *case.sizes, len(needles))
    right = torch.zeros(len(needles))
    for number, needle in enumerate(needles):
        attended, predicted = _attended(case, needle, needle.ids)
        absent, _ = _attended(case, needle, needle.without)
        score[..., number] = (attended & predicted).float().mean(-1)
        control[..., number] = absent.float().mean(-1)
        right[number] = predicted.float().mean()
        case.done((number + 1) / len(needles))
    rows = "of text" if text else "of random tokens"
    share = percent(right.mean().item())
    case.notes.append(f"retrieval: rows {rows}, of whose needles the model predicts {share}")
    prompts = case.model.batch(torch.stack([needle.ids for needle in needles]))
    ends = [int(needle.ids[needle.places[-1]]) for needle in needles]
    task = Task(prompts, prob(ends, -1), "probability of the last token of the needle")
    return [Measured(RETRIEVAL, score, control, task=task)]


@torch.no_grad()
def _attended(
    case: Case, needle: Needle, ids: Row
) -> tuple[Bool[Tensor, "layer head step"], Bool[Tensor, " step"]]:
    """Whether each token of the needle has the most attention of each head, and is predicted."""
    kind = attentions_of(case.model)
    patterns = [kind.places(layer)[0] for layer in range(len(kind.layers))]
    done = run(case.model, ids[None], record=patterns)
    best = [pattern_at(done.cache, at)[0][:, needle.queries].argmax(-1).cpu() for at in patterns]
    predictions = done.require_logits()[0, needle.queries].argmax(-1).cpu()
    return torch.stack(best) == needle.places, predictions == ids[needle.places]


def _needles(case: Case, parts: Parts) -> list[Needle]:
    """Rows with needles at different depths."""
    config, generator = case.model.config, torch.Generator().manual_seed(case.seed)
    has_bos = config.tokens.prepend_bos and config.tokens.bos is not None
    start = torch.tensor([config.tokens.bos] if has_bos else [], dtype=torch.long)
    needles = list[Needle]()
    for _ in range(case.rows):
        haystack, cue, needle = parts(generator)
        there, end = torch.cat([cue, needle]), torch.cat([cue, needle[:-1]])
        room = min(LONGEST, config.n_ctx) - len(start) - len(there) - len(end)
        haystack = haystack[: max(0, room)]
        if len(haystack) < LEAST_HAYSTACK:
            raise NotShown(
                f"a needle and its surroundings do not fit into {config.n_ctx} tokens, or this "
                "model has too few tokens"
            )
        at = int(torch.randint(2, len(haystack) - 1, (), generator=generator))
        instead = haystack.roll(at).repeat(len(there))[: len(there)]
        before, after = haystack[:at], haystack[at:]
        ids, without = (torch.cat([start, before, x, after, end]) for x in (there, instead))
        step = torch.arange(len(needle))
        places = len(start) + len(before) + len(cue) + step
        needles.append(Needle(ids, without, places, len(ids) - len(needle) + step))
    return needles


def _text_parts(case: Case) -> Parts | None:
    """Sentences, and needles of words; ``None`` if the tokenizer has no such tokens."""
    cue, *sentences = map(case.encoded, (CUE, *SENTENCES))
    tokens = [case.token_of(" " + word) for word in WORDS.split()]
    words = torch.tensor([token for token in tokens if token is not None])
    if not 0 < len(cue) <= LONGEST_CUE or len(words) < FEWEST_WORDS:
        return None
    if not case.trained.issuperset([*cue, *chain(*sentences)]):
        return None

    def draw(generator: torch.Generator) -> tuple[Row, Row, Row]:
        order = torch.randperm(len(sentences), generator=generator).tolist()
        chosen = torch.randperm(len(words), generator=generator)[:NEEDLE_TOKENS]
        haystack = chain(*(sentences[number] for number in order))
        return torch.tensor([*haystack]), torch.tensor(cue), words[chosen]

    return draw


def _random_parts(case: Case) -> Parts:
    """Distinct random tokens."""
    ids = torch.tensor(sorted(case.trained))

    def draw(generator: torch.Generator) -> tuple[Row, Row, Row]:
        drawn = ids[torch.randperm(len(ids), generator=generator)]
        cue, needle, haystack = drawn.tensor_split([CUE_TOKENS, CUE_TOKENS + NEEDLE_TOKENS])
        return haystack, cue, needle

    return draw


FAMILY = Family("retrieval", measure)
