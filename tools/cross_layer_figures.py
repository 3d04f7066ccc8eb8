"""A cross-layer transcoder beside transcoders of one layer each, trained alike.

``python -m tools.cross_layer_figures [--docs PAGE]`` trains both on the same activations of
``python-4l``, with as many features and as many active ones, and measures on texts that neither
was trained on what each leaves out of the output of every MLP, and of all together.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import torch

import analyses
import interp
from interp import Harvest, dictionaries
from interp.dictionaries import CrossLayerTranscoder, DictionarySettings
from tools.dictionary_figures import MODEL, held_out_texts, print_or_write
from training import read_corpus

Places = list[tuple[str, int, str]] | list[tuple[str, int]]
MARKERS = ("<!-- figures of tools.cross_layer_figures -->", "<!-- end of these figures -->")
N_CHARACTERS = 300_000
"""Of the documents of the corpus, in an order drawn by seed 0."""
SETTINGS = DictionarySettings(n_features=512, k=16, steps=400, batch=512, lr=2e-3)


def figures(folder: Path) -> Iterator[str]:
    """The lines of the table."""
    model = interp.load(MODEL)
    layers = range(model.n_layers)
    reads = [("normalized", layer, "ln2") for layer in layers]
    writes = [("mlp_out", layer) for layer in layers]
    texts = read_corpus().drawn(N_CHARACTERS)
    harvest = interp.harvest(model, texts, [*reads, *writes], folder, dtype="float16")
    trained, seconds = {}, {}
    for name, train in (
        ("per layer", lambda: _per_layer(harvest, reads, writes)),
        ("cross-layer", lambda: _cross_layer(harvest, reads, writes)),
    ):
        started = perf_counter()
        trained[name] = train()
        seconds[name] = perf_counter() - started
    held_out = held_out_texts()
    checks = {
        name: analyses.check_dictionaries(model, held_out, transcoder=transcoder).to_frame()
        for name, transcoder in trained.items()
    }
    yield "| replaced | FVU, per layer | FVU, cross-layer | L0 | L0 | recovered | recovered |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    both = (check.to_dict("records") for check in checks.values())
    for one_layer, across in zip(*both, strict=True):
        cells = [f"{row['fvu']:.3f}" for row in (one_layer, across)]
        cells += [f"{row['l0']:.1f}" for row in (one_layer, across)]
        cells += [f"{row['recovered']:.1%}" for row in (one_layer, across)]
        yield f"| `{across['place']}` | {' | '.join(cells)} |"
    yield ""
    yield (
        f"Columns in pairs: per layer, then cross-layer. {SETTINGS.n_features} features a layer, "
        f"k = {SETTINGS.k}, {SETTINGS.steps} steps of {SETTINGS.batch} of {harvest.n_rows} tokens; "
        f"trained in {seconds['per layer']:.0f} and {seconds['cross-layer']:.0f} seconds with "
        f"{torch.get_num_threads()} threads."
    )


def _per_layer(harvest: Harvest, reads: Places, writes: Places) -> CrossLayerTranscoder:
    trainings = [
        dictionaries.train(harvest, reads=x, writes=y, settings=SETTINGS, progress=True)
        for x, y in zip(reads, writes, strict=True)
    ]
    return CrossLayerTranscoder.of([training.dictionary for training in trainings])


def _cross_layer(harvest: Harvest, reads: Places, writes: Places) -> CrossLayerTranscoder:
    return dictionaries.train_cross_layer(
        harvest, reads=reads, writes=writes, settings=SETTINGS, progress=True
    ).transcoder


def main(arguments: list[str] | None = None) -> int:
    """Print the table, or write it into a page."""
    with TemporaryDirectory() as folder:
        print_or_write(__doc__ or "", figures(Path(folder)), MARKERS, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
