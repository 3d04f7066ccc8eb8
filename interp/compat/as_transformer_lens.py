"""This package under the name ``transformer_lens``, for code whose imports can't be changed.

``install()`` adds modules to ``sys.modules``, under their names in TransformerLens 3.9 and, where
these differ, in 2.x. Names that this package lacks raise errors that say what to use instead.
"""

import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from interp.errors import InvalidInput

NAME = "transformer_lens"
OURS = "interp.compat"
MODULES: dict[str, tuple[str, ...]] = {
    "utils": ("utils",),
    "utilities": ("utils",),
    **{
        f"utilities.{name}": ("utils",)
        for name in (
            *("activation_functions", "attribute_utils", "defaults_utils", "devices"),
            *("exploratory_utils", "hf_utils", "initialization_utils", "library_utils"),
            *("lm_utils", "logits_utils", "matrix", "slice", "tensors", "tokenize_utils"),
            "typed_module_list",
        )
    },
    "hook_points": ("hook_point", "hooked_root_module"),
    "HookedRootModule": ("hooked_root_module",),
    "HookedTransformer": ("hooked_transformer", "model_forward"),
    "HookedTransformerConfig": ("config",),
    "config": ("config",),
    "config.hooked_transformer_config": ("config",),
    "HookedEncoder": ("hooked_encoder",),
    "HookedEncoderDecoder": ("hooked_encoder_decoder",),
    "BertNextSentencePrediction": ("bert_next_sentence_prediction",),
    "ActivationCache": ("activation_cache",),
    "FactoredMatrix": ("factored_matrix",),
    "patching": ("patching",),
    "head_detector": ("head_detector",),
    "components": ("components", "experts", "bert_components", "t5_components"),
    "cache": ("key_value_cache",),
    "cache.key_value_cache": ("key_value_cache",),
    "cache.key_value_cache_entry": ("key_value_cache",),
    "past_key_value_caching": ("key_value_cache",),
}
"""Modules of TransformerLens, and the modules of this package whose names each of them has."""
INSTEAD = {
    "TransformerBridge": "HookedTransformer.from_pretrained, or interp.load for more architectures",
    "model_bridge": "HookedTransformer.from_pretrained, or interp.load for more architectures",
    "weight_processing": "HookedTransformer.from_pretrained(fold_ln=..., center_unembed=...)",
    "loading": "HookedTransformer.from_pretrained; interp.bundled() lists models",
    "loading_from_pretrained": "HookedTransformer.from_pretrained; interp.bundled() lists models",
    "supported_models": "HookedTransformer.from_pretrained; interp.bundled() lists models",
    "train": "a loop with torch.optim over model(tokens, return_type='loss')",
    "HookedAudioEncoder": "interp.load, whose errors list the supported models",
    "factories": "HookedTransformer(cfg)",
    "ProcessWeights": "model.process_weights_(), or HookedTransformer.from_pretrained(fold_ln=...)",
    "GatedMLP": "model.cfg.gated_mlp and the class MLP",
    "AbstractAttention": "the class Attention",
    "GroupedQueryAttention": "model.cfg.n_key_value_heads and the class Attention",
    "TransformerLensConfig": "HookedTransformerConfig",
    "TransformerBridgeConfig": "HookedTransformerConfig",
    "multi_gpu": "a model on one device",
    **dict.fromkeys(
        ("LayerNorm", "RMSNorm", "LayerNormPre", "RMSNormPre"),
        "model.cfg.normalization_type and model.blocks[layer].ln1",
    ),
    **dict.fromkeys(
        ("evals", "IOIDataset", "ioi_eval", "mmlu_eval"),
        "TransformerLens itself, or model(tokens, return_type='loss') on texts of your own",
    ),
    "SVDInterpreter": "model.OV[layer, head].svd() and torch.linalg.svd(model.W_in[layer])",
    # Functions of utils.
    "get_dataset": "datasets.load_dataset",
    "download_file_from_hf": "huggingface_hub.hf_hub_download",
    "get_rotary_pct_from_config": "model.cfg.rotary_dim / model.cfg.d_head",
    "select_compatible_kwargs": "inspect.signature(function).parameters",
    "is_library_available": "importlib.util.find_spec",
    **dict.fromkeys(
        ("ModelWithCfg", "get_best_available_device", "get_device_for_block_index", "warn_if_mps"),
        "model.cfg.device, on which the whole model is",
    ),
    **dict.fromkeys(
        (
            *("count_unique_devices", "find_embedding_device", "get_best_available_cuda_device"),
            *("move_to_and_update_config", "resolve_device_map"),
            "sort_devices_based_on_available_memory",
        ),
        "model.to(device): a model is on one device",
    ),
    **dict.fromkeys(
        (
            "calculate_available_device_cuda_memory",
            "determine_available_memory_for_available_devices",
        ),
        "torch.cuda.mem_get_info",
    ),
    "print_gpu_mem": "torch.cuda.memory_allocated",
    "clear_huggingface_cache": "`hf cache delete`, which asks before it deletes",
    "temporarily_swap_parameter": "parameter.data.copy_(values)",
    **dict.fromkeys(
        (
            *("NonlinearityType", "calc_fan_in_and_fan_out", "init_kaiming_normal_"),
            *("init_kaiming_uniform_", "init_xavier_normal_", "init_xavier_uniform_"),
        ),
        "HookedTransformerConfig(init_mode=...), or torch.nn.init",
    ),
    "get_nested_attr": "operator.attrgetter",
    "set_nested_attr": "setattr",
    "override_or_use_default_value": "default if override is None else override",
    "LocallyOverridenDefaults": "prepend_bos= and padding_side= in each call",
    "logits_to_df": "logits.topk",
    "get_matrix_corner": "FactoredMatrix.get_corner",
    "TypedModuleList": "torch.nn.ModuleList",
    "check_structure": "torch.argsort",
    "filter_dict_by_prefix": "a dict comprehension with str.removeprefix",
    "get_cumsum_along_dim": "tensor.cumsum(dim)",
    "get_offset_position_ids": "attention_mask.cumsum(1) - 1",
    "repeat_along_head_dimension": "einops.repeat",
    "transpose": "tensor.mT",
    "get_tokenizer_with_bos": "AutoTokenizer.from_pretrained(name, add_bos_token=True)",
    **dict.fromkeys(
        ("get_input_with_manually_prepended_bos", "get_tokens_with_bos_removed"),
        "model.to_tokens(text, prepend_bos=...)",
    ),
    **dict.fromkeys(
        ("ActivationFunction", "SUPPORTED_ACTIVATIONS", "gelu_pytorch_tanh"), "torch.nn.functional"
    ),
    **dict.fromkeys(
        ("SOFTCAP_DISABLED", "apply_softcap", "softcap_enabled"), "cap * torch.tanh(x / cap)"
    ),
}
"""Names of TransformerLens that this package lacks, and what to use instead."""


