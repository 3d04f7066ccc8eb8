"""The base class of :class:`HookedEncoder` and :class:`HookedEncoderDecoder`.

The forward is the core's, stack by stack, with the façade's hooks as its tap. As in
TransformerLens, an attention mask hides padded tokens from every query and changes no position.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from interp.compat.components import Block, Unembed
from interp.compat.config import HookedTransformerConfig
from interp.compat.encoder_pretrained import EncoderPretrained
from interp.compat.encoder_tap import EncoderFacade, KeyPadding
from interp.compat.errors import InvalidInput, InvalidTokens
from interp.compat.facade import Where
from interp.compat.hook_calls import call_hooks
from interp.compat.hook_point import HookPoint
from interp.compat.norms import Norm
from interp.compat.settings import NEEDS
from interp.compat.shared_weights import SharedWeights
from interp.compat.tokenizer import load_tokenizer
from interp.config import Config
from interp.errors import shorten
from interp.model import Causal, Masking, Stack, Unembedding, as_mask
from interp.points import Place, Point
from interp.transformer import Transformer


class EncoderModel(EncoderPretrained):  # pyright: ignore[reportIncompatibleMethodOverride] - as TransformerLens has to()
    """Base class of façades with an encoder."""

    unembed: Unembed

    def __init__(
        self,
        cfg: HookedTransformerConfig | Mapping[str, Any],
        tokenizer: Any = None,
        move_to_device: bool = True,
        **keywords: Any,
    ) -> None:
        super().__init__()
        if keywords:
            raise InvalidInput(f"{type(self).__name__} does not take {shorten(sorted(keywords))}.")
        self.cfg = HookedTransformerConfig.unwrap(cfg)
        if tokenizer is None and self.cfg.tokenizer_name is not None:
            tokenizer = load_tokenizer(self.cfg.tokenizer_name)
        self.tokenizer = tokenizer
        if self.cfg.d_vocab == -1 and tokenizer is not None:
            self.cfg.d_vocab = max(tokenizer.get_vocab().values()) + 1
        if self.cfg.d_vocab_out == -1:
            self.cfg.d_vocab_out = self.cfg.d_vocab
        core = Transformer(self._core_config(self.cfg)).to(self.cfg.dtype)
        causal = self.cfg.attention_dir == "causal"
        for layer in range(self.cfg.n_layers):
            attention = core.stacks[0].block(layer).attn
            masking = attention.masking
            mask = KeyPadding(Causal() if causal else masking.mask)
            attention.masking = Masking(mask, masking.positions)
        self._core, self._weights, self._structure = (core,), SharedWeights(), None
        self._add_parts(core)
        self.setup()
        if move_to_device:
            self.to(self.cfg.device)

    # ---- to be implemented by subclasses --------------------------------------------------------

    @staticmethod
    def _core_config(cfg: HookedTransformerConfig) -> Config:
        """The configuration of the core."""
        raise NotImplementedError

    def _add_parts(self, core: Transformer) -> None:
        """The parts over the core's weights."""
        raise NotImplementedError

    def _add_unembed(self, core: Transformer) -> None:
        unembed = core.unembed
        if not isinstance(unembed, Unembedding) or unembed.b_U is None:
            raise InvalidInput("This model has no unembedding with a bias.")
        self.unembed = Unembed(unembed.weight, unembed.b_U, self._weights)

    def _places(self, stack: Stack, names: Mapping[Point, str]) -> dict[Where, str]:
        """TransformerLens's name for each place of a stack.

        Args:
            stack: the stack of the core.
            names: the names of points outside of blocks.
        """
        hook_names: dict[Where, str] = {}
        for place, name in self._core[0].names.hooks.items():
            hook_name = names.get(place.point) if place.layer is None else name
            is_here = place.stack == stack.name_in_places and place.point is not Point.MLP_IN
            if is_here and hook_name is not None:
                hook_names[where(place)] = hook_name
        return hook_names

    def _facade(
        self,
        stack: Stack,
        blocks: Sequence[Block],
        names: Mapping[Point, str],
        after: Mapping[Where, nn.Module],
        **options: Any,
    ) -> EncoderFacade:
        """The façade of a stack, with the hook point and the norm at each of its places."""
        points: dict[Where, HookPoint] = {}
        norms: dict[Where, Norm] = {}
        for at, name in self._places(stack, names).items():
            if name in self.hook_dict:
                points[at] = self.hook_dict[name]
            owner = self.mod_dict.get(name.rpartition(".")[0])
            if isinstance(owner, Norm):
                norms[at] = owner
        attentions = [stack.block(layer).attn for layer in range(len(blocks))]
        return EncoderFacade(self.cfg, points, norms, blocks, attentions, after, **options)

    def check_hooks_to_add(
        self,
        hook_point: HookPoint,  # noqa: ARG002
        hook_point_name: str,
        *hook: Any,  # noqa: ARG002
        **how: Any,  # noqa: ARG002
    ) -> None:
        """Refuse a hook at a point that is never called.

        Raises:
            InvalidInput: the setting that the point needs is off, or nothing calls the point.
        """
        name = hook_point_name
        for ending, setting in NEEDS.items():
            if name.endswith(ending) and not getattr(self.cfg, setting):
                raise InvalidInput(f"{name} needs model.cfg.{setting} = True first.")
        if name.endswith("rel_pos_hook"):
            raise InvalidInput(
                f"Nothing calls {name}, nor does TransformerLens; the bias is part of "
                "attn.hook_attn_scores."
            )

    # ---- the forward ----------------------------------------------------------------------------

    def _encode(
        self, input: Any, truncate: bool = True, move_to_device: bool = True
    ) -> dict[str, Tensor]:
        """The tokenizer's encoding of a text or texts.

        Raises:
            InvalidTokens: there is no tokenizer.
        """
        if self.tokenizer is None:
            raise InvalidTokens(
                f"This model has no tokenizer; pass token ids instead of {shorten(input)}."
            )
        encoded = self.tokenizer(
            input,
            return_tensors="pt",
            padding=True,
            truncation=truncate,
            max_length=self.cfg.n_ctx if truncate else None,
        )
        device = self.cfg.device if move_to_device else "cpu"
        inputs = {name: encoded[name].to(device) for name in ("input_ids", "attention_mask")}
        types = encoded.get("token_type_ids")
        is_there = types is not None
        zeros = torch.zeros_like(inputs["input_ids"])
        return inputs | {"token_type_ids": types.to(device) if is_there else zeros}

    def _real_tokens(self, mask: object, ids: Tensor) -> Tensor | None:
        """True where an attention mask has a token; ``None`` if it has one everywhere.

        Raises:
            InvalidTokens: the shape is not that of the ids, or a row has no token.
        """
        if mask is None:
            return None
        real = as_mask(mask, ids).to(ids.device)
        if bool(real.all()):
            return None
        if not bool(real.any(-1).all()):
            raise InvalidTokens(
                "one_zero_attention_mask hides every token of row "
                f"{int(real.any(-1).int().argmin())}; drop that row."
            )
        return real

    def _logits(self, residual: Tensor) -> Tensor:
        """The logits, with the hooks of ``unembed``."""
        unembed = self._core[0].unembed
        if not isinstance(unembed, Unembedding):
            raise InvalidInput("This model has no unembedding.")
        if not self.runs_core:
            return self.unembed(unembed.read(residual))
        x = call_hooks(self.unembed.hook_in, unembed.read(residual))
        logits = unembed.linear(x, unembed.weight, unembed.b_U)
        return call_hooks(self.unembed.hook_out, logits)

    def _additive_mask(self, mask: object, ids: Tensor, hidden: float) -> Tensor | None:
        """What is added to the scores ``[batch 1 1 pos]``: ``hidden`` at padding, else 0."""
        real = self._real_tokens(mask, ids)
        if real is None:
            return None
        zeros = torch.zeros(real.shape, dtype=self.cfg.dtype, device=ids.device)
        return zeros.masked_fill(~real, hidden)[:, None, None]


def where(place: Place) -> Where:
    """Point, layer and norm of a place of one stack."""
    return place.point, place.layer, place.norm
