"""What is predicted of prompts by a run and, beside it, by the same run with edits."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - as everyone writes it

from analyses.methods.finite import check_no_nan
from interp.config import Config
from interp.edits import Edit, for_rows
from interp.errors import InvalidInput, shorten
from interp.execution import run
from interp.metrics import (
    NO_MASK_TOKEN,
    at_least_float32,
    divergence,
    next_token_losses,
    parts_of_rows,
)
from interp.model import PAD, Batch, Network, tokens_first
from interp.points import Place


@dataclass(frozen=True, eq=False)
class ComparedPredictions:
    """The predictions of a plain run, and of a second run if there are edits.

    Attributes:
        model: a model with an unembedding.
        batches: the prompts of each stack.
        columns: the column at which each prompt's prediction is read.
        answers: ids of the tokens of each prompt whose logit, probability and rank are read.
        hidden: for an encoder, the tokens that mask tokens hide, as of :func:`hidden_tokens`.
        edits: the edits of the second run, with their places; without any, there is one run.
        top: number of most probable tokens, at most.
    """

    model: Network
    batches: Sequence[Batch]
    columns: Int[Tensor, " prompt"]
    answers: Int[Tensor, "prompt answer"]
    hidden: Int[Tensor, "prompt pos"] | None
    edits: Sequence[tuple[Place, Edit]]
    top: int

    def measure(self) -> dict[str, Tensor]:
        """The numbers of all prompts, on the CPU.

        Returns:
            ``surprisal`` ``[prompt run pos]``; ``top`` ``[prompt run k]`` (token ids);
            ``probability`` ``[prompt run top_of k]``, that of the ``top`` of every run;
            ``answer_logit``, ``answer_probability`` and ``answer_rank`` (from 1)
            ``[prompt run answer]``;
            and with edits ``kl`` ``[prompt pos]``, KL(plain ‖ edited), which is NaN at padding.
        """
        shape = (*self.batches[-1].ids.shape, self.model.config.n_logits)
        parts = [self._of_rows(rows) for rows in parts_of_rows(shape, self.model.device)]
        return {name: torch.cat([part[name] for part in parts]).cpu() for name in parts[0]}

    @torch.no_grad()
    def _of_rows(self, rows: Int[Tensor, " row"]) -> dict[str, Tensor]:
        """The numbers of some prompts."""
        batches, n = [batch.rows(rows) for batch in self.batches], len(self.columns)
        made = [for_rows(edit, place, rows.tolist(), n) for place, edit in self.edits]
        runs = [[], made] if made else [[]]
        logits = torch.stack([self._logits(batches, edits) for edits in runs], 1)
        hidden = None if self.hidden is None else self.hidden[rows]
        check_no_nan(self.model, batches, logits[:, 0])
        batch, config = batches[-1], self.model.config
        losses = [surprisals(config, run_logits, batch, hidden) for run_logits in logits.unbind(1)]
        numbers = {
            "surprisal": torch.stack(losses, 1),
            **self._at(logits[torch.arange(len(rows)), :, self.columns[rows]], self.answers[rows]),
        }
        if made:
            kl = divergence(logits[:, 0], logits[:, 1])
            numbers["kl"] = kl.where(batch.is_real, torch.nan)
        return numbers

    def _logits(
        self, batches: Sequence[Batch], edits: Sequence[Edit]
    ) -> Float[Tensor, "row pos vocab"]:
        return at_least_float32(run(self.model, *batches, edits=edits).require_logits())

    def _at(
        self, logits: Float[Tensor, "row run vocab"], answers: Int[Tensor, "row answer"]
    ) -> dict[str, Tensor]:
        """The numbers of the prediction at the column that is read."""
        runs, p = logits.shape[1], logits.softmax(-1)
        top = logits.argsort(dim=-1, descending=True, stable=True)[..., : self.top]
        answers = answers[:, None].expand(-1, runs, -1)
        answer_logit = logits.gather(-1, answers)
        return {
            "top": top,
            "probability": torch.stack(
                [p.gather(-1, ids[:, None].expand(-1, runs, -1)) for ids in top.unbind(1)], 2
            ),
            "answer_logit": answer_logit,
            "answer_probability": p.gather(-1, answers),
            "answer_rank": (logits[:, :, None] > answer_logit[..., None]).sum(-1) + 1,
        }


def hidden_tokens(
    model: Network,
    batch: Batch,
    hidden: Any,  # noqa: ANN401 - checked here
    columns: Int[Tensor, " prompt"],
    target: Int[Tensor, " prompt"] | None,
) -> Int[Tensor, "prompt pos"] | None:
    """The tokens that mask tokens hide; ``PAD`` where unknown, ``None`` without a mask token.

    Args:
        model: the model.
        batch: the prompts.
        hidden: the prompts before tokens were masked; ``None`` if they are not known.
        columns: the column at which each prompt's prediction is read.
        target: the token that is hidden there, used if ``hidden`` is ``None``.

    Raises:
        InvalidInput: ``hidden`` without mask tokens, or of other lengths than the prompts.
    """
    if batch.masked is None:
        if hidden is not None:
            raise InvalidInput(f"hidden= is of prompts with mask tokens. {NO_MASK_TOKEN}")
        return None
    if hidden is not None:
        original = model.batches(hidden)[-1]
        if original.ids.shape != batch.ids.shape or not original.is_real.equal(batch.is_real):
            raise InvalidInput(
                f"hidden={shorten(hidden)} should have the tokens of the prompts, one for one: "
                f"{tuple(batch.ids.shape)}; it has {tuple(original.ids.shape)}."
            )
        return original.tokens
    tokens = torch.full_like(batch.ids, PAD)
    if target is not None:
        tokens.scatter_(1, columns[:, None], target[:, None])
    return tokens


def surprisals(
    config: Config,
    logits: Float[Tensor, "batch pos vocab"],
    batch: Batch,
    hidden: Int[Tensor, "batch pos"] | None = None,
) -> Float[Tensor, "batch pos"]:
    """−log p of each token in nats, at its own column; NaN where the model predicts none.

    Args:
        config: configuration of the model.
        logits: logits in float32 or float64.
        batch: the tokens.
        hidden: for an encoder, the true tokens at its mask tokens; below 0 if not known.
    """
    nothing = logits.new_full(batch.ids.shape, torch.nan)
    if batch.masked is not None and hidden is not None:
        predicted = batch.masked & (hidden >= 0)
        targets = hidden.where(predicted, 0)
        losses = -logits.log_softmax(-1).gather(-1, targets[..., None]).squeeze(-1)
        return losses.where(predicted, nothing)
    if not config.is_causal or config.n_classes is not None:
        return nothing
    losses, counted = next_token_losses(logits, batch)
    losses = F.pad(losses.where(counted, torch.nan), (0, 1), value=torch.nan)
    order = tokens_first(batch.is_real)
    return nothing.scatter(1, order[:, 1:], losses.gather(1, order[:, :-1]))
