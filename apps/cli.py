"""The ``interp`` command line: one command per analysis, and commands for models and reports.

Torch, pandas and plotly take seconds to import, so each command imports only what it uses, and
``interp --help`` answers at once.
"""

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

import typer

from apps.commands import COMMANDS, summary
from apps.commands.graph import graph
from apps.commands.group import Commands
from apps.commands.harvest import harvest
from apps.commands.options import DEFAULT_MODEL, Model, parse_bytes
from apps.commands.prompts import check, fill, list_sets
from apps.commands.repeat import repeat
from apps.commands.report import report
from apps.commands.train_dictionary import train_dictionary
from apps.failures import debugging, interrupt_when_terminated, reports_errors
from apps.terminal import (
    escape_unencodable,
    print_stderr,
    print_stdout,
    print_table,
    print_warnings_as_lines,
)

DEFAULT_EXPLORED = "python-4l"
WIDEST = 110
"""Number of columns of help texts in a wide terminal."""

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"max_content_width": WIDEST},
    help="Which heads of a Transformer matter, and where do they attend?",
)


def print_version(*, asked: bool) -> None:
    """Print the version and exit, if ``--version`` is given."""
    if asked:
        try:
            number = version("interp")
        except PackageNotFoundError:  # runs from its source without being installed
            number = "source"
        print_stdout(f"interp {number}")
        raise typer.Exit


@app.callback()
def common_options(
    *,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    _version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=print_version, is_eager=True),
    ] = False,
) -> None:
    """Which heads of a Transformer matter, and where do they attend?"""
    debugging.set(debug)


@app.command()
@reports_errors
def models() -> None:
    """List the bundled models."""
    from apps.catalogue import COLUMNS, catalogue, summaries  # noqa: PLC0415

    print_table(COLUMNS, catalogue())
    print_stdout("\n" + "\n".join(summaries()))


for analysis in COMMANDS:
    app.command(analysis.name, help=summary(analysis))(lambda: None)  # replaced when it is used
app.command()(reports_errors(report))
app.command()(reports_errors(repeat))
app.command()(reports_errors(harvest, divides_work=True))
app.command()(reports_errors(graph))
app.command("train-dictionary")(reports_errors(train_dictionary))

prompts = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Prompt files: list the bundled sets, check a file against a model, fill a template.",
)
prompts.command("list")(reports_errors(list_sets))
prompts.command()(reports_errors(check))
prompts.command()(reports_errors(fill))
app.add_typer(prompts, name="prompts")


@app.command()
@reports_errors
def verify(*, model: Model = DEFAULT_MODEL) -> None:
    """Check numerically that the mathematical identities of a model hold.

    The exit code is 1 if one fails.
    """
    from analyses.methods.symmetries import verify as check_identities  # noqa: PLC0415
    from interp.loading import load  # noqa: PLC0415

    identities = check_identities(load(model))
    print_table(
        [("", "left"), ("error", "right"), ("bound", "right"), ("identity", "left")],
        [
            (
                "✓" if identity.holds else "✗",
                f"{identity.error:.1e}",
                f"{identity.bound:.0e}",
                identity.name,
            )
            for identity in identities
        ],
    )
    failed = [identity for identity in identities if not identity.holds]
    if failed:
        print_stdout(f"\n{len(failed)} of {len(identities)} identities of {model} fail.")
        raise typer.Exit(1)
    print_stdout(f"\nAll {len(identities)} identities of {model} hold.")


