"""Circuits: sets of edges that are run in isolation, and products of the weights of heads."""

from analyses.methods.circuits.composition import KINDS, head_pairs
from analyses.methods.circuits.folded_heads import rotates, written_through
from analyses.methods.circuits.masked_runs import run_circuits
from analyses.methods.circuits.paths import (
    LOGITS,
    Names,
    closed,
    inputs_of,
    next_writers,
    strongest_paths,
)
from analyses.methods.circuits.token_circuits import TokenCircuits
from analyses.methods.circuits.token_streams import streams_of_tokens
from analyses.methods.circuits.top_entries import strongest, top_columns
from analyses.methods.circuits.top_tokens import (
    Side,
    SingularTokens,
    TokenList,
    TopTokens,
    given_tokens,
    singular_tokens,
    top_tokens,
)
from analyses.methods.circuits.written import Written, replaced, written

__all__ = [
    "KINDS",
    "LOGITS",
    "Names",
    "Side",
    "SingularTokens",
    "TokenCircuits",
    "TokenList",
    "TopTokens",
    "Written",
    "closed",
    "given_tokens",
    "head_pairs",
    "inputs_of",
    "next_writers",
    "replaced",
    "rotates",
    "run_circuits",
    "singular_tokens",
    "streams_of_tokens",
    "strongest",
    "strongest_paths",
    "top_columns",
    "top_tokens",
    "written",
    "written_through",
]
