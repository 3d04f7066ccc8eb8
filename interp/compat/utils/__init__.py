"""The functions of TransformerLens's ``utils`` that its users call."""

from typing import Never

from interp.compat.as_transformer_lens import absent
from interp.compat.factored_matrix import composition_scores
from interp.compat.utils.act_names import get_act_name
from interp.compat.utils.activation_functions import gelu_fast, gelu_new, solu
from interp.compat.utils.datasets import keep_single_column, tokenize_and_concatenate
from interp.compat.utils.language_model import lm_accuracy, lm_cross_entropy_loss, sample_logits
from interp.compat.utils.prompts import test_prompt
from interp.compat.utils.slices import Slice, SliceInput
from interp.compat.utils.tensors import (
    get_corner,
    get_device,
    get_offset_position_ids,
    is_lower_triangular,
    is_square,
    remove_batch_dim,
    to_numpy,
)
from interp.compat.utils.tokenizers import (
    USE_DEFAULT_VALUE,
    get_attention_mask,
    get_tokens_with_bos_removed,
)

__all__ = [
    "USE_DEFAULT_VALUE",
    "Slice",
    "SliceInput",
    "composition_scores",
    "gelu_fast",
    "gelu_new",
    "get_act_name",
    "get_attention_mask",
    "get_corner",
    "get_device",
    "get_offset_position_ids",
    "get_tokens_with_bos_removed",
    "is_lower_triangular",
    "is_square",
    "keep_single_column",
    "lm_accuracy",
    "lm_cross_entropy_loss",
    "remove_batch_dim",
    "sample_logits",
    "solu",
    "test_prompt",
    "to_numpy",
    "tokenize_and_concatenate",
]


def __getattr__(name: str) -> Never:
    raise absent(__name__, name)
