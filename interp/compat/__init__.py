"""The API of TransformerLens on the core of this package: change one import line.

Write ``from interp.compat import HookedTransformer`` instead of ``from transformer_lens import
HookedTransformer``. Names, shapes, values and the semantics of hooks are those of TransformerLens
3.9; the façade holds hooks and settings, and the core stays stateless.
"""

from typing import Never

from interp.compat import head_detector, patching, utils
from interp.compat.activation_cache import ActivationCache
from interp.compat.as_transformer_lens import absent, install, uninstall
from interp.compat.bert_next_sentence_prediction import BertNextSentencePrediction
from interp.compat.config import HookedTransformerConfig
from interp.compat.factored_matrix import FactoredMatrix
from interp.compat.hook_point import HookPoint
from interp.compat.hooked_encoder import HookedEncoder
from interp.compat.hooked_encoder_decoder import HookedEncoderDecoder
from interp.compat.hooked_root_module import HookedRootModule
from interp.compat.hooked_transformer import HookedTransformer
from interp.compat.key_value_cache import (
    TransformerLensKeyValueCache,
    TransformerLensKeyValueCacheEntry,
)

__all__ = [
    "ActivationCache",
    "BertNextSentencePrediction",
    "FactoredMatrix",
    "HookPoint",
    "HookedEncoder",
    "HookedEncoderDecoder",
    "HookedRootModule",
    "HookedTransformer",
    "HookedTransformerConfig",
    "TransformerLensKeyValueCache",
    "TransformerLensKeyValueCacheEntry",
    "head_detector",
    "install",
    "patching",
    "uninstall",
    "utils",
]


def __getattr__(name: str) -> Never:
    raise absent(__name__, name)
