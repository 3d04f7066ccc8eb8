"""Corpora that may be larger than memory: the largest activations, and the texts around them."""

from analyses.methods.corpus.measures import ActivationsOf, activations_of, measure_of
from analyses.methods.corpus.snippets import Snippet, snippets
from analyses.methods.corpus.stream import Settings, Streamed, stream_corpus, texts_of
from analyses.methods.corpus.strips import shuffled_values, strips

__all__ = [
    "ActivationsOf",
    "Settings",
    "Snippet",
    "Streamed",
    "activations_of",
    "measure_of",
    "shuffled_values",
    "snippets",
    "stream_corpus",
    "strips",
    "texts_of",
]
