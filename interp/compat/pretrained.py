"""Loading trained models: ``HookedTransformer.from_pretrained``."""

from pathlib import Path
from typing import Any

import torch

from interp.compat.config import HookedTransformerConfig
from interp.compat.errors import InvalidInput, NotLoaded
from interp.compat.hooked_config import hooked_config
from interp.compat.pretrained_tokenizer import tokenizer_of
from interp.compat.processing import processed_state
from interp.compat.processing_calls import FOLDED, ProcessingCalls
from interp.compat.published import (
    Published,
    apply_published,
    get_checkpoint_labels,
    has_post_norms,
)
from interp.compat.source_state import state_of
from interp.compat.tokenizer import HookedTokenizer
from interp.errors import ModelLoadError, shorten
from interp.loading import load
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
        first_n_layers: int | None = None,
        n_ctx: int | None = None,
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
            checkpoint_index: the index of the training step in
                :func:`interp.compat.published.get_checkpoint_labels`.
            checkpoint_value: the training step of the weights, for a model with checkpoints
                (bundled ones, Pythia and those of stanford-crfm).
            hf_model: a live model of ``transformers``, to be loaded instead of ``model_name``.
            device: the device of the weights; by default CUDA if available, else the CPU.
            n_devices: must be 1.
            tokenizer: a tokenizer of ``transformers``, instead of the model's; see
                :func:`interp.compat.pretrained_tokenizer.tokenizer_of`.
            move_to_device: whether to move the model to ``device``.
            fold_value_biases: whether to fold b_V into b_O.
            default_prepend_bos: whether to prepend BOS to texts; by default as TransformerLens does
                for the architecture, and not if there is no BOS.
            default_padding_side: the padding side of the tokenizer.
            dtype: the dtype to compute in.
            first_n_layers: the number of layers to keep; by default all.
            n_ctx: the longest text; by default that of TransformerLens, which caps some.
            **keywords: ``torch_dtype`` instead of ``dtype``, and ``trust_remote_code``, which has
                no effect: no code of a repository is run. Others are refused.

        Raises:
            InvalidInput: an argument is not supported.
            InvalidConfig: TransformerLens has no such architecture.
            NotLoaded: the model can't be loaded.
        """
        if n_devices != 1:
            raise InvalidInput(f"n_devices={n_devices} is not supported: a model is on one device.")
        if checkpoint_index is not None:
            checkpoint_value = get_checkpoint_labels(str(model_name))[0][checkpoint_index]
        dtype = dtype_of(keywords.pop("torch_dtype", dtype))
        keywords.pop("trust_remote_code", None)
        if keywords:
            raise InvalidInput(f"from_pretrained does not take {shorten(sorted(keywords))}.")
        published, source = loaded(str(model_name), hf_model, checkpoint_value, dtype)
        if tokenizer is None:
            tokenizer = tokenizer_of(published, source)
        cfg = _config(published, source, dtype, device)
        if isinstance(tokenizer, HookedTokenizer) and tokenizer.bos_token_id is None:
            cfg.default_prepend_bos = False
        if default_prepend_bos is not None:
            cfg.default_prepend_bos = default_prepend_bos
        _limit(cfg, source, n_ctx, first_n_layers)
        model = cls._from_source(
            cfg,
            source,
            tokenizer,
            fold_ln=fold_ln and not has_post_norms(cfg),
            center_writing_weights=center_writing_weights and not has_post_norms(cfg),
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
        cfg.init_weights, name, cfg.tokenizer_name = False, cfg.tokenizer_name, None
        model = cls(cfg, tokenizer, move_to_device=False)  # pyright: ignore[reportCallIssue]
        cfg.tokenizer_name = name
        model.load_state_dict(state)
        return model.eval()


def loaded(
    name: str, hf_model: Any, step: int | None, dtype: torch.dtype
) -> tuple[Published, Transformer]:
    """A published model, and its weights.

    Raises:
        NotLoaded: the model can't be loaded.
    """
    try:
        published = Published.of(name, hf_model, step)
        return published, load(published.source, dtype=dtype)
    except ModelLoadError as error:
        raise NotLoaded(str(error)) from error


def dtype_of(dtype: object) -> torch.dtype:
    """A dtype, given as one or by its name.

    Raises:
        InvalidInput: ``dtype`` is neither.
    """
    parsed = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(parsed, torch.dtype):
        raise InvalidInput(f"dtype={shorten(dtype)} is not a dtype of torch.")
    return parsed


def _config(
    published: Published,
    source: Transformer,
    dtype: torch.dtype,
    device: str | torch.device | None,
) -> HookedTransformerConfig:
    """The configuration of a loaded model."""
    cfg = hooked_config(source.config)
    cfg.dtype, cfg.device = dtype, device
    if device is None:
        cfg.device = "cuda" if torch.cuda.is_available() else "cpu"
    apply_published(cfg, published)
    return cfg


def _limit(
    cfg: HookedTransformerConfig, source: Transformer, n_ctx: int | None, n_layers: int | None
) -> None:
    """Set ``n_ctx`` and the number of layers, if they are given.

    Raises:
        InvalidInput: the model has fewer layers or learned positions.
    """
    if n_ctx is not None:
        if cfg.positional_embedding_type == "standard" and n_ctx > source.config.n_ctx:
            raise InvalidInput(
                f"n_ctx={n_ctx} is more than the {source.config.n_ctx} learned positions."
            )
        cfg.n_ctx = n_ctx
    if n_layers is not None:
        if not 0 < n_layers <= cfg.n_layers:
            raise InvalidInput(f"first_n_layers={n_layers}: the model has {cfg.n_layers} layers.")
        cfg.n_layers = n_layers
        cfg.n_params = cfg.count_parameters()
