"""What does a model predict, how surprised is it by each token, and what if some parts are ablated?

For each prompt, the distribution of the next token, and how probable its own tokens were:

    surprisal_i = −log p(x_i | tokens before i)      nats; the first token has none
    Δ_i         = surprisal_i with the parts ablated together − surprisal_i
    KL_i        = KL(plain ‖ ablated) of the distribution predicted at position i

An encoder predicts no next tokens: its surprisal is that of the tokens hidden by mask tokens, where
these are known, and NaN elsewhere. (A pseudo-log-likelihood would need other prompts, each with
another token masked.) Parts are ablated as :func:`analyses.ablate` ablates a group, so both give
the same numbers: a mean is over all tokens of the reference prompts, by default of the prompts
themselves; for a single prompt it is over its own tokens. How a token's loss changes does not show
where in the text the ablated part matters: a head may act on a token long before this affects the
loss of another.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from analyses.methods.components import Replacements, components_named
from analyses.methods.finite import check_finite_weights
from analyses.predictions.compared_predictions import ComparedPredictions, hidden_tokens
from analyses.results import (
    Drawing,
    Result,
    Tokens,
    counted,
    fixed,
    grid,
    number,
    token_ids,
    token_strips,
)
from interp import Transformer
from interp.errors import InvalidInput
from interp.execution import Provenance
from interp.integers import as_seed, at_least
from interp.metrics import Position, as_position, columns_read
from interp.model import PAD, Batch, unembedding_of
from interp.prompts import read_batches

RUNS = ("plain", "ablated")
"""The runs of a result, the second only if something was ablated."""
ANSWERS = ("target", "distractor")
MOST_STRIPS = 20
"""The most prompts in a figure."""
SHOWN, TAIL = 5, 8
"""The most prompts whose predictions a summary lists, and the most tokens of each prompt."""


@dataclass(frozen=True, eq=False, repr=False)
class Predictions(Result):
    """The prediction at one position of each prompt, and the surprisal of all its tokens.

    The axis ``run`` has the plain run, then the run with parts ablated, if there are any.

    Attributes:
        ids: token ids of each prompt (in an encoder–decoder, of the decoder's input);
            ``interp.PAD`` at padding.
        tokens: labels of these tokens, padding included.
        surprisal: −log p of each token in nats; NaN where there is none: at the first, at padding,
            and in an encoder at all but mask tokens whose true token is known.
        kl: KL(plain ‖ ablated) of the prediction at each position, in nats; NaN at padding;
            ``None`` if nothing was ablated.
        pos: where the prediction is read: the position among the tokens of the prompt.
        top: the most probable tokens there in each run, the most probable first.
        probability: probability of the tokens in ``top`` (of the run in the second axis) in each
            run (first axis).
        token_labels: labels of the tokens in ``top`` and of the answers, by id.
        answers: ids of the ``target`` and the ``distractor`` of each prompt, where they were given.
        answer_logit: logits of the answers.
        answer_probability: probabilities of the answers.
        answer_rank: ranks of the answers, 1 for the most probable token.
        ablated_names: names of the parts that were ablated together.
        method: ``zero``, ``mean`` or ``resample``; ``""`` if nothing was ablated.
        replacement: a description of what they were replaced with.
        provenance: model, tokens and settings that the numbers depend on.
        predicts_next: whether the token after a position is predicted there; an encoder predicts
            the token at it.
    """

    ids: Int[Tensor, "prompt pos"]
    tokens: tuple[tuple[str, ...], ...]
    surprisal: Float[Tensor, "run prompt pos"]
    kl: Float[Tensor, "prompt pos"] | None
    pos: Int[Tensor, " prompt"]
    top: Int[Tensor, "run prompt k"]
    probability: Float[Tensor, "run top_of prompt k"]
    token_labels: dict[int, str]
    answers: Mapping[str, tuple[int, ...]]
    answer_logit: Float[Tensor, "run answer prompt"]
    answer_probability: Float[Tensor, "run answer prompt"]
    answer_rank: Int[Tensor, "run answer prompt"]
    ablated_names: tuple[str, ...]
    method: str
    replacement: str
    provenance: Provenance
    predicts_next: bool = True

    @property
    def runs(self) -> tuple[str, ...]:
        """The names of the runs."""
        return RUNS[: len(self.top)]

    @property
    def loss(self) -> Float[Tensor, "run prompt"]:
        """Mean surprisal of each prompt, in nats: the metric ``loss``, or ``masked_loss``."""
        return self.surprisal.nanmean(-1)

    @property
    def effect(self) -> Float[Tensor, "prompt pos"]:
        """Δ: the surprisal of each token with the parts ablated, minus the plain one, in nats.

        Raises:
            InvalidInput: nothing was ablated.
        """
        if self.kl is None:
            raise InvalidInput('Nothing was ablated: give ablate=, such as ["L0H1", "L1H0"].')
        return self.surprisal[1] - self.surprisal[0]

    @property
    def correct(self) -> Bool[Tensor, "run prompt"]:
        """Whether the target is the most probable token.

        Raises:
            InvalidInput: no targets were given.
        """
        return self._answer("target", self.answer_rank) == 1

    @property
    def logit_difference(self) -> Float[Tensor, "run prompt"]:
        """The logit of the target minus that of the distractor.

        Raises:
            InvalidInput: no targets, or no distractors, were given.
        """
        target, distractor = (self._answer(name, self.answer_logit) for name in ANSWERS)
        return target - distractor

    def candidates(self, prompt: int = 0) -> dict[int, list[float]]:
        """The most probable tokens of a prompt in any run, those of the plain run first.

        Returns:
            The probability of each in each run, by id.
        """
        probabilities: dict[int, list[float]] = {}
        for row, ids in enumerate(self.top[:, prompt].tolist()):
            columns = self.probability[:, row, prompt].mT.tolist()
            for id_, column in zip(ids, columns, strict=True):
                probabilities.setdefault(id_, column)
        return probabilities

    def to_frame(self) -> pd.DataFrame:
        """One row per run, prompt and token among its most probable.

        Columns:
            run: ``plain`` or ``ablated``.
            prompt, pos: where the prediction was read.
            rank: from 1.
            token, id: the token predicted.
            probability: in this run.
            plain_probability, ablated_probability: in each run, if parts were ablated.
        """
        n, k = self.top.shape[1:]
        frame = pd.DataFrame(grid(run=self.runs, prompt=range(n), rank=range(1, k + 1)))
        ids = self.top.flatten().tolist()
        probability = torch.stack([self.probability[r, r] for r in range(len(self.runs))])
        both = {
            f"{name}_probability": p.flatten().numpy()
            for name, p in zip(RUNS, self.probability, strict=False)
        }
        return frame.assign(
            pos=[self.pos[prompt].item() for prompt in frame["prompt"]],
            token=[self.token_labels[id_] for id_ in ids],
            id=ids,
            probability=probability.flatten().numpy(),
            **(both if len(both) > 1 else {}),
        )

    def more_frames(self) -> dict[str, pd.DataFrame]:
        """See :meth:`Result.more_frames`."""
        return {"tokens": self.to_token_frame(), "prompts": self.to_prompt_frame()}

    def to_token_frame(self) -> pd.DataFrame:
        """One row per prompt and token.

        Columns:
            prompt, pos, token, id: the token.
            surprisal: −log p of it, in nats; NaN where there is none.
            ablated_surprisal, effect, kl: if parts were ablated, its surprisal then, the change of
                it, and KL from the plain prediction at this position.
        """
        real = self.ids != PAD
        prompt, column = real.nonzero().unbind(-1)
        numbers = {"surprisal": self.surprisal[0]}
        if self.kl is not None:
            numbers |= {
                "ablated_surprisal": self.surprisal[1],
                "effect": self.effect,
                "kl": self.kl,
            }
        cells = zip(prompt.tolist(), column.tolist(), strict=True)
        return pd.DataFrame(
            {
                "prompt": prompt,
                "pos": (real.cumsum(-1) - 1)[real],
                "token": [self.tokens[p][i] for p, i in cells],
                "id": self.ids[real],
                **{name: x[real] for name, x in numbers.items()},
            }
        )

    def to_prompt_frame(self) -> pd.DataFrame:
        """One row per run and prompt.

        Columns:
            run, prompt, pos: the run, the prompt, and the position of the prediction.
            loss: mean surprisal, in nats.
            kl: KL from the plain prediction at this position, if parts were ablated.
            target, target_logit, target_probability, target_rank: if targets were given; so for
                distractors. Ranks are from 1.
            correct: whether the target is the most probable token.
            logit_difference: with targets and distractors.
        """
        n = len(self.ids)
        frame = pd.DataFrame(grid(run=self.runs, prompt=range(n)))
        frame["pos"] = self.pos.tolist() * len(self.runs)
        frame["loss"] = self.loss.flatten().numpy()
        if self.kl is not None:
            kl = self.kl_at_position
            frame["kl"] = torch.stack([torch.zeros_like(kl), kl]).flatten().numpy()
        for row, (name, ids) in enumerate(self.answers.items()):
            frame[name] = [self.token_labels[id_] for id_ in ids] * len(self.runs)
            frame[f"{name}_logit"] = self.answer_logit[:, row].flatten().numpy()
            frame[f"{name}_probability"] = self.answer_probability[:, row].flatten().numpy()
            frame[f"{name}_rank"] = self.answer_rank[:, row].flatten().numpy()
        if "target" in self.answers:
            frame["correct"] = self.correct.flatten().numpy()
        if len(self.answers) == len(ANSWERS):
            frame["logit_difference"] = self.logit_difference.flatten().numpy()
        return frame

    @property
    def kl_at_position(self) -> Float[Tensor, " prompt"]:
        """KL(plain ‖ ablated) of the prediction that is read, in nats; 0 if nothing was ablated."""
        if self.kl is None:
            return torch.zeros(len(self.ids))
        real = self.ids != PAD
        return self.kl[real & (real.cumsum(-1) - 1 == self.pos[:, None])]

    def drawing(self) -> Drawing:
        """The tokens of the first prompts, coloured by surprisal, or by its change."""
        what = "Surprisal of each token"
        values = self.surprisal[0]
        if self.kl is not None:
            what, values = f"Change of each token's surprisal, {self._without}", self.effect
        n, real = min(len(values), MOST_STRIPS), self.ids != PAD
        first = f" (the first {n} of {len(values)} prompts)" if n < len(values) else ""
        return token_strips(
            [values[p, real[p]].tolist() for p in range(n)],
            [self.labels_of(p) for p in range(n)],
            title=f"{what}{first}",
            rows=[f"prompt {p}" for p in range(n)],
            unit="nats",
            diverging=self.kl is not None,
        )

    def summary(self, prompts: int = SHOWN) -> str:
        """How well the prompts are predicted, and the predictions of the first ``prompts``."""
        n, prompts = len(self.ids), at_least(0, prompts, "prompts")
        after = [f"{self._without}: {self._scores(row)}" for row in range(1, len(self.runs))]
        after += (
            [f"what is ablated is replaced with {self.replacement}"] if self.ablated_names else []
        )
        first = range(min(prompts, n))
        lines = [line for prompt in first for line in self._listed(prompt)]
        return "\n".join([self.headline(), *after, *lines])

    def headline(self) -> str:
        """See :meth:`Result.headline`."""
        return f"predictions on {counted(len(self.ids), 'prompt')}: {self._scores(0)}"

    def labels_of(self, prompt: int) -> list[str]:
        """The labels of a prompt's tokens, without padding."""
        pairs = zip(self.tokens[prompt], self.ids[prompt].tolist(), strict=True)
        return [label for label, id_ in pairs if id_ != PAD]

    def _scores(self, row: int) -> str:
        """The loss and the answers of a run, as text."""
        n, parts = len(self.ids), []
        loss = self.loss[row].nanmean().item()
        parts += [f"loss {fixed(loss, 3)} nats"] if loss == loss else []  # noqa: PLR0124 - NaN
        if "target" in self.answers:
            p = self._answer("target", self.answer_probability)[row].mean()
            right = int(self.correct[row].sum())
            parts += [f"the target comes first in {right} of {n}, mean p(target) {fixed(p, 3)}"]
        if row:
            parts += [f"KL {number(self.kl_at_position.mean(), 3)} nats where they are read"]
        return ", ".join(parts) or "the most probable tokens"

    def _listed(self, prompt: int) -> list[str]:
        """Lines with the end of a prompt, and the prediction of each run."""
        text = " ".join(self.labels_of(prompt)[: int(self.pos[prompt]) + 1][-TAIL:])
        lines = [f"prompt {prompt}: … {text}"]
        for row, name in enumerate(self.runs):
            ids, probabilities = self.top[row, prompt].tolist(), self.probability[row, row, prompt]
            pairs = zip(ids[:SHOWN], probabilities, strict=False)
            tokens = [f"{self.token_labels[id_]} {fixed(p, 3)}" for id_, p in pairs]
            lines.append(f"  {name:<{len(self.runs[-1])}}  {'  '.join(tokens)}")
        return lines

    @property
    def _without(self) -> str:
        return f"with {', '.join(self.ablated_names)} ablated ({self.method})"

    def _answer(self, answer: str, numbers: Tensor) -> Tensor:
        """The numbers of the target or the distractor, ``[run prompt]``."""
        if answer not in self.answers:
            raise InvalidInput(
                f"No {answer} was given: give {answer}s=, a token or one per prompt."
            )
        return numbers[:, list(self.answers).index(answer)]


def predictions(  # noqa: PLR0913 - the settings of one analysis, by keyword
    model: Transformer,
    prompts: Any,  # noqa: ANN401 - what model.check reads
    *,
    pos: Position = None,
    top: int = 10,
    targets: Tokens | None = None,
    distractors: Tokens | None = None,
    hidden: Any = None,  # noqa: ANN401 - as prompts
    ablate: Sequence[str] = (),
    method: str = "mean",
    reference: Any = None,  # noqa: ANN401 - as prompts
    seed: int = 0,
    rows: int = 64,
) -> Predictions:
    """Predict what follows each prompt, or fills its mask, and measure each token's surprisal.

    Args:
        model: a model with an unembedding.
        prompts: texts, token ids padded with ``interp.PAD``, images, or a batch that
            ``model.batch`` made; ``(source, target)`` for an encoder–decoder, whose decoder is
            read.
        pos: where the prediction is read: a position among the tokens of each prompt, ``"mask"``,
            or by default that of an encoder's mask token, if the prompt holds one, else the last.
        top: number of most probable tokens to report, at most.
        targets: the right token (its id or text), or one per prompt.
        distractors: a token that it is compared with, likewise.
        hidden: for an encoder, the prompts before tokens were masked, with as many tokens: what the
            mask tokens hide. By default only that at the position of the prediction is known: the
            target, if it is given.
        ablate: names of heads, or other components, that are ablated together; as in
            :mod:`analyses.methods.components.components`.
        method: ``zero``, ``mean`` or ``resample``; as in :func:`analyses.ablate`.
        reference: prompts from which means or donors come; by default the prompts themselves.
        seed: seed for the resampling.
        rows: prompts per forward while activations are collected; the result does not depend on it.

    Returns:
        Predictions and surprisals, without and with the components ablated, if there are any.

    Raises:
        InvalidInput: the model has no logits, a prompt has no such position, a token is outside
            the vocabulary; an unknown method, or one that needs several prompts; a component named
            twice; or ``hidden`` prompts of another length.
        InvalidTokens: a target's text is not one token; the message shows how it is split.
        UnknownPlace: the model has no such component.

    Examples:
        >>> model = interp.load("induction-by-hand")
        >>> print(analyses.predictions(model, "abcab", top=2).summary())
        predictions on 1 prompt: loss 3.315 nats
        prompt 0: … <|bos|> a b c a b
          plain  c 1.000  b 0.000
    """
    check_finite_weights(model)
    unembedding_of(model)
    pos, seed = as_position(pos), as_seed(seed)
    top, rows = at_least(1, top, "top"), at_least(1, rows, "rows")
    batches = read_batches(model, prompts)
    batch, n = batches[-1], len(batches[-1].ids)
    columns = columns_read(batch, pos)
    wanted = {"target": targets, "distractor": distractors}
    answers = {
        name: token_ids(model, tokens, n, f"{name}s")
        for name, tokens in wanted.items()
        if tokens is not None
    }
    components = components_named(model, ablate)
    others = None if reference is None else read_batches(model, reference)
    edits = Replacements(model, batches, method, others, seed=seed, rows=rows).edits_of(components)
    answer_ids = torch.stack([*answers.values()], -1) if answers else columns.new_zeros(n, 0)
    hidden_ids = hidden_tokens(model, batch, hidden, columns, answers.get("target"))
    measured = ComparedPredictions(
        model, batches, columns, answer_ids, hidden_ids, edits, top
    ).measure()
    top_tokens, real = measured["top"].movedim(0, 1), batch.is_real.cpu()
    named = {*top_tokens.flatten().tolist(), *answer_ids.flatten().tolist()}
    return Predictions(
        ids=batch.tokens.cpu(),
        tokens=tuple(tuple(model.to_labels(ids)) for ids in batch.tokens),
        surprisal=measured["surprisal"].movedim(0, 1),
        kl=measured.get("kl"),
        pos=(real.cumsum(-1) - 1)[torch.arange(n), columns.cpu()],
        top=top_tokens,
        probability=measured["probability"].movedim(0, 2),
        token_labels={id_: model.label(id_) for id_ in sorted(named)},
        answers={name: tuple(ids.tolist()) for name, ids in answers.items()},
        answer_logit=measured["answer_logit"].movedim(0, -1),
        answer_probability=measured["answer_probability"].movedim(0, -1),
        answer_rank=measured["answer_rank"].movedim(0, -1),
        ablated_names=tuple(component.name for component in components),
        method=method if components else "",
        replacement=_replacement(method, n, others) if components else "",
        provenance=Provenance.of(model, *batches, edits=[edit for _, edit in edits], seed=seed),
        predicts_next=model.config.is_causal,
    )


def _replacement(method: str, n: int, reference: Sequence[Batch] | None) -> str:
    """Describe what the method replaces activations with."""
    without_reference = f"these {n} prompts" if n > 1 else "this prompt"
    prompts = (
        without_reference if reference is None else f"{len(reference[-1].ids)} reference prompts"
    )
    return {
        "zero": "zero",
        "mean": f"its mean over all tokens of {prompts}",
        "resample": f"its value at the same position of another of {prompts}",
    }[method]
