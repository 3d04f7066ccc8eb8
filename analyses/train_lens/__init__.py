"""How much of the final prediction can be read at each layer? A tuned lens, trained.

    KL_l = KL(softmax(logits) ‖ softmax(unembed(norm(x_l + x_l·A_l + b_l))))

x_l is the stream before block l; A_l and b_l are trained to minimize the divergence on some prompts
and are measured on others (Belrose et al. 2023, "Eliciting Latent Predictions from Transformers
with the Tuned Lens"; see :mod:`analyses.train_lens.training`). The control is the logit lens,
A = b = 0, on the same held-out prompts.

What a lens reads need not be what later layers use: a translator is trained on the answer, and may
compute what the model has not yet computed. With few tokens to train on it is worse than it could
be, so its KL is an upper bound on that of the best affine map.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from analyses.methods.finite import check_finite_weights
from analyses.methods.lens import TunedLens
from analyses.results import (
    Curve,
    Curves,
    Drawing,
    Progress,
    Result,
    bracketed,
    counted,
    effect_frame,
    fixed,
    prompt_frame,
    rounding,
    signed,
)
from analyses.train_lens.streams import StreamSource, provenance_of, streams_of
from analyses.train_lens.training import (
    ROWS,
    Settings,
    Training,
    lens_divergence,
    rows_of_step,
    train,
)
from interp import Transformer
from interp.errors import InvalidInput, shorten
from interp.execution import Provenance

HELD_OUT, MOST_HELD_OUT = 5, 32
"""One in this many prompts is held out by default, and the most that are."""


@dataclass(frozen=True, eq=False, repr=False)
class LensTraining(Result):
    """A tuned lens, and its divergence from the final prediction on held-out prompts.

    Attributes:
        logit_lens: KL(final prediction ‖ prediction of the logit lens) before each block, in nats:
            the mean over the tokens of each held-out prompt.
        tuned_lens: the same for the tuned lens.
        training_kl: the same on the prompts of each step, before its update; mean over tokens.
        training: the translators, and what is needed to continue.
        provenance: the model, and the prompts for training and held out.
    """

    working = ("training",)
    effect_unit = "nats"

    logit_lens: Float[Tensor, "layer prompt"]
    tuned_lens: Float[Tensor, "layer prompt"]
    training_kl: Float[Tensor, "step layer"]
    training: Training
    provenance: Provenance

    @property
    def lens(self) -> TunedLens:
        """The tuned lens."""
        return self.training.lens

    def to_frame(self) -> pd.DataFrame:
        """One row per layer.

        Columns:
            layer: the stream before this block is read.
            logit_lens, tuned_lens: KL from the final prediction in nats, mean over prompts.
            effect, low, high: tuned_lens − logit_lens, and its 95 % interval over prompts.
            size, n, p, q, significant: see :func:`analyses.results.effect_frame`.
        """
        cells = {
            "layer": list(range(len(self.logit_lens))),
            "logit_lens": self.logit_lens.double().mean(-1).tolist(),
            "tuned_lens": self.tuned_lens.double().mean(-1).tolist(),
        }
        noise = rounding(self.logit_lens, self.provenance.dtype)
        frame = effect_frame(cells, self.tuned_lens - self.logit_lens, noise)
        return frame.sort_values("layer", ignore_index=True)

    def to_prompt_frame(self) -> pd.DataFrame:
        """One row per layer and held-out prompt: layer, prompt, logit_lens, tuned_lens, effect."""
        return prompt_frame(
            {"layer": list(range(len(self.logit_lens)))},
            logit_lens=self.logit_lens.double(),
            tuned_lens=self.tuned_lens.double(),
            effect=(self.tuned_lens - self.logit_lens).double(),
        )

    def drawing(self) -> Drawing:
        """KL from the final prediction by layer, for both lenses."""
        frame = self.to_frame()
        layers = frame["layer"].tolist()
        lines = [
            Curve(name.replace("_", " "), layers, frame[name].tolist())
            for name in ("logit_lens", "tuned_lens")
        ]
        return Curves(
            {"KL": lines},
            title="KL from the final prediction before each block, on held-out prompts",
            axis="layer",
            units=["nats"],
        )

    def summary(self) -> str:
        """At how many layers the tuned lens is closer than the logit lens, and how close."""
        lines = [
            f"resid_pre {row['layer']}  KL {fixed(row['logit_lens'], 3)} → "
            f"{fixed(row['tuned_lens'], 3)} nats, "
            f"change {signed(row['effect'], 3)}{bracketed(row['low'], row['high'], 3)}"
            for row in self.to_frame().to_dict("records")
        ]
        return "\n".join([self.headline(), *lines])

    def headline(self) -> str:
        """See :meth:`Result.headline`."""
        frame, settings = self.to_frame(), self.training.settings
        done, n = len(self.training_kl), self.logit_lens.shape[1]
        closer = int((frame["effect"] < 0).sum())
        steps = f"{done} steps" if done == settings.steps else f"{done} of {settings.steps} steps"
        return (
            f"tuned lens, {steps}: closer to the final prediction than the logit lens at {closer} "
            f"of {len(frame)} layers, on {counted(n, 'held-out prompt')}"
        )


def train_lens(  # noqa: PLR0913 - the settings of one training, by keyword
    model: Transformer,
    prompts: Any,  # noqa: ANN401 - what model.check reads
    *,
    held_out: Any = None,  # noqa: ANN401 - likewise
    steps: int = 250,
    rows: int | None = None,
    tokens: int | None = None,
    lr: float = 3e-3,
    seed: int = 0,
    progress: Progress | None = None,
    cancelled: Callable[[], bool] | None = None,
    checkpoint: Callable[[Training], None] | None = None,
    resume: LensTraining | Training | None = None,
) -> LensTraining:
    """Train a tuned lens: an affine translator of the stream before each block.

    The model stays as it is. ``result.lens.save(path)`` writes the lens, which
    ``analyses.TunedLens.load(path, model)`` reads and ``logit_lens(..., lens=)`` applies.

    Args:
        model: a model with an unembedding; for an encoder–decoder, the decoder is read.
        prompts: texts, token ids, images or a batch; ``(source, target)`` for an encoder–decoder;
            or an ``interp.Harvest`` of ``resid_pre`` and the last ``resid_post``, whose texts are
            then not run.
        held_out: prompts that the lens is measured on; ``None`` takes every fifth of ``prompts``,
            at most 32, drawn by ``seed``. Windows of one document are not independent prompts: then
            hold out whole documents.
        steps: number of updates.
        rows: prompts per update; ``None``: 4, or 1 if prompts have more tokens than an update uses.
        tokens: the most tokens of these prompts per update, and of each held-out prompt, drawn by
            ``seed``; ``None``: as many as have logits of 8 MiB, which are 42 of a vocabulary of
            49 152.
        lr: initial learning rate of Adam; it falls linearly to zero.
        seed: seed for the order of the prompts, and for those held out.
        progress: called with ``(steps done, steps in total)``.
        cancelled: called after each step; if it returns True, the result is of the steps done.
        checkpoint: called after each step with the :class:`Training` so far, whose ``save(path)``
            writes what is needed to continue; the next step changes its tensors.
        resume: the result of a cancelled call with the same arguments, or a training that was saved
            (``analyses.train_lens.Training.load(path)``); the remaining steps are done, and the
            result is bit-identical to that of a call that was not stopped.

    Returns:
        The lens, and KL by layer and held-out prompt for this lens and the logit lens.

    Raises:
        InvalidInput: the model has no logits, there is a single prompt and none is held out, a
            setting can't be used, ``resume`` is of another call, or the KL is not finite.
        NotRecorded: the harvest has not stored all streams that the lens reads.

    Examples:
        >>> model, prompts = interp.load("rasp-reverse"), interp.read_prompts("rasp-reverse")
        >>> analyses.train_lens(model, [p.text for p in prompts[:20]], steps=20)
        LensTraining(tuned lens, 20 steps: closer to the final prediction than the logit lens at 3
        of 3 layers, on 4 held-out prompts)
    """
    check_finite_weights(model)
    settings = Settings(steps, ROWS if rows is None else rows, lr, seed, tokens).checked()
    if not isinstance(resume, LensTraining | Training | None):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(
            f"resume={shorten(resume)} should be what a cancelled train_lens returned, or a saved "
            "training."
        )
    everything = streams_of(model, prompts)
    used, measured = (
        _split(everything, settings.seed)
        if held_out is None
        else (everything, streams_of(model, held_out))
    )
    if rows is None:
        settings = replace(settings, rows=rows_of_step(model, used, settings.tokens))
    training = train(
        model,
        used,
        settings,
        progress=progress,
        cancelled=cancelled,
        checkpoint=checkpoint,
        resume=resume.training if isinstance(resume, LensTraining) else resume,
    )
    control = TunedLens.untrained(model, training.lens.provenance)
    kl = [
        lens_divergence(model, lens, measured, settings).cpu() for lens in (control, training.lens)
    ]
    return LensTraining(
        logit_lens=kl[0],
        tuned_lens=kl[1],
        training_kl=training.kl.cpu(),
        training=training,
        provenance=provenance_of(model, settings.seed, used, measured),
    )


def _split(prompts: StreamSource, seed: int) -> tuple[StreamSource, StreamSource]:
    """Split prompts into those to train on and those held out."""
    n = len(prompts)
    if n == 1:
        raise InvalidInput(
            "A lens is trained on some prompts and measured on others; got 1 prompt and no "
            "held_out=. Give more prompts, or some to hold out."
        )
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    n_held_out = min(max(1, n // HELD_OUT), MOST_HELD_OUT)
    used, measured = order.split([n - n_held_out, n_held_out])
    return prompts.take(used.sort().values), prompts.take(measured.sort().values)
