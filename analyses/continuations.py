"""What does a model write after a prompt, and how probable is each token that it wrote?

Tokens are sampled one after another, and each is compared with the model's prediction of it:

    x_i ~ softmax(logits_i / T)            T = 0 takes the most probable token
    surprisal_i = −log p_i(x_i)            p_i = softmax(logits_i), in nats
    entropy_i   = −Σ_x p_i(x) log p_i(x)   the mean surprisal of tokens drawn at T = 1

p_i is the model's own prediction at temperature 1, whatever T was, so that texts of different
temperatures can be compared. It is that of one forward over the whole text; only where frequencies
of positions depend on the length of the text (as of LongRoPE) does it differ from what was sampled.
A token of high surprisal where the entropy is low was an unlikely draw; where the entropy is high,
no token was likely. Samples of one prompt differ by chance alone: a few of them show what a model
may write, not how often it does. (Holtzman et al. 2020, "The Curious Case of Neural Text
Degeneration": people write texts of higher surprisal than greedy ones.)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - as everyone writes it

from analyses.methods.finite import check_finite_weights, naming_first_nan
from analyses.results import (
    NONE,
    Drawing,
    Progress,
    Result,
    counted,
    fixed,
    number,
    token_strips,
)
from interp import Transformer
from interp.execution import (
    Provenance,
    check_can_continue,
    check_temperature,
    end_tokens,
    generate,
)
from interp.integers import as_seed, at_least
from interp.io import as_progress
from interp.metrics import at_least_float32, parts_of_rows
from interp.model import PAD, Batch, unembedding_of
from interp.prompts import batches_to_continue

MOST_STRIPS = 20
"""The most texts in a figure."""
SHOWN = 3
"""The most prompts whose texts a summary shows."""
TAIL = 12
"""The most tokens of a prompt that it shows."""


@dataclass(frozen=True, eq=False, repr=False)
class Continuations(Result):
    """The tokens that a model wrote after each prompt, and its predictions of them.

    Attributes:
        new_ids: ids of the new tokens; ``interp.PAD`` after the end of a text.
        surprisal: −log p of each in nats, under the prediction at temperature 1; NaN after the end.
        entropy: entropy of that prediction, in nats; NaN after the end.
        rank: rank of the token in it, 1 for the most probable; 0 after the end.
        ended: whether an end-of-text token ended the text, rather than the number of tokens.
        lengths: number of tokens of each prompt (of an encoder–decoder, of the decoder's input).
        prompts: the last tokens of each prompt, as a text.
        temperature: temperature at which tokens were sampled; at 0 there is one sample.
        token_labels: labels of the new tokens, by id.
        separator: text between labels.
        provenance: model, tokens and seed that the numbers depend on.
    """

    new_ids: Int[Tensor, "prompt sample token"]
    surprisal: Float[Tensor, "prompt sample token"]
    entropy: Float[Tensor, "prompt sample token"]
    rank: Int[Tensor, "prompt sample token"]
    ended: Bool[Tensor, "prompt sample"]
    lengths: Int[Tensor, " prompt"]
    prompts: tuple[str, ...]
    temperature: float
    token_labels: dict[int, str]
    separator: str
    provenance: Provenance

    @property
    def loss(self) -> Float[Tensor, "prompt sample"]:
        """Mean surprisal of the new tokens of each text, in nats."""
        return self.surprisal.nanmean(-1)

    @property
    def n_tokens(self) -> Int[Tensor, "prompt sample"]:
        """Number of new tokens of each text."""
        return (self.new_ids != PAD).sum(-1)

    def to_frame(self) -> pd.DataFrame:
        """One row per prompt, sample and new token.

        Columns:
            prompt, sample: the text.
            pos: position of the token in the text, prompt included.
            token, id: the token.
            surprisal, entropy: in nats.
            rank: from 1.
        """
        written = self.new_ids != PAD
        prompt, sample, column = written.nonzero().unbind(-1)
        ids = self.new_ids[written].tolist()
        return pd.DataFrame(
            {
                "prompt": prompt,
                "sample": sample,
                "pos": self.lengths[prompt] + column,
                "token": [self.token_labels[id_] for id_ in ids],
                "id": ids,
                "surprisal": self.surprisal[written],
                "entropy": self.entropy[written],
                "rank": self.rank[written],
            }
        )

    def more_frames(self) -> dict[str, pd.DataFrame]:
        """See :meth:`Result.more_frames`."""
        return {"samples": self.to_sample_frame()}

    def to_sample_frame(self) -> pd.DataFrame:
        """One row per prompt and sample.

        Columns:
            prompt, sample: the text.
            n_tokens: number of new tokens.
            loss: their mean surprisal, in nats.
            ended: whether an end-of-text token ended it.
            written_text: the new tokens.
        """
        prompt, sample = torch.ones_like(self.ended).nonzero().unbind(-1)
        return pd.DataFrame(
            {
                "prompt": prompt,
                "sample": sample,
                "n_tokens": self.n_tokens.flatten(),
                "loss": self.loss.flatten(),
                "ended": self.ended.flatten(),
                "written_text": [
                    self.text(int(p), int(s)) for p, s in zip(prompt, sample, strict=True)
                ],
            }
        )

    def drawing(self) -> Drawing:
        """The new tokens of the first texts, coloured by surprisal: samples down, tokens across."""
        n_prompts, n_samples = self.ended.shape
        cells = [(p, s) for p in range(n_prompts) for s in range(n_samples)]
        first = cells[:MOST_STRIPS]
        more = f" (the first {len(first)} of {len(cells)} texts)" if first != cells else ""
        ends = [int(self.n_tokens[cell]) for cell in first]
        return token_strips(
            [self.surprisal[cell][:end].tolist() for cell, end in zip(first, ends, strict=True)],
            [self.labels_of(*cell) for cell in first],
            title=f"Surprisal of each new token, {self._how}{more}",
            rows=[f"prompt {p}" + (f", sample {s}" if n_samples > 1 else "") for p, s in first],
            unit="nats",
        )

    def summary(self, prompts: int = SHOWN) -> str:
        """The texts of the first ``prompts``, the most probable one of each first."""
        n = min(at_least(0, prompts, "prompts"), len(self.prompts))
        return "\n".join([self.headline(), *(line for p in range(n) for line in self._texts(p))])

    def headline(self) -> str:
        """See :meth:`Result.headline`."""
        return (
            f"continuations of {counted(len(self.prompts), 'prompt')}, {self._how}: mean surprisal "
            f"{fixed(self.loss.mean(), 3)} nats a token, {int(self.ended.sum())} of "
            f"{self.ended.numel()} ended by an end-of-text token"
        )

    def text(self, prompt: int, sample: int) -> str:
        """The new tokens of one sample as a text."""
        return self.separator.join(self.labels_of(prompt, sample))

    def labels_of(self, prompt: int, sample: int) -> list[str]:
        """The labels of the new tokens of one sample."""
        ids = self.new_ids[prompt, sample]
        return [self.token_labels[id_] for id_ in ids[ids != PAD].tolist()]

    def _texts(self, prompt: int) -> list[str]:
        """The texts of one prompt, each with its mean surprisal."""
        losses = self.loss[prompt]
        lines = [
            f"  {fixed(losses[sample], 3)} nats  {self.text(prompt, sample)}"
            f"{'' if self.ended[prompt, sample] else ' …'}"
            for sample in losses.argsort(stable=True).tolist()
        ]
        return [f"prompt {prompt}: {self.prompts[prompt] or NONE}", *lines]

    @property
    def _how(self) -> str:
        if self.temperature == 0:
            return "greedy"
        samples = counted(self.ended.shape[1], "sample")
        return f"{samples} each at temperature {number(self.temperature)}"


def continuations(  # noqa: PLR0913 - the settings of one analysis, by keyword
    model: Transformer,
    prompts: Any,  # noqa: ANN401 - what model.check reads
    *,
    new_tokens: int = 12,
    samples: int = 4,
    temperature: float | int = 1.0,
    top_k: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Continuations:
    """Sample a few texts after each prompt, and measure how probable each new token was.

    Prompts are continued one after another with the same seed, all samples of one together, so
    that a prompt has the samples that it has alone.

    Args:
        model: a model that generates text.
        prompts: texts, token ids padded with ``interp.PAD``, or a batch; for an encoder–decoder the
            source, or ``(source, target)`` with the first tokens of the target.
        new_tokens: number of tokens to add, at most. An end-of-text token ends a text earlier, as
            in ``model.generate``.
        samples: number of texts after each prompt; at temperature 0 there is one.
        temperature: sampling temperature; 0 takes the most probable token.
        top_k: sample from the k most probable tokens only; by default from all.
        seed: seed of the sampling; the same seed gives the same texts.
        progress: called with ``(prompts done, prompts in total)``.

    Returns:
        The new tokens, and surprisal, entropy and rank of each under the model's own prediction.

    Raises:
        InvalidInput: the model can't continue a text, or a setting is out of range.
        InvalidTokens: prompts and new tokens exceed the context.

    Examples:
        >>> model = interp.load("python-2l")
        >>> print(analyses.continuations(model, "for i in", new_tokens=5, temperature=0).summary())
        continuations of 1 prompt, greedy: mean surprisal 0.638 nats a token, 0 of 1 ended by an
        end-of-text token
        prompt 0: <|bos|>for·i·in
          0.638 nats  ·range( …
    """
    check_finite_weights(model)
    new_tokens, samples = at_least(1, new_tokens, "new_tokens"), at_least(1, samples, "samples")
    check_temperature(temperature)
    temperature = float(temperature)
    seed, inputs = as_seed(seed), batches_to_continue(model, prompts)
    check_can_continue(model, inputs[-1], new_tokens)
    report, n = as_progress(progress, "prompts"), len(inputs[-1].ids)
    parts: list[dict[str, Tensor]] = []
    for row in torch.arange(n, device=model.device):
        rows = [
            batch.rows(row[None]).repeated(samples if temperature > 0 else 1) for batch in inputs
        ]
        with naming_first_nan(model, rows):
            texts = generate(
                model,
                *rows,
                max_new_tokens=new_tokens,
                temperature=temperature,
                top_k=top_k,
                seed=seed,
            )
        parts.append(_measured(model, rows, texts, new_tokens))
        if report is not None:
            report(len(parts), n)
    numbers = {name: torch.stack([part[name] for part in parts]).cpu() for name in parts[0]}
    new_ids = numbers["new_ids"]
    separator = "" if model.tokenizer else " "
    return Continuations(
        **numbers,
        ended=torch.isin(new_ids, end_tokens(model).cpu()).any(-1),
        lengths=inputs[-1].is_real.sum(-1).cpu(),
        prompts=tuple(
            separator.join(model.to_labels(ids[ids != PAD])[-TAIL:]) for ids in inputs[0].tokens
        ),
        temperature=temperature,
        token_labels={id_: model.label(id_) for id_ in new_ids.unique().tolist() if id_ != PAD},
        separator=separator,
        provenance=Provenance.of(model, *inputs, seed=seed),
    )


@torch.no_grad()
def _measured(
    model: Transformer, rows: Sequence[Batch], texts: Int[Tensor, "sample pos"], width: int
) -> dict[str, Tensor]:
    """The new tokens of the texts, and the predictions of them, from one forward.

    Args:
        model: the model.
        rows: the prompt of each text, one batch per stack.
        texts: the prompts of the last stack, without padding, followed by the new tokens.
        width: number of columns of the numbers, which are padded after the end of the texts.

    Returns:
        ``new_ids``, ``surprisal``, ``entropy`` and ``rank``, each ``[sample token]``.
    """
    prompt = rows[-1].padded_left()
    first = prompt.ids.shape[1]
    new, types = texts[:, first:], prompt.types
    if types is not None:  # as generate has it, new tokens have the type of the last one
        types = torch.cat([types, types[:, -1:].expand(new.shape)], -1)
    batch = model.batch(texts, types=types)
    unembed = unembedding_of(model)
    predicting = model.stream([*rows[:-1], batch])[:, first - 1 : -1]
    shape = (*new.shape, model.config.n_logits)
    parts = [
        _predictions_of(at_least_float32(unembed(predicting[part])), new[part])
        for part in parts_of_rows(shape, model.device)
    ]
    numbers = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    fill = {"new_ids": PAD, "rank": 0}
    return {
        name: F.pad(
            x.where(new != PAD, fill.get(name, torch.nan)),
            (0, width - new.shape[1]),
            value=fill.get(name, torch.nan),
        )
        for name, x in {"new_ids": new, **numbers}.items()
    }


def _predictions_of(
    logits: Float[Tensor, "sample token vocab"], ids: Int[Tensor, "sample token"]
) -> dict[str, Tensor]:
    """Surprisal, entropy and rank of tokens under the predictions of them."""
    log_p, ids = logits.log_softmax(-1), ids.clamp(min=0)[..., None]
    log_p_of_ids = log_p.gather(-1, ids)
    return {
        "surprisal": -log_p_of_ids.squeeze(-1),
        "entropy": torch.special.entr(log_p.exp()).sum(-1),
        "rank": (log_p > log_p_of_ids).sum(-1) + 1,
    }
