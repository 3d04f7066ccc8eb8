"""What the mean ablation of each head does to the prediction of tokens of each class.

One sweep over texts up to a token of the sample, whose surprisal is the metric. A token belongs to
the first class that fits:

    repetition    the token before it occurred earlier and was followed by it
    digits, punctuation, whitespace
    word part     a further part of a word
    other
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.methods.components import Replacements, components_of
from analyses.scan_heads.cells import CLASSES, INDUCTION, cells_of
from analyses.scan_heads.measure import Plan
from analyses.scan_heads.sequences import Text
from interp import sweep
from interp.errors import InvalidInput
from interp.io import Progress
from interp.metrics import AtPosition, row_targets
from interp.model import PAD, Batch

CONTEXT = 48
"""The most tokens before a target."""
TARGETS = ("repetition", *CLASSES, "word part", "other")


@dataclass(frozen=True)
class Surprisal(AtPosition):
    """−log p of a target."""

    kind = "surprisal"
    name = "surprisal"
    unit = "nats"
    targets = ("target",)

    target: int | str | tuple[int | str, ...] = 0

    def compute(self, logits: Float[Tensor, "batch vocab"]) -> Float[Tensor, " batch"]:
        """``−log_softmax(logits)[target]``."""
        index = row_targets(logits, self.target)[:, None]
        return -logits.log_softmax(-1).gather(-1, index)[:, 0]


@dataclass(frozen=True, eq=False)
class ClassEffects:
    """The effect of each head's mean ablation on the surprisal of some tokens.

    Attributes:
        effect: surprisal with the ablation minus surprisal without, in nats.
        clean: the surprisal without.
        target: class of each token.
    """

    effect: Float[Tensor, "unit prompt"]
    clean: Float[Tensor, " prompt"]
    target: tuple[str, ...]


def check_effects(plan: Plan) -> None:
    """Check that the model predicts next tokens.

    Raises:
        InvalidInput: it does not.
    """
    model = plan.model
    if len(model.stacks) > 1 or plan.reads_images or not model.config.is_causal:
        raise InvalidInput(
            "effects=True measures the prediction of next tokens, which this model does not make; "
            "leave it out, or use ablate_heads with a metric of this model."
        )


def effects_of(
    plan: Plan,
    texts: Sequence[Text],
    targets: int,
    *,
    memory: object,
    rows: int,
    progress: Progress | None,
) -> ClassEffects:
    """Ablate every head on so many tokens of each class, which are drawn from some texts.

    Raises:
        InvalidInput: no text has a token to predict.
    """
    prompts, ids, classes = drawn_tokens(plan, [text[0] for text in texts], targets)
    batch = plan.model.batch(prompts)
    heads = components_of(plan.model).heads
    replaced = Replacements(plan.model, [batch], "mean", rows=rows)
    edits = replaced.edits(heads)
    table = sweep(
        plan.model,
        batch,
        [edits[head.name] for head in heads],
        Surprisal(pos=-1, target=tuple(ids)),
        memory=memory,
        progress=progress,
    )
    return ClassEffects(table.effect, table.baseline, tuple(classes))


def drawn_tokens(
    plan: Plan, texts: Sequence[Batch], each: int
) -> tuple[Int[Tensor, "prompt pos"], list[int], list[str]]:
    """Prompts, padded on the left, their next tokens, and the classes of these: ``each`` of one."""
    candidates: dict[str, list[tuple[int, int]]] = {name: [] for name in TARGETS}
    for number, text in enumerate(texts):
        for pos, name in enumerate(_classes(plan, text), 1):
            candidates[name].append((number, pos))
    generator = torch.Generator().manual_seed(plan.seed)
    drawn: list[tuple[str, int, int]] = []
    for name, places in candidates.items():
        order = torch.randperm(len(places), generator=generator)[:each].tolist()
        drawn += [(name, *places[n]) for n in order]
    if not drawn:
        raise InvalidInput("No text of the sample has a token to predict; give longer texts.")
    bos = plan.model.config.tokens.bos
    rows: list[Tensor] = []
    for _, number, pos in drawn:
        ids = texts[number].ids[0, :pos]
        first = ids[:1] if int(ids[0]) == bos else ids[:0]
        rows.append(torch.cat([first, ids[len(first) :][-CONTEXT:]]))
    width = max(map(len, rows))
    prompts = torch.stack([torch.cat([r.new_full((width - len(r),), PAD), r]) for r in rows])
    targets = [int(texts[number].ids[0, pos]) for _, number, pos in drawn]
    return prompts, targets, [name for name, _, _ in drawn]


def _classes(plan: Plan, text: Batch) -> list[str]:
    """The class of each token after the first."""
    cells = cells_of(text, plan.kinds, bidirectional=False)
    ids, members = text.ids[0], plan.kinds.members
    copied = cells[INDUCTION][0][:-1]
    follows = (copied & (ids[1:, None] == ids[None])).any(-1)
    marks = {"repetition": follows, **{name: each[ids[1:]] for name, each in members.items()}}
    begins, ends = plan.kinds.begins, plan.kinds.ends
    if begins is not None and ends is not None:
        marks["word part"] = ends[ids[:-1]] & begins[ids[1:]]
    return [
        next((name for name in TARGETS if name in marks and bool(marks[name][n])), "other")
        for n in range(len(ids) - 1)
    ]
