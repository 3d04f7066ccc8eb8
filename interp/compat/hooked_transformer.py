"""TransformerLens's ``HookedTransformer`` on the core of this package.

The façade has the parts, names and parameters of TransformerLens. The forward is the core's, which
is given the hooks as a tap, an argument of one call: hooks, flags and contexts live here, and the
core keeps nothing.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from interp.compat.activation_cache import ActivationCache
from interp.compat.components import Embed, Norm, PosEmbed, TransformerBlock, Unembed
from interp.compat.config import HookedTransformerConfig
from interp.compat.core_config import core_config
from interp.compat.facade_tap import Facade, FacadeTap, call_hooks
from interp.compat.generation import Generation
from interp.compat.hook_point import HookPoint
from interp.compat.pretrained import Pretrained
from interp.compat.settings import Settings
from interp.compat.shared_weights import SharedWeights
from interp.compat.solu_norm import SoluNorm
from interp.compat.utils.activation_functions import solu
from interp.compat.utils.language_model import lm_cross_entropy_loss
from interp.compat.utils.tokenizers import get_attention_mask
from interp.errors import InvalidInput, InvalidTokens, NoSuchAttribute, shorten
from interp.model.batch import Batch
from interp.model.context import Context
from interp.model.embeddings import LearnedPositions
from interp.model.norm import ScaledNorm
from interp.model.stack import Span
from interp.model.unembedding import Unembedding
from interp.transformer import Transformer

IGNORED_KEYS = ("attn.mask", "attn.IGNORE", "attn.rotary_sin", "attn.rotary_cos")
"""Buffers in state dicts of TransformerLens, which the core computes."""


class Output(NamedTuple):
    """What ``return_type="both"`` gives."""

    logits: Tensor
    loss: Tensor


class HookedTransformer(Settings, Generation, Pretrained):
    """A decoder with the calls of TransformerLens 3.

    Args:
        cfg: a :class:`HookedTransformerConfig`, or a dictionary of its fields.
        tokenizer: one of ``transformers``; ``None`` for a model of token ids.
        move_to_device: whether weights go to ``cfg.device``.
        default_padding_side: of the tokenizer.

    Raises:
        InvalidConfig: a setting that the core can't express; the message names it.
    """

    def __init__(
        self,
        cfg: HookedTransformerConfig | Mapping[str, Any],
        tokenizer: Any = None,
        move_to_device: bool = True,
        default_padding_side: str | None = None,
    ) -> None:
        super().__init__()
        self.cfg, self.tokenizer = HookedTransformerConfig.unwrap(cfg), None
        if tokenizer is not None:
            self.set_tokenizer(tokenizer, default_padding_side)
        self._build()
        if self.cfg.init_weights:
            self.init_weights()
        if move_to_device:
            self.to(self.cfg.device, print_details=False)

    @property
    def core(self) -> Transformer:
        """The model of this package that computes the forward; its weights are these weights."""
        self._weights.check()
        return self._core[0]

    # ---- building it --------------------------------------------------------------------------

    def _build(self) -> None:
        """The core and the parts, by the configuration."""
        # The core draws random weights of its own, TransformerLens's are drawn by init_weights.
        with torch.random.fork_rng():
            core = Transformer(core_config(self.cfg)).to(self.cfg.dtype)
        if self.cfg.normalization_type == "RMSPre" and self.cfg.use_normalization_before_and_after:
            _drop_read_gains(core)
        self._core, self._weights = (core,), SharedWeights()
        self._add_parts(core)
        self.setup()
        self._facade = self._places(core)

    def _add_parts(self, core: Transformer) -> None:
        cfg, stack, weights = self.cfg, core.stacks[0], self._weights
        if stack.weight_e is None or not isinstance(core.unembed, Unembedding):
            raise InvalidInput("A HookedTransformer reads and predicts tokens.")
        self.embed = Embed(stack.weight_e, stack.embed_norm, weights)
        self.hook_embed = HookPoint()
        if cfg.positional_embedding_type != "rotary":
            entry = stack.entry
            learned = entry.W_pos if isinstance(entry, LearnedPositions) else None
            self.pos_embed = PosEmbed(learned, cfg, weights)
            self.hook_pos_embed = HookPoint()
        self.blocks = nn.ModuleList(
            TransformerBlock(cfg, block, layer, weights) for layer, block in enumerate(core.blocks)
        )
        if isinstance(stack.final_norm, ScaledNorm):
            self.ln_final = Norm(stack.final_norm, weights)
        bias = core.unembed.b_U
        self.unembed = Unembed(core.unembed.weight, bias, weights)  # pyright: ignore[reportArgumentType]
        if cfg.act_fn.startswith("solu") and not cfg.attn_only:
            for block, own in zip(core.blocks, self.blocks, strict=True):
                block.mlp.act = SoluNorm(own.mlp.ln) if cfg.is_layer_norm_activation() else solu  # pyright: ignore[reportAttributeAccessIssue, reportArgumentType]

    def _places(self, core: Transformer) -> Facade:
        """The hook point, and the norm, at each place of the core."""
        points, norms = {}, {}
        for place, name in core.names.hooks.items():
            where = (place.point, place.layer, place.norm)
            if name in self.hook_dict:
                points[where] = self.hook_dict[name]
            owner = self.mod_dict.get(name.rpartition(".")[0])
            if isinstance(owner, Norm):
                norms[where] = owner
        blocks = [block for block in self.blocks if isinstance(block, TransformerBlock)]
        return Facade(self.cfg, points, norms, blocks, [block.attn for block in core.blocks])

    def init_weights(self) -> None:
        """Draw W_* from a normal distribution of ``cfg.initializer_range``.

        Raises:
            InvalidInput: another ``cfg.init_mode`` than gpt2.
        """
        if self.cfg.init_mode != "gpt2":
            raise InvalidInput(f'init_mode={self.cfg.init_mode!r}: only "gpt2" is supported.')
        if self.cfg.seed is not None:
            torch.manual_seed(self.cfg.seed)
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if "W_" in name:
                    drawn = torch.empty(parameter.shape, dtype=parameter.dtype)
                    parameter.copy_(drawn.normal_(std=self.cfg.initializer_range))

    # ---- the forward --------------------------------------------------------------------------

    def forward(
        self,
        input: Any,
        return_type: str | None = "logits",
        loss_per_token: bool = False,
        prepend_bos: bool | None = None,
        padding_side: str | None = None,
        start_at_layer: int | None = None,
        tokens: Tensor | None = None,
        shortformer_pos_embed: None = None,
        attention_mask: Tensor | None = None,
        stop_at_layer: int | None = None,
        past_kv_cache: None = None,
    ) -> Any:
        """Logits, loss, both or nothing.

        Args:
            input: token ids ``[batch pos]`` or ``[pos]``, a text or texts; with
                ``start_at_layer``, the stream ``[batch pos d_model]`` before that layer.
            return_type: ``logits``, ``loss`` (next-token, nats, the mean over all positions,
                padding included unless it is masked), ``both`` or ``None``.
            loss_per_token: the loss of each prediction ``[batch pos-1]``.
            prepend_bos: overrides ``cfg.default_prepend_bos``, for texts.
            padding_side: overrides that of the tokenizer, for texts.
            start_at_layer: the first block to run; negative ones count from the end.
            tokens: the ids, for the loss with ``start_at_layer``.
            shortformer_pos_embed: not supported.
            attention_mask: ``[batch pos]``, 0 at padding. By default padding is masked only if
                the tokenizer pads on the left.
            stop_at_layer: the block before which to stop; the stream is returned.
            past_kv_cache: not supported; ``generate`` keeps keys and values itself.

        Raises:
            InvalidInput: an unknown ``return_type``, or what is not supported.
        """
        if shortformer_pos_embed is not None or past_kv_cache is not None:
            raise InvalidInput(
                "shortformer_pos_embed= and past_kv_cache= are not supported; model.generate "
                "keeps keys and values of earlier tokens by itself."
            )
        if return_type not in ("logits", "loss", "both", None):
            raise InvalidInput(f"return_type={shorten(return_type)} must be logits, loss or both.")
        with self._overriding(prepend_bos, padding_side):
            start, mask, stream = start_at_layer, attention_mask, None
            if start is None:
                tokens, mask = self._input_tokens(input, attention_mask)
                batch = self._batch(tokens, mask)
            else:
                stream = input
                batch = Batch(stream.new_zeros(stream.shape[:2], dtype=torch.long), _real(mask))
        span = self._span(start, stop_at_layer, stream)
        tap = FacadeTap(self._facade)
        residual = self._run(batch, span, tap)
        if stop_at_layer is not None or return_type is None:
            return residual if stop_at_layer is not None else None
        logits = self._logits(residual)
        if return_type == "logits":
            return logits
        if tokens is None:
            raise InvalidInput("The loss with start_at_layer= needs tokens=.")
        loss = self.loss_fn(logits, tokens, mask, per_token=loss_per_token)
        return loss if return_type == "loss" else Output(logits, loss)

    def _run(self, batch: Batch, span: Span, tap: FacadeTap) -> Tensor:
        core = self.core
        stack, context = core.stacks[0], Context.of(batch)
        return stack(batch, context, tap, span)

    def _logits(self, residual: Tensor) -> Tensor:
        """The logits, with the hooks of ``unembed``."""
        unembed = self._core[0].unembed
        if not isinstance(unembed, Unembedding):
            raise InvalidInput("This model has no unembedding.")
        x = call_hooks(self.unembed.hook_in, residual)
        logits = unembed.linear(x, unembed.weight, unembed.b_U)
        return unembed.soft_cap(call_hooks(self.unembed.hook_out, logits))

    def _input_tokens(self, given: Any, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Ids ``[batch pos]`` on the device, and which of them are real, if that matters."""
        is_text = isinstance(given, str | list)
        tokens = self.to_tokens(given) if is_text else torch.as_tensor(given)
        tokens = (tokens[None] if tokens.ndim == 1 else tokens).to(self._core[0].device)
        left = getattr(self.tokenizer, "padding_side", "right") == "left"
        if mask is None and left and self.tokenizer is not None:
            bos = self.cfg.default_prepend_bos
            mask = get_attention_mask(self.tokenizer, tokens, prepend_bos=bos)
        if mask is not None and mask.shape != tokens.shape:
            raise InvalidTokens(f"attention_mask is {shorten(mask)}, but tokens {shorten(tokens)}.")
        return tokens, None if mask is None else mask.to(tokens.device)

    def masks_padding(self, tokens: Tensor) -> bool:
        """Whether some of these ids are padding, which a forward masks."""
        return _real(self._input_tokens(tokens, None)[1]) is not None

    def _batch(self, tokens: Tensor, mask: Tensor | None) -> Batch:
        checked = self._core[0].batch(tokens)
        return Batch(checked.ids, _real(mask))

    def _span(self, start: int | None, stop: int | None, stream: Tensor | None) -> Span:
        first, last, _ = slice(start, stop).indices(self.cfg.n_layers)
        return Span(first, None if stop is None else max(first, last), stream)

    def loss_fn(
        self,
        logits: Tensor,
        tokens: Tensor,
        attention_mask: Tensor | None = None,
        per_token: bool = False,
    ) -> Tensor:
        """Next-token cross-entropy in nats; 0 where either token is masked."""
        return lm_cross_entropy_loss(
            logits, tokens.to(logits.device), attention_mask, per_token=per_token
        )

    def run_with_cache(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        *model_args: Any,
        return_cache_object: bool = True,
        remove_batch_dim: bool = False,
        **kwargs: Any,
    ) -> tuple[Any, Any]:
        """What the forward returns, and an :class:`ActivationCache` (or a dictionary)."""
        output, cache = super().run_with_cache(
            *model_args, remove_batch_dim=remove_batch_dim, **kwargs
        )
        if not return_cache_object:
            return output, cache
        return output, ActivationCache(cache, self, has_batch_dim=not remove_batch_dim)

    # ---- as a module ----------------------------------------------------------------------------

    def to(  # pyright: ignore[reportIncompatibleMethodOverride] - as TransformerLens has it
        self,
        device_or_dtype: Any,
        print_details: bool = True,  # noqa: ARG002
    ) -> "HookedTransformer":
        """Move or cast the weights; ``cfg.device`` or ``cfg.dtype`` follows."""
        if isinstance(device_or_dtype, torch.dtype):
            self.cfg.dtype = device_or_dtype
        else:
            self.cfg.device = device_or_dtype
        return super().to(device_or_dtype)

    def _apply(self, fn: Any, recurse: bool = True) -> "HookedTransformer":
        """Move the core, and let the parameters share its new storage."""
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
        """Copy weights in TransformerLens's names; buffers of theirs are ignored."""
        own = {k: value for k, value in state_dict.items() if not k.endswith(IGNORED_KEYS)}
        own |= {k: value for k, value in self.state_dict().items() if k.endswith(IGNORED_KEYS)}
        self._weights.check()
        return super().load_state_dict(own, strict=strict)

    def __deepcopy__(self, memo: dict[int, Any]) -> "HookedTransformer":
        """The same weights and configuration in a model of its own, without hooks."""
        cfg = deepcopy(self.cfg, memo)
        cfg.init_weights, init = False, cfg.init_weights
        made = type(self)(cfg)
        made.cfg.init_weights, made.tokenizer = init, self.tokenizer
        made.load_state_dict(self.state_dict())
        return made.train(self.training)

    def load_sample_training_dataset(self, **keywords: object) -> None:  # noqa: ARG002
        """Refused: nothing is downloaded.

        Raises:
            NoSuchAttribute: always.
        """
        raise NoSuchAttribute("interp.compat downloads no data set; use datasets.load_dataset.")


def _drop_read_gains(core: Transformer) -> None:
    """Only the norms of what is written keep their gains: the others are folded."""
    for name, part in core.named_modules():
        if name.endswith(("ln1", "ln2", "final_norm")) and isinstance(part, ScaledNorm):
            part.gain = None


def _real(mask: Tensor | None) -> Tensor | None:
    return None if mask is None or bool(mask.bool().all()) else mask.bool()
