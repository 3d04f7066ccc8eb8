"""A façade as a module: its core, and moving, casting and loading the weights that both share."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from interp import errors
from interp.compat.activation_cache import ActivationCache
from interp.compat.config import HookedTransformerConfig
from interp.compat.errors import OutOfRange
from interp.compat.hooked_root_module import HookedRootModule
from interp.compat.shared_weights import SharedWeights
from interp.compat.structure import Structure
from interp.model import Batch
from interp.transformer import Transformer

IGNORED_KEYS = ("attn.mask", "attn.IGNORE", "attn.rotary_sin", "attn.rotary_cos")
"""Buffers in state dicts of TransformerLens, which the core computes itself."""


class CoreModule(HookedRootModule):
    """The methods of ``nn.Module``, for a façade whose parameters share storage with a core's."""

    cfg: HookedTransformerConfig
    _core: tuple[Transformer]
    _weights: SharedWeights
    _structure: Structure | None = None

    def _check_structure(self, names: Iterable[str]) -> None:
        """Note the parts of a new model, or the hook points that now stand in it."""
        if self._structure is None:
            self._structure = Structure(self, names)
        else:
            self._structure.update(self)

    @property
    def is_as_built(self) -> bool:
        """Whether no part was replaced, so that the core computes the same as the parts."""
        return self._structure is not None and self._structure.is_whole()

    def replaced_parts(self) -> list[str]:
        """The names of parts that were replaced, added or deleted, or have hooks of PyTorch."""
        return [] if self._structure is None else self._structure.replaced(self)

    @property
    def core(self) -> Transformer:
        """The model of this package that computes the forward; both share their weights."""
        self._weights.check()
        return self._core[0]

    def _checked(self, tokens: Any, **how: Any) -> Batch:
        """Ids ``[batch pos]``, and what else ``how`` names, after checks.

        Raises:
            OutOfRange: an id is outside of the vocabulary, or a row is too long.
        """
        try:
            return self.core.batch(tokens, **how)
        except errors.InvalidTokens as error:
            raise OutOfRange(str(error)) from error

    def run_with_cache(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        *model_args: Any,
        return_cache_object: bool = True,
        remove_batch_dim: bool = False,
        **kwargs: Any,
    ) -> tuple[Any, Any]:
        """The output of the forward, and an :class:`ActivationCache` (or a dictionary)."""
        output, cache = super().run_with_cache(
            *model_args, remove_batch_dim=remove_batch_dim, **kwargs
        )
        if not return_cache_object:
            return output, cache
        return output, ActivationCache(cache, self, has_batch_dim=not remove_batch_dim)

    def to(  # pyright: ignore[reportIncompatibleMethodOverride] - as TransformerLens has it
        self,
        device_or_dtype: Any,
        print_details: bool = True,  # noqa: ARG002
    ) -> Any:
        """Move or cast the weights, and update ``cfg.device`` or ``cfg.dtype``."""
        if isinstance(device_or_dtype, torch.dtype):
            self.cfg.dtype = device_or_dtype
        else:
            self.cfg.device = device_or_dtype
        return super().to(device_or_dtype)

    def cuda(self, device: int | torch.device | None = None) -> Any:
        """Move the weights to a GPU, by default the first."""
        index = device if isinstance(device, int) else 0
        return self.to(device if isinstance(device, torch.device) else f"cuda:{index}")

    def cpu(self) -> Any:
        """Move the weights to the CPU."""
        return self.to("cpu")

    def mps(self) -> Any:
        """Move the weights to the GPU of an Apple machine."""
        return self.to("mps")

    def move_model_modules_to_device(self) -> None:
        """Move the weights to ``cfg.device``."""
        self.to(self.cfg.device)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Move the core, and make the parameters share its new storage."""
        self._weights.check()
        self._core[0]._apply(fn, recurse)
        shared = self._weights.parameters()
        for module in self.modules():
            for parameter in module.parameters(recurse=False):
                if id(parameter) not in shared:
                    parameter.data = fn(parameter.data)
            for name, buffer in module.named_buffers(recurse=False):
                setattr(module, name, fn(buffer))
        self._weights.rebind()
        return self

    def load_state_dict(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        state_dict: Mapping[str, Any],
        strict: bool = True,
        assign: bool = False,  # noqa: ARG002 - values are always copied
    ) -> Any:
        """Copy weights under TransformerLens's names; its buffers are ignored."""
        state = {k: value for k, value in state_dict.items() if not k.endswith(IGNORED_KEYS)}
        state |= {k: value for k, value in self.state_dict().items() if k.endswith(IGNORED_KEYS)}
        self._weights.check()
        return super().load_state_dict(state, strict=strict)
