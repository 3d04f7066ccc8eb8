"""Images in place of tokens: cut into patches, which are projected by one matrix.

    x = [special tokens; patches·W + b]

Dosovitskiy et al. 2021. :meth:`Batch.of_images` checks images.
"""

from dataclasses import dataclass

import torch
from einops import rearrange
from torch import Tensor, nn

from interp.config import Config, PatchConfig
from interp.errors import InvalidInput, InvalidTokens
from interp.model.batch import Batch, TokenInput
from interp.model.context import Context
from interp.model.linear import Linear
from interp.model.mlp import bias_of, matrix


@dataclass(frozen=True)
class ImageInput:
    """The input of a stack that reads images.

    Attributes:
        patches: size of the images, and how they are cut into patches.
    """

    patches: PatchConfig

    def batch(self, tokens: object, mask: object, types: object, like: Tensor) -> Batch:
        """The checked images, with the device and dtype of ``like`` (a weight)."""
        if mask is not None or types is not None:
            raise InvalidTokens("mask= and types= are for tokens; this model reads images.")
        images = tokens.images if isinstance(tokens, Batch) else tokens
        if images is None:
            raise InvalidTokens("This model reads images; got a batch of tokens.")
        return Batch.of_images(images, self.patches, like.dtype, like.device)


class Patches(Linear):
    """Learned tokens (CLS first), then the patches of an image, each projected by one matrix."""

    def __init__(self, config: PatchConfig, d_model: int) -> None:
        super().__init__()
        self.size = config.size
        self.image_shape = (config.channels, config.height, config.width)
        self.weight = matrix(d_model, config.channels * config.size**2)
        self.bias = bias_of(d_model, config.bias)
        n = config.n_special
        self.special = nn.Parameter(torch.randn(n, d_model).mul_(0.02)) if n else None

    def forward(self, batch: Batch, context: Context, weight_e: None) -> Tensor:  # noqa: ARG002
        """``[batch pos d_model]``: each special token, then the patches row by row."""
        if batch.images is None:
            raise InvalidInput("This model reads images: model(images).")
        patches = rearrange(
            batch.images, "b c (h p) (w q) -> b (h w) (c p q)", p=self.size, q=self.size
        )
        x = self.linear(patches, self.weight, self.bias)
        if self.special is None:
            return x
        return torch.cat([self.special.expand(len(x), -1, -1), x], dim=1)


def input_of(config: Config, name: str) -> TokenInput | ImageInput:
    """The kind of input that a stack reads: tokens or images."""
    embedding = config.stacks[name].embedding
    if embedding.patches is not None:
        return ImageInput(embedding.patches)
    return TokenInput(config.vocabulary_of(name), config.n_ctx, embedding.n_types)
