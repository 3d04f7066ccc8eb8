"""The Transformer, part by part; the forward reads like its formula."""

from interp.model.attention.attention import Attention, SinkSoftmax, in_forward_mode
from interp.model.attention.mask import Causal, Mask, Masking, Visible
from interp.model.attention.mask_kinds import Bidirectional, Window
from interp.model.batch import (
    PAD,
    Batch,
    TokenInput,
    as_mask,
    column_of,
    is_text,
    repeated,
    tokens_first,
    whole_numbers,
)
from interp.model.block import Block
from interp.model.context import Context, KeysValues, NoKVCache
from interp.model.embedding_kinds import ProjectedTokens, TokenTypes
from interp.model.experts import Experts, SharedExperts
from interp.model.hashing import (
    assume_constant_weights,
    weight_hash,
    weight_state,
    weight_sums,
)
from interp.model.images import ImageInput, Patches
from interp.model.kv_cache import FixedKV, KVCache, RepeatedKV
from interp.model.linear import DEFAULT, Kernel, Linear
from interp.model.mean_pooling import MeanPooledNorm
from interp.model.mlp import MLP, GatedMLP
from interp.model.network import Network, as_network, unembedding_of
from interp.model.norm import BlockNorm, LayerNorm, Norm, ScaledNorm
from interp.model.norm_kinds import ClippedNorm, OffsetRMSNorm
from interp.model.positions.alibi import ALiBi
from interp.model.positions.embedding import (
    LearnedPositions,
    PositionEmbedding,
    SinusoidalPositions,
)
from interp.model.positions.grid_bias import GridBias
from interp.model.positions.relative_bias import RelativeBias, RelativeBiasTable
from interp.model.positions.rotary import Rotary
from interp.model.positions.scheme import NoPositions, PositionBias, PositionScheme
from interp.model.recipe import Recipe
from interp.model.residual import RestartPoint, Step, Sublayer
from interp.model.shapes import KeyHeads, Logits, Matrix, Stream, fixed_axes
from interp.model.stack import Span, Stack
from interp.model.tap import Tap, Untouched, untouched
from interp.model.unembedding import Unembedding
from interp.model.unembedding_kinds import MaskedHead, ProjectedExit, ProjectedUnembedding
from interp.model.weight_version import WeightVersion, owner_of, version_of

__all__ = [
    "DEFAULT",
    "MLP",
    "PAD",
    "ALiBi",
    "Attention",
    "Batch",
    "Bidirectional",
    "Block",
    "BlockNorm",
    "Causal",
    "ClippedNorm",
    "Context",
    "Experts",
    "FixedKV",
    "GatedMLP",
    "GridBias",
    "ImageInput",
    "KVCache",
    "Kernel",
    "KeyHeads",
    "KeysValues",
    "LayerNorm",
    "LearnedPositions",
    "Linear",
    "Logits",
    "Mask",
    "MaskedHead",
    "Masking",
    "Matrix",
    "MeanPooledNorm",
    "Network",
    "NoKVCache",
    "NoPositions",
    "Norm",
    "OffsetRMSNorm",
    "Patches",
    "PositionBias",
    "PositionEmbedding",
    "PositionScheme",
    "ProjectedExit",
    "ProjectedTokens",
    "ProjectedUnembedding",
    "Recipe",
    "RelativeBias",
    "RelativeBiasTable",
    "RepeatedKV",
    "RestartPoint",
    "Rotary",
    "ScaledNorm",
    "SharedExperts",
    "SinkSoftmax",
    "SinusoidalPositions",
    "Span",
    "Stack",
    "Step",
    "Stream",
    "Sublayer",
    "Tap",
    "TokenInput",
    "TokenTypes",
    "Unembedding",
    "Untouched",
    "Visible",
    "WeightVersion",
    "Window",
    "as_mask",
    "as_network",
    "assume_constant_weights",
    "column_of",
    "fixed_axes",
    "in_forward_mode",
    "is_text",
    "owner_of",
    "repeated",
    "tokens_first",
    "unembedding_of",
    "untouched",
    "version_of",
    "weight_hash",
    "weight_state",
    "weight_sums",
    "whole_numbers",
]
