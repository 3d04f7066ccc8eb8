"""Compare two models on the same tokens: logits, every activation that both have, gradients.

*Theirs* is a model of ``transformers``, *ours* is the same model loaded by this package.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from inspect import signature
from math import isfinite
from typing import Any

import torch
from agreement.exact import Seen, exact, randomised, watched
from agreement.small import Case
from torch import Tensor, nn
from transformers.models.clip.modeling_clip import CLIPTextModelOutput

import interp
from interp import Place, Point, Transformer
from interp.loading.live import LOGITS, as_output, last_stream
from interp.loading.registry import families

BOUND = 1e-9
WORST: dict[str, dict[str, float]] = {}
"""The largest error found in this run, by family and by what was compared."""

Reading = Callable[[Seen, int], Tensor | None]
"""Reads their tensor of a layer from what was seen; ``None`` if the layer has none."""
Check = Callable[[nn.Module, Transformer], float]
"""Another comparison: a function of theirs and ours that returns the largest error."""


@dataclass(frozen=True)
class Layers:
    """Reads inputs and outputs of modules in a list of layers; an empty name is the layer itself.

    Attributes:
        prefix: the name of the list, as in ``model.layers``.
    """

    prefix: str

    def output(self, name: str = "", change: Callable[[Tensor], Tensor] = lambda x: x) -> Reading:
        """The output of a module, converted by ``change`` to our form of the same tensor."""
        return lambda seen, layer: change(seen.outputs[self._of(layer, name)])

    def input(self, name: str = "") -> Reading:
        """The first input of a module."""
        return lambda seen, layer: seen.inputs[self._of(layer, name)]

    def through(self, name: str, before: str, behind: str) -> dict[str, Reading]:
        """The input and the output of a module, under our labels ``before`` and ``behind``."""
        return {before: self.input(name), behind: self.output(name)}

    def joint(
        self, name: str, labels: Iterable[str], cut: Callable[[Tensor], tuple[Tensor, ...]]
    ) -> dict[str, Reading]:
        """The parts into which ``cut`` splits the output of a module, under our labels."""
        return {
            label: self.output(name, lambda x, n=n: cut(x)[n]) for n, label in enumerate(labels)
        }

    def _of(self, layer: int, name: str) -> str:
        return f"{self.prefix}.{layer}.{name}".removesuffix(".")


def if_there(*readings: Reading) -> Reading:
    """Reads the first of these tensors that a layer has; ``None`` if it has none."""

    def read(seen: Seen, layer: int) -> Tensor | None:
        for reading in readings:
            with suppress(KeyError):
                return reading(seen, layer)
        return None

    return read


def within(prefix: str, shared: Mapping[str, Reading]) -> dict[str, Reading]:
    """The same readings for a model that is part of another, under the name ``prefix``."""

    def moved(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {f"model.{k.removeprefix(prefix)}": x for k, x in tensors.items() if prefix in k}

    def of_part(read: Reading) -> Reading:
        return lambda seen, layer: read(Seen(moved(seen.inputs), moved(seen.outputs)), layer)

    return {label: of_part(read) for label, read in shared.items()}


def by_heads(n_heads: int) -> Callable[[Tensor], tuple[Tensor, ...]]:
    """Splits a joint product that holds q, k, v of the first head, then of the second, …"""
    return lambda x: x.unflatten(-1, (n_heads, 3, -1)).unbind(-2)


def heads_behind(x: Tensor) -> Tensor:
    """``[batch head pos d_head]`` as ``[batch pos head d_head]``."""
    return x.transpose(1, 2)


@dataclass(frozen=True)
class Stack:
    """Where the tensors of one of their stacks are.

    Attributes:
        shared: how their tensor is read, by our label. A norm's point is ``"normalized ln1"``.
        first_score: index of the first layer's softmax among all softmaxes.
        scores_each: number of softmaxes per layer (two in a decoder with cross-attention).
        shifted_scores: whether rows of scores differ by a constant, which softmax ignores.
        sinks: how many of the last columns of a softmax belong to no key.
    """

    shared: Mapping[str, Reading]
    first_score: int = 0
    scores_each: int = 1
    shifted_scores: bool = False
    sinks: int = 0


@dataclass(frozen=True, eq=False)
class Family:
    """A family that is compared.

    Attributes:
        name: its name in the table of errors.
        cases: small random models, by name.
        stacks: where their tensors are, by the name of our stack; only these are compared.
        pads: the sides on which padding means the same in both models.
        checks: other comparisons, by name.
        places: their ``position_ids``, as a function of a token's index in its text.
        embedding: their weight with respect to which gradients are compared.
        own_embedding: the same weight of ours.
    """

    name: str
    cases: Mapping[str, Case]
    stacks: Mapping[str, Stack] = field(default_factory=dict)
    pads: tuple[str, ...] = ("left", "right")
    checks: Mapping[str, Check] = field(default_factory=dict)
    places: Callable[[Tensor], Tensor] = lambda index: index
    embedding: Callable[[Any], Tensor] = lambda theirs: theirs.get_input_embeddings().weight
    own_embedding: Callable[[Transformer], Any] = lambda ours: ours.stacks[0].weight_e


@cache
def pair_of(family: Family, case: str) -> tuple[nn.Module, Transformer]:
    """Theirs, with random weights in float64, and ours, loaded from it."""
    with exact(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        theirs = randomised(family.cases[case]())
        return theirs, interp.load(theirs)


def off(ours: Tensor, theirs: Tensor) -> float:
    """The largest difference, relative to the largest number or to 1, whichever is larger."""
    assert ours.shape == theirs.shape, f"{tuple(ours.shape)} against {tuple(theirs.shape)}"
    error = ((ours - theirs).abs().max() / theirs.abs().max().clamp(min=1.0)).item()
    assert isfinite(error), "not all are finite numbers"
    return error


def noted(family: Family, what: str, error: float) -> None:
    """Keep the largest error for the table, and assert that ``error`` is within the bound."""
    worst = WORST.setdefault(family.name, {})
    worst[what] = max(worst.get(what, 0.0), error)
    assert error <= BOUND, f"{family.name}, {what}: off by {error:.3g}, bound {BOUND}"


def inputs_of(model: Transformer, rows: int = 2, pos: int = 11) -> list[Tensor]:
    """Random tokens for each stack, or images."""
    generator = torch.Generator().manual_seed(1)
    shape = getattr(model.stacks[0].tokens, "image_shape", None)
    if shape is not None:
        return [torch.randn(rows, *shape, generator=generator, dtype=torch.float64)]
    widths = (pos, max(1, pos - 3))
    vocabularies = [model.config.vocabulary_of(stack.name) for stack in model.stacks]
    return [
        torch.randint(min(3, size - 1), size, (rows, width), generator=generator)
        for size, width in zip(vocabularies, widths, strict=False)
    ]


def called(theirs: nn.Module, inputs: list[Tensor], **more: object) -> Any:
    """The output of their forward pass; the mask is all ones unless one is given."""
    first, *second = inputs
    with exact():
        if first.is_floating_point():
            return of_pooled(theirs, theirs(pixel_values=first, **more))
        arguments = {"input_ids": first, "attention_mask": torch.ones_like(first)} | more
        for ids in second:
            arguments["decoder_input_ids"] = ids
            arguments.setdefault("decoder_attention_mask", torch.ones_like(ids))
        if "use_cache" in signature(theirs.forward).parameters:
            arguments["use_cache"] = False
        return of_pooled(theirs, theirs(**arguments))


def of_pooled(theirs: Any, out: Any) -> Any:
    """Their output; only the pooled output where their last stream differs from ours by design."""
    if not families()[theirs.config.model_type].pooled or any(name in out for name in LOGITS):
        return out
    return CLIPTextModelOutput(text_embeds=out.pooler_output)


def both(
    pair: tuple[nn.Module, Transformer],
    inputs: list[Tensor],
    mask: Tensor | None = None,
    **more: object,
) -> tuple[Tensor, Tensor]:
    """The outputs of ours and theirs, in one shape: logits, or the last stream of a base model."""
    theirs, ours = pair
    more |= {} if mask is None else {"attention_mask": mask}
    return beside(called(theirs, inputs, **more), ours, inputs, mask)


def beside(
    out: Any, ours: Transformer, inputs: list[Tensor], mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The output of ours, and the same part of their output."""
    logits = next((name for name in LOGITS if name in out), None)
    if logits is None:
        output, expected = last_stream(ours, *inputs, mask=mask), out.last_hidden_state
    else:
        output, expected = ours(*inputs, mask=mask), out[logits]
    return as_output(output, expected, logits or ""), expected


