"""Loading trained encoders and encoder–decoders: ``HookedEncoder.from_pretrained``."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import torch

from interp.compat.config import HookedTransformerConfig
from interp.compat.core_module import CoreModule
from interp.compat.encoder_tokenizer import EncoderTokenizer
from interp.compat.errors import InvalidInput
from interp.compat.pretrained import dtype_of, loaded
from interp.compat.published import apply_name
from interp.compat.source_state import State
from interp.compat.stacked_weights import BlockWeights
from interp.config import Config
from interp.errors import shorten
from interp.transformer import Transformer


class EncoderPretrained(CoreModule, BlockWeights):  # pyright: ignore[reportIncompatibleMethodOverride]
    """The methods that load and copy.

    Attributes:
        tokenizer: a tokenizer of ``transformers``, or one with the same interface; ``None`` if
            there is none.
    """

    tokenizer: Any

    @staticmethod
    def _hooked_config(config: Config) -> HookedTransformerConfig:
        """The configuration of the façade for a model of this package."""
        raise NotImplementedError

    def _source_state(self, source: Transformer, origin: Any) -> State:
        """The weights of a model of this package, under TransformerLens's names.

        Args:
            source: the model.
            origin: what it was loaded from: a live model, or a name as of :func:`interp.load`.
        """
        raise NotImplementedError

    @classmethod
    def from_pretrained(
        cls,
        model_name: str | Path,
        checkpoint_index: int | None = None,
        checkpoint_value: int | None = None,
        hf_model: Any = None,
        device: str | torch.device | None = None,
        tokenizer: Any = None,
        move_to_device: bool = True,
        dtype: torch.dtype | str = torch.float32,
        **from_pretrained_kwargs: Any,
    ) -> Any:
        """Load a trained model, with its weights as they are stored.

        Args:
            model_name: a folder, ``hub:org/name``, or the name of a repository of the hub; with
                ``hf_model``, a name for it.
            checkpoint_index: not supported.
            checkpoint_value: the training step whose weights are loaded, if the folder has them.
            hf_model: a live model of ``transformers``, to be loaded instead of ``model_name``.
            device: the device of the weights; by default CUDA if available, else the CPU.
            tokenizer: a tokenizer of ``transformers``, instead of the model's.
            move_to_device: whether to move the model to ``device``.
            dtype: the dtype to compute in.
            **from_pretrained_kwargs: ``torch_dtype`` instead of ``dtype``, and
                ``trust_remote_code``, which has no effect. Others are refused.

        Raises:
            InvalidInput: an argument is not supported.
            InvalidConfig: TransformerLens has no such architecture.
            NotLoaded: the model can't be loaded.
        """
        dtype = dtype_of(from_pretrained_kwargs.pop("torch_dtype", dtype))
        from_pretrained_kwargs.pop("trust_remote_code", None)
        if from_pretrained_kwargs or checkpoint_index is not None:
            names = ["checkpoint_index"] * (checkpoint_index is not None)
            names += sorted(from_pretrained_kwargs)
            raise InvalidInput(f"from_pretrained does not take {shorten(names)}.")
        published, source = loaded(str(model_name), hf_model, checkpoint_value, dtype)
        cfg = cls._hooked_config(source.config)
        cfg.dtype, cfg.device, cfg.init_weights = dtype, _device(device), False
        apply_name(cfg, published)
        if tokenizer is None and source.tokenizer is not None:
            name = published.name or source.config.name
            tokenizer = EncoderTokenizer(source.tokenizer, source.config.tokens, name)
        model = cls._of(cfg, tokenizer)
        model.load_state_dict(model._source_state(source, published.source))
        model.eval()
        return model.to(cfg.device) if move_to_device else model

    @classmethod
    def _of(cls, cfg: HookedTransformerConfig, tokenizer: Any) -> Any:
        """A model with this tokenizer, or with none."""
        name, cfg.tokenizer_name = cfg.tokenizer_name, None
        model = cls(cfg, tokenizer, move_to_device=False)  # pyright: ignore[reportCallIssue]
        cfg.tokenizer_name = name
        return model

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """A new model with the same weights and configuration, without hooks."""
        model = self._of(deepcopy(self.cfg, memo), self.tokenizer).to(self.cfg.device)
        model.load_state_dict(self.state_dict())
        return model.train(self.training)


def _device(device: str | torch.device | None) -> str | torch.device:
    if device is not None:
        return device
    return "cuda" if torch.cuda.is_available() else "cpu"