@app.command()
@reports_errors
def doctor(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Check this installation: versions, threads, kernels, GPU, browser, folders.

    ✓: as expected. !: something is missing or slow. ✗: interp can't be used. Below each ! and ✗
    stands what to do. The exit code is 1 if there is a ✗.
    """
    import json  # noqa: PLC0415

    from apps.doctor import examine, is_usable, to_json  # noqa: PLC0415

    findings = examine()
    if as_json:
        typer.echo(json.dumps(to_json(findings), indent=2))
    else:
        columns = [("", "left"), ("check", "left"), ("result, and what to do", "left")]
        print_table(columns, [finding.row() for finding in findings])
    if not is_usable(findings):
        raise typer.Exit(1)


@app.command()
@reports_errors
def convert(
    source: Annotated[str, typer.Argument(help="A nanoGPT checkpoint, a folder or hub:org/name.")],
    folder: Annotated[Path, typer.Argument(help="Output folder, created if missing.")],
    *,
    allow_pickle: Annotated[
        bool,
        typer.Option(
            "--allow-pickle", help="Read a pickle: a checkpoint, pytorch_model.bin (weights only)."
        ),
    ] = False,
    variant: Annotated[
        str | None, typer.Option(help="Variant of the weights: fp16 for model.fp16.safetensors.")
    ] = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Refuse fields of config.json that the model does not read."),
    ] = False,
) -> None:
    """Convert a model to a folder with a configuration and safetensors weights."""
    from interp.loading import load, save_folder  # noqa: PLC0415

    model = load(source, allow_pickle=allow_pickle, variant=variant, strict=strict)
    save_folder(model, folder)
    weights = sum(weight.numel() for weight in model.parameters())
    print_stdout(f"{folder}: {weights:,} weights, {str(model.dtype).removeprefix('torch.')}.")


@app.command()
@reports_errors
def explore(
    *,
    models: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "-m",
            help="A bundled model, a folder or hub:org/name; may be repeated. The first is opened.",
            show_default=DEFAULT_EXPLORED,
        ),
    ] = None,
    results: Annotated[
        list[Path] | None,
        typer.Option(
            help="A report.html, the output folder of an analysis, or a folder of such folders; "
            "may be repeated."
        ),
    ] = None,
    dictionaries: Annotated[
        list[str] | None,
        typer.Option(
            "--dictionary",
            help="Folder of a transcoder of an MLP, or of a cross-layer transcoder, whose features "
            "are units of the page Graph; may be repeated.",
            show_default="the bundled ones of the model",
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            help="Port; 0 chooses any free one.",
            min=0,
            max=65535,
            show_default="the first free one from 8501",
        ),
    ] = None,
    memory: Annotated[
        int | None,
        typer.Option(
            parser=parse_bytes,
            metavar="BYTES",
            envvar="INTERP_EXPLORE_MEMORY",
            help="Memory that results, tables and views of all visitors may take beside the "
            "models, e.g. 2GB; the least recently used are evicted.",
            show_default="a quarter of the free memory",
        ),
    ] = None,
    headless: Annotated[bool, typer.Option("--headless", help="Do not open a browser.")] = False,
) -> None:
    """Open the interactive explorer in a browser."""
    from apps.catalogue import check_name  # noqa: PLC0415
    from apps.serve import choose_port, serve  # noqa: PLC0415

    models = [*(models or []), *_models_of(results or [])] or [DEFAULT_EXPLORED]
    for name in models:
        check_name(name)
    free = choose_port(port)
    print_stderr(f"The explorer is at http://127.0.0.1:{free} (Ctrl-C stops it).")
    serve(
        models,
        free,
        headless=headless,
        results=results or [],
        dictionaries=dictionaries or [],
        memory=memory,
    )


def _models_of(results: Sequence[Path]) -> list[str]:
    """The bundled models among those of some reports; raises if a report can't be read."""
    from apps.report.written import read_written  # noqa: PLC0415
    from interp.loading import PACKAGED, bundled  # noqa: PLC0415

    of = dict.fromkeys(report.model for path in results for report in read_written(path))
    return [name for name in of if name in [*bundled(), *PACKAGED]]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command ``interp``."""
    escape_unencodable()
    print_warnings_as_lines()
    interrupt_when_terminated()
    app(args=arguments, prog_name="interp")
