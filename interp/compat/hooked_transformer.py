"""TransformerLens's ``HookedTransformer`` on the core of this package.

The façade has the parts, names and parameters of TransformerLens. The forward is that of the core,
which receives the hooks as a tap, an argument of one call: the façade holds hooks, flags and
contexts, and the core stays stateless.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import nn

from interp.compat.components import Embed, PosEmbed, TransformerBlock, Unembed
from interp.compat.config import HookedTransformerConfig
from interp.compat.core_config import core_config
from interp.compat.errors import InvalidInput
from interp.compat.facade_tap import Facade
from interp.compat.generation import Generation
from interp.compat.hook_point import HookPoint
from interp.compat.initial_weights import draw_weights
from interp.compat.model_forward import ModelForward
from interp.compat.norms import Norm, SoluNorm, norm_of
from interp.compat.padding import use_padded_masks
from interp.compat.pretrained import Pretrained
from interp.compat.shared_weights import SharedWeights
from interp.compat.tokenizer import load_tokenizer
from interp.compat.utils.activation_functions import solu
from interp.errors import NoSuchAttribute, shorten
from interp.model import LearnedPositions, ScaledNorm, Unembedding
from interp.transformer import Transformer

PARTS = (
    *("embed", "hook_embed", "hook_tokens", "pos_embed", "hook_pos_embed"),
    *("blocks", "ln_final", "unembed"),
)
"""The parts, which are rebuilt when norms are folded."""


class HookedTransformer(  # pyright: ignore[reportIncompatibleMethodOverride] - to() differs
    ModelForward, Generation, Pretrained
):
    """A decoder with the API of TransformerLens 3.

    Args:
        cfg: a :class:`HookedTransformerConfig`, or a dictionary of its fields.
        tokenizer: a tokenizer of ``transformers``; by default that of ``cfg.tokenizer_name``, if it
            is set. A model without one takes token ids only.
        move_to_device: whether to move the weights to ``cfg.device``.
        default_padding_side: the padding side of the tokenizer.

    Raises:
        InvalidConfig: the core can't express a setting; the message names it.
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
        if tokenizer is None and self.cfg.tokenizer_name is not None:
            tokenizer = load_tokenizer(self.cfg.tokenizer_name)
        if tokenizer is not None:
            self.set_tokenizer(tokenizer, default_padding_side)
        self._build()
        if self.cfg.init_weights:
            self.init_weights()
        if move_to_device:
            self.to(self.cfg.device, print_details=False)

    # ---- building it --------------------------------------------------------------------------

    def _build(self) -> None:
        """Build the core and the parts from the configuration."""
        # The core draws its own random weights; those of TransformerLens come from init_weights.
        with torch.random.fork_rng():
            core = Transformer(core_config(self.cfg)).to(self.cfg.dtype)
        if self.cfg.normalization_type == "RMSPre" and self.cfg.use_normalization_before_and_after:
            _drop_read_gains(core)
        use_padded_masks([block.attn for block in core.blocks])
        self._core, self._weights = (core,), SharedWeights()
        self._structure = None
        for name in PARTS:
            self._modules.pop(name, None)
        self._add_parts(core)
        self.setup()

    def setup(self) -> None:
        """Name every part, and list the hook points; to be called when parts were replaced."""
        super().setup()
        self._check_structure(PARTS)
        self._facade = self._build_facade(self._core[0])

    def _add_parts(self, core: Transformer) -> None:
        cfg, stack, weights = self.cfg, core.stacks[0], self._weights
        if stack.weight_e is None or not isinstance(core.unembed, Unembedding):
            raise InvalidInput("A HookedTransformer reads and predicts tokens.")
        self.embed = Embed(stack.weight_e, stack.embed_norm, weights)
        self.hook_embed = HookPoint()
        if cfg.use_hook_tokens:
            self.hook_tokens = HookPoint()
        if cfg.positional_embedding_type != "rotary":
            entry = stack.entry
            learned = entry.W_pos if isinstance(entry, LearnedPositions) else None
            self.pos_embed = PosEmbed(learned, cfg, weights)
            self.hook_pos_embed = HookPoint()
        self.blocks = nn.ModuleList(
            TransformerBlock(cfg, block, layer, weights) for layer, block in enumerate(core.blocks)
        )
        if isinstance(stack.final_norm, ScaledNorm):
            self.ln_final = norm_of(stack.final_norm, weights)
        bias = core.unembed.b_U
        self.unembed = Unembed(core.unembed.weight, bias, weights)  # pyright: ignore[reportArgumentType]
        if cfg.act_fn.startswith("solu") and not cfg.attn_only:
            for block, part in zip(core.blocks, self.blocks, strict=True):
                normed = cfg.is_layer_norm_activation()
                block.mlp.act = SoluNorm(part.mlp.ln) if normed else solu  # pyright: ignore[reportAttributeAccessIssue, reportArgumentType]

    def _build_facade(self, core: Transformer) -> Facade:
        """The façade, with the hook point and the norm at each place of the core."""
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
        """Draw every W_* according to ``cfg.init_mode`` (:mod:`interp.compat.initial_weights`)."""
        draw_weights(self, self.cfg)

    def __deepcopy__(self, memo: dict[int, Any]) -> "HookedTransformer":
        """A new model with the same weights and configuration, without hooks.

        Raises:
            InvalidInput: a part was replaced by one that a new model does not have.
        """
        cfg = deepcopy(self.cfg, memo)
        cfg.init_weights, cfg.tokenizer_name = False, None
        copy = type(self)(cfg)
        cfg.init_weights, cfg.tokenizer_name = self.cfg.init_weights, self.cfg.tokenizer_name
        copy.tokenizer = self.tokenizer
        others = copy.mod_dict.keys() ^ dict(self.named_modules()).keys() - {""}
        if others and not self.is_as_built:
            raise InvalidInput(f"Restore replaced parts before a copy: {shorten(sorted(others))}.")
        copy.load_state_dict(self.state_dict())
        return copy.train(self.training)

    def load_sample_training_dataset(self, **keywords: object) -> None:  # noqa: ARG002
        """Not supported: no data set is downloaded.

        Raises:
            NoSuchAttribute: always.
        """
        raise NoSuchAttribute(
            "interp.compat downloads no data set; use datasets.load_dataset and model.to_tokens."
        )

    def sample_datapoint(self, *settings: object, **keywords: object) -> None:  # noqa: ARG002
        """Not supported: there is no data set (see :meth:`load_sample_training_dataset`)."""
        self.load_sample_training_dataset()


def _drop_read_gains(core: Transformer) -> None:
    """Remove the gains of norms that are folded; norms of outputs keep theirs."""
    for name, part in core.named_modules():
        if name.endswith(("ln1", "ln2", "final_norm")) and isinstance(part, ScaledNorm):
            part.gain = None
