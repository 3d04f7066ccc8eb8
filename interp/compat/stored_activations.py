"""A dictionary of activations with short names: ``cache["pattern", 0]``."""

from collections import Counter
from collections.abc import ItemsView, Iterator, KeysView, ValuesView
from typing import Any

import torch
from torch import Tensor

from interp.compat.errors import InvalidInput
from interp.compat.utils.act_names import get_act_name
from interp.compat.utils.slices import removes_axis, take
from interp.errors import NotRecorded, shorten


class StoredActivations:
    """A dictionary of activations with short names.

    Attributes:
        cache_dict: the activations by full name.
        model: the model that was run.
        has_batch_dim: whether the activations have a batch axis.
    """

    def __init__(
        self, cache_dict: dict[str, Tensor], model: Any, has_batch_dim: bool = True
    ) -> None:
        self.cache_dict, self.model, self.has_batch_dim = cache_dict, model, has_batch_dim
        self.has_embed = "hook_embed" in cache_dict
        self.has_pos_embed = "hook_pos_embed" in cache_dict

    def __getitem__(self, key: Any) -> Tensor:
        """An activation by full name, short name, or ``(name, layer[, part])``.

        A negative layer counts from the end.

        Raises:
            NotRecorded: the activation is not in the cache.
        """
        if isinstance(key, str) and key in self.cache_dict:
            return self.cache_dict[key]
        name, layer, *part = (key, None) if isinstance(key, str) else (*key, None)
        if isinstance(layer, int) and layer < 0:
            layer += self.model.cfg.n_layers
        full = get_act_name(name, layer, part[0] if part else None)
        if full not in self.cache_dict:
            raise NotRecorded(
                f"{shorten(key)} ({full}) is not in this cache of {len(self)} activations; "
                "names_filter= of run_with_cache selects what is stored."
            )
        return self.cache_dict[full]

    def __len__(self) -> int:
        """Number of activations."""
        return len(self.cache_dict)

    def __iter__(self) -> Iterator[str]:
        """The full names."""
        return iter(self.cache_dict)

    def __contains__(self, name: object) -> bool:
        """Whether the cache has an activation of this full name."""
        return name in self.cache_dict

    def keys(self) -> KeysView[str]:
        """The full names."""
        return self.cache_dict.keys()

    def values(self) -> ValuesView[Tensor]:
        """The activations."""
        return self.cache_dict.values()

    def items(self) -> ItemsView[str, Tensor]:
        """Full names and activations."""
        return self.cache_dict.items()

    def __repr__(self) -> str:
        """The full names."""
        return f"ActivationCache with keys {list(self.cache_dict)}"

    def to(self, device: str | torch.device) -> "StoredActivations":
        """Move the activations."""
        self.cache_dict = {name: x.to(device) for name, x in self.items()}
        return self

    def toggle_autodiff(self, mode: bool = False) -> None:
        """Switch gradients on or off, in the whole process."""
        torch.set_grad_enabled(mode)

    def remove_batch_dim(self) -> "StoredActivations":
        """Drop the batch axis of a batch of one.

        Raises:
            InvalidInput: the batch has several rows.
        """
        if self.has_batch_dim:
            if self._batch_size() != 1:
                raise InvalidInput(f"The batch has {self._batch_size()} rows; 1 was expected.")
            for name, x in self.items():
                if x.ndim and len(x) == 1:
                    self.cache_dict[name] = x[0]
            self.has_batch_dim = False
        return self

    def apply_slice_to_batch_dim(self, batch_slice: Any) -> "StoredActivations":
        """A cache of some rows; a single index drops the batch axis.

        Raises:
            InvalidInput: there is no batch axis.
        """
        if not self.has_batch_dim and batch_slice is not None:
            raise InvalidInput("This cache has no batch axis to slice.")
        size = self._batch_size()
        rows = {
            name: take(x, batch_slice, 0) if x.ndim and len(x) == size else x
            for name, x in self.items()
        }
        still = self.has_batch_dim and not removes_axis(batch_slice)
        return type(self)(rows, self.model, has_batch_dim=still)

    def stack_activation(
        self, activation_name: str, layer: int = -1, sublayer_type: str | None = None
    ) -> Tensor:
        """One activation of the layers before ``layer`` (-1 for all), stacked."""
        activations = [
            self[activation_name, at, sublayer_type] for at in range(self._layers(layer))
        ]
        return torch.stack(activations)

    def _layers(self, layer: int | None) -> int:
        return self.model.cfg.n_layers if layer in (None, -1) else layer  # pyright: ignore[reportReturnType]

    def _batch_size(self) -> int:
        sizes = Counter(len(x) for x in self.values() if x.ndim)
        return sizes.most_common(1)[0][0] if sizes else 1
