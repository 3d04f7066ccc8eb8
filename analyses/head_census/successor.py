"""Does a head map a token to the next one of its class: Monday to Tuesday, a to b, one to two?

    score = share of tokens whose successor has the highest OV logit among the tokens of the class

(Gould et al. 2023, "Successor Heads"). The control is the mean of the same share over all other
maps of a token to another one: where the highest logit is neither the successor's nor the token's
own, 1 / (n − 2) for a class of n tokens. Each token is a sample; a class is measured with and
without a leading space, as far as its texts are single tokens of the model.
"""

from collections.abc import Iterator
from string import ascii_lowercase, ascii_uppercase, digits

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from analyses.head_census.kinds import Case, Family, Kind, Measured, NotShown, Task
from analyses.head_census.ov_logits import ov_logits
from interp.model import PAD

DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"
MONTHS = "January February March April May June July August September October November December"
NUMBERS = (
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty"
)
ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"
DIGITS, LOWER, UPPER = map(" ".join, (digits, ascii_lowercase, ascii_uppercase))
CLASSES = (DAYS, MONTHS, NUMBERS, ORDINALS, DIGITS, LOWER, UPPER)
CYCLIC = (DAYS, MONTHS)
FEWEST_MEMBERS = 5
"""Number of tokens below which a class is left out."""
SUCCESSOR = Kind(
    "successor",
    "share of tokens whose successor is the highest OV logit of their class",
    'Gould et al. 2023, "Successor Heads"',
)
Members = Int[Tensor, " _"]


def measure(case: Case) -> list[Measured]:
    """The share of tokens that a head maps to their successors."""
    classes = [*_classes(case)]
    if not classes:
        raise NotShown(
            "no class of ordered texts (days, letters, numbers) has five that are single tokens"
        )
    tokens = torch.cat([members for members, _ in classes])
    layers, heads = case.sizes
    score = torch.zeros(layers, heads, sum(int(has.sum()) for _, has in classes))
    control = score.clone()
    for layer, head, circuit in ov_logits(case, tokens, tokens):
        logits = circuit.left @ circuit.right
        start, parts = 0, list[tuple[Tensor, Tensor]]()
        for members, has in classes:
            block = slice(start, start := start + len(members))
            parts.append(_of_class(logits[block, block], has))
        score[layer, head], control[layer, head] = (
            torch.cat(each) for each in zip(*parts, strict=True)
        )
    return [Measured(SUCCESSOR, score, control, task=_task(case, classes))]


def _of_class(logits: Tensor, has: Bool[Tensor, " token"]) -> tuple[Tensor, Tensor]:
    """Score and control of each token that has a successor, which is the next one, cyclically."""
    n = len(logits)
    this, best = torch.arange(n, device=logits.device), logits.argmax(-1)
    hit = best == (this + 1) % n
    other = (~hit & (best != this)).float() / (n - 2)
    return hit[has].float().cpu(), other[has].cpu()


def _classes(case: Case) -> Iterator[tuple[Members, Bool[Tensor, " token"]]]:
    """The ids of each class in order, and which of them have a successor; each class once."""
    if case.model.tokenizer is None:
        raise NotShown("this model has no tokenizer")
    seen = set[tuple[int, ...]]()
    for texts in CLASSES:
        for start in ("", " "):
            ids = [case.token_of(start + text) for text in texts.split()]
            numbers = tuple(number for number in ids if number is not None)
            if len(set(numbers)) < max(FEWEST_MEMBERS, len(numbers)) or numbers in seen:
                continue
            seen.add(numbers)
            whole = texts in CYCLIC and None not in ids
            pairs = zip(ids, [*ids[1:], ids[0] if whole else None], strict=True)
            has = [after is not None for number, after in pairs if number is not None]
            members = torch.tensor(numbers, device=case.model.device)
            yield members, torch.tensor(has, device=case.model.device)


def _task(case: Case, classes: list[tuple[Members, Tensor]]) -> Task | None:
    """The loss on the classes written out in order."""
    if not case.predicts_next:
        return None
    special, n_ctx = case.model.config.tokens, case.model.config.n_ctx
    bos = [special.bos] if special.prepend_bos and special.bos is not None else []
    rows = [[*bos, *members.tolist()][:n_ctx] for members, _ in classes]
    width = max(map(len, rows))
    padded = torch.tensor([row + [PAD] * (width - len(row)) for row in rows])
    return Task(case.model.batch(padded), "loss", "loss on the classes in order (nats)")


FAMILY = Family("succession", measure)
