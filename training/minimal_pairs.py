"""The bundled minimal pairs: a clean and a corrupted text of equal length, with one difference.

The target is the correct answer to the clean text, the distractor the correct answer to the
corrupted one. Pairs are drawn at random, and only those that the model answers correctly are kept
(:func:`is_answered`), so results on them describe the model where it is right.

rasp-*             a row of letters; one letter is replaced
addition-mod-113   a sum; one number is replaced
dates              a date; its year, month or day is replaced. The decoder has written all digits
                   before the first that differs
python-2l          random words, " … A B … C D …", and some of them again, up to A: B follows. In
                   turn, the last A is replaced by C (the query of an induction head differs), A and
                   C are swapped before B and D (its keys differ), or B and D are swapped (its
                   values differ)
python-4l          ``def __init__(self, x, y)`` and ``self.x =``, where x follows, or ``self.y =``
"""

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from functools import partial
from itertools import cycle, islice, product
from pathlib import Path
from random import Random

import torch

from analyses.methods.components import aligned_prompts
from interp.io import write_text_whole
from interp.loading import load
from interp.metrics import Accuracy
from interp.prompts import FIELDS, PROMPT_FOLDER, Prompt, logit_diff_of_prompts
from interp.transformer import Transformer
from training.calendar import FORMATS, WrittenDate
from training.rasp.program import Program
from training.recipes.addition_mod_113 import P
from training.recipes.dates import FIRST, LAST
from training.recipes.rasp import ALPHABET, LONGEST, PROGRAMS

COUNT = 36
"""Number of pairs in a set."""
DRAWN = 6 * COUNT
"""Number of candidates; the first ones that the model answers correctly are taken."""
MARGIN = 1.0
"""The smallest logit difference, of either sign."""
SEED = 0
Candidates = Callable[[Random], Iterator[Prompt]]
"""An infinite iterator of random pairs."""


def write_pairs(folder: Path = PROMPT_FOLDER) -> None:
    """Write the set of every model, ``NAME-pairs.jsonl``."""
    for name in CANDIDATES:
        lines = (
            json.dumps({field: text for field in FIELDS if (text := getattr(pair, field))})
            for pair in pairs_of(name)
        )
        write_text_whole(folder / f"{name}-pairs.jsonl", "".join(f"{line}\n" for line in lines))


def pairs_of(name: str) -> list[Prompt]:
    """The pairs of a bundled model: the first distinct candidates that it answers correctly."""
    model = load(name, dtype=torch.float64)
    drawn = {pair.text: pair for pair in islice(CANDIDATES[name](Random(SEED)), DRAWN)}
    aligned_pairs = [pair for pair in drawn.values() if is_aligned(model, pair)]
    answered = is_answered(model, aligned_pairs)
    correct = [pair for pair, is_right in zip(aligned_pairs, answered, strict=True) if is_right]
    return correct[:COUNT]


def is_aligned(model: Transformer, pair: Prompt) -> bool:
    """Whether the two texts have the same number of tokens."""
    return len(set(map(len, model.to_str_tokens([pair.text, pair.corrupt or ""])))) == 1


def is_answered(model: Transformer, pairs: Sequence[Prompt]) -> list[bool]:
    """Whether the model answers both texts of each pair correctly.

    After the clean text, the target must be the most likely token. The target must be more likely
    than the distractor after the clean text, and less likely after the corrupted one, each time by
    a logit difference of at least ``MARGIN``.
    """
    metric = logit_diff_of_prompts(model.to_single_token, pairs)
    (logits, clean), (of_corrupt, corrupt) = (
        (model(*batches).detach(), batches[-1]) for batches in aligned_prompts(model, pairs)
    )
    is_likeliest = Accuracy(metric.pos, metric.target)(logits, clean) == 1
    reaches = (metric(logits, clean) >= MARGIN) & (metric(of_corrupt, corrupt) <= -MARGIN)
    return (is_likeliest & reaches).tolist()


# ---- candidates ------------------------------------------------------------------------------


def rows_of_letters(program: Program, draw: Random) -> Iterator[Prompt]:
    """Rows in which replacing one letter changes the program's last value."""
    while True:
        clean = draw.choices(ALPHABET, k=draw.randint(4, LONGEST))
        corrupt = list(clean)
        corrupt[draw.randrange(len(clean))] = draw.choice(ALPHABET)
        target, distractor = (str(program(row)[-1]) for row in (clean, corrupt))
        if target != distractor:
            yield Prompt("".join(clean), target, distractor, corrupt="".join(corrupt))


