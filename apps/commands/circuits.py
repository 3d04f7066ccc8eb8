"""``interp circuits``: what do the weights of the heads compute?"""

from typing import Any

import analyses
import interp
from analyses import Composition, OVCircuit, QKCircuit
from analyses.methods.components import components_of
from apps.commands.inputs import Inputs
from interp.errors import InvalidInput


def circuits(
    inputs: Inputs,
    *,
    ov: str | None = None,
    qk: str | None = None,
    token: list[str] | None = None,
    offset: int | None = None,
    first_mlp: bool = False,
) -> Composition | OVCircuit | QKCircuit:
    """Read the composition of all heads, or the circuit of one.

    Args:
        inputs: the model.
        ov: a head, e.g. L1H0: report what it promotes for each attended token.
        qk: a head, e.g. L0H5: report what it attends to, by token and by offset.
        token: with --ov and --qk: a text that is one token; by default those with the largest
            entries.
        offset: query position − key position, for rotary positions; by default 0, or 1 with --qk.
        first_mlp: with --ov and --qk: apply the first MLP to the embeddings.
    """
    if ov and qk:
        raise InvalidInput("--ov and --qk ask for different circuits; give one of them.")
    if not (ov or qk):
        if token or first_mlp:
            raise InvalidInput("--token and --first-mlp need a head: give --ov or --qk as well.")
        how = inputs.how(analyses.composition)
        return analyses.composition(inputs.model, offset=offset or 0, **how)
    model = inputs.model
    arguments: dict[str, Any] = {**_head(model, ov or qk or ""), "first_mlp": first_mlp}
    arguments |= {"tokens": token or None} | inputs.how(analyses.ov if ov else analyses.qk)
    if ov:
        return analyses.ov(model, **arguments)
    return analyses.qk(model, offset=1 if offset is None else offset, **arguments)


def _head(model: interp.Transformer, name: str) -> dict[str, Any]:
    """The layer, head and, in an encoder–decoder, attention that the name of a head stands for."""
    component = components_of(model).named(name)
    if component.head is None:
        raise InvalidInput(f"{name} is not a head; name one, such as L0H1.")
    attention = name.partition(".")[0] if len(model.stacks) > 1 else None
    return {"layer": component.layer, "head": component.head, "attention": attention}
