"""``interp harvest``: store the activations of a corpus in a folder."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apps.commands.options import DEFAULT_MODEL, Device, DTypeName, KernelName, Model
from apps.terminal import print_stdout, progress

if TYPE_CHECKING:
    from interp import Harvest

SHORT_NAME = re.compile(r"(?!blocks\.)([a-z_]+)\.(-?\d+)((?:\.\w+)*)")
"""A point, its layer, and perhaps a norm or a stack: resid_post.3, scale.0.ln1."""

Texts = Annotated[
    str | None,
    typer.Option(
        help="A file of any size with one text per line (.jsonl: objects with a text; .csv, "
        ".parquet: a column text), the folder of a dataset, or a bundled set.",
        show_default="the model's own prompts",
    ),
]
Places = Annotated[
    list[str],
    typer.Option(
        "--places",
        help="A place to store: resid_post.3 (layer 3), resid_post (every layer), or a hook name "
        "such as blocks.3.hook_resid_post; may be repeated.",
    ),
]
Out = Annotated[Path, typer.Option(help="Output folder, created if missing.")]
DType = Annotated[
    DTypeName | None,
    typer.Option(help="Data type to store activations in.", show_default="that of the model"),
]
MaxLength = Annotated[
    int | None,
    typer.Option(
        help="Maximum number of tokens of a text; longer ones are cut into several.",
        min=2,
        show_default="the model's context",
    ),
]
Rows = Annotated[int, typer.Option(help="Maximum number of texts per forward pass.", min=1)]
ShardRows = Annotated[
    int | None,
    typer.Option(
        help="Tokens per shard.", min=1, show_default="as many as take 64 MiB at all places"
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of the order in which rows are read by default.")]
Kernel = Annotated[
    KernelName,
    typer.Option(
        help="Kernel of products. A harvest is continued with the same; auto may choose another "
        "each time."
    ),
]
Estimate = Annotated[
    bool, typer.Option("--estimate", help="Print the bytes and the time, and write nothing.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


def harvest(  # noqa: PLR0913 - the options of one command
    *,
    model: Model = DEFAULT_MODEL,
    texts: Texts = None,
    places: Places,
    out: Out,
    dtype: DType = None,
    max_length: MaxLength = None,
    rows: Rows = 256,
    shard_rows: ShardRows = None,
    seed: Seed = 0,
    device: Device = "cpu",
    kernel: Kernel = KernelName.DEFAULT,
    estimate: Estimate = False,
    as_json: AsJson = False,
) -> None:
    """Store the activations of a corpus in a folder, a row for each token.

    The same command continues a harvest that was stopped; several processes may run it at once, and
    share the work.
    """
    from apps.defaults import default_prompts  # noqa: PLC0415
    from apps.devices import load_on  # noqa: PLC0415
    from interp import estimate_harvest  # noqa: PLC0415
    from interp import harvest as store  # noqa: PLC0415
    from interp.prompts import path_of_prompts  # noqa: PLC0415

    corpus = path_of_prompts(texts or default_prompts(model, option="--texts"))
    loaded = load_on(device, model, kernel=str(kernel))
    record = [parse_place(name) for name in places]
    settings: dict[str, Any] = {
        "dtype": dtype and str(dtype),
        "max_length": max_length,
        "rows": rows,
    }
    if estimate:
        _print_estimate(estimate_harvest(loaded, corpus, record, **settings), as_json=as_json)
        return
    with progress("Harvesting") as tick:
        stored = store(
            loaded,
            corpus,
            record,
            out,
            **settings,
            shard_rows=shard_rows,
            seed=seed,
            progress=tick,
        )
    _print_harvest(stored, as_json=as_json)


def parse_place(name: str) -> str | tuple[str | int, ...]:
    """A place as ``record=`` takes it: ``("resid_post", 3)`` for ``resid_post.3``."""
    match = SHORT_NAME.fullmatch(name)
    if match is None:
        return name
    label, layer, rest = match.groups()
    return (label, int(layer), *rest.split(".")[1:])


def _print_estimate(estimate: Any, *, as_json: bool) -> None:  # noqa: ANN401 - imported late
    if as_json:
        typer.echo(json.dumps(vars(estimate), indent=2))
    else:
        print_stdout(f"{estimate}, {estimate.row_bytes} bytes a token.")


def _print_harvest(stored: "Harvest", *, as_json: bool) -> None:
    index = stored.index
    nbytes = index.n_rows * (index.row_bytes + index.ids_bytes)
    if as_json:
        described = {
            "folder": str(stored.folder),
            "rows": index.n_rows,
            "texts": index.n_texts,
            "shards": index.n_shards,
            "bytes": nbytes,
            "dtype": index.dtype,
            "places": {place.name: place.shape for place in index.places},
        }
        typer.echo(json.dumps(described, indent=2))
        return
    print_stdout(str(stored))
    print_stdout(f"{stored.folder}: {index.n_shards} shards, {nbytes / 1e6:,.1f} MB.")
