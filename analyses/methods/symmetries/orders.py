"""Permutations of tokens, and batches with permuted tokens.

    (Px)_i = x_order(i)        likewise, P f(x) is f(x) at the columns ``order``

Tokens that mark the beginning or the end of a text stay in place, and so does padding.
"""

from dataclasses import dataclass, replace

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.config import PatchConfig
from interp.errors import InvalidInput, shorten
from interp.integers import SEEDS
from interp.model import Batch, ImageInput, Network, Stack

KINDS = ("random", "swap", "block")
"""Kinds of permutations: a random order, two neighbours swapped, two blocks swapped."""
Order = Int[Tensor, "batch pos"]


@dataclass(frozen=True)
class HasOrder:
    """The parts of a model that make it depend on the order of its tokens.

    Attributes:
        mask: whether a layer of the decoder has a causal mask, or any layer a sliding window.
        positions: whether any layer has positions, of whatever kind.
    """

    mask: bool
    positions: bool


def has_order(model: Network) -> HasOrder:
    """Whether a model has a mask, and whether it has positions."""
    config = model.config
    layers = [layer for stack in config.stacks.values() for layer in stack.layer_kinds]
    decoder = [] if config.decoder is None else config.decoder.layer_kinds
    return HasOrder(
        mask=any(not layer.attention.bidirectional for layer in decoder)
        or any(layer.attention.window is not None for layer in layers),
        positions=any(layer.positions.kind != "none" for layer in layers),
    )


def other_order(n: int, generator: torch.Generator) -> Int[Tensor, " n"]:
    """A random permutation of ``n`` items, other than the identity if ``n`` is at least 2."""
    order = torch.randperm(n, generator=generator)
    return order.roll(1) if order.equal(torch.arange(n)) else order


def order_of(kind: str, n: int, generator: torch.Generator) -> Int[Tensor, " n"]:
    """A random permutation of ``n`` tokens, other than the identity.

    Args:
        kind: ``random``; ``swap``, which swaps two neighbours, so that almost every token keeps its
            position; or ``block``, which swaps the parts before and after a random cut, so that
            almost every token keeps its neighbours.
        n: number of tokens, at least 2.
        generator: generator of random numbers.

    Raises:
        InvalidInput: another kind.
    """
    if kind not in KINDS:
        raise InvalidInput(
            f"{shorten(kind)} is not a kind of permutation; it is one of {', '.join(KINDS)}."
        )
    if kind == "random":
        return other_order(n, generator)
    cut = int(torch.randint(1, n, (), generator=generator))
    order = torch.arange(n)
    if kind == "block":
        return order.roll(-cut)
    order[[cut - 1, cut]] = order[[cut, cut - 1]]
    return order


def token_orders(movable: Bool[Tensor, "batch pos"], kind: str, seed: int) -> Order:
    """A permutation of the movable columns of each row; all other columns stay in place.

    Rows with the same number of movable tokens have the same permutation of them, whatever else is
    in the batch.
    """
    order = torch.arange(movable.shape[1]).repeat(len(movable), 1)
    for row_order, row in zip(order, movable.cpu(), strict=True):
        (columns,) = row.nonzero(as_tuple=True)
        if len(columns) > 1:
            generator = torch.Generator().manual_seed(seed % SEEDS)
            row_order[columns] = columns[order_of(kind, len(columns), generator)]
    return order.to(movable.device)


def movable_tokens(model: Network, stack: Stack, batch: Batch) -> Bool[Tensor, "batch pos"]:
    """The real tokens of a stack except BOS (or a decoder's start token), EOS, and CLS of images.

    BOS is recognized only as the first token of a row, EOS only as the last.
    """
    real = batch.is_real
    if isinstance(stack.input, ImageInput):
        columns = torch.arange(real.shape[1], device=real.device)
        return real & (columns >= stack.input.patches.n_special)
    tokens, count = model.config.tokens, real.cumsum(-1)
    first, last = count == 1, count == real.sum(-1, keepdim=True)
    for at, token in ((first, tokens.bos), (first, tokens.decoder_start), (last, tokens.eos)):
        if token is not None:
            real = real & ~(at & (batch.ids == token))
    return real


def in_order(x: Float[Tensor, "batch pos *rest"], order: Order) -> Float[Tensor, "batch pos *rest"]:
    """P x: the positions of each row in another order."""
    return x[torch.arange(len(x), device=x.device)[:, None], order]


def permuted(batch: Batch, order: Order, read_by: object) -> Batch:
    """The batch with the tokens of each row, or the patches of each image, in another order.

    Args:
        batch: the batch.
        order: the order of its columns; padding and an image's special tokens stay in place.
        read_by: the input of the stack, ``stack.input``.
    """
    if isinstance(read_by, ImageInput) and batch.images is not None:
        return replace(batch, images=_patches_permuted(batch.images, order, read_by.patches))

    def moved(values: Tensor | None) -> Tensor | None:
        return None if values is None else values.gather(-1, order)

    return replace(
        batch,
        ids=batch.ids.gather(-1, order),
        types=moved(batch.types),
        masked=moved(batch.masked),
    )


def _patches_permuted(images: Tensor, order: Order, config: PatchConfig) -> Tensor:
    size = config.size
    patches = rearrange(images, "b c (h p) (w q) -> b (h w) c p q", p=size, q=size)
    patch_order = order[:, config.n_special :] - config.n_special
    rows = torch.arange(len(patch_order), device=patch_order.device)[:, None]
    return rearrange(
        patches[rows, patch_order], "b (h w) c p q -> b c (h p) (w q)", h=config.height // size
    )
