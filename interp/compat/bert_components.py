"""The parts of a :class:`HookedEncoder`: TransformerLens's names over the core's weights.

The pooler and the next-sentence head have their own weights, because the core's forward, that of a
masked language model, does not run them.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as everyone writes it

from interp.compat.caching_hooks import call_hooks
from interp.compat.components import (
    MLP,
    Attention,
    Block,
    Embed,
    PosEmbed,
)
from interp.compat.config import HookedTransformerConfig
from interp.compat.errors import InvalidInput
from interp.compat.hook_point import HookPoint
from interp.compat.norms import norm_of
from interp.compat.shared_weights import SharedWeights
from interp.compat.weight_views import transposed, whole
from interp.errors import NoSuchAttribute
from interp.model import Block as CoreBlock
from interp.model import LearnedPositions, MaskedHead, Stack, TokenTypes
from interp.model import Norm as CoreNorm


class TokenTypeEmbed(nn.Module):
    """W_token_type ``[type d_model]``."""

    W_token_type: nn.Parameter

    def __init__(self, core: TokenTypes, weights: SharedWeights) -> None:
        super().__init__()
        weights.add(self, "W_token_type", core.W_type, whole)

    def forward(self, token_type_ids: Tensor) -> Tensor:
        """The embeddings of token types."""
        return self.W_token_type[token_type_ids]


class BertEmbed(nn.Module):
    """The norm of the sum of the embeddings of tokens, positions and token types."""

    def __init__(self, cfg: HookedTransformerConfig, stack: Stack, weights: SharedWeights) -> None:
        super().__init__()
        self.cfg, entry, types = cfg, stack.entry, stack.types
        if stack.weight_e is None or not isinstance(entry, LearnedPositions):
            raise InvalidInput("A HookedEncoder embeds tokens and positions.")
        if not isinstance(types, TokenTypes):
            raise InvalidInput("A HookedEncoder embeds token types.")
        self.embed = Embed(stack.weight_e, None, weights)
        self.pos_embed = PosEmbed(entry.W_pos, cfg, weights)
        self.token_type_embed = TokenTypeEmbed(types, weights)
        self.ln = norm_of(stack.embed_norm, weights)
        self.hook_embed, self.hook_pos_embed = HookPoint(), HookPoint()
        self.hook_token_type_embed = HookPoint()

    def forward(self, input_ids: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """The stream before the first block; without types, all are 0."""
        types = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        tokens = call_hooks(self.hook_embed, self.embed(input_ids))
        positions = call_hooks(self.hook_pos_embed, self.pos_embed(input_ids))
        kinds = call_hooks(self.hook_token_type_embed, self.token_type_embed(types))
        return self.ln(tokens + positions + kinds)


class BertBlock(Block):
    """The parts of one block, which is post-norm."""

    def __init__(
        self, cfg: HookedTransformerConfig, core: CoreBlock, layer: int, weights: SharedWeights
    ) -> None:
        super().__init__()
        self.cfg = cfg
        self.attn = Attention(cfg, core.attn, layer, weights)
        self.ln1 = norm_of(core.get_submodule("ln1"), weights)
        self.mlp = MLP(cfg, core.mlp, weights)  # pyright: ignore[reportArgumentType]
        self.ln2 = norm_of(core.get_submodule("ln2"), weights)
        names = ["q_input", "k_input", "v_input", "attn_out", "mlp_in", "mlp_out"]
        names += ["resid_pre", "resid_mid", "resid_post", "normalized_resid_post"]
        for name in names:
            self.add_module(f"hook_{name}", HookPoint())

    def forward(self, resid_pre: Tensor, additive_attention_mask: Tensor | None = None) -> Tensor:
        """The stream after the block ``[batch pos d_model]``.

        Args:
            resid_pre: the stream before it.
            additive_attention_mask: is added to the scores, ``[batch 1 1 key]``.
        """
        resid_pre = self._hooked("resid_pre", resid_pre)
        q, k, v = self._inputs_of_attention(resid_pre)
        out = self.attn(q, k, v, additive_attention_mask=additive_attention_mask)
        resid_mid = self._hooked("resid_mid", resid_pre + self._hooked("attn_out", out))
        normalized = self.ln1(self._input_of_mlp(resid_mid))
        mlp_out = self._hooked("mlp_out", self.mlp(normalized))
        resid_post = self._hooked("resid_post", normalized + mlp_out)
        return self._hooked("normalized_resid_post", self.ln2(resid_post))


class BertMLMHead(nn.Module):
    """norm(gelu(x·W + b)), before the unembedding."""

    W: nn.Parameter
    b: nn.Parameter

    def __init__(self, core: CoreNorm, weights: SharedWeights) -> None:
        super().__init__()
        if not isinstance(core, MaskedHead) or core.bias is None:
            raise InvalidInput("A HookedEncoder has the head of a masked language model.")
        weights.add(self, "W", core.weight, transposed)
        weights.add(self, "b", core.bias, whole)
        self.ln = norm_of(core.norm, weights)

    def forward(self, resid: Tensor) -> Tensor:
        """The output for a stream ``[batch pos d_model]``."""
        return self.ln(F.gelu(resid @ self.W + self.b))


class SentencePart(nn.Module):
    """Base class: x·W + b of one vector per text.

    W and b are NaN if the model was loaded from one without these weights.
    """

    def __init__(self, cfg: HookedTransformerConfig, width: int) -> None:
        super().__init__()
        self.cfg = cfg
        drawn = torch.randn(cfg.d_model, width, dtype=cfg.dtype) / cfg.d_model**0.5
        self.W = nn.Parameter(drawn)
        self.b = nn.Parameter(torch.zeros(width, dtype=cfg.dtype))

    def project(self, x: Tensor) -> Tensor:
        """x·W + b.

        Raises:
            NoSuchAttribute: the loaded model has no such weights.
        """
        if bool(self.W[0, 0].isnan()):
            raise NoSuchAttribute(
                f"The model that was loaded has no weights for {type(self).__name__}; load one "
                "that was trained to predict the next sentence (BertForPreTraining)."
            )
        return x @ self.W + self.b


class BertPooler(SentencePart):
    """tanh(x·W + b) of the first token."""

    def __init__(self, cfg: HookedTransformerConfig) -> None:
        super().__init__(cfg, cfg.d_model)
        self.hook_pooler_out = HookPoint()

    def forward(self, resid: Tensor) -> Tensor:
        """``[batch d_model]`` of a stream ``[batch pos d_model]``."""
        return call_hooks(self.hook_pooler_out, torch.tanh(self.project(resid[:, 0])))


class BertNSPHead(SentencePart):
    """Logits of "is the next sentence" and "is not"."""

    def __init__(self, cfg: HookedTransformerConfig) -> None:
        super().__init__(cfg, 2)
        self.hook_nsp_out = HookPoint()

    def forward(self, resid: Tensor) -> Tensor:
        """Logits ``[batch 2]`` of the pooler's output ``[batch d_model]``."""
        return call_hooks(self.hook_nsp_out, self.project(resid))