def sums(draw: Random) -> Iterator[Prompt]:
    """Sums in which the first or the second number, in turn, is replaced."""
    for changed in cycle((0, 1)):
        clean = [draw.randrange(P), draw.randrange(P)]
        corrupt = list(clean)
        corrupt[changed] = (clean[changed] + draw.randrange(1, P)) % P
        texts = [f"{a} {b} =" for a, b in (clean, corrupt)]
        yield Prompt(texts[0], str(sum(clean) % P), str(sum(corrupt) % P), corrupt=texts[1])


def days(draw: Random) -> Iterator[Prompt]:
    """Dates in which the year, month or day, in turn, is replaced, in each format in turn.

    The decoder has written all digits before the first that differs.
    """
    for field, written in cycle(product(("year", "month", "day"), FORMATS)):
        day, other = (date.fromordinal(draw.randint(*ORDINALS)) for _ in range(2))
        try:
            changed = day.replace(**{field: getattr(other, field)})
        except ValueError:  # 31 June
            continue
        target, distractor = day.isoformat(), changed.isoformat()
        differ = [
            letter != other_letter for letter, other_letter in zip(target, distractor, strict=True)
        ]
        same = differ.index(True) if any(differ) else 0
        if same:
            yield Prompt(
                WrittenDate.of(day, written).text,
                target[same],
                distractor[same],
                corrupt=WrittenDate.of(changed, written).text,
                prefix=target[:same],
            )


def repeated_words(draw: Random) -> Iterator[Prompt]:
    """Random words, followed by a repetition of a few of them; see the module's docstring."""
    for changed in cycle(("query", "keys", "values")):
        words = draw.sample(WORDS, N_WORDS)
        first = draw.randrange(N_REPEATED, N_WORDS - 2)
        second = draw.randrange(first + 2, N_WORDS)
        again = words[first - N_REPEATED : first]
        corrupt, corrupt_again = list(words), list(again)
        if changed == "query":
            corrupt_again[-1] = words[second - 1]
        else:
            back = 1 if changed == "keys" else 0
            i, j = first - back, second - back
            corrupt[i], corrupt[j] = words[j], words[i]
        yield Prompt(
            "".join(words + again),
            words[first],
            words[second],
            corrupt="".join(corrupt + corrupt_again),
        )


def arguments(draw: Random) -> Iterator[Prompt]:
    """Methods that assign an argument to the attribute of the same name."""
    for assigned in cycle((False, True)):
        name, (first, second) = draw.choice(CLASSES), draw.sample(NAMES, 2)
        head = f"class {name}:\n    def __init__(self, {first}, {second}):\n"
        head += f"        self.{first} = {first}\n" if assigned else ""
        target, distractor = (second, first) if assigned else (first, second)
        texts = [f"{head}        self.{attribute} =" for attribute in (target, distractor)]
        yield Prompt(texts[0], f" {target}", f" {distractor}", corrupt=texts[1])


WORDS = (
    *(" the", " in", " is", " self", " an", " to", " re", " of", " and", " not", " st", " th"),
    *(" None", " for", " be", " co", " or", " ex", " name", " me", " as", " value", " str", " by"),
    *(" if", " ar", " it", " de", " al", " that", " file", " with"),
)
"""Words that are single tokens of ``python-2l`` and frequent in its training text."""
N_WORDS, N_REPEATED = 12, 3
NAMES = (
    *("args", "code", "context", "data", "default", "end", "error", "file", "instance", "key"),
    *("line", "list", "method", "module", "name", "names", "node", "option", "path", "result"),
    *("start", "string", "text", "time", "type", "value"),
)
"""Names that are single tokens of ``python-4l``, both with and without a leading space."""
CLASSES = (
    *("Cache", "Entry", "Handler", "Message", "Node", "Parser", "Reader", "Request", "Stream"),
    *("Table", "Token"),
)
ORDINALS = FIRST.toordinal(), LAST.toordinal()
CANDIDATES: dict[str, Candidates] = {
    **{program.name: partial(rows_of_letters, program) for program in PROGRAMS},
    "addition-mod-113": sums,
    "dates": days,
    "python-2l": repeated_words,
    "python-4l": arguments,
}
