"""Steering: a vector is added to the stream during generation, and the new text is compared.

    v = mean over positive prompts of x − mean over negative prompts of x
    x ↦ x + strength · v        at every position of one place

(Turner et al. 2023, "Activation Addition"; Rimsky et al. 2023, "Steering Llama 2 via Contrastive
Activation Addition").
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - as everyone writes it

from analyses.methods.attribution import all_outputs
from analyses.methods.components import components_of
from analyses.methods.finite import check_no_nan
from interp import edits
from interp.edits import Edit
from interp.errors import InvalidInput, shorten
from interp.execution import generate, run
from interp.integers import within
from interp.metrics import at_least_float32, at_position, divergence, required_columns
from interp.model import PAD, Batch, Network
from interp.points import Place, Point
from interp.prompts import read_batches
from interp.transformer import TextNetwork

Vector = Float[Tensor, " d_model"]
Directions = Sequence[tuple[Place, Tensor]]
"""What is added at strength 1, and where: one vector, or what a feature writes to each layer."""


def stream_place(model: Network, at: str | Point, layer: int | None) -> Place:
    """The place of a point of the stream in a layer; for an encoder–decoder, of the decoder.

    Raises:
        UnknownPlace: there is no such point.
        InvalidInput: there is no such layer, or the place does not have the axes of the stream.
    """
    name = (model.stacks[-1].name,) if len(model.stacks) > 1 else ()
    n = len(model.stacks[-1].blocks)
    place = model.names.resolve((at, within(-n, n - 1, layer, "layer"), *name))
    if place.point.axes != ("batch", "pos", "d_model"):
        axes = " ".join(place.point.axes)
        raise InvalidInput(
            f"{place} has the axes {axes}; a vector is added at [batch pos d_model]."
        )
    return place


def contrast_vector(
    model: TextNetwork,
    positive: Any,  # noqa: ANN401 - what model.check reads
    negative: Any,  # noqa: ANN401 - likewise
    place: Place,
    pos: int | None = -1,
) -> Vector:
    """The mean at a place over positive prompts, minus the mean over negative prompts.

    Args:
        model: the model.
        positive: any number of prompts, as ``interp.run`` takes them.
        negative: likewise; their number and lengths may differ from those of ``positive``.
        place: a place of the stream.
        pos: the position that is read among the tokens of each prompt; ``None`` for the mean over
            all tokens.

    Raises:
        InvalidInput: a prompt has no such position, or the model computes NaN on it.
    """
    sides = [read_batches(model, prompts) for prompts in (positive, negative)]
    if pos is not None:
        for batches in sides:
            required_columns(_read(model, batches, place), pos)
    positive_mean, negative_mean = (_mean_of(model, batches, place, pos) for batches in sides)
    return positive_mean - negative_mean


def _read(model: Network, batches: Sequence[Batch], place: Place) -> Batch:
    """The batch of the stack that has the place."""
    names = [stack.name for stack in model.stacks]
    return batches[names.index(place.stack) if place.stack else -1]


def _mean_of(model: Network, batches: Sequence[Batch], place: Place, pos: int | None) -> Vector:
    x = at_least_float32(run(model, *batches, record=place).cache[place])
    check_no_nan(model, batches, x)
    batch = _read(model, batches, place)
    if pos is not None:
        return at_position(x, batch, pos).mean(0)
    real = batch.is_real[..., None]
    return ((x * real).sum(1) / real.sum(1)).mean(0)


class Continuation:
    """The unedited continuation of some prompts, with which edited continuations are compared.

    Args:
        model: the model.
        inputs: the prompts, one batch per stack.
        new_tokens: largest number of new tokens per prompt.
        temperature: sampling temperature.
        seed: sampling seed.

    Raises:
        InvalidInput: see :func:`interp.execution.generate`.

    Attributes:
        new: the new tokens, ``PAD`` after the end of a text.
    """

    def __init__(
        self,
        model: Network,
        inputs: Sequence[Batch],
        *,
        new_tokens: int,
        temperature: float = 0.0,
        seed: int = 0,
    ) -> None:
        self._model, self._inputs, self._most = model, inputs, new_tokens
        self._temperature, self._seed = temperature, seed
        self._width = int(inputs[-1].is_real.sum(-1).max())
        self._tokens = self._generated(())
        self._logits = self._predicted(())
        self.new: Int[Tensor, "prompt new"] = self._new_tokens(self._tokens)

    def edited(self, made: Sequence[Edit]) -> Int[Tensor, "prompt new"]:
        """The new tokens of a continuation with edits in every forward."""
        return self._new_tokens(self._generated(made))

    def divergence(self, made: Sequence[Edit]) -> Float[Tensor, "prompt new"]:
        """KL(unedited ‖ edited) of the prediction of each token of the unedited continuation.

        It is in nats, and NaN after the end of a text.
        """
        kl = divergence(self._logits, self._predicted(made))
        kl = kl.where(self._tokens[:, self._width :] != PAD, torch.nan)
        return F.pad(kl, (0, self._most - kl.shape[1]), value=torch.nan)

    def _generated(self, made: Sequence[Edit]) -> Int[Tensor, "prompt pos"]:
        """The prompts of the last stack, padded on the left, followed by the new tokens."""
        return generate(
            self._model,
            *self._inputs,
            max_new_tokens=self._most,
            temperature=self._temperature,
            seed=self._seed,
            edits=made,
        )

    def _predicted(self, made: Sequence[Edit]) -> Float[Tensor, "prompt new vocab"]:
        """The logits that predict the new tokens of the unedited continuation."""
        logits = run(self._model, *self._inputs[:-1], self._tokens, edits=made).logits
        if logits is None:
            raise InvalidInput("This model has no logits to compare.")
        return at_least_float32(logits[:, self._width - 1 : -1])

    def _new_tokens(self, tokens: Int[Tensor, "prompt pos"]) -> Int[Tensor, "prompt new"]:
        new = tokens[:, self._width :]
        return F.pad(new, (0, self._most - new.shape[1]), value=PAD)


def steering_edits(directions: Directions, strength: float) -> list[Edit]:
    """Add ``strength`` times each vector at every position of its place."""
    return [edits.add(place, strength * vector) for place, vector in directions]


def random_directions(directions: Directions, seed: int) -> Directions:
    """Random vectors of the same lengths at the same places."""
    generator = torch.Generator().manual_seed(seed)
    drawn = [torch.randn(x.shape, generator=generator).to(x) for _, x in directions]
    return [
        (place, random * (vector.norm() / random.norm()))
        for (place, vector), random in zip(directions, drawn, strict=True)
    ]


def feature_directions(model: Network, feature: str) -> Directions:
    """The decoders of a feature: what it writes, where its activation is 1.

    Raises:
        InvalidInput: it is not the name of a feature.
        UnknownPlace: the model has no such component.
    """
    component = components_of(model).named(str(feature))
    if component.place.point is not Point.FEATURES or component.unit is None:
        raise InvalidInput(f"feature={shorten(feature)} should be that of a dictionary: L0F17.")
    which = torch.tensor([component.unit], device=model.device)
    directions: list[tuple[Place, Tensor]] = []
    for output in all_outputs(model):
        for source, number in output.sources:
            if source.names.place == component.place:
                sizes = model.fixed_axes(output.writes)
                shape = [sizes[axis] for axis in output.writes.point.axes[2:]]
                directions.append((output.writes, source.writers(which)[0, number].view(shape)))
    return directions


def steering_vector(
    model: TextNetwork,
    vector: Tensor | None,
    contrast: Any,  # noqa: ANN401 - checked here
    place: Place,
    pos: int | None,
) -> Vector:
    """The vector that is added at strength 1: ``vector``, or that of ``contrast``.

    Args:
        model: the model.
        vector: the vector; ``None`` to compute it from ``contrast``.
        contrast: positive and negative prompts, as for :func:`contrast_vector`; or ``None``.
        place: a place of the stream.
        pos: as for :func:`contrast_vector`.

    Raises:
        InvalidInput: both are given or neither; a vector of another shape, or not finite; or
            ``contrast`` is not a pair.
    """
    if (vector is None) == (contrast is None):
        raise InvalidInput(
            "Give one of vector=, contrast=(positive, negative) prompts and feature=, or ablate= "
            "alone."
        )
    if vector is not None and (not isinstance(vector, Tensor) or vector.is_complex()):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(
            f"vector={shorten(vector)} should be a tensor of {model.d_model} numbers."
        )
    if vector is not None:
        direction = vector.detach().to(model.device, model.dtype)
    elif not isinstance(contrast, tuple) or len(contrast) != 2:  # noqa: PLR2004
        raise InvalidInput(f"contrast={shorten(contrast)} should be (positive, negative) prompts.")
    else:
        direction = contrast_vector(model, *contrast, place, pos).to(model.dtype)
    if direction.shape != (model.d_model,) or not bool(direction.isfinite().all()):
        raise InvalidInput(
            f"The vector has shape {tuple(direction.shape)}; expected {model.d_model} finite "
            "numbers."
        )
    return direction
