"""``python -m training NAME``: train a bundled model from scratch, or resume its training."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from apps.devices import default_device, parse_device
from apps.failures import interrupt_when_terminated, reports_errors
from apps.terminal import (
    escape_unencodable,
    print_stderr,
    print_stdout,
    print_warnings_as_lines,
    progress,
)
from interp import card
from training import build_model, has_checkpoint

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
@reports_errors
def build(
    name: Annotated[str, typer.Argument(help="A bundled model; see `interp models`.")],
    *,
    steps: Annotated[
        int | None,
        typer.Option(help="Number of training steps.", show_default="as for the bundled model"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Output folder, created if missing.", show_default="models/NAME"),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="Device: cpu, cuda, …", show_default="a GPU if available")
    ] = None,
    anew: Annotated[
        bool, typer.Option("--anew", help="Start from scratch instead of resuming.")
    ] = False,
) -> None:
    """Train a bundled model from scratch.

    To resume a training that was stopped, run the same command again.
    """
    folder = out or Path("models") / name
    if has_checkpoint(name, folder) and not anew:
        print_stderr(f"Resuming the unfinished training in {folder} (--anew starts from scratch).")
    with progress(f"Training {name}") as tick:
        build_model(
            name,
            folder,
            report=lambda step, of, loss: tick(step, of, f"loss {loss:.3f} nats"),
            steps=steps,
            device=parse_device(device or default_device()),
            anew=anew,
        )
    print_stdout(
        f"{name} is in {folder}, described in its README.md. Use it with --model {folder}."
    )
    if card(folder).data != card(name).data:
        print_stderr(
            "It was trained on other data than the bundled model (see the cards of both), so its "
            "measured figures differ."
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    escape_unencodable()
    print_warnings_as_lines()
    interrupt_when_terminated()
    app(args=arguments, prog_name="python -m training")


if __name__ == "__main__":
    main()
