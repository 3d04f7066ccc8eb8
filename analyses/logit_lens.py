"""What would the model predict at each layer? The unembedding applied to every stream.

    logits_l = unembed(norm(x_l))          x_l: the stream before block l; the last is the output

(nostalgebraist 2020, "interpreting GPT: the logit lens"). The norm is the model's last one. Its
divisor is recomputed from each stream, or is that of the run's last stream, with which the logits
of all that is written add up (up to biases) to the model's. Early streams need not be in the basis
that the unembedding reads, so a prediction may be present although the lens does not show it: see
:func:`analyses.train_lens` (Belrose et al. 2023, "Eliciting Latent Predictions from Transformers
with the Tuned Lens"). A prediction that a lens does show need not be what later layers use.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from analyses.methods.finite import check_finite_weights, check_no_nan
from analyses.methods.lens import PlaceNames, TunedLens, decode, decoded_places, final_scale
from analyses.results import (
    Drawing,
    Heatmap,
    Result,
    Tokens,
    counted,
    fixed,
    percent,
    plotted,
    token_ids,
)
from interp import Transformer, run
from interp.errors import InvalidInput, shorten
from interp.execution import Provenance
from interp.integers import within
from interp.metrics import at_least_float32, divergence, parts_of_rows
from interp.model import Batch, unembedding_of
from interp.points import Point
from interp.prompts import read_batches

NORMS = ("recomputed", "final")


@dataclass(frozen=True, eq=False, repr=False)
class LogitLens(Result):
    """Predictions from the streams of a model, the last of which is its output.

    Attributes:
        points: the point that was read at each place, such as ``resid_pre``.
        layers: the layer of each place.
        norm: the divisor of the final norm: ``recomputed`` or ``final``.
        lens_name: ``Logit lens`` or ``Tuned lens``.
        top: ids of the likeliest tokens, likeliest first.
        probability: probabilities of these tokens.
        entropy: entropy of the prediction, in nats.
        kl: KL(final prediction ‖ this one), in nats.
        rank: rank of each prompt's target, 1 for the likeliest; ``None`` without targets.
        target_probability: probability of the target; ``None`` without targets.
        real: whether there is a token rather than padding, where the numbers are meaningless.
        tokens: labels of the tokens of each prompt, padding included.
        token_labels: labels of the tokens in ``top``, by id.
        target_ids: token ids, one per prompt; ``None`` if none were given.
        provenance: model, tokens and lens that the numbers depend on.
    """

    points: tuple[str, ...]
    layers: tuple[int, ...]
    norm: str
    lens_name: str
    top: Int[Tensor, "place prompt pos k"]
    probability: Float[Tensor, "place prompt pos k"]
    entropy: Float[Tensor, "place prompt pos"]
    kl: Float[Tensor, "place prompt pos"]
    rank: Int[Tensor, "place prompt pos"] | None
    target_probability: Float[Tensor, "place prompt pos"] | None
    real: Bool[Tensor, "prompt pos"]
    tokens: tuple[tuple[str, ...], ...]
    token_labels: dict[int, str]
    target_ids: tuple[int, ...] | None
    provenance: Provenance

    def to_frame(self) -> pd.DataFrame:
        """One row per place, prompt and token.

        Columns:
            layer, point: what was read, as in ``cache[point, layer]``; the last is the output.
            prompt, pos, token: the token at which the prediction is made.
            top, probability: the likeliest next token and its probability.
            entropy, kl: in nats; KL is from the final prediction.
            rank, target_probability: rank and probability of the target, if targets were given.
        """
        cells = [
            (place, *cell)
            for place in range(len(self.points))
            for cell in self.real.nonzero().tolist()
        ]
        place, prompt, pos = torch.tensor(cells).unbind(-1)
        columns = {
            "layer": [self.layers[place] for place, _, _ in cells],
            "point": [self.points[place] for place, _, _ in cells],
            "prompt": prompt,
            "pos": self._positions()[prompt, pos],
            "token": [self.tokens[p][i] for _, p, i in cells],
            "top_token": [self.token_labels[int(t)] for t in self.top[place, prompt, pos, 0]],
            "probability": self.probability[place, prompt, pos, 0],
            "entropy": self.entropy[place, prompt, pos],
            "kl": self.kl[place, prompt, pos],
        }
        if self.rank is not None and self.target_probability is not None:
            columns["rank"] = self.rank[place, prompt, pos]
            columns["target_probability"] = self.target_probability[place, prompt, pos]
        return pd.DataFrame(columns)

    def drawing(self, prompt: int = 0) -> Drawing:
        """Heatmap of the likeliest token's probability: places down, one prompt's tokens across.

        Raises:
            InvalidInput: there is no such prompt.
        """
        prompt = within(0, len(self.real) - 1, prompt, "prompt")
        is_real = self.real[prompt]
        probability = self.probability[:, prompt, is_real, 0]
        labels = [label for label, real in zip(self.tokens[prompt], is_real, strict=True) if real]
        names = [
            [
                f"{place}, token {labels[pos]}\n{self.token_labels[int(token)]} "
                f"{fixed(probability[row, pos], 3)}"
                for pos, token in enumerate(tokens)
            ]
            for row, (place, tokens) in enumerate(
                zip(self._places, self.top[:, prompt, is_real, 0], strict=True)
            )
        ]
        return Heatmap(
            probability,
            title=f"{self.lens_name} on prompt {prompt}: probability of the likeliest token",
            rows=self._places,
            columns=labels,
            axes=("place", "token"),
            unit="probability",
            top=1.0,
            hover=names,
        )

    figure = plotted(drawing)

    def summary(self) -> str:
        """Entropy and KL from the final prediction at each place, mean over all tokens.

        With targets, also their probability after the last token of each prompt, mean over prompts.
        """
        kl, entropy = (x[:, self.real].mean(-1).tolist() for x in (self.kl, self.entropy))
        width = max(map(len, self._places))
        rows = [
            f"{place:<{width}} KL {fixed(mean_kl, 3)} nats, entropy {fixed(spread, 3)} nats"
            for place, mean_kl, spread in zip(self._places, kl, entropy, strict=True)
        ]
        rows[-1] = f"{self._places[-1]:<{width}} the output, entropy {fixed(entropy[-1], 3)} nats"
        if self.target_probability is not None:
            last = self.real.shape[-1] - 1 - self.real.flip(-1).int().argmax(-1)
            at_last = self.target_probability[:, torch.arange(len(last)), last].mean(-1)
            rows = [
                f"{row}; target after the last token {percent(probability)}"
                for row, probability in zip(rows, at_last, strict=True)
            ]
        return "\n".join([self.headline(), *rows])

    def headline(self) -> str:
        """See :meth:`Result.headline`."""
        size = f"{counted(len(self.real), 'prompt')}, {counted(int(self.real.sum()), 'token')}"
        return f"{self.lens_name} on {size}: {self._first_agreement()}"

    def _first_agreement(self) -> str:
        """The first place before the output where the likeliest token is mostly the final one."""
        agree = (self.top[..., 0] == self.top[-1, ..., 0])[:, self.real].double().mean(-1)
        first = int((agree > 1 / 2).int().argmax())
        if first == len(agree) - 1:
            best = int(agree[:-1].argmax())
            return (
                "nowhere before the output is the likeliest token the final one of most tokens "
                f"(at most of {percent(agree[best])}, at {self._places[best]})"
            )
        return (
            f"at {self._places[first]}, the likeliest token is first the final one of most tokens "
            f"({percent(agree[first])})"
        )

    @property
    def _places(self) -> list[str]:
        return [f"{point} {layer}" for point, layer in zip(self.points, self.layers, strict=True)]

    def _positions(self) -> Int[Tensor, "prompt pos"]:
        """The position of each column among the tokens of its prompt."""
        return self.real.cumsum(-1) - 1


def logit_lens(  # noqa: PLR0913 - the settings of one analysis, by keyword
    model: Transformer,
    prompts: Any,  # noqa: ANN401 - what model.check reads
    *,
    at: str | Point | Sequence[str | Point] = "resid_pre",
    norm: str = "recomputed",
    lens: TunedLens | None = None,
    targets: Tokens | None = None,
    top: int = 5,
) -> LogitLens:
    """Read a prediction from the stream before each block, or elsewhere, and at the end.

    Args:
        model: a model with an unembedding.
        prompts: texts, token ids, images or a batch; ``(source, target)`` for an encoder–decoder,
            whose decoder is read.
        at: which streams besides the last: ``resid_pre`` or ``resid_mid``; or what a part writes:
            ``attn_out``, ``cross_attn_out`` or ``mlp_out``; or several of these. For what a part
            writes, the biases of the final norm and the unembedding are still added to the logits.
        norm: the divisor of the final norm: ``recomputed`` from what is read, or ``final``, that of
            the run's last stream.
        lens: a tuned lens of this model, which translates the stream before each block first.
        targets: a token (its id or text), or one per prompt, whose rank and probability to report.
        top: number of likeliest tokens to report.

    Returns:
        Numbers by place, prompt and column; those of the last place are of the model's output.

    Raises:
        InvalidInput: the model has no logits or no such point, ``norm`` is unknown, ``lens`` is of
            another model, ``top`` exceeds the vocabulary, or a target is outside it.
        InvalidTokens: a target's text is not one token; the message shows how it is split.

    Examples:
        >>> model = interp.load("python-2l")
        >>> print(analyses.logit_lens(model, "def f(self): return self").summary())
        Logit lens on 1 prompt, 9 tokens: nowhere before the output is the likeliest token the final
        one of most tokens (at most of 22 %, at resid_pre 1)
        resid_pre 0  KL 3.043 nats, entropy 4.413 nats
        resid_pre 1  KL 0.929 nats, entropy 2.621 nats
        resid_post 1 the output, entropy 2.870 nats
    """
    check_finite_weights(model)
    _check(model, norm, lens, top)
    places = decoded_places(model, at)
    if lens is not None and {point for point, _ in places} != {"resid_pre", "resid_post"}:
        raise InvalidInput(f"at={shorten(at)}: a tuned lens translates resid_pre alone.")
    batches = read_batches(model, prompts)
    n = len(batches[0].ids)
    wanted = None if targets is None else token_ids(model, targets, n, "targets")
    shape = (*batches[-1].ids.shape, model.config.n_logits)
    parts = [
        _read(
            _Settings(model, places, norm, lens, top),
            [batch.rows(rows) for batch in batches],
            None if wanted is None else wanted[rows],
        )
        for rows in parts_of_rows(shape, model.device)
    ]
    numbers = {name: torch.cat([part[name] for part in parts], 1).cpu() for name in parts[0]}
    batch = batches[-1]
    return LogitLens(
        points=tuple(point for point, _ in places),
        layers=tuple(layer for _, layer in places),
        norm=norm,
        lens_name="Logit lens" if lens is None else "Tuned lens",
        top=numbers["top"],
        probability=numbers["probability"],
        entropy=numbers["entropy"],
        kl=numbers["kl"],
        rank=numbers.get("rank"),
        target_probability=numbers.get("target_probability"),
        real=batch.is_real.cpu(),
        tokens=tuple(tuple(model.to_labels(ids)) for ids in batch.ids),
        token_labels=_names(model, numbers["top"]),
        target_ids=None if wanted is None else tuple(wanted.tolist()),
        provenance=replace(
            Provenance.of(model, *batches), lens=None if lens is None else lens.digest
        ),
    )


def _check(model: Transformer, norm: object, lens: object, top: int) -> None:
    """Check the arguments.

    Raises:
        InvalidInput: see :func:`logit_lens`.
    """
    unembedding_of(model)
    if norm not in NORMS:
        raise InvalidInput(f"norm={shorten(norm)} should be one of {', '.join(NORMS)}.")
    within(1, model.config.n_logits, top, "top")
    if not isinstance(lens, TunedLens | None):
        raise InvalidInput(f"lens={shorten(lens)} should be an analyses.TunedLens.")
    if lens is not None:
        lens.check_model(model)


@dataclass(frozen=True, eq=False)
class _Settings:
    """The settings of one call of :func:`logit_lens`."""

    model: Transformer
    places: PlaceNames
    norm: str
    lens: TunedLens | None
    top: int


@torch.no_grad()
def _read(
    settings: _Settings, batches: Sequence[Batch], target: Int[Tensor, " prompt"] | None
) -> dict[str, Tensor]:
    """The numbers of each place, ``[place prompt pos ...]``."""
    model, lens = settings.model, settings.lens
    divisor = final_scale(model) if settings.norm == "final" else None
    wanted = [*settings.places.values(), *([divisor] if divisor else [])]
    done = run(model, *batches, record=wanted)
    final = done.require_logits()
    check_no_nan(model, batches, final)
    scale = None if divisor is None else done.cache[divisor]
    *before, end = settings.places.items()
    predictions: list[dict[str, Tensor]] = []
    for (_, layer), place in before:
        x = done.cache[place]
        logits = decode(model, x if lens is None else lens.translate(x, layer), scale)
        predictions.append(_predictions(logits, final, target, settings.top))
    # The last stream's own divisor is the final one: recomputed, its logits are the output.
    predictions.append(_predictions(decode(model, done.cache[end[1]]), final, target, settings.top))
    return {
        name: torch.stack([numbers[name] for numbers in predictions]) for name in predictions[0]
    }


def _predictions(
    logits: Float[Tensor, "prompt pos vocab"],
    final: Float[Tensor, "prompt pos vocab"],
    target: Int[Tensor, " prompt"] | None,
    top: int,
) -> dict[str, Tensor]:
    """The numbers of a prediction, given the model's own and the target of each prompt."""
    logits = at_least_float32(logits)
    log_p = logits.log_softmax(-1)
    likeliest = log_p.topk(top, dim=-1)
    numbers = {
        "top": likeliest.indices,
        "probability": likeliest.values.exp(),
        "entropy": -(log_p.exp() * log_p).sum(-1),
        "kl": divergence(at_least_float32(final), logits),
    }
    if target is not None:
        target_log_p = log_p.gather(-1, target[:, None, None].expand(*log_p.shape[:2], 1))
        numbers |= {
            "rank": (log_p > target_log_p).sum(-1) + 1,
            "target_probability": target_log_p[..., 0].exp(),
        }
    return numbers


def _names(model: Transformer, top: Int[Tensor, "place prompt pos k"]) -> dict[int, str]:
    """The label of each reported token; for classes, their numbers."""
    ids = top.unique()
    labels = map(str, ids.tolist()) if model.config.n_classes else model.to_labels(ids)
    return dict(zip(ids.tolist(), labels, strict=True))
