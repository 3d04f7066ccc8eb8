"""Detection of heads by their attention pattern: previous-token, duplicate and induction heads.

    detect_head(model, "a b c a b", "induction_head")                  # [layer head]

A detection pattern ``[query key]`` is 1 where such a head attends, else 0; see
:func:`compute_head_attention_similarity_score` for the two error measures.
"""
# ruff: noqa: T201 - prints, as TransformerLens does

import logging
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.compat.errors import InvalidInput
from interp.compat.utils.tensors import is_lower_triangular, is_square
from interp.errors import shorten

HeadName = Literal["previous_token_head", "duplicate_token_head", "induction_head"]
HEAD_NAMES: list[HeadName] = list(get_args(HeadName))
ErrorMeasure = Literal["abs", "mul"]
LayerHeadTuple = tuple[int, int]
LayerToHead = dict[int, list[int]]
DECIMALS = 3
"""Decimals of a score by ``abs``."""


def detect_head(
    model: Any,
    seq: str | list[str],
    detection_pattern: Tensor | str,
    heads: list[LayerHeadTuple] | LayerToHead | None = None,
    cache: Any = None,
    *,
    exclude_bos: bool = False,
    exclude_current_token: bool = False,
    error_measure: str = "mul",
) -> Float[Tensor, "layer head"]:
    """How well each head's attention matches a pattern, at most 1.

    Args:
        model: the model.
        seq: a text, or several with a named pattern, whose scores are averaged.
        detection_pattern: one of ``HEAD_NAMES``, or ``[query key]``, lower triangular.
        heads: the heads to score, as ``(layer, head)`` or heads by layer; others have a score
            of −1.
        cache: the cache of a run on the text without batch axis; by default the model is run.
        exclude_bos: whether to ignore attention to the first token.
        exclude_current_token: whether to ignore attention of each token to itself.
        error_measure: ``mul`` or ``abs``.

    Raises:
        InvalidInput: a name or measure is unknown, the pattern has another shape, a cache is given
            with several texts, or a text is too short or too long.
    """
    if error_measure not in get_args(ErrorMeasure):
        raise InvalidInput(f"error_measure={shorten(error_measure)} should be 'mul' or 'abs'.")
    excluded = {"exclude_bos": exclude_bos, "exclude_current_token": exclude_current_token}
    if isinstance(seq, list) and isinstance(detection_pattern, str):
        if cache is not None:
            raise InvalidInput("A cache is for one text; with several texts, leave out cache=.")
        scores = [
            detect_head(
                model, text, detection_pattern, heads, **excluded, error_measure=error_measure
            )
            for text in seq
        ]
        return torch.stack(scores).mean(0)
    tokens = model.to_tokens(seq).to(model.cfg.device)
    pattern = _pattern(detection_pattern, tokens, model.cfg.n_ctx)
    if error_measure == "mul" and not set(pattern.unique().tolist()) <= {0, 1}:
        logging.warning("With error_measure='mul', a detection pattern should hold only 0 and 1.")
    if cache is None:
        _, cache = model.run_with_cache(tokens, remove_batch_dim=True)
    n_layers, n_heads = model.cfg.n_layers, model.cfg.n_heads
    scores = torch.full((n_layers, n_heads), -1.0, dtype=model.cfg.dtype)
    for layer, head in _heads_of(heads, n_layers, n_heads):
        scores[layer, head] = compute_head_attention_similarity_score(
            cache["pattern", layer, "attn"][head],
            pattern,
            **excluded,
            error_measure=error_measure,
        )
    return scores


def _pattern(pattern: Tensor | str, tokens: Tensor, n_ctx: int) -> Tensor:
    """The detection pattern, given as a tensor or by its name, after checks."""
    length = tokens.shape[-1]
    if not 1 < length < n_ctx:
        raise InvalidInput(
            f"The text has {length} tokens; it should have more than 1 and fewer than {n_ctx}."
        )
    if isinstance(pattern, str):
        if pattern not in PATTERNS:
            raise InvalidInput(
                f"detection_pattern is a tensor or one of {', '.join(HEAD_NAMES)}; got "
                f"{shorten(pattern)}."
            )
        return PATTERNS[pattern](tokens.cpu()).to(tokens.device)
    if not is_lower_triangular(pattern) or len(pattern) != length:
        raise InvalidInput(
            f"A detection pattern is lower triangular, [{length} {length}] for this text; got "
            f"{shorten(pattern)}."
        )
    return pattern


def _heads_of(
    heads: list[LayerHeadTuple] | LayerToHead | None, n_layers: int, n_heads: int
) -> list[LayerHeadTuple]:
    if heads is None:
        return [(layer, head) for layer in range(n_layers) for head in range(n_heads)]
    if isinstance(heads, dict):
        return [(layer, head) for layer, of_layer in heads.items() for head in of_layer]
    return list(heads)


def get_previous_token_head_detection_pattern(
    tokens: Int[Tensor, "one pos"],
) -> Float[Tensor, "pos pos"]:
    """1 from each token to the previous one."""
    n = tokens.shape[-1]
    return torch.ones(n - 1).diag(-1)


def get_duplicate_token_head_detection_pattern(
    tokens: Int[Tensor, "one pos"],
) -> Float[Tensor, "pos pos"]:
    """1 from each token to its earlier occurrences."""
    row = tokens[-1]
    return (row[:, None] == row).float().tril(-1)


def get_induction_head_detection_pattern(
    tokens: Int[Tensor, "one pos"],
) -> Float[Tensor, "pos pos"]:
    """1 from each token to those that follow its earlier occurrences (Olsson et al. 2022)."""
    duplicates = get_duplicate_token_head_detection_pattern(tokens)
    return torch.nn.functional.pad(duplicates[:, :-1], (1, 0)).tril()


PATTERNS = {
    "previous_token_head": get_previous_token_head_detection_pattern,
    "duplicate_token_head": get_duplicate_token_head_detection_pattern,
    "induction_head": get_induction_head_detection_pattern,
}
"""Functions from tokens to the detection pattern, by the name of the head."""


def get_supported_heads() -> None:
    """Print the names of heads with a pattern."""
    print(f"Supported heads: {HEAD_NAMES}")


def compute_head_attention_similarity_score(
    attention_pattern: Tensor,
    detection_pattern: Tensor,
    *,
    exclude_bos: bool,
    exclude_current_token: bool,
    error_measure: str,
) -> float:
    """The similarity of the attention of a head and a detection pattern, at most 1.

    Args:
        attention_pattern: ``[query key]``; not changed.
        detection_pattern: ``[query key]``.
        exclude_bos: whether to ignore the first key.
        exclude_current_token: whether to ignore the diagonal.
        error_measure: ``mul``: the fraction of attention where the pattern is 1; ``abs``: 1 − the
            mean over queries of Σ |difference|, to three decimals, from −1 to 1.

    Raises:
        InvalidInput: the attention is not square or, with ``abs``, not lower triangular.
    """
    if not is_square(attention_pattern):
        raise InvalidInput(f"An attention pattern is square; got {shorten(attention_pattern)}.")
    counted = torch.ones_like(attention_pattern)
    if exclude_bos:
        counted[:, 0] = 0
    if exclude_current_token:
        counted.fill_diagonal_(0)
    if error_measure == "mul":
        attention = attention_pattern * counted
        return ((attention * detection_pattern).sum() / attention.sum()).item()
    difference = (attention_pattern - detection_pattern).abs()
    if not is_lower_triangular(difference):
        raise InvalidInput("error_measure='abs' needs lower triangular attention.")
    return 1 - round(((difference * counted).mean() * len(difference)).item(), DECIMALS)
