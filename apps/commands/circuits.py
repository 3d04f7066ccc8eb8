"""``interp circuits``: what do the weights of the heads compute?"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from apps.commands.command import analysis_command

if TYPE_CHECKING:
    import interp
    from analyses import Composition, OVCircuit, QKCircuit
    from apps.commands.inputs import Inputs

OV = Annotated[
    str | None,
    typer.Option(help="A head, e.g. L1H0: report what it promotes for each attended token."),
]
QK = Annotated[
    str | None,
    typer.Option(help="A head, e.g. L0H5: report what it attends to, by token and by offset."),
]
Token = Annotated[
    list[str] | None,
    typer.Option(
        help="With --ov and --qk: a text that is one token; may be repeated.",
        show_default="the tokens with the largest entries",
    ),
]
Offset = Annotated[
    int | None,
    typer.Option(
        help="Query position − key position, for rotary positions.",
        show_default="0, or 1 with --qk",
    ),
]
FirstMLP = Annotated[
    bool,
    typer.Option("--first-mlp", help="With --ov and --qk: apply the first MLP to the embeddings."),
]


@analysis_command("Reading weights", reads=())
def circuits(
    inputs: "Inputs",
    *,
    ov: OV = None,
    qk: QK = None,
    token: Token = None,
    offset: Offset = None,
    first_mlp: FirstMLP = False,
) -> "Composition | OVCircuit | QKCircuit":
    """Read circuits from the weights: which heads compose, or one head's OV or QK circuit."""
    import analyses  # noqa: PLC0415
    from interp.errors import InvalidInput  # noqa: PLC0415

    if ov and qk:
        raise InvalidInput("--ov and --qk ask for different circuits; give one of them.")
    if not (ov or qk):
        if token or first_mlp:
            raise InvalidInput("--token and --first-mlp need a head: give --ov or --qk as well.")
        how = inputs.how(analyses.composition)
        return analyses.composition(inputs.model, offset=offset or 0, **how)
    model = inputs.model
    given: dict[str, Any] = {**_head(model, ov or qk or ""), "first_mlp": first_mlp}
    given |= {"tokens": token or None} | inputs.how(analyses.ov if ov else analyses.qk)
    if ov:
        return analyses.ov(model, **given)
    return analyses.qk(model, offset=1 if offset is None else offset, **given)


def _head(model: "interp.Transformer", name: str) -> dict[str, Any]:
    """The layer, head and, in an encoder–decoder, attention that the name of a head stands for."""
    from analyses.methods.components import components_of  # noqa: PLC0415
    from interp.errors import InvalidInput  # noqa: PLC0415

    found = components_of(model).named(name)
    if found.head is None:
        raise InvalidInput(f"{name} is not a head; name one, such as L0H1.")
    attention = name.partition(".")[0] if len(model.stacks) > 1 else None
    return {"layer": found.layer, "head": found.head, "attention": attention}