class LensModule(ModuleType):
    """A module under a name of TransformerLens, with the names of modules of this package.

    The modules of TransformerLens also have the names that they import from one another. Here, each
    module has those of all others.
    """

    def __init__(
        self, name: str, sources: Sequence[ModuleType], imported: Mapping[str, Any]
    ) -> None:
        super().__init__(name, f"{name}: names of {', '.join(s.__name__ for s in sources)}.")
        self.__path__ = []
        self.__spec__ = ModuleSpec(name, None, is_package=True)
        self._imported = imported
        for source in sources:
            self.__dict__.update(public_names(source))

    def __getattr__(self, name: str) -> Any:
        """A name of another module.

        Raises:
            AttributeError: no module has the name; the message says what to use instead.
        """
        if name in self._imported:
            return self._imported[name]
        raise AttributeError(missing(f"{self.__name__}.{name}"))


class MissingModules:
    """A finder that refuses modules of TransformerLens that this package lacks."""

    def find_spec(self, name: str, path: object, target: object = None) -> None:  # noqa: ARG002
        """Return ``None`` for modules of other packages.

        Raises:
            ImportError: it is a module of TransformerLens; the message says what to use instead.
        """
        if name.startswith(f"{NAME}."):
            raise ImportError(missing(name), name=name)


