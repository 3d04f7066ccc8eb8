"""Batches: checked token ids, padding and token types of one stack, or checked images.

Padding is the token id ``PAD = -1``, which is outside every vocabulary. An image is a batch too:
its patches are its tokens, without ids.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.config import PatchConfig
from interp.errors import InvalidTokens
from interp.model.inputs import as_ids, as_mask, as_tensor, as_types

PAD = -1


@dataclass(frozen=True, eq=False)
class Batch:
    """Checked token ids.

    Attributes:
        ids: token ids; 0 stands where there is padding.
        real: where there is a token and not padding; ``None`` if there is no padding.
        types: the type of each token (BERT's segments); ``None`` if all are 0.
        images: the images that the tokens are patches of; ids are 0 then.
        masked: where the mask token stands for one to be predicted; ``None`` if the model is not
            an encoder with a mask token.
    """

    ids: Int[Tensor, "batch pos"]
    real: Bool[Tensor, "batch pos"] | None = None
    types: Int[Tensor, "batch pos"] | None = None
    images: Float[Tensor, "batch channel height width"] | None = None
    masked: Bool[Tensor, "batch pos"] | None = None

    @classmethod
    def of(  # noqa: PLR0913, PLR0917 - inputs and their bounds
        cls,
        tokens: object,
        d_vocab: int,
        n_ctx: int,
        mask: object = None,
        types: object = None,
        n_types: int = 0,
        device: torch.device | str | None = None,
    ) -> "Batch":
        """Check ``tokens`` against the vocabulary and the context length.

        What holds of a valid batch is read from the device at once: each read waits for it.

        Args:
            tokens: ids ``[batch pos]``, or ``[pos]`` for a single row; ``PAD`` where padded. A
                tensor, an array or lists.
            d_vocab: ids must be below it.
            n_ctx: the longest row allowed.
            mask: ``[batch pos]``, nonzero at real tokens, for batches padded with other ids.
            types: ``[batch pos]``, the type of each token, if not all are 0.
            n_types: types must be below it.
            device: where the model lives.

        Raises:
            InvalidTokens: no tokens, too many, not whole numbers, outside the vocabulary, a row
                of padding only, or a mask or types of another shape or outside their range.
        """
        ids = as_ids(tokens).to(device)
        real = ids != PAD
        if mask is not None:
            real = real & as_mask(mask, ids).to(ids.device)
        own = None if types is None else as_types(types, ids).to(ids.device)
        lengths, ids = real.sum(-1), torch.where(real, ids, 0)
        extremes = [lengths.min(), lengths.max(), ids.min(), ids.max()]
        extremes += [] if own is None else [own.min(), own.max()]
        shortest, longest, least, largest, *of_types = _read(torch.stack(extremes))
        if longest > n_ctx or shortest == 0:
            raise InvalidTokens(_wrong_length(lengths, n_ctx))
        if least < 0 or largest >= d_vocab:
            raise InvalidTokens(_outside(ids, d_vocab))
        if of_types and (of_types[0] < 0 or of_types[1] >= n_types):
            raise InvalidTokens(_types_outside(of_types[0], of_types[1], n_types))
        return cls(ids, None if shortest == ids.shape[1] else real, own)

    @classmethod
    def of_images(
        cls, images: object, patches: PatchConfig, dtype: torch.dtype, device: torch.device
    ) -> "Batch":
        """Check images: ``[batch channel height width]``, or one without ``batch``.

        Raises:
            InvalidTokens: another shape, whole numbers, or numbers that are not finite.
        """
        given = as_tensor(images, "Images", "floating-point numbers [batch channel height width]")
        given = given[None] if given.ndim == 3 else given  # noqa: PLR2004 - one image
        expected = (patches.channels, patches.height, patches.width)
        if given.ndim != 4 or tuple(given.shape[1:]) != expected or len(given) == 0:  # noqa: PLR2004
            raise InvalidTokens(
                f"This model reads images [batch channel height width] of {expected}; got "
                f"{tuple(given.shape)}."
            )
        if not given.is_floating_point() or not bool(given.isfinite().all()):
            raise InvalidTokens(
                f"Images must be finite floating-point numbers, normalized as in training; got "
                f"{given.dtype}."
            )
        n = patches.n_special + patches.n_patches
        ids = torch.zeros(len(given), n, dtype=torch.long, device=device)
        return cls(ids, images=given.to(device, dtype))

    @property
    def is_real(self) -> Bool[Tensor, "batch pos"]:
        """Where there is a token and not padding."""
        return torch.ones_like(self.ids, dtype=torch.bool) if self.real is None else self.real

    @property
    def tokens(self) -> Int[Tensor, "batch pos"]:
        """The ids with ``PAD`` where there is padding: the input of :meth:`of`."""
        return self.ids if self.real is None else self.ids.where(self.real, PAD)

    def with_mask_token(self, token: int) -> "Batch":
        """The same batch, where the mask token has this id."""
        return replace(self, masked=self.tokens == token)

    def types_from(self, column: int) -> Int[Tensor, "batch pos"]:
        """The types of the tokens from a column on."""
        ids = self.ids[:, column:]
        return torch.zeros_like(ids) if self.types is None else self.types[:, column:]

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on another device."""
        return self._each(lambda own: own.to(device))

    def rows(self, chosen: Int[Tensor, " row"]) -> "Batch":
        """Some of the rows."""
        return self._each(lambda own: own[chosen])

    def padded_left(self) -> "Batch":
        """The same rows with all padding on the left, as little as possible."""
        return self if self.real is None else self._ordered(self.real.int().argsort(stable=True))

    def padded_right(self) -> "Batch":
        """The same rows with all padding on the right, as little as possible."""
        return self if self.real is None else self._ordered(tokens_first(self.real))

    def repeated(self, copies: int) -> "Batch":
        """So many copies of the rows, one after another."""
        return self._each(lambda own: repeated(own, copies))

    def _ordered(self, order: Int[Tensor, "batch pos"]) -> "Batch":
        used = self.is_real.gather(-1, order).any(0)
        padded = self._each(lambda own: own.gather(-1, order)[:, used])
        if padded.real is None or not bool(padded.real.all()):
            return padded
        return replace(padded, real=None)

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        """The same function applied to each of its tensors."""

        def changed(own: Tensor | None) -> Tensor | None:
            return None if own is None else change(own)

        return Batch(
            change(self.ids),
            changed(self.real),
            changed(self.types),
            changed(self.images),
            changed(self.masked),
        )


@dataclass(frozen=True)
class TokenInput:
    """A stack that reads tokens.

    Attributes:
        d_vocab: size of its vocabulary.
        n_ctx: the longest row allowed.
        n_types: number of token types; 0 if it has none.
    """

    d_vocab: int
    n_ctx: int
    n_types: int

    def batch(self, tokens: object, mask: object, types: object, like: Tensor) -> Batch:
        """Tokens, checked, on the device of ``like`` (a weight)."""
        if isinstance(tokens, Batch):
            if tokens.images is not None:
                raise InvalidTokens("This model reads tokens; got a batch of images.")
            types = tokens.types if types is None else types
            tokens = tokens.tokens
        if types is not None and not self.n_types:
            raise InvalidTokens("types= were given, but this model has no token types.")
        return Batch.of(tokens, self.d_vocab, self.n_ctx, mask, types, self.n_types, like.device)


@dataclass(frozen=True)
class ImageInput:
    """A stack that reads images.

    Attributes:
        patches: their size, and how they are cut.
    """

    patches: PatchConfig

    def batch(self, tokens: object, mask: object, types: object, like: Tensor) -> Batch:
        """Images, checked, with the device and dtype of ``like`` (a weight)."""
        if mask is not None or types is not None:
            raise InvalidTokens("mask= and types= are for tokens; this model reads images.")
        images = tokens.images if isinstance(tokens, Batch) else tokens
        if images is None:
            raise InvalidTokens("This model reads images; got a batch of tokens.")
        return Batch.of_images(images, self.patches, like.dtype, like.device)


def repeated(x: Tensor, copies: int) -> Tensor:
    """``x`` so many times, one copy after another along its first axis."""
    return x if copies == 1 else x.expand(copies, *x.shape).flatten(0, 1)


def tokens_first(real: Bool[Tensor, "batch pos"]) -> Int[Tensor, "batch pos"]:
    """Each row's columns, those of tokens first: ``[b, p]`` is the column of position p."""
    return real.int().argsort(dim=-1, descending=True, stable=True)


def column_of(
    real: Bool[Tensor, "batch pos"], position: int
) -> tuple[Int[Tensor, " batch"], Bool[Tensor, " batch"]]:
    """The column of ``position`` in each row, and which rows are too short to have it.

    Positions count the real tokens of a row; negative ones from its end.
    """
    lengths = real.sum(-1)
    wanted = lengths + position if position < 0 else torch.full_like(lengths, position)
    lacking = (wanted < 0) | (wanted >= lengths)
    return ((real.cumsum(-1) - 1 == wanted[:, None]) & real).int().argmax(-1), lacking


def _read(values: Int[Tensor, " n"]) -> list[int]:
    """The values of a short vector, read from the device at once."""
    try:
        return values.tolist()
    except RuntimeError:  # inside torch.func transforms, PyTorch 2.9 reads single values only
        return [int(value) for value in values]


def _wrong_length(lengths: Int[Tensor, " batch"], n_ctx: int) -> str:
    """What is wrong with the number of tokens of a row."""
    longest = int(lengths.max())
    if longest > n_ctx:
        return (
            f"A row of {longest} tokens is over this model's context of {n_ctx}; shorten it or "
            "split it."
        )
    return f"Row {int(lengths.argmin())} holds no token, only padding; drop that prompt."


def _outside(ids: Int[Tensor, "batch pos"], d_vocab: int) -> str:
    """Which id is outside the vocabulary."""
    row, pos = ((ids < 0) | (ids >= d_vocab)).nonzero()[0].tolist()
    return (
        f"Token id {int(ids[row, pos])} at row {row}, position {pos} is outside the vocabulary "
        f"0..{d_vocab - 1}; was the text encoded with this model's tokenizer?"
    )


def _types_outside(least: int, largest: int, n_types: int) -> str:
    """Which token type is outside the range."""
    if least < 0:
        return f"Token types are numbered from 0; one is {least}."
    return f"A token has type {largest}; this model has types 0 to {n_types - 1}."
