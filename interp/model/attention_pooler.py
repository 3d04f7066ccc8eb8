"""Attention pooling: a learned query attends to all tokens and gives one vector.

    pooled = y + mlp(norm(y)),   y = H(p, x)        p: the probe; x: the last stream

As in SigLIP's image tower (Zhai et al. 2023, arXiv:2303.15343), after the pooling by attention of
the Set Transformer (Lee et al. 2019, arXiv:1810.00825).
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.config import AttentionPoolerConfig, Config
from interp.model.attention.cross_attention import CrossAttention
from interp.model.context import Context
from interp.model.mean_pooling import MeanPooler
from interp.model.mlp import MLP
from interp.model.norm_kinds import norm_of
from interp.model.shapes import Stream
from interp.model.unembedding_kinds import Pooler


class AttentionPooler(nn.Module):
    """x ↦ y + mlp(norm(y)) with y = H(p, x): one vector per image, from its whole last stream.

    It is not part of the forward: call ``model.pooler(stream)``, where the stream is the output of
    a model without a head. Its parts are ``probe``, ``attn`` (keys and values of x), ``norm`` and
    ``mlp``.
    """

    def __init__(self, config: AttentionPoolerConfig, d_model: int) -> None:
        super().__init__()
        self.probe = nn.Parameter(torch.randn(d_model).mul_(0.02))
        self.attn = CrossAttention(config.attention, d_model)
        self.norm = norm_of(config.norm, d_model)
        self.mlp = MLP(config.mlp, d_model)

    def forward(self, x: Stream) -> Float[Tensor, "batch d_model"]:
        """One vector for each row of the stream; padding is not masked."""
        query = self.probe.expand(len(x), 1, -1)
        context = Context.plain(query).with_encoder(x)
        y = self.attn(query, context)
        return (y + self.mlp(self.norm(y), context))[:, 0]


def pooler_of(config: Config) -> Pooler | AttentionPooler | MeanPooler | None:
    """The pooler of a configuration; ``None`` if it has none."""
    last = list(config.stacks.values())[-1]
    patches = last.embedding.patches
    if config.attention_pooler is not None:
        return AttentionPooler(config.attention_pooler, config.d_model)
    if patches is not None and patches.mean_pooled and not last.norm.final:
        return MeanPooler(norm_of(last.norm, config.d_model), patches.n_special)
    return Pooler(config.d_model) if config.pooler else None
