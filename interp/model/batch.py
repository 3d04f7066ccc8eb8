"""Batches: checked token ids, padding and token types of one stack, or checked images.

Padding is the token id ``PAD = -1``, which is outside every vocabulary. Images form a batch too:
their patches are the tokens, without ids.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.config import PatchConfig
from interp.errors import MAX_SHOWN, InvalidTokens, first_line, shorten

PAD = -1


@dataclass(frozen=True, eq=False)
class Batch:
    """Checked token ids.

    Attributes:
        ids: token ids; 0 at padding.
        real: True at tokens, False at padding; ``None`` if there is no padding.
        types: the type of each token (BERT's segments); ``None`` if all are 0.
        images: the images whose patches are the tokens; all ids are then 0.
        masked: True at mask tokens, whose original token is to be predicted; ``None`` if the model
            is not an encoder with a mask token.
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

        All values needed for the checks are read from the device at once, because each read
        synchronizes.

        Args:
            tokens: ids ``[batch pos]``, or ``[pos]`` for a single row, with ``PAD`` at padding. A
                tensor, an array or lists.
            d_vocab: size of the vocabulary; ids must be smaller.
            n_ctx: maximum number of tokens in a row.
            mask: ``[batch pos]``, nonzero at real tokens; for batches padded with other ids.
            types: ``[batch pos]``, the type of each token; all 0 by default.
            n_types: number of token types; types must be smaller.
            device: the device of the model.

        Raises:
            InvalidTokens: there are no tokens, or too many in a row; ids are not whole numbers or
                outside the vocabulary; a row is all padding; or the mask or types have another
                shape or are out of range.
        """
        ids = as_ids(tokens).to(device)
        real = ids != PAD
        if mask is not None:
            real = real & as_mask(mask, ids).to(ids.device)
        token_types = None if types is None else as_types(types, ids).to(ids.device)
        lengths, ids = real.sum(-1), torch.where(real, ids, 0)
        extremes = [lengths.min(), lengths.max(), ids.min(), ids.max()]
        extremes += [] if token_types is None else [token_types.min(), token_types.max()]
        shortest, longest, least, largest, *of_types = _read(torch.stack(extremes))
        if longest > n_ctx or shortest == 0:
            raise InvalidTokens(_wrong_length(lengths, n_ctx))
        if least < 0 or largest >= d_vocab:
            raise InvalidTokens(_outside_vocabulary(ids, d_vocab))
        if of_types and (of_types[0] < 0 or of_types[1] >= n_types):
            raise InvalidTokens(_types_outside(of_types[0], of_types[1], n_types))
        return cls(ids, None if shortest == ids.shape[1] else real, token_types)

    @classmethod
    def of_images(
        cls, images: object, patches: PatchConfig, dtype: torch.dtype, device: torch.device
    ) -> "Batch":
        """Check images ``[batch channel height width]``, or a single one without ``batch``.

        Raises:
            InvalidTokens: the shape is wrong, or the values are integers or not finite.
        """
        pixels = as_tensor(images, "Images", "floating-point numbers [batch channel height width]")
        pixels = pixels[None] if pixels.ndim == 3 else pixels  # noqa: PLR2004 - one image
        expected = (patches.channels, patches.height, patches.width)
        if pixels.ndim != 4 or tuple(pixels.shape[1:]) != expected or len(pixels) == 0:  # noqa: PLR2004
            raise InvalidTokens(
                f"This model reads images [batch channel height width] of {expected}; got "
                f"{tuple(pixels.shape)}."
            )
        if not pixels.is_floating_point() or not bool(pixels.isfinite().all()):
            raise InvalidTokens(
                f"Images must be finite floating-point numbers, normalized as in training; got "
                f"{pixels.dtype}."
            )
        n = patches.n_special + patches.n_patches
        ids = torch.zeros(len(pixels), n, dtype=torch.long, device=device)
        return cls(ids, images=pixels.to(device, dtype))

    @property
    def is_real(self) -> Bool[Tensor, "batch pos"]:
        """True at tokens, False at padding."""
        return torch.ones_like(self.ids, dtype=torch.bool) if self.real is None else self.real

    @property
    def tokens(self) -> Int[Tensor, "batch pos"]:
        """The ids with ``PAD`` at padding: the input of :meth:`of`."""
        return self.ids if self.real is None else self.ids.where(self.real, PAD)

    def with_mask_token(self, token: int) -> "Batch":
        """The same batch with :attr:`masked` set, given the id of the mask token."""
        return replace(self, masked=self.tokens == token)

    def types_from(self, column: int) -> Int[Tensor, "batch pos"]:
        """The types of the tokens from ``column`` on."""
        ids = self.ids[:, column:]
        return torch.zeros_like(ids) if self.types is None else self.types[:, column:]

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on another device."""
        return self._map(lambda tensor: tensor.to(device))

    def rows(self, chosen: Int[Tensor, " row"]) -> "Batch":
        """The chosen rows."""
        return self._map(lambda tensor: tensor[chosen])

    def padded_left(self) -> "Batch":
        """The same rows with all padding on the left, and no more than needed."""
        return self if self.real is None else self._reordered(self.real.int().argsort(stable=True))

    def padded_right(self) -> "Batch":
        """The same rows with all padding on the right, and no more than needed."""
        return self if self.real is None else self._reordered(tokens_first(self.real))

    def repeated(self, copies: int) -> "Batch":
        """``copies`` copies of the rows, one after another."""
        return self._map(lambda tensor: repeated(tensor, copies))

    def _reordered(self, order: Int[Tensor, "batch pos"]) -> "Batch":
        used = self.is_real.gather(-1, order).any(0)
        padded = self._map(lambda tensor: tensor.gather(-1, order)[:, used])
        if padded.real is None or not bool(padded.real.all()):
            return padded
        return replace(padded, real=None)

    def _map(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        """The batch with ``change`` applied to each of its tensors."""

        def changed(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else change(tensor)

        return Batch(
            change(self.ids),
            changed(self.real),
            changed(self.types),
            changed(self.images),
            changed(self.masked),
        )


@dataclass(frozen=True)
class TokenInput:
    """The input of a stack that reads tokens.

    Attributes:
        d_vocab: size of its vocabulary.
        n_ctx: maximum number of tokens in a row.
        n_types: number of token types; 0 if it has none.
    """

    d_vocab: int
    n_ctx: int
    n_types: int

    def batch(self, tokens: object, mask: object, types: object, like: Tensor) -> Batch:
        """The checked tokens, on the device of ``like`` (a weight)."""
        if isinstance(tokens, Batch):
            if tokens.images is not None:
                raise InvalidTokens("This model reads tokens; got a batch of images.")
            types = tokens.types if types is None else types
            tokens = tokens.tokens
        if types is not None and not self.n_types:
            raise InvalidTokens("types= were given, but this model has no token types.")
        return Batch.of(tokens, self.d_vocab, self.n_ctx, mask, types, self.n_types, like.device)


def repeated(x: Tensor, copies: int) -> Tensor:
    """``copies`` copies of ``x``, one after another along its first axis."""
    return x if copies == 1 else x.expand(copies, *x.shape).flatten(0, 1)


def tokens_first(real: Bool[Tensor, "batch pos"]) -> Int[Tensor, "batch pos"]:
    """The columns of each row, tokens first: ``[b, p]`` is the column of position p."""
    return real.int().argsort(dim=-1, descending=True, stable=True)


def column_of(
    real: Bool[Tensor, "batch pos"], position: int
) -> tuple[Int[Tensor, " batch"], Bool[Tensor, " batch"]]:
    """The column of ``position`` in each row, and which rows are too short to have it.

    Positions count the real tokens of a row; negative positions count from its end.
    """
    lengths = real.sum(-1)
    wanted = lengths + position if position < 0 else torch.full_like(lengths, position)
    lacking = (wanted < 0) | (wanted >= lengths)
    return ((real.cumsum(-1) - 1 == wanted[:, None]) & real).int().argmax(-1), lacking


def _read(values: Int[Tensor, " n"]) -> list[int]:
    """The values of a short vector, read from the device at once."""
    try:
        return values.tolist()
    except RuntimeError:  # inside torch.func transforms, PyTorch 2.9 only reads single values
        return [int(value) for value in values]


def _wrong_length(lengths: Int[Tensor, " batch"], n_ctx: int) -> str:
    """The message for a row with too many tokens or none."""
    longest = int(lengths.max())
    if longest > n_ctx:
        return (
            f"A row of {longest} tokens is over this model's context of {n_ctx}; shorten it or "
            "split it."
        )
    return f"Row {int(lengths.argmin())} holds no token, only padding; drop that prompt."


def _outside_vocabulary(ids: Int[Tensor, "batch pos"], d_vocab: int) -> str:
    """The message that names the first id outside the vocabulary."""
    row, pos = ((ids < 0) | (ids >= d_vocab)).nonzero()[0].tolist()
    return (
        f"Token id {int(ids[row, pos])} at row {row}, position {pos} is outside the vocabulary "
        f"0..{d_vocab - 1}; was the text encoded with this model's tokenizer?"
    )


def _types_outside(least: int, largest: int, n_types: int) -> str:
    """The message that names a token type outside the range."""
    if least < 0:
        return f"Token types are numbered from 0; one is {least}."
    return f"A token has type {largest}; this model has types 0 to {n_types - 1}."


# ---- token ids, masks and types from any array --------------------------------------------------


IDS = (
    "whole numbers [batch pos] of one length (model.to_tokens([...]) pads texts; fill shorter rows "
    "of ids with interp.PAD)"
)


def as_tensor(value: object, what: str, expected: str) -> Tensor:
    """``value`` as a dense tensor that holds data.

    Args:
        value: a tensor, an array, a number, or lists of them.
        what: its name in the error message: ``"Tokens"``.
        expected: description of the expected input in the error message.

    Raises:
        InvalidTokens: ``value`` is none of these.
    """
    if isinstance(value, Mapping) and "input_ids" in value:
        raise InvalidTokens(
            f"{what} should be {expected}; got the output of a tokenizer. Pass its ids, and its "
            'mask if there is padding: model(output["input_ids"], mask=output["attention_mask"]).'
        )
    try:
        tensor = torch.as_tensor(value)
        kind = _unreadable_kind(tensor)
    except Exception as error:  # of any type: the object's own methods raise it
        reason = first_line(error)[:MAX_SHOWN]
        raise InvalidTokens(
            f"{what} should be {expected}; got {shorten(value)} ({reason})."
        ) from error
    if kind is not None:
        raise InvalidTokens(f"{what} should be {expected}; got {kind}.")
    return tensor


def _unreadable_kind(tensor: Tensor) -> str | None:
    """The kind of a tensor that can't be read as a dense array; ``None`` for one that can."""
    if tensor.is_meta:
        return "a tensor on the meta device, which holds no numbers"
    if tensor.is_nested:
        return "a nested tensor, whose rows may differ in length"
    if tensor.is_quantized or tensor.layout != torch.strided:
        return f"a tensor of {tensor.layout} and {tensor.dtype}"
    return None


def whole_numbers(tokens: object) -> Int[Tensor, "..."]:
    """Token ids in any form, as an int64 tensor of the same shape.

    Raises:
        InvalidTokens: they are not whole numbers, or not an array of them.
    """
    ids = as_tensor(tokens, "Tokens", IDS)
    if ids.numel() and (ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool):
        raise InvalidTokens(f"Token ids must be whole numbers, got a tensor of {ids.dtype}.")
    return ids.long()


def as_ids(tokens: object) -> Int[Tensor, "batch pos"]:
    """Token ids as a batch; a single row becomes a batch of one.

    Raises:
        InvalidTokens: there are no tokens, or they are not ``[batch pos]``.
    """
    ids = whole_numbers(tokens)
    if ids.numel() == 0:
        raise InvalidTokens("The prompt is empty: there is no token to run the model on.")
    ids = ids[None] if ids.ndim == 1 else ids
    if ids.ndim != 2:  # noqa: PLR2004 - batch and pos
        raise InvalidTokens(f"Tokens must be [batch pos], got {shorten(tokens)}.")
    return ids


def as_mask(mask: object, ids: Int[Tensor, "batch pos"]) -> Bool[Tensor, "batch pos"]:
    """A mask that is nonzero at real tokens, as a boolean tensor.

    Raises:
        InvalidTokens: its shape differs from that of the ids.
    """
    values = as_tensor(mask, "The mask", "numbers [batch pos], nonzero at real tokens")
    values = values[None] if values.ndim == 1 else values
    if values.shape != ids.shape:
        raise InvalidTokens(
            f"The mask is {tuple(values.shape)}, the tokens are {tuple(ids.shape)}; "
            "they must agree."
        )
    return values.bool()


def as_types(types: object, ids: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch pos"]:
    """The type of each token.

    Raises:
        InvalidTokens: their shape differs from that of the ids, or they are not whole numbers.
    """
    values = as_tensor(types, "Token types", "whole numbers [batch pos]")
    values = values[None] if values.ndim == 1 else values
    if values.shape != ids.shape or values.is_floating_point() or values.is_complex():
        raise InvalidTokens(
            f"The types are {tuple(values.shape)} {values.dtype}, the tokens {tuple(ids.shape)}; "
            "give one whole number from 0 per token."
        )
    return values.long()


def is_text(tokens: object) -> bool:
    """Whether tokens are given as a text or a sequence of texts."""
    several = isinstance(tokens, list | tuple) and bool(tokens)
    return isinstance(tokens, str) or (several and isinstance(tokens[0], str))  # pyright: ignore