_FINDER = MissingModules()


def install() -> None:
    """Make ``import transformer_lens`` import this package, until :func:`uninstall`.

    Submodules of TransformerLens 2.x and 3.9 are included as far as this package has their
    contents. A warning is issued.

    Raises:
        InvalidInput: TransformerLens itself has been imported already.
    """
    imported = sys.modules.get(NAME)
    if isinstance(imported, LensModule):
        return
    if imported is not None:
        raise InvalidInput(
            f"{NAME} is imported already, from {getattr(imported, '__file__', 'elsewhere')}. Call "
            "interp.compat.install() before anything imports it, in a new process."
        )
    modules: dict[str, LensModule] = {}
    names: dict[str, Any] = {}
    for name, sources in MODULES.items():
        module = _module(name, sources, names)
        if module is not None:
            modules[module.__name__] = module
    root = LensModule(NAME, [import_module(OURS)], {})
    for name, module in modules.items():
        parent, _, last = name.rpartition(".")
        owner = root if parent == NAME else modules[parent]
        # If a class and its module have the same name, the attribute is the class.
        if not isinstance(vars(owner).get(last), type):
            setattr(owner, last, module)
    for module in (*modules.values(), root):
        names |= {name: value for name, value in vars(module).items() if not name.startswith("_")}
    sys.modules.update({NAME: root, **modules})
    sys.meta_path.insert(0, _FINDER)
    warnings.warn(
        f"`import {NAME}` and its submodules now give interp.compat, not TransformerLens; "
        "interp.compat.uninstall() undoes this.",
        stacklevel=2,
    )


def uninstall() -> None:
    """Undo :func:`install`; names that were imported meanwhile still refer to this package."""
    for name in [name for name in sys.modules if name == NAME or name.startswith(f"{NAME}.")]:
        if isinstance(sys.modules[name], LensModule):
            del sys.modules[name]
    if _FINDER in sys.meta_path:
        sys.meta_path.remove(_FINDER)


def public_names(source: ModuleType) -> dict[str, Any]:
    """The public names of a module, without those imported from other modules of this package."""
    names = getattr(source, "__all__", None) or [n for n in vars(source) if not n.startswith("_")]
    members = {name: getattr(source, name) for name in names}
    return {name: value for name, value in members.items() if _belongs_to(source, value)}


def _belongs_to(source: ModuleType, value: object) -> bool:
    origin = str(getattr(value, "__module__", ""))
    others = origin.startswith("interp.") and not origin.startswith(source.__name__)
    return not others and not isinstance(value, ModuleType)


def missing(name: str) -> str:
    """The error message for a full name that is missing."""
    instead = next((INSTEAD[part] for part in name.split(".") if part in INSTEAD), None)
    hint = f"use {instead}" if instead else "interp.compat has no such name"
    is_theirs = name.partition(".")[0] == NAME
    here = f"{NAME} is interp.compat here (interp.compat.install); " if is_theirs else ""
    return f"{name}: {here}{hint}."


def absent(module: str, name: str) -> AttributeError | ImportError:
    """The error for a name that a package of the façade lacks.

    It is an ``ImportError`` for names of TransformerLens, because ``from … import`` replaces the
    message of an ``AttributeError``.
    """
    error = ImportError if name in INSTEAD else AttributeError
    return error(missing(f"{module}.{name}"), name=name)


def _module(name: str, sources: tuple[str, ...], imported: Mapping[str, Any]) -> LensModule | None:
    try:
        modules = [import_module(f"{OURS}.{source}") for source in sources]
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith(OURS):
            raise
        return None
    return LensModule(f"{NAME}.{name}", modules, imported)
