"""How the bundled models were built.

build.py            build a model into a folder; measure a bundled model again
training_run.py     the argument of a recipe (``TrainingRun``) and its result (``BuiltModel``)
loop.py             the training loop: AdamW, learning-rate schedule
checkpoint.py       checkpoints, from which an interrupted training run resumes
corpus.py bpe.py    the Python standard library as text; its tokenizer
python_text.py      the corpus as token ids, and the rows to train on
calendar.py         dates as text
dictionaries.py     how the bundled dictionaries were trained
recipes/            one file per model, or per group of models that differ little
evaluations/        the measurements on the models
rasp/               programs, and the compiler that sets weights to compute them
"""

from training.build import build_model, has_checkpoint
from training.checkpoint import FILE, FileCheckpointer
from training.corpus import read_corpus
from training.loop import Schedule, report_nothing
from training.recipes import RECIPES
from training.training_run import STORED_AS, BuiltModel, TrainingRun

__all__ = [
    "FILE",
    "RECIPES",
    "STORED_AS",
    "BuiltModel",
    "FileCheckpointer",
    "Schedule",
    "TrainingRun",
    "build_model",
    "has_checkpoint",
    "read_corpus",
    "report_nothing",
]
