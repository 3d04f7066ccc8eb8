"""Keys and values of one layer, for all tokens so far."""

from dataclasses import dataclass

import torch
from torch import Tensor

from interp.compat.config import HookedTransformerConfig
from interp.errors import InvalidInput, shorten


@dataclass
class TransformerLensKeyValueCacheEntry:
    """The cached keys and values of one layer.

    Attributes:
        past_keys: ``[batch pos_so_far kv_head d_head]``, before they are rotated.
        past_values: ``[batch pos_so_far kv_head d_head]``.
        frozen: whether :meth:`append` leaves both unchanged.
    """

    past_keys: Tensor
    past_values: Tensor
    frozen: bool = False

    @classmethod
    def init_cache_entry(
        cls,
        cfg: HookedTransformerConfig,
        device: torch.device | str | None,
        batch_size: int = 1,
    ) -> "TransformerLensKeyValueCacheEntry":
        """An empty entry."""
        heads = cfg.n_heads if cfg.n_key_value_heads is None else cfg.n_key_value_heads
        shape = (batch_size, 0, heads, cfg.d_head)
        empty = torch.empty(shape, device=device, dtype=cfg.dtype)
        return cls(empty, empty.clone())

    def append(self, new_keys: Tensor, new_values: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of all tokens, given those of the new ones.

        They are stored unless the entry is frozen.

        Raises:
            InvalidInput: the new ones have another batch size or number of heads.
        """
        if not self.past_keys.shape[1] and len(new_keys) == len(self.past_keys):
            # Copies, so that a hook that stored the new ones can't change the cache.
            keys, values = new_keys.clone(), new_values.clone()
        elif new_keys.shape[::2] != self.past_keys.shape[::2]:
            raise InvalidInput(
                f"The cache holds keys {shorten(self.past_keys)}, which the keys "
                f"{shorten(new_keys)} can't follow: batch and heads must be the same."
            )
        else:
            keys = torch.cat([self.past_keys, new_keys], dim=1)
            values = torch.cat([self.past_values, new_values], dim=1)
        if not self.frozen:
            self.past_keys, self.past_values = keys, values
        return keys, values


HookedTransformerKeyValueCacheEntry = TransformerLensKeyValueCacheEntry
"""The name of this class in TransformerLens 2."""
