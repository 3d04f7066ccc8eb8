"""Canonical names of the weights of a source, and matrices that are stored once for several uses.

Stacks may share one token embedding, and the unembedding may be tied to it.
"""

from collections.abc import Iterable, Mapping

import torch

from interp.errors import ModelLoadError
from interp.loading.family import Family
from interp.loading.foreign_config import UnembeddingKind
from interp.loading.source import Source


def canonical_names(family: Family, keys: Iterable[str]) -> dict[str, str]:
    """The source's name of each weight, by its canonical name."""
    names: dict[str, str] = {}
    for key in keys:
        name = family.canonical_name(key)
        if name is None:
            continue
        if name in names:
            raise ModelLoadError(f"{family.name}: {names[name]} and {key} are the same weight.")
        names[name] = key
    return names


def without_copies(
    family: Family, names: Mapping[str, str], source: Source, *, tied: bool
) -> dict[str, str]:
    """The names, with copies of the token embedding and of the tied head resolved.

    If the matrices are tied, the first of ``family.tables`` that is stored replaces those that are
    missing. Embeddings of other stacks are kept only if their values differ from the last stack's.

    Raises:
        ModelLoadError: a stack's embedding is missing, and the matrices are not tied.
    """
    if not family.copies:
        return dict(names)
    distinct = {name: key for name, key in names.items() if name != family.shared}
    first = next((names[name] for name in family.tables if name in names), None)
    if tied and first is not None:
        distinct = dict.fromkeys((family.embedding, *family.copies, family.head), first) | distinct
    for copy in family.copies if family.embedding in distinct else ():
        if copy not in distinct:
            raise ModelLoadError(
                f"{family.name}: {copy} is missing, and tie_word_embeddings is false."
            )
        if _are_equal(source, distinct[copy], distinct[family.embedding]):
            del distinct[copy]
    return distinct


def unembedding_kind(
    family: Family, names: Mapping[str, str], source: Source, *, tied: bool
) -> UnembeddingKind:
    """Whether W_U is tied, untied or missing; if both matrices are stored, their values decide."""
    if family.head not in names:
        return "tied" if tied and family.embedding in names else "none"
    if family.embedding not in names:
        return "untied"
    equal = _are_equal(source, names[family.head], names[family.embedding])
    return "tied" if equal else "untied"


def _are_equal(source: Source, first: str, second: str) -> bool:
    """Whether two tensors of the source have the same shape and values."""
    if first == second:
        return True
    if source.shape(first) != source.shape(second):
        return False
    return torch.equal(source.read(first), source.read(second))
