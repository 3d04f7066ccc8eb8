"""The quantities compared when a model is changed: patterns, outputs of heads, streams, logits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from analyses.methods.finite import check_no_nan
from analyses.methods.heads import every_attention
from analyses.methods.symmetries.own_inputs import layer_ends
from interp.execution import run
from interp.model import Batch, Network

PATTERN, OUTPUT = "pattern", "output"
HEAD, LAYER, MODEL = "head", "layer", "model"


@dataclass(frozen=True)
class Part:
    """A quantity of one part of a model.

    Attributes:
        kind: ``head``, ``layer`` or ``model``.
        name: name of the part, such as ``L0H1``, ``encoder.L0`` or ``model``.
        quantity: ``pattern`` ``[batch query key]``, or ``output`` ``[batch pos ...]``: the output
            of a head, the stream after a layer, or the logits (the last stream if there are none).
        query: index of the stack whose tokens are the rows of the quantity.
        key: index of the stack whose tokens are the columns of a pattern.
    """

    kind: str
    name: str
    quantity: str
    query: int
    key: int


Observed = Mapping[Part, Tensor]


def observed(model: Network, batches: Sequence[Batch]) -> Observed:
    """The pattern and output of each head, the stream after each layer, and the model's output."""
    kinds, ends = every_attention(model), layer_ends(model)
    places = [
        place
        for kind in kinds
        for layer in range(len(kind.layers))
        for place in (kind.places(layer)[0], kind.z_place(layer))
    ]
    done = run(model, *batches, record=[*places, *ends.values()])
    outputs: dict[Part, Tensor] = {}
    for kind in kinds:
        for layer, attn in enumerate(kind.layers):
            pattern = done.cache[kind.places(layer)[0]]
            written = attn.result(done.cache[kind.z_place(layer)])
            for head in range(attn.n_heads):
                name = kind.head_name(layer, head)
                outputs[Part(HEAD, name, PATTERN, kind.query, kind.key)] = pattern[:, head]
                outputs[Part(HEAD, name, OUTPUT, kind.query, kind.key)] = written[:, :, head]
    for (stack, name), place in ends.items():
        outputs[Part(LAYER, name, OUTPUT, stack, stack)] = done.cache[place]
    output, last = done.stream if done.logits is None else done.logits, len(model.stacks) - 1
    if output is not None:
        check_no_nan(model, batches, output)
        outputs[Part(MODEL, MODEL, OUTPUT, last, last)] = output
    return outputs
