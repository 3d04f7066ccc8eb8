"""The heads that are called induction heads are those that predict repeated tokens.

The in-context gain is the loss on random tokens minus the loss on their repetition (Olsson et al.
2022). Zeroing few induction heads takes most of it away; zeroing as many other heads does not.
"""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

import interp
from analyses import head_roles
from analyses.methods.heads.repetition import RepeatedRows, repeated_rows
from interp import Transformer, edits, sweep
from interp.metrics import next_token_losses
from interp.model.batch import Batch
from interp.zoo.access import trained_tokens

HALF, ROWS, DRAWS = 40, 8, 20
Head = tuple[int, int]


@dataclass(frozen=True)
class NamedHeads:
    """A model, the heads that head_roles names, and rows that it was not asked about."""

    model: Transformer
    induction: list[Head]
    others: list[Head]
    rows: RepeatedRows

    def removed(self, sets: list[list[Head]]) -> Tensor:
        """The share of the gain that zeroing each set of heads removes."""
        cases = [
            [edits.zero("z", layer=layer, head=head) for layer, head in heads] for heads in sets
        ]
        table = sweep(self.model, self.rows.repeated, cases, gain)
        return 1 - table.values.mean(-1) / table.baseline.mean()


def gain(logits: Tensor, batch: Batch) -> Tensor:
    """Loss on the first copy, minus that on the second without its first token, in nats."""
    losses, _ = next_token_losses(logits, batch)
    return losses[:, :HALF].mean(-1) - losses[:, HALF + 1 :].mean(-1)


@pytest.fixture(scope="module", params=["python-2l", "python-4l"])
def named_heads(request):
    """Heads by their roles on rows of seed 0; the rows are of seed 1."""
    model = interp.load(request.param)
    frame = head_roles(model, rows=ROWS, half=HALF).to_frame()
    named = frame[frame["has_role"]].sort_values("score", ascending=False)
    heads = {
        role: list(zip(group["layer"], group["head"], strict=True))
        for role, group in named.groupby("role")
    }
    with_role = {*heads["induction"], *heads["previous-token"]}
    every = sorted(set(zip(frame["layer"], frame["head"], strict=True)))
    ids = torch.tensor(trained_tokens(model))
    rows = repeated_rows(model, ids, half=HALF, rows=ROWS, seed=1)
    return NamedHeads(
        model, heads["induction"], [head for head in every if head not in with_role], rows
    )


def fewest(named_heads: NamedHeads) -> int:
    """How many induction heads, in the order of their score, remove 80 % of the gain."""
    removed = named_heads.removed(
        [named_heads.induction[:n] for n in range(1, len(named_heads.induction) + 1)]
    )
    return int((removed >= 0.8).nonzero()[0]) + 1


def test_few_induction_heads_make_the_gain_and_others_do_not(named_heads):
    n = fewest(named_heads)
    assert n <= 3
    generator = torch.Generator().manual_seed(0)
    orders = [torch.randperm(len(named_heads.others), generator=generator) for _ in range(DRAWS)]
    removed = named_heads.removed([[named_heads.others[i] for i in order[:n]] for order in orders])
    assert len(removed) == DRAWS
    assert removed.mean() <= 0.2
    assert removed.max() < 0.8


def test_there_is_a_gain_to_remove(named_heads):
    with torch.no_grad():
        repeated, unrepeated = (
            gain(named_heads.model(batch), batch).mean()
            for batch in (named_heads.rows.repeated, named_heads.rows.unrepeated)
        )
    assert repeated > 5
    assert unrepeated < 1
