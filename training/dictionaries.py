"""How the bundled dictionaries were trained: ``python -m training.dictionaries FOLDER``.

Transcoders of the four MLPs of ``python-4l``, and an autoencoder of the heads of its layer 1, on
the texts that the model was trained on. The harvest stays in ``FOLDER/harvest``; a training that
was stopped is continued by the same command.
"""

import sys
from pathlib import Path

import torch

import interp
from interp import dictionaries
from interp.dictionaries import DictionarySettings
from training.corpus import read_corpus

MODEL = "python-4l"
N_CHARACTERS = 1_500_000
"""Of the documents of the corpus, in an order drawn by seed 0."""
SETTINGS = DictionarySettings(kind="batchtopk", n_features=2048, k=32, steps=1000, lr=2e-3)
PLACES = {
    **{f"mlp-{n}": (("normalized", n, "ln2"), ("mlp_out", n)) for n in range(4)},
    "heads-1": (("z", 1), None),
}
"""What each dictionary reads and writes, by its name."""


def build_dictionaries(folder: Path) -> None:
    """Train all bundled dictionaries into a folder."""
    model, texts = interp.load(MODEL), read_corpus().drawn(N_CHARACTERS)
    places = [place for pair in PLACES.values() for place in pair if place is not None]
    harvest = interp.harvest(model, texts, places, folder / "harvest", dtype="float16")
    for name, (reads, writes) in PLACES.items():
        if (folder / name).exists():
            continue
        training = dictionaries.train(
            harvest, reads=reads, writes=writes, settings=SETTINGS, progress=True
        )
        dictionaries.save(training.dictionary, folder / name, dtype=torch.float16)


if __name__ == "__main__":
    build_dictionaries(Path(sys.argv[1]))
