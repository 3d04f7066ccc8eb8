"""The same model in another basis of each head; see `analyses.permutation_covariance.bases`."""

import copy

import torch

from analyses.permutation_covariance.bases import change_basis, free_bases, score_bases
from interp import Transformer
from interp.model.attention.attention import Attention


def in_another_basis(model: Transformer, seed: int = 0) -> Transformer:
    """A copy; queries and keys stay where they are normalized."""
    generator, new = torch.Generator().manual_seed(seed), copy.deepcopy(model)
    for attn in (part for part in new.modules() if isinstance(part, Attention)):
        B = free_bases(attn, generator)
        change_basis(attn, value=B, output=torch.linalg.inv(B))
        if not attn.has_qk_norm:
            G = score_bases(attn, generator)
            change_basis(attn, query=G, key=torch.linalg.inv(G).mT)
    return new
