"""What the bundled dictionaries explain: ``python -m tools.dictionary_figures [--docs PAGE]``.

Each is checked on texts that neither it nor its model was trained on. Graphs of the same prompts
are made of neurons and of features: how many nodes do they need, and do their predictions hold?
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median

import analyses
import interp
from benchmarks.table import write_between
from interp import DictionaryTransformer, dictionaries
from training import read_corpus

MODEL = "python-4l"
MARKERS = ("<!-- figures of tools.dictionary_figures -->", "<!-- end of figures -->")
N_TEXTS, N_CHARACTERS = 64, 300
"""Of the held-out documents, from the middle of each."""
N_PROMPTS = 12
"""Prompts of the bundled set of the model, of which graphs are made."""
MAX_NODES, CHECKED = 300, 16
"""Of a graph: rows that are computed, and units that are set to zero."""


def figures() -> Iterator[str]:
    """The lines of both tables."""
    model, names = interp.load(MODEL), dictionaries.bundled()
    names = [name for name in names if name.startswith(f"{MODEL}/")]
    loaded = {name: dictionaries.load(name) for name in names}
    view = interp.with_dictionaries(model, loaded.values())
    yield from _checks(view, {str(d.places(model)[1]): name for name, d in loaded.items()})
    transcoders = [d for name, d in loaded.items() if name.startswith(f"{MODEL}/mlp-")]
    yield ""
    yield from _graphs(interp.with_dictionaries(model, transcoders))


def _checks(view: DictionaryTransformer, names: Mapping[str, str]) -> Iterator[str]:
    """Of each dictionary; ``names`` has its name by the place that it writes."""
    check = analyses.check_dictionaries(view, held_out_texts(), progress=True)
    yield "| name | writes | features | FVU | L0 | dead | loss without the error | recovered |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for row in check.to_frame().to_dict("records"):
        yield (
            f"| `{names[str(row['place'])]}` | `{row['place']}` | {row['n_features']} | "
            f"{row['fvu']:.3f} | {row['l0']:.1f} | {row['dead']:.0%} | {row['effect']:+.3f} nats | "
            f"{row['recovered']:.1%} |"
        )
    yield ""
    yield (
        f"On {N_TEXTS} held-out texts of {N_CHARACTERS} characters; loss of the model "
        f"{float(check.clean.mean()):.3f} nats."
    )


def _graphs(view: DictionaryTransformer) -> Iterator[str]:
    prompts = [pair.text for pair in interp.read_prompts(f"{MODEL}-pairs")[:N_PROMPTS]]
    yield "| median of graphs | neurons | features |"
    yield "| --- | --- | --- |"
    made = {
        units: [
            analyses.attribution_graph(view, text, units=units, max_nodes=MAX_NODES, check=CHECKED)
            for text in prompts
        ]
        for units in ("neurons", "features")
    }
    for title, figure in ROWS.items():
        values = (f"{median(map(figure, graphs)):.3g}" for graphs in made.values())
        yield f"| {title} | {' | '.join(values)} |"
    failing = (
        f"{sum(bool(g.failures) for g in graphs)} of {N_PROMPTS}" for graphs in made.values()
    )
    yield f"| marked as not reliable | {' | '.join(failing)} |"


ROWS: dict[str, Callable[[analyses.AttributionGraph], float]] = {
    "active units": lambda graph: float(graph.n_units[0]),
    "units in the graph": lambda graph: float(graph.n_units[2]),
    "replacement score": lambda graph: float(graph.replacement_score[0]),
    "replacement score, pruned": lambda graph: float(graph.replacement_score[1]),
    "completeness score": lambda graph: float(graph.completeness_score[0]),
    "completeness score, pruned": lambda graph: float(graph.completeness_score[1]),
    "slope of measured by predicted effects": lambda graph: graph.predicted.slope,
    "correlation of both": lambda graph: graph.predicted.r,
    "share of predictions within a factor of two": lambda graph: graph.predicted.near,
    "the same with patterns kept": lambda graph: graph.predicted_frozen.near,
}
"""Figures of a graph, by their titles."""


def held_out_texts() -> list[str]:
    """Parts of documents that the model was not trained on."""
    documents = [d.text for d in read_corpus().held_out if len(d.text) > N_CHARACTERS]
    middles = [(len(text) - N_CHARACTERS) // 2 for text in documents]
    parts = [text[at : at + N_CHARACTERS] for text, at in zip(documents, middles, strict=True)]
    return parts[:N_TEXTS]


def main(arguments: list[str] | None = None) -> int:
    """Print the tables, or write them into a page."""
    print_or_write(__doc__ or "", figures(), MARKERS, arguments)
    return 0


def print_or_write(
    title: str, lines: Iterator[str], markers: tuple[str, str], arguments: list[str] | None
) -> None:
    """Print lines, or write them between the markers of the page of ``--docs``.

    Args:
        title: text whose first paragraph describes the program.
        lines: the lines, which are computed after the arguments are read.
        markers: the markers.
        arguments: the words of the command line; ``None`` for those of the process.
    """
    parser = argparse.ArgumentParser(description=title.partition("\n\n")[0])
    parser.add_argument("--docs", type=Path, help="write the tables between this file's markers")
    options = parser.parse_args(arguments)
    text = "\n".join(lines)
    if options.docs:
        write_between(options.docs, text, markers)
    else:
        print(text)


if __name__ == "__main__":
    sys.exit(main())
