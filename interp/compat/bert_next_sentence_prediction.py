"""``BertNextSentencePrediction``: whether a second text follows a first, by a ``HookedEncoder``."""

from typing import Any

import torch
from torch import Tensor

from interp.compat.activation_cache import ActivationCache
from interp.compat.errors import InvalidInput, InvalidTokens
from interp.compat.hook_point import NamesFilter
from interp.compat.hooked_encoder import HookedEncoder
from interp.compat.hooked_root_module import Hooks
from interp.errors import shorten

PREDICTIONS = ("The sentences are sequential", "The sentences are NOT sequential")


class BertNextSentencePrediction:
    """Next-sentence prediction with a :class:`HookedEncoder` (Devlin et al. 2019).

    Attributes:
        model: the model whose pooler and next-sentence head are used.
    """

    def __init__(self, model: HookedEncoder) -> None:
        self.model = model

    def __call__(
        self,
        input: Any,
        return_type: str | None = "logits",
        token_type_ids: Tensor | None = None,
        one_zero_attention_mask: Tensor | None = None,
    ) -> Any:
        """See :meth:`forward`."""
        return self.forward(input, return_type, token_type_ids, one_zero_attention_mask)

    def forward(
        self,
        input: Any,
        return_type: str | None = "logits",
        token_type_ids: Tensor | None = None,
        one_zero_attention_mask: Tensor | None = None,
    ) -> Any:
        """Logits ``[batch 2]`` of "is the next sentence" and "is not", a prediction, or nothing.

        Args:
            input: a list of the two texts, or token ids ``[batch pos]``.
            return_type: ``logits``, ``predictions`` (a text, of a batch of one) or ``None``.
            token_type_ids: ``[batch pos]``, 0 in the first text and 1 in the second.
            one_zero_attention_mask: ``[batch pos]``, 0 at padding.

        Raises:
            InvalidInput: ids are given without types, ``return_type`` is unknown, or predictions
                are requested for more than one pair.
            NoSuchAttribute: the model was loaded without a pooler or next-sentence head.
        """
        if return_type not in ("logits", "predictions", None):
            raise InvalidInput(f"return_type={shorten(return_type)} must be logits or predictions.")
        tokens, types, mask = input, token_type_ids, one_zero_attention_mask
        if isinstance(input, list):
            tokens, own_types, own_mask = self.to_tokens(input)
            types, mask = own_types if types is None else types, own_mask if mask is None else mask
        elif types is None:
            raise InvalidInput(
                "Token ids need token_type_ids=, which say where the second sentence begins; or "
                "pass a list of the two texts."
            )
        resid = self.model.encoder_output(tokens, types, mask)
        logits: Tensor = self.model.nsp_head(self.model.pooler(resid))
        if return_type != "predictions":
            return logits if return_type == "logits" else None
        if len(logits) != 1:
            raise InvalidInput(f'return_type="predictions" is for one pair; got {len(logits)}.')
        return PREDICTIONS[int(logits.argmax(-1))]

    def to_tokens(
        self,
        input: list[str],
        move_to_device: bool = True,
        truncate: bool = True,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Token ids, token types and attention mask, each ``[1 pos]``, of two texts.

        Raises:
            InvalidInput: ``input`` is not two texts.
            InvalidTokens: there is no tokenizer.
        """
        if len(input) != len(PREDICTIONS):
            raise InvalidInput(f"A list of two texts was expected; got {shorten(input)}.")
        model = self.model
        if model.tokenizer is None:
            raise InvalidTokens("This model has no tokenizer; pass token ids and token_type_ids=.")
        encoded = model.tokenizer(
            *input,
            return_tensors="pt",
            padding=True,
            truncation=truncate,
            max_length=model.cfg.n_ctx if truncate else None,
        )
        device = model.cfg.device if move_to_device else "cpu"
        ids, types, mask = (
            encoded[name].to(device) for name in ("input_ids", "token_type_ids", "attention_mask")
        )
        return ids, types, mask

    def run_with_cache(
        self,
        *model_args: Any,
        return_cache_object: bool = True,
        names_filter: NamesFilter = None,
        device: torch.device | str | None = None,
        remove_batch_dim: bool = False,
        incl_bwd: bool = False,
        pos_slice: Any = None,
        **kwargs: Any,
    ) -> tuple[Any, Any]:
        """As in a :class:`HookedEncoder`, for this forward."""
        stored, forward, backward = self.model.get_caching_hooks(
            names_filter, incl_bwd, device, remove_batch_dim, pos_slice=pos_slice
        )
        with self.model.hooks(forward, backward):
            output = self(*model_args, **kwargs)
            if incl_bwd:
                output.backward()
        if not return_cache_object:
            return output, stored
        return output, ActivationCache(stored, self.model, has_batch_dim=not remove_batch_dim)

    def run_with_hooks(
        self,
        *model_args: Any,
        fwd_hooks: Hooks = (),
        bwd_hooks: Hooks = (),
        **kwargs: Any,
    ) -> Any:
        """As in a :class:`HookedEncoder`, for this forward."""
        with self.model.hooks(fwd_hooks, bwd_hooks):
            return self(*model_args, **kwargs)
