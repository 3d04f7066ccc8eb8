"""Loading trained models: ``HookedTransformer.from_pretrained``."""

from pathlib import Path
from typing import Any

import torch

from interp.compat.config import HookedTransformerConfig
from interp.compat.hooked_config import hooked_config
from interp.compat.model_names import hub_name
from interp.compat.processing import processed_state
from interp.compat.processing_calls import FOLDED, ProcessingCalls
from interp.compat.source_state import state_of
from interp.compat.tokenizer import HookedTokenizer
from interp.errors import InvalidInput, shorten
from interp.loading import bundled, load
from interp.loading.hub import PREFIX
from interp.transformer import Transformer


class Pretrained(ProcessingCalls):
    """The methods that load."""

    @classmethod
    def from_pretrained(
        cls,
        model_name: str | Path,
        fold_ln: bool = True,
        center_writing_weights: bool = True,
        center_unembed: bool = True,
        refactor_factored_attn_matrices: bool = False,
        checkpoint_index: int | None = None,
        checkpoint_value: int | None = None,
        hf_model: Any = None,
        device: str | torch.device | None = None,
        n_devices: int = 1,
        tokenizer: Any = None,
        move_to_device: bool = True,
        fold_value_biases: bool = True,
        default_prepend_bos: bool | None = None,
        default_padding_side: str | None = None,
        dtype: torch.dtype | str = torch.float32,
        **keywords: Any,
    ) -> Any:
        """Load a trained model, with its weights processed as TransformerLens does by default.

        Args:
            model_name: a bundled model, a folder, ``hub:org/name``, or the name of a repository of
                the hub; with ``hf_model``, a name for it.
            fold_ln: whether to fold gains and biases of norms.
            center_writing_weights: whether to centre weights that write to the stream; see
                :mod:`interp.compat.processing`.
            center_unembed: whether to centre W_U and b_U over the vocabulary.
            refactor_factored_attn_matrices: whether to refactor the products W_Q W_Kᵀ and W_V W_O;
                see :func:`interp.compat.processing.even_factors`.
            checkpoint_index: not supported; ``"NAME@STEP"`` is a bundled checkpoint.
            checkpoint_value: the training step of the weights, for a model with checkpoints.
            hf_model: a live model of ``transformers``, to be loaded instead of ``model_name``.
            device: the device of the weights; by default CUDA if available, else the CPU.
            n_devices: must be 1.
            tokenizer: a tokenizer of ``transformers``, instead of the model's.
            move_to_device: whether to move the model to ``device``.
            fold_value_biases: whether to fold b_V into b_O.
            default_prepend_bos: whether to prepend BOS to texts; by default if there is a BOS.
            default_padding_side: the padding side of the tokenizer.
            dtype: the dtype to compute in.
            **keywords: ``torch_dtype`` instead of ``dtype``; others are refused.

        Raises:
            InvalidInput: an argument is not supported.
            InvalidConfig: TransformerLens has no such architecture.
            ModelLoadError: the model can't be loaded.
        """
        if n_devices != 1 or checkpoint_index is not None:
            raise InvalidInput(
                'n_devices= and checkpoint_index= are not supported; "NAME@STEP" is a checkpoint '
                "of a bundled model."
            )
        dtype = dtype_of(keywords.pop("torch_dtype", dtype))
        if keywords:
            raise InvalidInput(f"from_pretrained does not take {shorten(sorted(keywords))}.")
        name = str(model_name) if checkpoint_value is None else f"{model_name}@{checkpoint_value}"
        source = load(source_of(name) if hf_model is None else hf_model, dtype=dtype)
        given = tokenizer is not None
        cfg = _config(source, name, dtype, device, default_prepend_bos, is_given=given)
        model = cls._from_source(
            cfg,
            source,
            _tokenizer(source, tokenizer),
            fold_ln=fold_ln,
            center_writing_weights=center_writing_weights,
            # A soft-cap is not invariant to adding a constant to all logits.
            center_unembed=center_unembed and not cfg.output_logits_soft_cap > 0,
            fold_biases=fold_value_biases,
            refactor=refactor_factored_attn_matrices,
        )
        if default_padding_side is not None and model.tokenizer is not None:
            model.tokenizer.padding_side = default_padding_side
        return model.to(cfg.device) if move_to_device else model

    @classmethod
    def from_pretrained_no_processing(
        cls,
        model_name: str | Path,
        fold_ln: bool = False,
        center_writing_weights: bool = False,
        center_unembed: bool = False,
        refactor_factored_attn_matrices: bool = False,
        fold_value_biases: bool = False,
        **keywords: Any,
    ) -> Any:
        """Like :meth:`from_pretrained`, without processing the weights."""
        return cls.from_pretrained(
            model_name,
            fold_ln=fold_ln,
            center_writing_weights=center_writing_weights,
            center_unembed=center_unembed,
            refactor_factored_attn_matrices=refactor_factored_attn_matrices,
            fold_value_biases=fold_value_biases,
            **keywords,
        )

    @classmethod
    def _from_source(
        cls,
        cfg: HookedTransformerConfig,
        source: Transformer,
        tokenizer: Any,
        **steps: bool,
    ) -> Any:
        """A model with the weights of ``source``, processed."""
        state = state_of(source, cfg)
        steps["fold_ln"] = steps["fold_ln"] and cfg.normalization_type is not None
        state = processed_state(state, cfg, **steps)  # pyright: ignore[reportArgumentType]
        if steps["fold_ln"]:
            cfg.normalization_type = FOLDED[str(cfg.normalization_type)]
        cfg.init_weights = False
        model = cls(cfg, tokenizer, move_to_device=False)  # pyright: ignore[reportCallIssue]
        cfg.init_weights = True
        model.load_state_dict(state)
        return model.eval()


def dtype_of(given: object) -> torch.dtype:
    """A dtype, given as one or by its name.

    Raises:
        InvalidInput: ``given`` is neither.
    """
    known = getattr(torch, given, None) if isinstance(given, str) else given
    if not isinstance(known, torch.dtype):
        raise InvalidInput(f"dtype={shorten(given)} is not a dtype of torch.")
    return known


def source_of(name: str) -> str:
    """The argument of :func:`interp.load` for a name of TransformerLens."""
    if name.partition("@")[0] in bundled() or name.startswith(PREFIX) or Path(name).exists():
        return name
    plain, at, revision = name.partition("@")
    known = hub_name(plain)
    return f"{PREFIX}{known or plain}{at}{revision}" if known or "/" in name else name


def _config(
    source: Transformer,
    name: str,
    dtype: torch.dtype,
    device: str | torch.device | None,
    default_prepend_bos: bool | None,
    *,
    is_given: bool,
) -> HookedTransformerConfig:
    cfg, tokens = hooked_config(source.config), source.config.tokens
    cfg.model_name, cfg.dtype = source.config.name or name, dtype
    cfg.device = "cpu" if device is None else device
    if device is None and torch.cuda.is_available():
        cfg.device = "cuda"
    # A tokenizer passed by the user gets a BOS if it has none; a bundled one may lack it.
    has_bos = is_given or tokens.bos is not None or tokens.eos is not None
    cfg.default_prepend_bos = has_bos if default_prepend_bos is None else default_prepend_bos
    return cfg


def _tokenizer(source: Transformer, given: Any) -> Any:
    if given is not None or source.tokenizer is None:
        return given
    return HookedTokenizer(source.tokenizer, source.config.tokens, source.config.name)
