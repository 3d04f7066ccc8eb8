"""Names of TransformerLens that this package lacks: what to use instead, and what stands for them.

A name that is not supported can be imported, subclassed and used in annotations and
``isinstance``, as clients do that never call it; any other use raises an error.
"""

from typing import Any, NoReturn

from interp.compat.errors import NotSupported
from interp.errors import NoSuchAttribute

NAME = "transformer_lens"
OTHERWISE = "TransformerLens itself, in a process in which interp.compat is not installed"
"""The advice for names that nothing else stands for."""
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
    "TransformerLensConfig": "HookedTransformerConfig",
    "TransformerBridgeConfig": "HookedTransformerConfig",
    "multi_gpu": "a model on one device",
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
    "devices": "model.to(device): a model is on one device",
    "print_gpu_mem": "torch.cuda.memory_allocated",
    "clear_huggingface_cache": "`hf cache delete`, which asks before it deletes",
    "temporarily_swap_parameter": "parameter.data.copy_(values)",
    "initialization_utils": "HookedTransformerConfig(init_mode=...), or torch.nn.init",
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
    "repeat_along_head_dimension": "einops.repeat",
    "transpose": "tensor.mT",
    "get_tokenizer_with_bos": "AutoTokenizer.from_pretrained(name, add_bos_token=True)",
    "get_input_with_manually_prepended_bos": "model.to_tokens(text, prepend_bos=...)",
    "apply_softcap": "cap * torch.tanh(x / cap)",
    "activation_functions": "torch.nn.functional",
}
"""Names and modules of TransformerLens that this package lacks, and what to use instead."""


class Refused(type):
    """The class of a name that is not supported."""

    full_name: str
    instead: str

    def _refuse(cls, *_: object, **__: object) -> NoReturn:
        raise NotSupported(missing(cls.full_name))

    __call__ = __iter__ = __len__ = __getitem__ = __contains__ = _refuse  # pyright: ignore[reportAssignmentType]

    def __getattr__(cls, name: str) -> NoReturn:
        """No attribute is there, except those of every class.

        Raises:
            NoSuchAttribute: always.
        """
        if name.startswith("__"):
            raise AttributeError(name)
        raise NoSuchAttribute(missing(cls.full_name))


def refused(full_name: str) -> Any:
    """What stands for a name that is not supported: a class whose every use is refused."""
    _, _, name = full_name.rpartition(".")
    attributes = {"full_name": full_name, "instead": advice(full_name)}
    return Refused(name, (), {**attributes, "__doc__": missing(full_name)})


def advice(name: str) -> str:
    """What to use instead of a full name of TransformerLens."""
    parts = name.split(".")
    return next((INSTEAD[part] for part in reversed(parts) if part in INSTEAD), OTHERWISE)


def missing(name: str) -> str:
    """The error message for a full name that is missing."""
    return f"{name}: interp.compat has no such name; use {advice(name)}."
