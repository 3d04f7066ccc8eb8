"""What would the model predict after each layer? The unembedding applied to every stream.

    logits_l = unembed(norm(x_l))          x_l: the stream after l blocks; the last is the output

(nostalgebraist 2020, "interpreting GPT: the logit lens"). The norm is the model's last one, whose
divisor is computed anew at each depth. Early streams need not be in the basis that the unembedding
reads, so a prediction that the lens does not show may be there all the same (Belrose et al. 2023,
"Eliciting Latent Predictions from Transformers with the Tuned Lens").
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from analyses.figures import heatmap
from analyses.result import Result
from interp import Place, Point, Transformer, run
from interp.errors import InvalidInput
from interp.execution.provenance import Provenance
from interp.metrics.logits import Targets, at_least_float32, row_targets
from interp.model.unembedding import Unembedding

CHUNK = 2**26
"""Logits formed at a time, in elements."""


@dataclass(frozen=True, eq=False, repr=False)
class LogitLens(Result):
    """Predictions from the stream after each number of blocks.

    Attributes:
        top: the likeliest tokens, likeliest first.
        probability: of these.
        entropy: of the prediction, in nats.
        kl: KL(final prediction ‖ this one), in nats.
        rank: of the target of each prompt, 0 for the likeliest; ``None`` without targets.
        target_probability: of the target; ``None`` without targets.
        real: where there is a token and not padding; the numbers at padding mean nothing.
        labels: of the tokens of each prompt, padding included.
        names: of the tokens in ``top``.
        targets: token ids, one or one a prompt; ``None`` if none were given.
        provenance: model and tokens that the numbers depend on.
    """

    top: Int[Tensor, "depth prompt pos k"]
    probability: Float[Tensor, "depth prompt pos k"]
    entropy: Float[Tensor, "depth prompt pos"]
    kl: Float[Tensor, "depth prompt pos"]
    rank: Int[Tensor, "depth prompt pos"] | None
    target_probability: Float[Tensor, "depth prompt pos"] | None
    real: Bool[Tensor, "prompt pos"]
    labels: tuple[tuple[str, ...], ...]
    names: dict[int, str]
    targets: Targets | None
    provenance: Provenance

    def to_frame(self) -> pd.DataFrame:
        """One row a depth, prompt and token.

        Columns:
            depth: blocks run before the stream is read; the largest is the model's output.
            prompt, pos, token: whose prediction it is.
            top, probability: the likeliest next token and its probability.
            entropy, kl: in nats; KL is from the final prediction.
            rank, target_probability: of the target, if targets were given.
        """
        cells = [
            (depth, *cell)
            for depth in range(len(self.entropy))
            for cell in self.real.nonzero().tolist()
        ]
        depth, prompt, pos = torch.tensor(cells).unbind(-1)
        columns = {
            "depth": depth,
            "prompt": prompt,
            "pos": self._positions()[prompt, pos],
            "token": [self.labels[p][i] for _, p, i in cells],
            "top": [self.names[int(t)] for t in self.top[depth, prompt, pos, 0]],
            "probability": self.probability[depth, prompt, pos, 0],
            "entropy": self.entropy[depth, prompt, pos],
            "kl": self.kl[depth, prompt, pos],
        }
        if self.rank is not None and self.target_probability is not None:
            columns["rank"] = self.rank[depth, prompt, pos]
            columns["target_probability"] = self.target_probability[depth, prompt, pos]
        return pd.DataFrame(columns)

    def figure(self, prompt: int = 0) -> go.Figure:
        """Heatmap of the likeliest token's probability: depths down, one prompt's tokens across."""
        shown = self.real[prompt]
        probability = self.probability[:, prompt, shown, 0]
        labels = [label for label, real in zip(self.labels[prompt], shown, strict=True) if real]
        names = [
            [
                f"after {depth} blocks, token {labels[pos]}<br>{self.names[int(token)]} "
                f"{probability[depth, pos]:.3f}"
                for pos, token in enumerate(row)
            ]
            for depth, row in enumerate(self.top[:, prompt, shown, 0])
        ]
        return heatmap(
            probability,
            title=f"Logit lens on prompt {prompt}: probability of the likeliest token",
            rows=[str(depth) for depth in range(len(probability))],
            columns=labels,
            axes=("blocks run", "token"),
            unit="probability",
            top=1.0,
            hover=names,
        )

    def summary(self) -> str:
        """Entropy and KL from the final prediction at each depth, mean over all tokens."""
        rows = [
            f"after {depth} blocks: KL {self.kl[depth][self.real].mean():.3f} nats, entropy "
            f"{self.entropy[depth][self.real].mean():.3f} nats"
            for depth in range(len(self.kl))
        ]
        n = len(self.real)
        return "\n".join([f"logit lens on {n} prompts, {int(self.real.sum())} tokens", *rows])

    def _positions(self) -> Int[Tensor, "prompt pos"]:
        """The position of each column among the tokens of its prompt."""
        return self.real.cumsum(-1) - 1


def logit_lens(
    model: Transformer,
    prompts: Any,  # noqa: ANN401 - what model.check reads
    *,
    targets: Targets | Sequence[int] | None = None,
    top: int = 5,
) -> LogitLens:
    """Read a prediction from the stream before the first block and after each.

    Args:
        model: a model with an unembedding.
        prompts: texts, token ids, images or a batch; ``(source, target)`` for an encoder–decoder,
            whose decoder is read.
        targets: token ids, one or one a prompt, whose rank and probability are wanted.
        top: how many of the likeliest tokens to report.

    Returns:
        Numbers by depth, prompt and column.

    Raises:
        InvalidInput: the model has no logits, ``top`` is not within its vocabulary, or a target is
            outside it.
    """
    unembed, stack = model.unembed, model.stacks[-1]
    if not isinstance(unembed, Unembedding):
        raise InvalidInput("logit_lens needs logits; this model returns its last stream.")
    if not 1 <= top <= model.config.n_logits:
        raise InvalidInput(f"top={top} is outside 1..{model.config.n_logits}.")
    batches = model.check(*(prompts if len(model.stacks) > 1 else (prompts,)))
    places = _streams(model)
    done = run(model, *batches, record=places)
    if done.logits is None:
        raise InvalidInput("This run has no logits to compare with.")
    wanted = None if targets is None else row_targets(done.logits[:, 0], _as_targets(targets))
    found: list[dict[str, Tensor]] = []
    for place in places:
        stream, parts = done.cache[place], []
        for rows in _chunks(done.logits):
            with torch.no_grad():
                logits = unembed(stack.final_norm(stream[rows]))
            target = None if wanted is None else wanted[rows]
            parts.append(_predictions(logits, done.logits[rows], target, top))
        found.append({name: torch.cat([part[name] for part in parts]) for name in parts[0]})
    numbers = {name: torch.stack([depth[name] for depth in found]).cpu() for name in found[0]}
    batch = batches[-1]
    return LogitLens(
        top=numbers["top"],
        probability=numbers["probability"],
        entropy=numbers["entropy"],
        kl=numbers["kl"],
        rank=numbers.get("rank"),
        target_probability=numbers.get("target_probability"),
        real=batch.is_real.cpu(),
        labels=tuple(tuple(model.to_labels(ids)) for ids in batch.ids),
        names=_names(model, numbers["top"]),
        targets=None if targets is None else _as_targets(targets),
        provenance=Provenance.of(model, *batches),
    )


def _streams(model: Transformer) -> list[Place]:
    """The streams of the last stack: before the first block, and after each."""
    stack = model.stacks[-1]
    name = stack.name if len(model.stacks) > 1 else None
    ends = [stack.block(layer).end for layer in range(len(stack.blocks))]
    return [
        Place(Point.RESID_PRE, 0, stack=name),
        *(Place(end.point, layer, end.norm, name) for layer, end in enumerate(ends)),
    ]


def _predictions(
    logits: Float[Tensor, "prompt pos vocab"],
    final: Float[Tensor, "prompt pos vocab"],
    target: Int[Tensor, " prompt"] | None,
    top: int,
) -> dict[str, Tensor]:
    """What is reported of logits, given the model's own and the target of each prompt."""
    log_p = at_least_float32(logits).log_softmax(-1)
    log_final = at_least_float32(final).log_softmax(-1)
    likeliest = log_p.topk(top, dim=-1)
    numbers = {
        "top": likeliest.indices,
        "probability": likeliest.values.exp(),
        "entropy": -(log_p.exp() * log_p).sum(-1),
        "kl": (log_final.exp() * (log_final - log_p)).sum(-1),
    }
    if target is not None:
        own = log_p.gather(-1, target[:, None, None].expand(*log_p.shape[:2], 1))
        numbers |= {"rank": (log_p > own).sum(-1), "target_probability": own[..., 0].exp()}
    return numbers


def _chunks(logits: Float[Tensor, "prompt pos vocab"]) -> tuple[Int[Tensor, " row"], ...]:
    """The rows in parts whose logits are few enough to be formed at a time."""
    rows = max(1, CHUNK // logits[0].numel())
    return torch.arange(len(logits), device=logits.device).split(rows)


def _names(model: Transformer, top: Int[Tensor, "depth prompt pos k"]) -> dict[int, str]:
    """The label of each token reported; of classes, their numbers."""
    ids = top.unique()
    labels = map(str, ids.tolist()) if model.config.n_classes else model.to_labels(ids)
    return dict(zip(ids.tolist(), labels, strict=True))


def _as_targets(targets: Targets | Sequence[int]) -> Targets:
    return targets if isinstance(targets, int) else tuple(targets)