def apart(ours: Tensor, theirs: Tensor) -> float:
    """As :func:`off`; theirs may have merged axes, such as heads, or rows and positions."""
    return off(ours, theirs.reshape(ours.shape) if theirs.ndim < ours.ndim else theirs)


def seen_scores(ours: Tensor, theirs: Tensor, *, shifted: bool) -> tuple[Tensor, Tensor]:
    """The scores of visible keys; minus the largest of each row, if rows differ by a constant."""
    visible = ours.isfinite()
    ours, theirs = (x.masked_fill(~visible, -1e4) for x in (ours, theirs))
    if shifted:
        ours, theirs = (x - x.amax(-1, keepdim=True) for x in (ours, theirs))
    return ours[visible], theirs[visible]


def compared(
    family: Family, theirs: nn.Module, ours: Transformer, inputs: list[Tensor]
) -> dict[str, float]:
    """The largest error of each point, over all layers of all stacks."""
    done = interp.run(ours, *inputs, record="all")
    with watched(theirs) as seen, torch.no_grad():
        errors = {"logits": off(*both((theirs, ours), inputs))}
    return errors | shared(family.stacks, seen, ours, done)


def shared(
    stacks: Mapping[str, Stack], seen: Seen, ours: Transformer, done: interp.Run
) -> dict[str, float]:
    """The largest error of each point that both have, over all layers of ``stacks``."""
    errors: dict[str, float] = {}
    for name, stack in stacks.items():
        stack_name = name if len(ours.stacks) > 1 else None
        for layer in range(len(ours.stack(name).blocks)):
            layer_errors = []
            for label, read in stack.shared.items():
                tensor = read(seen, layer)
                if tensor is None:
                    continue
                point, _, norm = label.partition(" ")
                where = Place(Point[point.upper()], layer, norm or None, stack_name)
                layer_errors.append((point, apart(done.cache[where], tensor)))
            for step, cross in enumerate(("", "cross_")[: stack.scores_each]):
                scores, pattern = (
                    done.cache[Place(Point[f"{cross}{what}".upper()], layer, None, stack_name)]
                    for what in ("scores", "pattern")
                )
                their_scores = seen.scores[stack.first_score + layer * stack.scores_each + step]
                their_pattern = torch.softmax(their_scores, -1)
                keys = slice(their_scores.shape[-1] - stack.sinks)
                seen_by = seen_scores(scores, their_scores[..., keys], shifted=stack.shifted_scores)
                layer_errors.append((f"{cross}scores", off(*seen_by)))
                layer_errors.append((f"{cross}pattern", off(pattern, their_pattern[..., keys])))
            for what, error in layer_errors:
                errors[what] = max(errors.get(what, 0.0), error)
    return errors
