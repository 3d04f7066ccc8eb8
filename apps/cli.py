"""The ``interp`` command: lists and trains models, ablates, verifies, opens the explorer.

Torch, pandas and plotly take seconds to import and are imported by the commands that use them,
so that ``interp --help`` answers at once.
"""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from apps.failures import debugging, fails_plainly
from apps.terminal import progress, say, table, tell

DEFAULT_MODEL = "python-2l"
EXPLORED = "python-4l"

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Which heads of a Transformer matter, and where do they look?",
)


class MetricName(StrEnum):
    """What is measured."""

    LOSS = "loss"
    LOGIT_DIFF = "logit-diff"


class MethodName(StrEnum):
    """What a head is replaced with."""

    ZERO = "zero"
    MEAN = "mean"
    RESAMPLE = "resample"


Model = Annotated[str, typer.Option("--model", "-m", help="A bundled model, or a folder.")]


@app.callback()
def everywhere(
    *,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Which heads of a Transformer matter, and where do they look?"""
    debugging.set(debug)


@app.command()
@fails_plainly
def models() -> None:
    """List the bundled models."""
    from apps.catalogue import COLUMNS, catalogue, summaries  # noqa: PLC0415

    table(COLUMNS, catalogue())
    say("\n" + "\n".join(summaries()))


@app.command()
@fails_plainly
def ablate(  # noqa: PLR0913 - each is an option of the command line
    *,
    model: Model = DEFAULT_MODEL,
    prompts: Annotated[
        str | None,
        typer.Option(help="A file or a bundled set; by default the set made for the model."),
    ] = None,
    metric: Annotated[
        MetricName | None,
        typer.Option(help="What is measured.", show_default="loss, or what suits the model"),
    ] = None,
    method: Annotated[MethodName, typer.Option(help="What a head is replaced with.")] = (
        MethodName.MEAN
    ),
    out: Annotated[
        Path | None,
        typer.Option(help="A folder, made if need be.", show_default="reports/MODEL-METRIC-METHOD"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the resampling.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, …")] = "cpu",
    top: Annotated[int, typer.Option(help="How many heads the table shows.", min=1)] = 10,
) -> None:
    """Write a report: which heads matter?"""
    from apps.ablation import Settings, find, metric_for, write_files  # noqa: PLC0415
    from apps.atomic_folder import staged  # noqa: PLC0415
    from apps.wording import answer, head_table  # noqa: PLC0415

    measured = metric_for(model) if metric is None else metric.value
    folder = out or Path("reports") / f"{Path(model).resolve().name}-{measured}-{method}"
    settings = Settings(model, prompts, measured, method.value, seed, device)
    with staged(folder) as unfinished:
        with progress("Ablating heads") as tick:
            finding = find(settings, tick)
        write_files(finding, unfinished)
    table(*head_table(finding.result, top))
    say(f"\n{answer(finding.result)}")
    say(f"Report: {folder / 'report.html'}")


@app.command()
@fails_plainly
def verify(*, model: Model = DEFAULT_MODEL) -> None:
    """Check a model's identities.

    Exit code 1 if one fails.
    """
    from interp.loading import load  # noqa: PLC0415
    from interp.verify import verify as identities_of  # noqa: PLC0415

    found = identities_of(load(model))
    table(
        [("", "left"), ("error", "right"), ("bound", "right"), ("identity", "left")],
        [
            ("✓" if one.holds else "✗", f"{one.error:.1e}", f"{one.bound:.0e}", one.name)
            for one in found
        ],
    )
    failed = [one for one in found if not one.holds]
    if failed:
        say(f"\n{len(failed)} of {len(found)} identities of {model} fail.")
        raise typer.Exit(1)
    say(f"\nAll {len(found)} identities of {model} hold.")


@app.command()
@fails_plainly
def convert(
    source: Annotated[str, typer.Argument(help="A checkpoint of nanoGPT, a folder, hub:org/name.")],
    folder: Annotated[Path, typer.Argument(help="Where the model goes, made if need be.")],
    *,
    allow_pickle: Annotated[
        bool, typer.Option("--allow-pickle", help="Read a pickle: its weights alone.")
    ] = False,
) -> None:
    """Write a model as a folder with safetensors."""
    from interp.loading import load, save_folder  # noqa: PLC0415

    model = load(source, allow_pickle=allow_pickle)
    save_folder(model, folder)
    weights = sum(weight.numel() for weight in model.parameters())
    say(f"{folder}: {weights:,} weights, {str(model.dtype).removeprefix('torch.')}.")


@app.command()
@fails_plainly
def explore(
    *,
    model: Annotated[str, typer.Option("--model", "-m", help="A bundled model.")] = EXPLORED,
    port: Annotated[
        int | None,
        typer.Option(
            help="0 takes any free one.", min=0, max=65535, show_default="the first free from 8501"
        ),
    ] = None,
    headless: Annotated[bool, typer.Option("--headless", help="Open no browser.")] = False,
) -> None:
    """Open the explorer in a browser."""
    from apps.catalogue import explorable  # noqa: PLC0415
    from apps.serve import choose_port, serve  # noqa: PLC0415
    from interp.errors import ModelLoadError  # noqa: PLC0415

    if model not in explorable():
        raise ModelLoadError(
            f"The explorer shows bundled models with one stack: {', '.join(explorable())}."
        )
    chosen = choose_port(port)
    tell(f"The explorer is at http://127.0.0.1:{chosen} (Ctrl-C stops it).")
    serve(model, chosen, headless=headless)


@app.command()
@fails_plainly
def train(
    name: Annotated[str, typer.Argument(help="A bundled model; see `interp models`.")],
    *,
    steps: Annotated[
        int | None, typer.Option(help="Of training.", show_default="as the bundled model had")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="A folder, made if need be.", show_default="models/NAME")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda, …", show_default="a GPU if there is one")
    ] = None,
    anew: Annotated[
        bool, typer.Option("--anew", help="Begin at the beginning, whatever is unfinished.")
    ] = False,
) -> None:
    """Make a bundled model again, from nothing.

    A training that was stopped goes on when the same command is given again.
    """
    from apps.devices import device_of, fastest  # noqa: PLC0415
    from interp import card  # noqa: PLC0415
    from interp.zoo.training.build import build_model, has_checkpoint  # noqa: PLC0415

    folder = out or Path("models") / name
    if has_checkpoint(name, folder) and not anew:
        tell(f"{folder} holds an unfinished training; it goes on (--anew begins anew).")
    with progress(f"Training {name}") as tick:
        build_model(
            name,
            folder,
            report=lambda step, of, loss: tick(step, of, f"loss {loss:.3f} nats"),
            steps=steps,
            device=device_of(device or fastest()),
            anew=anew,
        )
    say(f"{name} is in {folder}; read its README.md. Use it with --model {folder}.")
    if card(folder).data != card(name).data:
        tell("Its data are not the bundled model's (see both cards), so its figures differ.")


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script ``interp``."""
    app(args=arguments, prog_name="interp")
