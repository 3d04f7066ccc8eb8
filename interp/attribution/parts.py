"""The parts of a model behind the writers and readers of its graph."""

from dataclasses import replace

from interp.graph import Reader, Writer
from interp.model.attention.attention import Attention
from interp.model.network import Network
from interp.model.norm import Norm
from interp.model.residual import Step
from interp.points import Place


def attention_at(model: Network, place: Place) -> Attention:
    """The attention that a place belongs to."""
    return _step_at(model, place)[1]


def norm_before(model: Network, reader: Reader) -> Norm:
    """The norm between the stream that a head reads and its queries, keys or values."""
    if reader.stream.stack != reader.place.stack:
        return model.stack(reader.stream.stack).final_norm
    return _step_at(model, reader.place)[0].input_norm


def source_of(model: Network, writer: Writer) -> Place:
    """The place of what a writer's term is computed from: z of a head, else the term itself."""
    place = place_of(writer)
    if writer.head is None:
        return place
    return replace(place, point=attention_at(model, place).points.z)


def place_of(writer: Writer) -> Place:
    """The place of a writer's term.

    Raises:
        ValueError: it is a bias, which is recorded nowhere.
    """
    if writer.place is None:
        raise ValueError(f"{writer} is a bias, which is recorded nowhere.")
    return writer.place


def _step_at(model: Network, place: Place) -> tuple[Step, Attention]:
    for whole in model.stack(place.stack).block(place.layer or 0).steps:
        for step in whole.branches:
            if isinstance(step.f, Attention) and place.point in vars(step.f.points).values():
                return step, step.f
    raise ValueError(f"{place} is not of an attention.")
