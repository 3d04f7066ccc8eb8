"""``interp graph``: the attribution graph of one prompt, as tables, a page and a viewer's JSON."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from apps.commands.options import DEFAULT_MODEL, Device, Model
from apps.terminal import print_stdout, progress

GRAPH_FILE = "neuronpedia.json"
"""Name of the graph in the form of Neuronpedia's and circuit-tracer's viewers."""


class Units(StrEnum):
    """What the nodes of an MLP are; and heads."""

    NEURONS = "neurons"
    FEATURES = "features"
    MLPS = "mlps"
    HEADS = "heads"


class Grouping(StrEnum):
    """What the units of a group have in common."""

    TOKENS = "tokens"
    SOURCES = "sources"


Prompt = Annotated[str, typer.Argument(help="The text whose next token is traced.")]
Target = Annotated[
    list[str] | None,
    typer.Option(
        help="A token whose logit is traced; may be repeated.",
        show_default="the fewest with 95 % of the probability",
    ),
]
UnitsOption = Annotated[
    list[Units] | None,
    typer.Option(
        help="What the nodes of an MLP are; heads, alone or beside these: may be repeated.",
        show_default="neurons, or features if there are --dictionary",
    ),
]
Dictionaries = Annotated[
    list[str] | None,
    typer.Option(
        "--dictionary",
        help="Folder of a transcoder of an MLP, or a bundled one such as python-4l/mlp-0; may be "
        "repeated.",
    ),
]
CrossLayer = Annotated[
    str | None,
    typer.Option(
        help="Folder of a cross-layer transcoder, whose features are the units of MLPs.",
        show_default="none",
    ),
]
MaxNodes = Annotated[int, typer.Option(help="The most units whose rows are computed.", min=0)]
Heads = Annotated[
    bool,
    typer.Option(
        "--heads/--no-heads",
        help="Split edges by the heads that carry them: of long prompts, most of the time.",
    ),
]
Check = Annotated[
    int, typer.Option(help="Units that are set to zero, to check what is predicted.", min=0)
]
Out = Annotated[
    Path | None,
    typer.Option(help="Output folder for tables, page and JSON.", show_default="write no files"),
]
Group = Annotated[
    Grouping | None,
    typer.Option(
        help="Units that viewers show as one node: those that promote, or read, nearly the same.",
        show_default="none",
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of the units that are drawn for the check.")]


def graph(  # noqa: PLR0913 - the options of one command
    prompt: Prompt,
    *,
    model: Model = DEFAULT_MODEL,
    target: Target = None,
    units: UnitsOption = None,
    dictionary: Dictionaries = None,
    cross_layer: CrossLayer = None,
    max_nodes: MaxNodes = 300,
    heads: Heads = True,
    check: Check = 16,
    group: Group = None,
    seed: Seed = 0,
    device: Device = "cpu",
    out: Out = None,
) -> None:
    """Trace a prediction to the tokens through neurons, features, MLPs or heads.

    Neuronpedia's viewer opens the file neuronpedia.json of the output folder.
    """
    from analyses import attribution_graph, estimate_attribution_graph  # noqa: PLC0415
    from apps.csv_text import csv_text  # noqa: PLC0415
    from apps.devices import load_on  # noqa: PLC0415
    from apps.report import Report, ReportPrompt, write_report  # noqa: PLC0415
    from apps.torchrun import is_first  # noqa: PLC0415
    from interp import dictionaries, with_dictionaries  # noqa: PLC0415
    from interp.errors import InvalidInput  # noqa: PLC0415
    from interp.io import atomic_folder  # noqa: PLC0415

    kinds: list[Any] = [str(each) for each in units or ()]
    if cross_layer and ({*kinds} - {Units.HEADS} or dictionary):
        raise InvalidInput(
            "--cross-layer gives the units of MLPs: add no others but --units heads."
        )
    loaded = load_on(device, model)
    if dictionary:
        loaded = with_dictionaries(loaded, [dictionaries.load_any(name) for name in dictionary])
    settings: dict[str, Any] = {
        "units": [*kinds, dictionaries.load_cross_layer(cross_layer)]
        if cross_layer
        else kinds or [str(Units.FEATURES if dictionary else Units.NEURONS)],
        "max_nodes": max_nodes,
        "heads": heads,
        "check": check,
    }
    print_stdout(f"{estimate_attribution_graph(loaded, prompt, **settings)}.")
    with progress("Checking the graph") as tick:
        result = attribution_graph(
            loaded,
            prompt,
            targets=target or None,
            **settings,
            seed=seed,
            progress=tick,
        )
    print_stdout(result.summary())
    groups = result.groups(group.value) if group else {}
    for name, units_of_group in groups.items():
        print_stdout(f"{name}: {', '.join(units_of_group)}")
    if out is None or not is_first():
        return
    slug = out.name or "graph"
    with atomic_folder(out) as new:
        for name, frame in (("edges", result.to_frame()), ("nodes", result.to_node_frame())):
            (new / f"{name}.csv").write_text(csv_text(frame), encoding="utf-8", newline="")
        file = result.to_neuronpedia(slug, scan=model, prompt=prompt, groups=groups)
        (new / GRAPH_FILE).write_text(json.dumps(file), encoding="utf-8")
        write_report(Report(result, [ReportPrompt(result.tokens)], {}), new / "report.html")
    print_stdout(f"{out}: edges.csv, nodes.csv, report.html, {GRAPH_FILE}.")
