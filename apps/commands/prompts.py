"""``interp prompts``: list the bundled sets, check a file against a model, fill a template."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from apps.commands.options import DEFAULT_MODEL, Device, Model
from apps.terminal import print_stdout, print_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from analyses.check_prompts import PromptCheck
    from interp.prompts import Prompt

SUFFIX = ".jsonl"
"""The extension of an output file."""

File = Annotated[
    str,
    typer.Argument(
        help="A prompt file (.jsonl, .csv, .tsv, .parquet, a template .toml, or text), the folder "
        "of a dataset, or a bundled set."
    ),
]
SameLength = Annotated[
    bool | None,
    typer.Option(
        "--same-length/--any-length",
        help="Whether all texts should have the same number of tokens.",
        show_default="same length for a template, else any",
    ),
]
Rows = Annotated[int, typer.Option("--top", help="Number of problems to print.", min=1)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON with all problems instead.")]


def list_sets() -> None:
    """List the bundled prompt sets."""
    from interp.prompts import FIELDS, bundled_prompts, read_prompts  # noqa: PLC0415 - imports torch

    rows: list[tuple[str, str, str]] = []
    for name in bundled_prompts():
        prompts = read_prompts(name)
        used = {field for prompt in prompts for field in prompt.fields()}
        rows.append((name, str(len(prompts)), ", ".join(f for f in FIELDS if f in used)))
    print_table([("set", "left"), ("prompts", "right"), ("fields", "left")], rows)


def check(
    file: File,
    *,
    model: Model = DEFAULT_MODEL,
    same_length: SameLength = None,
    device: Device = "cpu",
    top: Rows = 20,
    as_json: AsJson = False,
) -> None:
    """Check prompts against a model: lengths, targets, minimal pairs, and its accuracy.

    The exit code is 1 if a prompt has a problem; a wrong prediction is not one.
    """
    from interp.prompts import path_of_prompts  # noqa: PLC0415

    path = path_of_prompts(file)
    same = path.suffix.lower() == ".toml" if same_length is None else same_length
    report = _checked(model, file, device, same_length=same)
    if as_json:
        typer.echo(json.dumps({"file": str(path), "model": model, **report.to_dict()}, indent=2))
    else:
        print_table([("", "left"), (f"{file} with {model}", "left")], report.rows())
        _print_problems(report, path, top)
        print_stdout(f"\n{_conclusion(report, model)}")
    if not report.holds:
        raise typer.Exit(1)


def fill(  # noqa: PLR0913 - the options of one command
    template: Annotated[Path, typer.Argument(help="A template: a TOML file or a bundled set.")],
    *,
    n: Annotated[
        int | None,
        typer.Option(
            help="Number of prompts.", min=1, show_default="the template's n, else all fillings"
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Seed of random draws.", show_default="the template's seed, else 0"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help=f"Output file ({SUFFIX}).", show_default="standard output"),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="Check the prompts against a model before writing."),
    ] = None,
    same_length: SameLength = None,
    device: Device = "cpu",
) -> None:
    """Fill a template: write prompts as JSON lines, each entry of each slot equally often.

    With --model, the prompts are checked first; if one has a problem, nothing is written and the
    exit code is 1.
    """
    from interp.errors import InvalidInput  # noqa: PLC0415
    from interp.io import write_text_whole  # noqa: PLC0415
    from interp.prompts import read_template  # noqa: PLC0415

    if out is not None and out.suffix != SUFFIX:
        raise InvalidInput(f"--out {out} should end in {SUFFIX}: prompts are JSON lines.")
    prompts = read_template(template).fill(n, seed)
    if model is not None:
        report = _checked(model, prompts, device, same_length=same_length is not False)
        if not report.holds:
            _print_problems(report, template, 20)
            print_stdout(f"\n{_conclusion(report, model)} Nothing was written.")
            raise typer.Exit(1)
    lines = [json.dumps(prompt.fields(), ensure_ascii=False) for prompt in prompts]
    text = "".join(f"{line}\n" for line in lines)
    if out is None:
        typer.echo(text, nl=False)
        return
    write_text_whole(out, text)
    print_stdout(f"{out}: {len(prompts)} prompts.")


def _checked(
    model: str, prompts: "str | Iterable[Prompt]", device: str, *, same_length: bool
) -> "PromptCheck":
    """The check of prompts, or of those of a file."""
    from analyses.check_prompts import check_prompts  # noqa: PLC0415
    from apps.devices import loading_options  # noqa: PLC0415
    from interp.loading import load  # noqa: PLC0415
    from interp.prompts import iter_prompts  # noqa: PLC0415

    loaded = load(model, **loading_options(device))
    if isinstance(prompts, str):
        prompts = iter_prompts(prompts, loaded.chat)
    return check_prompts(loaded, prompts, same_length=same_length)


def _print_problems(report: "PromptCheck", path: Path, top: int) -> None:
    if report.holds:
        return
    rows: list[tuple[str, str, str]] = []
    for problem in report.problems[:top]:
        # For a template, the words that were filled in come last, because they are long.
        number, _, filling = problem.source.removeprefix(str(path)).partition(" ")
        rows.append((number, problem.field, f"{problem.problem} {filling}".rstrip()))
    print_stdout("")
    print_table([(path.name, "left"), ("field", "left"), ("problem", "left")], rows)
    left = sum(report.wrong.values()) - len(rows)
    if left > 0:
        print_stdout(f"… and {left} more (--top)")


def _conclusion(report: "PromptCheck", model: str) -> str:
    if report.holds:
        return f"{model} can read all {report.n} prompts."
    return f"Prompts with a problem: {report.n_wrong} of {report.n}, with {model}."
