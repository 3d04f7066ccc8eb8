"""Two models on the same tokens: logits, every activation that both have, gradients."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from inspect import signature
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from agreement.exact import Seen, exact, randomised, watched
from safetensors.torch import save_file
from torch import Tensor, nn

import interp
from interp import Place, Transformer
from interp.loading.live import last_stream

BOUND = 1e-9
WORST: dict[str, dict[str, float]] = {}
"""By family and what was compared, the largest error found in this run."""

Reading = Callable[[Seen, int], Tensor | None]
"""Their tensor of one layer, of what was seen; ``None`` where this layer has none."""


@dataclass(frozen=True)
class Stack:
    """Where the tensors of one of their stacks are.

    Attributes:
        layers: name of the list of layers.
        shared: our labels, and how theirs is read. A norm's point is ``"normalized ln1"``.
        first_score: which of all softmaxes is the one of the first layer.
        scores_each: how many softmaxes a layer has (a paired decoder's has two).
        shifted_scores: whether rows of scores differ by a constant, which no softmax sees.
    """

    layers: str
    shared: Mapping[str, Reading]
    first_score: int = 0
    scores_each: int = 1
    shifted_scores: bool = False


@dataclass(frozen=True, eq=False)
class Family:
    """A family that is compared.

    Attributes:
        name: as in the table of errors.
        cases: small random models, by name.
        stacks: where their tensors are, by the name of our stack.
        reads: what a model is given: ``tokens``, ``pair`` or ``images``.
        pads: on which sides its own padding means the same as ours.
        checks: what else is compared, by name.
        places: what their ``position_ids`` are, of a token's index in its text.
        embedding: the weight of theirs by which gradients are taken.
        own_embedding: the same of ours.
    """

    name: str
    cases: Mapping[str, Callable[[], nn.Module]]
    stacks: Mapping[str, Stack]
    reads: str = "tokens"
    pads: tuple[str, ...] = ("left", "right")
    checks: Mapping[str, Callable[[nn.Module, Transformer], float]] = field(default_factory=dict)
    places: Callable[[Tensor], Tensor] = lambda index: index
    embedding: Callable[[nn.Module], Tensor] = lambda theirs: theirs.get_input_embeddings().weight
    own_embedding: Callable[[Transformer], Tensor] = lambda ours: ours.stacks[0].weight_e


@cache
def pair_of(family: Family, case: str) -> tuple[nn.Module, Transformer]:
    """Theirs, drawn at random in float64, and ours, loaded from it."""
    with exact():
        theirs = randomised(family.cases[case]())
        return theirs, interp.load(theirs)


def off(ours: Tensor, theirs: Tensor) -> float:
    """The largest difference, of the largest number over one."""
    assert ours.shape == theirs.shape, f"{tuple(ours.shape)} against {tuple(theirs.shape)}"
    return ((ours - theirs).abs().max() / theirs.abs().max().clamp(min=1.0)).item()


def noted(family: Family, what: str, error: float) -> None:
    """Hold ``error`` against the bound, and keep the largest for the table."""
    worst = WORST.setdefault(family.name, {})
    worst[what] = max(worst.get(what, 0.0), error)
    assert error <= BOUND, f"{family.name}, {what}: off by {error:.3g}, bound {BOUND}"


def from_disk(theirs: nn.Module, ours: Transformer) -> float:
    """The largest difference of any weight of ours from what it is when read from a folder."""
    with TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        read = interp.load(folder)
    assert replace(read.config, name="") == replace(ours.config, name="")
    weights = dict(read.named_parameters())
    return max(off(weights[name], weight) for name, weight in ours.named_parameters())


def published(
    fields: Mapping[str, object],
    names: Mapping[str, str] | None = None,
    more: Mapping[str, tuple[int, ...]] | None = None,
) -> Callable[[nn.Module, Transformer], float]:
    """A check of files as they were first published.

    Args:
        fields: all that their ``config.json`` says.
        names: patterns of weights' names, and what stands for them in the file.
        more: names and shapes of tensors that the file holds beside the weights.
    """

    def check(theirs: nn.Module, ours: Transformer) -> float:
        weights = dict(theirs.state_dict())
        for pattern, name in (names or {}).items():
            weights = {re.sub(pattern, name, key): weight for key, weight in weights.items()}
        weights |= {name: torch.ones(shape) for name, shape in (more or {}).items()}
        with TemporaryDirectory() as folder:
            save_file({key: w.clone() for key, w in weights.items()}, f"{folder}/model.safetensors")
            (Path(folder) / "config.json").write_text(json.dumps(fields), encoding="utf-8")
            read = interp.load(folder)
        assert replace(read.config, name="") == replace(ours.config, name="")
        found = dict(read.named_parameters())
        return max(off(found[name], weight) for name, weight in ours.named_parameters())

    return check


def inputs_of(family: Family, model: Transformer, rows: int = 2, pos: int = 11) -> list[Tensor]:
    """Random tokens for each stack, or images."""
    generator = torch.Generator().manual_seed(1)
    if family.reads == "images":
        shape = model.stacks[0].tokens.reads
        return [torch.randn(rows, *shape, generator=generator, dtype=torch.float64)]
    widths = (pos, pos - 3)
    return [
        torch.randint(3, model.config.vocabulary_of(stack.name), (rows, width), generator=generator)
        for stack, width in zip(model.stacks, widths, strict=False)
    ]


def called(family: Family, theirs: nn.Module, inputs: list[Tensor], **more: object) -> object:
    """Their forward; the mask is all ones unless one is given."""
    with exact():
        if family.reads == "images":
            return theirs(pixel_values=inputs[0], **more)
        given = {"input_ids": inputs[0], "attention_mask": torch.ones_like(inputs[0])} | more
        if family.reads == "pair":
            given["decoder_input_ids"] = inputs[1]
            given.setdefault("decoder_attention_mask", torch.ones_like(inputs[1]))
        if "use_cache" in signature(theirs.forward).parameters:
            given["use_cache"] = False
        return theirs(**given)


def both(
    family: Family,
    pair: tuple[nn.Module, Transformer],
    inputs: list[Tensor],
    mask: Tensor | None = None,
    **more: object,
) -> tuple[Tensor, Tensor]:
    """What ours and theirs give out, of one shape: logits, or the last stream of a base model."""
    theirs, ours = pair
    more |= {} if mask is None else {"attention_mask": mask}
    out = called(family, theirs, inputs, **more)
    logits = next((out[name] for name in ("logits", "prediction_logits") if name in out), None)
    if logits is None:
        found, expected = last_stream(ours, *inputs, mask=mask), out.last_hidden_state
    else:
        found, expected = ours(*inputs, mask=mask), logits
    return (found[:, 0] if expected.ndim < found.ndim else found), expected


def apart(ours: Tensor, theirs: Tensor) -> float:
    """As :func:`off`, of ``[batch pos head d_head]`` and ``[batch pos width]`` too."""
    if theirs.ndim == ours.ndim - 1:
        theirs = theirs.unflatten(-1, ours.shape[-2:])
    return off(ours, theirs)


def seen_scores(ours: Tensor, theirs: Tensor, *, shifted: bool) -> tuple[Tensor, Tensor]:
    """Scores where a query may look; less each row's largest, where rows differ by a constant."""
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
        errors = {"logits": off(*both(family, (theirs, ours), inputs))}
    for name, stack in family.stacks.items():
        own = name if len(ours.stacks) > 1 else None
        for layer in range(len(ours.stack(name).blocks)):
            for label, read in stack.shared.items():
                tensor = read(seen, layer)
                if tensor is None:
                    continue
                point, _, norm = label.partition(" ")
                where = Place(interp.Point[point.upper()], layer, norm or None, own)
                errors[point] = max(errors.get(point, 0.0), apart(done.cache[where], tensor))
            for step, point in enumerate(("scores", "cross_scores")[: stack.scores_each]):
                where = Place(interp.Point[point.upper()], layer, None, own)
                theirs_at = seen.scores[stack.first_score + layer * stack.scores_each + step]
                pair = seen_scores(done.cache[where], theirs_at, shifted=stack.shifted_scores)
                errors[point] = max(errors.get(point, 0.0), off(*pair))
                pattern = Place(interp.Point[point.replace("scores", "pattern").upper()], layer)
                pattern = Place(pattern.point, layer, None, own)
                expected = torch.softmax(theirs_at, -1)
                errors[pattern.point.label] = max(
                    errors.get(pattern.point.label, 0.0), off(done.cache[pattern], expected)
                )
    return errors
