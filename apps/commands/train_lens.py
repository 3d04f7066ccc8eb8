"""``interp train-lens``: how much of the final prediction can be read at each layer?"""

from typing import TYPE_CHECKING, Annotated

import typer

from apps.commands.command import analysis_command

if TYPE_CHECKING:
    from analyses import LensTraining
    from apps.commands.inputs import Inputs

Steps = Annotated[int, typer.Option(help="Number of updates.", min=1)]
Batch = Annotated[int, typer.Option(help="Prompts per update.", min=1)]
Rate = Annotated[float, typer.Option("--lr", help="Initial learning rate of Adam.")]
HeldOut = Annotated[
    str | None,
    typer.Option(
        help="Prompts that the lens is evaluated on: a file or a bundled set.",
        show_default="a fifth of the prompts, drawn with the seed",
    ),
]


@analysis_command("Training a lens")
def train_lens(
    inputs: "Inputs",
    *,
    steps: Steps = 250,
    batch: Batch = 4,
    lr: Rate = 3e-3,
    held_out: HeldOut = None,
) -> "LensTraining":
    """Train a tuned lens and save it as lens.safetensors, for `interp lens --lens`."""
    import analyses  # noqa: PLC0415

    return analyses.train_lens(
        inputs.model,
        inputs.batch,
        held_out=None if held_out is None else inputs.of_file(held_out).batch,
        steps=steps,
        rows=batch,
        lr=lr,
        **inputs.how(analyses.train_lens, "rows"),
    )
