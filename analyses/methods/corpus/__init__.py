"""Corpora that may be larger than memory: the largest activations, and the texts around them."""

from analyses.methods.corpus.measures import ActivationsOf, activations_of, measure_of
from analyses.methods.corpus.snippets import Snippet, snippets
from analyses.methods.corpus.stream import Settings, Streamed, stream_corpus
from analyses.methods.corpus.strips import shuffled_values, strips
from interp.prompts import Pool, by_length, pools_of, rows_of

__all__ = [
    "ActivationsOf",
    "Pool",
    "Settings",
    "Snippet",
    "Streamed",
    "activations_of",
    "by_length",
    "measure_of",
    "pools_of",
    "rows_of",
    "shuffled_values",
    "snippets",
    "stream_corpus",
    "strips",
]
