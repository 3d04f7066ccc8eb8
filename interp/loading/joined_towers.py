"""Two towers, of texts and of images, whose embeddings are compared.

    logits[i, t] = scale · cos(image_i, text_t) + bias

CLIP (Radford et al. 2021, arXiv:2103.00020) and SigLIP (Zhai et al. 2023, arXiv:2303.15343). Each
tower is a :class:`Transformer` of its own: runs, edits, sweeps and analyses take one of them.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import InvalidTokens
from interp.io import Table
from interp.model import is_text
from interp.transformer import Transformer

EmbeddingAt = int | Literal["largest id", "last"]
"""The first token with this id, the (first) token with the largest id, or the last position."""


@dataclass(frozen=True, eq=False, repr=False)
class TwoTowers:
    """A text tower and an image tower, which embed texts and images into one space.

    Attributes:
        text: the text tower; its logits are the dimensions of the embedding, at every position.
        image: the image tower. The embedding of an image is that of its pooler, if it has one, or
            else its logits at position 0 (CLS).
        logit_scale: factor of the cosines (exp of the stored parameter).
        logit_bias: added to the scaled cosines; 0 for CLIP.
        embedding_at: where the embedding of a text is read: an id means the first token with this
            id (EOS), ``"largest id"`` the first token with the largest id of the text (EOS in the
            first files of CLIP), ``"last"`` the last position (SigLIP).
    """

    text: Transformer
    image: Transformer
    logit_scale: float
    logit_bias: float
    embedding_at: EmbeddingAt

    def logits_per_image(
        self,
        tokens: Any,  # noqa: ANN401 - ids or texts
        images: Any,  # noqa: ANN401 - images or a batch of them
    ) -> Float[Tensor, "image text"]:
        """The scaled cosine of each image with each text, plus the bias.

        The softmax of a row is CLIP's distribution over the texts; the sigmoid of an entry is
        SigLIP's probability that image and text belong together.

        Args:
            tokens: what the text tower reads: ids ``[text pos]`` or texts. SigLIP's texts are
                padded to ``text.config.n_ctx`` tokens with the tokenizer's padding token, which is
                attended to, and are given as ids.
            images: what the image tower reads: ``[image channel height width]``, normalized as in
                training.

        Raises:
            InvalidTokens: tokens or images are invalid; a text lacks the token at which its
                embedding is read; texts of SigLIP are not ids, or are padded with ``interp.PAD``.
        """
        of_images = _unit(self._of_images(images))
        of_texts = _unit(self._of_texts(tokens)).to(of_images)
        return self.logit_scale * of_images @ of_texts.mT + self.logit_bias

    def _of_images(self, images: Any) -> Float[Tensor, "image dim"]:  # noqa: ANN401
        """The embeddings of images."""
        out = self.image(images)
        return out[:, 0] if self.image.pooler is None else self.image.pooler(out)

    def _of_texts(self, tokens: Any) -> Float[Tensor, "text dim"]:  # noqa: ANN401
        """The embeddings of texts."""
        if self.embedding_at == "last" and is_text(tokens):
            raise InvalidTokens(f"Texts were given as strings; {self._padding_rule()}")
        batch = self.text.batch(tokens)
        if self.embedding_at == "last" and batch.real is not None:
            raise InvalidTokens(f"Texts are padded with interp.PAD; {self._padding_rule()}")
        columns = self._columns(batch.tokens)
        return self.text(batch)[torch.arange(len(columns), device=columns.device), columns]

    def _columns(self, ids: Int[Tensor, "text pos"]) -> Int[Tensor, " text"]:
        """The position of each text's embedding."""
        if self.embedding_at == "last":
            return torch.full_like(ids[:, 0], ids.shape[1] - 1)
        if self.embedding_at == "largest id":
            return ids.argmax(-1)
        is_end = ids == self.embedding_at
        lacking = (~is_end.any(-1)).nonzero()
        if len(lacking):
            raise InvalidTokens(
                f"Row {int(lacking[0])} lacks EOS (id {self.embedding_at}), where the embedding of "
                "a text is read; add it to the end of each text."
            )
        return is_end.int().argmax(-1)

    def _padding_rule(self) -> str:
        """What the texts of a model are whose embedding is read at the last position."""
        return (
            f"this model reads ids that are padded to {self.text.config.n_ctx} tokens with the id "
            "of the tokenizer's padding token, which it attends to. Give it those ids."
        )

    def __repr__(self) -> str:
        return self._description().to_text()

    def _repr_html_(self) -> str:
        return self._description().to_html()

    def _description(self) -> Table:
        rows = [
            ("text", self.text.config.name),
            ("image", self.image.config.name),
            ("logit_scale", self.logit_scale),
            ("logit_bias", self.logit_bias),
            ("embedding_at", self.embedding_at),
        ]
        return Table("TwoTowers", (), rows)


def _unit(x: Float[Tensor, "row dim"]) -> Float[Tensor, "row dim"]:
    """Each row divided by its length."""
    return x / x.norm(dim=-1, keepdim=True)
