"""Where each head attends from the position of the answer, by classes of tokens.

    share[head, prompt, class] = Σ_{j in class} A[answer, j]        Σ_classes share = 1

The classes are disjoint. A token belongs to the first that it fits: an occurrence of the target's
token, one of the distractor's, the first position, the answer's own position, the one before it,
the rest. The control is uniform attention: what as many tokens drawn at random among those that
the head may attend to get on average. With attention sinks the shares sum to the part of a row that
is not the sink's.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from analyses.methods.heads import (
    Attentions,
    attentions_of,
    pattern_at,
    uniform_weights,
    visible_keys,
)
from interp import Transformer, run
from interp.model import Batch

CLASSES = ("target", "distractor", "first", "self", "previous", "rest")
"""The classes of tokens, in their order of precedence."""
CHUNK = 2**26
"""The most attention weights that are recorded at a time, in about as many tokens."""
Classes = Bool[Tensor, "class prompt key"]


@dataclass(frozen=True, eq=False)
class AnswerAttention:
    """Attention from the position of the answer, for heads in the order of the forward.

    Attributes:
        share: attention on each class.
        uniform: the same with equal attention on all tokens that the head may attend to.
        key: position, among the tokens of the prompt, of the token with the most attention.
        strongest: attention on that token.
        key_classes: the class of each token of each prompt; ``distractor 2 of 2`` where a class
            has several tokens.
    """

    share: Float[Tensor, "head prompt class"]
    uniform: Float[Tensor, "head prompt class"]
    key: Int[Tensor, "head prompt"]
    strongest: Float[Tensor, "head prompt"]
    key_classes: tuple[tuple[str, ...], ...]


def classes_of_tokens(
    batch: Batch, column: Int[Tensor, " prompt"], ids: Int[Tensor, "token prompt"]
) -> Classes:
    """The tokens of each class; padding is in none.

    Args:
        batch: the prompts.
        column: the column of the answer's position.
        ids: the target of each prompt, then its distractor.
    """
    real = batch.is_real
    order, at = real.cumsum(-1) - 1, torch.arange(real.shape[1], device=real.device)[None]
    answer = order.gather(1, column[:, None])
    tokens = batch.ids if batch.images is None else torch.full_like(batch.ids, -1)
    sets = (*(tokens == row[:, None] for row in ids), order == 0, at == column[:, None])
    left, classes = real, list[Tensor]()
    for members in (*sets, order == answer - 1):
        classes.append(members & left)
        left = left & ~members
    return torch.stack([*classes, left])


@torch.no_grad()
def attention_at_answer(
    model: Transformer,
    batch: Batch,
    column: Int[Tensor, " prompt"],
    ids: Int[Tensor, "token prompt"],
    rows: int,
) -> AnswerAttention:
    """Where every head attends from the position of the answer.

    Args:
        model: a model with one stack.
        batch: the prompts.
        column: the column of the answer's position.
        ids: the target of each prompt, then its distractor.
        rows: the most prompts of a forward.

    Raises:
        InvalidInput: attention that is not finite.
    """
    kind, classes = attentions_of(model), classes_of_tokens(batch, column, ids)
    n, width = batch.ids.shape
    weights = sum(attn.n_heads for attn in kind.layers) * width**2
    parts = [
        _shares(model, kind, batch.rows(some), column[some], classes[:, some])
        for some in torch.arange(n, device=column.device).split(min(rows, max(1, CHUNK // weights)))
    ]
    share, uniform, key, strongest = (torch.cat(each, 1).cpu() for each in zip(*parts, strict=True))
    order = (batch.is_real.cumsum(-1) - 1).cpu()
    position = order.expand(len(key), -1, -1).gather(-1, key[..., None])[..., 0]
    return AnswerAttention(share, uniform, position, strongest, _names(classes.cpu()))


def _shares(
    model: Transformer,
    kind: Attentions,
    batch: Batch,
    column: Int[Tensor, " prompt"],
    classes: Classes,
) -> tuple[Tensor, ...]:
    """Shares, uniform shares, the strongest column and its weight, of some prompts."""
    places = [kind.places(layer)[0] for layer in range(len(kind.layers))]
    cache = run(model, batch, record=places, stop_at_layer=len(places)).cache  # no logits
    (context,) = model.contexts([batch])
    row = torch.arange(len(column), device=column.device)
    patterns, uniform = list[Tensor](), list[Tensor]()
    for attn, place in zip(kind.layers, places, strict=True):
        pattern = pattern_at(cache, place)
        equal = uniform_weights(visible_keys(attn, context, pattern.shape[-1]), pattern.dtype)
        patterns.append(pattern[row, :, column])
        uniform.append(equal[row, :, column].expand_as(patterns[-1]))
    answers = torch.cat(patterns, 1).transpose(0, 1)
    strongest, key = answers.max(-1)
    members = classes.to(answers.dtype)
    return (
        torch.einsum("hpk,cpk->hpc", answers, members),
        torch.einsum("hpk,cpk->hpc", torch.cat(uniform, 1).transpose(0, 1), members),
        key,
        strongest,
    )


def _names(classes: Classes) -> tuple[tuple[str, ...], ...]:
    """The class of each token of each prompt, with its number where the class has several."""
    return tuple(
        _names_of_prompt(classes[:, prompt].to(torch.int).argmax(0)[real].tolist())
        for prompt, real in enumerate(classes.any(0))
    )


def _names_of_prompt(numbers: Sequence[int]) -> tuple[str, ...]:
    names = list[str]()
    for at, number in enumerate(numbers):
        name, count = CLASSES[number], numbers.count(number)
        is_numbered = count > 1 and name in ("target", "distractor")
        before = numbers[: at + 1].count(number)
        names.append(f"{name} {before} of {count}" if is_numbered else name)
    return tuple(names)
