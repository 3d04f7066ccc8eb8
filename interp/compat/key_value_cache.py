"""Keys and values of earlier tokens: ``model(new_tokens, past_kv_cache=cache)``.

As in TransformerLens, keys are cached before they are rotated, and all of them are rotated in every
forward: ``hook_rot_k`` has every position and ``hook_k`` the new ones.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from interp.compat.config import HookedTransformerConfig
from interp.compat.errors import InvalidInput
from interp.compat.facade_tap import FacadeTap
from interp.errors import shorten
from interp.model import Attention, Context, KeysValues


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


@dataclass
class TransformerLensKeyValueCache:
    """Keys and values of every layer, and which of their positions are padding.

    Attributes:
        entries: one entry for each layer.
        previous_attention_mask: ``[batch pos_so_far]``, 0 at padding.
        frozen: whether forwards read the cache without appending to it, so that one prefix can be
            continued in several ways.
    """

    entries: list[TransformerLensKeyValueCacheEntry]
    previous_attention_mask: Tensor
    frozen: bool = False

    @classmethod
    def init_cache(
        cls,
        cfg: HookedTransformerConfig,
        device: torch.device | str | None,
        batch_size: int = 1,
    ) -> "TransformerLensKeyValueCache":
        """An empty cache.

        Args:
            cfg: the configuration of the model.
            device: the device of the model; by default ``cfg.device``.
            batch_size: number of rows of the batches that it will be used with.
        """
        device = cfg.device if device is None else device
        entry = TransformerLensKeyValueCacheEntry.init_cache_entry
        mask = torch.empty((batch_size, 0), device=device, dtype=torch.int)
        return cls([entry(cfg, device, batch_size) for _ in range(cfg.n_layers)], mask)

    def freeze(self) -> None:
        """Stop forwards from appending to the cache."""
        self._set_frozen(frozen=True)

    def unfreeze(self) -> None:
        """Let forwards append to the cache again."""
        self._set_frozen(frozen=False)

    def _set_frozen(self, *, frozen: bool) -> None:
        self.frozen = frozen
        for entry in self.entries:
            entry.frozen = frozen

    def append_attention_mask(self, attention_mask: Tensor) -> Tensor:
        """The mask of all positions ``[batch pos]``, given that of the new ones.

        It is stored unless the cache is frozen.

        Raises:
            InvalidInput: the mask has another number of rows.
        """
        before = self.previous_attention_mask
        if len(attention_mask) != len(before):
            raise InvalidInput(
                f"The cache was made for {len(before)} rows; got {len(attention_mask)}. "
                "Use init_cache(cfg, device, batch_size) for another batch size."
            )
        mask = torch.cat([before, attention_mask.to(before.device)], dim=-1)
        if not self.frozen:
            self.previous_attention_mask = mask
        return mask

    @property
    def n_columns(self) -> int:
        """The number of cached positions.

        Raises:
            InvalidInput: the entries do not agree, because a forward stopped or started at a layer.
        """
        columns = {entry.past_keys.shape[1] for entry in self.entries}
        if len(columns) != 1:
            raise InvalidInput(
                f"The layers of the cache hold keys of {shorten(sorted(columns))} positions. Use "
                "the cache only in whole forwards, or freeze() it."
            )
        return columns.pop()

    def __getitem__(self, idx: int) -> TransformerLensKeyValueCacheEntry:
        """The entry of a layer."""
        return self.entries[idx]


HookedTransformerKeyValueCache = TransformerLensKeyValueCache
HookedTransformerKeyValueCacheEntry = TransformerLensKeyValueCacheEntry
"""The names of these classes in TransformerLens 2."""


class EntriesKV:
    """The KV cache of one forward of the core, over the entries of a cache.

    Args:
        cache: the cache with the entries.
        layers: the layer of each attention.
        tap: the tap of the forward.
        columns: the positions of all tokens, including those in the cache.
    """

    def __init__(
        self,
        cache: TransformerLensKeyValueCache,
        layers: Mapping[Attention, int],
        tap: FacadeTap,
        columns: Context,
    ) -> None:
        self._cache, self._layers, self._tap, self._columns = cache, layers, tap, columns

    def extend(self, owner: object, k: Tensor, v: Tensor) -> KeysValues:
        """Rotated keys, and values, of all columns; the new keys are taken from the tap."""
        if not isinstance(owner, Attention):
            return k, v
        layer, new = self._layers[owner], self._tap.pending.keys
        keys, values = self._cache[layer].append(k if new is None else new, v)
        tap = replace(self._tap, layer=layer, has_kv_cache=False)
        return owner.positions.key(keys, self._columns, tap), values

    def fixed(self, owner: object, compute: Callable[[], KeysValues]) -> KeysValues:  # noqa: ARG002
        """The result of ``compute``: a decoder alone has no keys from an encoder."""
        return compute()
