"""The final norm and the unembedding, applied to the stream or a sub-layer's output at any layer.

    logits(x) = unembed(norm(x))

If x is the stream after the last block, these are bit-identical to the model's own logits.
"""

from collections.abc import Iterator

from jaxtyping import Float
from torch import Tensor

from interp.errors import InvalidInput, shorten
from interp.model import Logits, Network, Step, Stream, Untouched, untouched
from interp.points import Place, Point

STREAMS = ("resid_pre", "resid_mid")
WRITES = ("attn_out", "cross_attn_out", "mlp_out")
PlaceNames = dict[tuple[str, int], Place]
"""Places by label of the point and layer."""


def decode(
    model: Network, x: Stream, scale: Float[Tensor, "batch pos one"] | None = None
) -> Logits:
    """``unembed(norm(x))``.

    Args:
        model: a model with an unembedding.
        x: the stream of the last stack, or the output of one of its parts.
        scale: the divisor of the final norm; by default that of ``x``.
    """
    tap = untouched if scale is None else GivenScale(scale)
    return model.unembed(model.stacks[-1].final_norm(x, tap))


class GivenScale(Untouched):
    """The tap of a final norm that divides by a given scale."""

    def __init__(self, scale: Float[Tensor, "batch pos one"]) -> None:
        self.scale = scale

    def __call__(self, point: Point, value: Tensor) -> Tensor:
        """The given scale at the scale's point; any other value is unchanged."""
        return self.scale if point is Point.FINAL_SCALE else value

    def must_form(self, *points: Point) -> bool:
        """Whether the scale is one of the points."""
        return Point.FINAL_SCALE in points


def final_scale(model: Network) -> Place | None:
    """The place of the divisor of the final norm; ``None`` if there is no such norm."""
    place = Place(Point.FINAL_SCALE, stack=model.stacks[-1].name_in_places)
    return place if place in model.layout else None


def decoded_places(model: Network, at: object = "resid_pre") -> PlaceNames:
    """The places that a lens reads, in the order of the forward; the end of the stack is the last.

    ``resid_mid`` is the stream after each sub-layer except the last one of a block, taken after the
    norm in post-norm models. In the decoder of an encoder–decoder, it includes
    ``cross_resid_mid``.

    Args:
        model: the model; of an encoder–decoder, the decoder is read.
        at: one or several of ``resid_pre``, ``resid_mid``, ``attn_out``, ``cross_attn_out`` and
            ``mlp_out``.

    Raises:
        InvalidInput: ``at`` is another point, a point that this model lacks, or the output of a
            sub-layer in a model that normalizes the whole stream, not only a sub-layer's input.
    """
    names = _point_names(at)
    stack = model.stacks[-1]
    blocks = [stack.block(layer) for layer in range(len(stack.blocks))]
    named: PlaceNames = {}
    for layer, block in enumerate(blocks):
        if "resid_pre" in names:
            named["resid_pre", layer] = Place(Point.RESID_PRE)
        for step in block.steps:
            for name, place in _written(step, names):
                named[name, layer] = place
            if "resid_mid" in names and step is not block.steps[-1]:
                named[step.points.sum.label, layer] = step.end()
    lacking = names - {name for name, _ in named}
    if lacking:
        raise InvalidInput(f"at={shorten(at)}: this model has no {min(lacking)}.")
    named["resid_post", len(blocks) - 1] = stack.end
    name = stack.name_in_places
    return {key: Place(place.point, key[1], place.norm, name) for key, place in named.items()}


def _point_names(at: object) -> set[str]:
    """The labels of the requested points."""
    several = [at] if isinstance(at, str | Point) else at
    names = (
        [point.label if isinstance(point, Point) else point for point in several]
        if isinstance(several, list | tuple)
        else []
    )
    labels = (*STREAMS, *WRITES)
    if not names or any(name not in labels for name in names):
        raise InvalidInput(f"at={shorten(at)} should be one or several of {', '.join(labels)}.")
    return {str(name) for name in names}


def _written(step: Step, names: set[str]) -> Iterator[tuple[str, Place]]:
    """The labels and places of those outputs of a step's sub-layers that are in ``names``."""
    for branch in step.branches:
        name = branch.points.writes.label
        if name in names:
            if not step.preserves_stream:
                raise InvalidInput(
                    f"at={name!r}: this model normalizes the whole stream in each sub-layer, so "
                    "the output of a sub-layer alone gives no prediction. Read resid_pre or "
                    "resid_mid."
                )
            yield name, Place(branch.points.writes)
