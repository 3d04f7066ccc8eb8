"""Models of other libraries, with the weights of ours.

    pip install -c constraints.txt -e '.[bench]'    # transformers and TransformerLens 3.9
    pip install 'nnsight<0.9'                       # optional

Only their public calls are used. If a library is not installed, its model raises
:class:`~benchmarks.timing.Absent`, which the table reports. TransformerLens 3.9 and nnsight 0.8
work with the torch and transformers of ``constraints.txt``.
"""

import importlib
import warnings
from functools import cached_property
from importlib import metadata
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from benchmarks.models import Ours, Setting
from benchmarks.timing import Absent

PACKAGES = ("transformers", "transformer-lens", "nnsight")


def version(package: str) -> str | None:
    """The installed version of a package; ``None`` if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


class Peers:
    """Our model in other libraries, each built on first use."""

    def __init__(self, setting: Setting, ours: Ours) -> None:
        self._setting = setting
        self._ours = ours

    @cached_property
    def sdpa(self) -> Any:  # noqa: ANN401 - a class of transformers
        """``GPT2LMHeadModel`` of transformers with fused attention."""
        return self._huggingface("sdpa")

    @cached_property
    def eager(self) -> Any:  # noqa: ANN401 - a class of transformers
        """``GPT2LMHeadModel`` with explicit attention matrices, sharing the weights of ``sdpa``."""
        model, fused = self._huggingface("eager"), self.sdpa
        for weight, source in zip(model.parameters(), fused.parameters(), strict=True):
            weight.data = source.data
        return model

    @cached_property
    def lens(self) -> Any:  # noqa: ANN401 - a class of transformer_lens
        """``HookedTransformer`` of TransformerLens."""
        library, shape = imported("transformer_lens", "transformer-lens"), self._setting.shape
        config = library.HookedTransformerConfig(
            n_layers=shape.n_layers,
            d_model=shape.d_model,
            n_ctx=shape.n_ctx,
            d_head=shape.d_head,
            n_heads=shape.n_heads,
            d_mlp=4 * shape.d_model,
            d_vocab=shape.d_vocab,
            act_fn="gelu_new",
            normalization_type="LN",
            device=str(self._setting.device),
            dtype=self._setting.dtype,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # the class is deprecated
            model = library.HookedTransformer(config).eval()
        copy_to_lens(model, self._ours.default)
        return model

    @cached_property
    def nnsight(self) -> Any:  # noqa: ANN401 - a class of nnsight
        """The GPT-2 of transformers, wrapped by nnsight."""
        return imported("nnsight", "nnsight").NNsight(self.sdpa)

    def _huggingface(self, attention: str) -> Any:  # noqa: ANN401 - a class of transformers
        library, shape = imported("transformers", "transformers"), self._setting.shape
        config = library.GPT2Config(
            vocab_size=shape.d_vocab,
            n_positions=shape.n_ctx,
            n_embd=shape.d_model,
            n_layer=shape.n_layers,
            n_head=shape.n_heads,
            bos_token_id=0,
            eos_token_id=0,
            attn_implementation=attention,
        )
        model = library.GPT2LMHeadModel(config).to(self._setting.device, self._setting.dtype).eval()
        copy_to_huggingface(model, self._ours.default)
        return model


def imported(module: str, package: str) -> ModuleType:
    """Import a library.

    Raises:
        Absent: the library is not installed or cannot be imported.
    """
    if version(package) is None:
        raise Absent(f"{package} is not installed")
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise Absent(f"{package} cannot be imported: {error}") from error


@torch.no_grad()
def copy_to_huggingface(model: Any, ours: Any) -> None:  # noqa: ANN401 - weights by name
    """Copy our weights into a ``GPT2LMHeadModel``, whose matrices are ``[in out]``."""
    theirs, stack = model.transformer, ours.stacks[-1]
    theirs.wte.weight.copy_(ours.W_E)
    theirs.wpe.weight.copy_(ours.W_pos)
    _copy(theirs.ln_f, stack.final_norm.gain, stack.final_norm.bias)
    for block, our_block in zip(theirs.h, ours.blocks, strict=True):
        _copy(block.ln_1, our_block.ln1.gain, our_block.ln1.bias)
        _copy(block.attn.c_attn, our_block.attn.weight_qkv.mT, our_block.attn.joint_bias())
        _copy(block.attn.c_proj, our_block.attn.weight_o.mT, our_block.attn.b_O)
        _copy(block.ln_2, our_block.ln2.gain, our_block.ln2.bias)
        _copy(block.mlp.c_fc, our_block.mlp.weight_in.mT, our_block.mlp.b_in)
        _copy(block.mlp.c_proj, our_block.mlp.weight_out.mT, our_block.mlp.b_out)


def _copy(part: Any, weight: Tensor, bias: Tensor) -> None:  # noqa: ANN401 - a module of theirs
    part.weight.copy_(weight)
    part.bias.copy_(bias)


@torch.no_grad()
def copy_to_lens(model: Any, ours: Any) -> None:  # noqa: ANN401 - weights by name
    """Copy our weights into a ``HookedTransformer``, which uses the same names."""
    stack = ours.stacks[-1]
    model.embed.W_E.copy_(ours.W_E)
    model.pos_embed.W_pos.copy_(ours.W_pos)
    model.unembed.W_U.copy_(ours.W_U)
    model.unembed.b_U.zero_()
    norms = [(model.ln_final, stack.final_norm)]
    for block, our_block in zip(model.blocks, ours.blocks, strict=True):
        norms += [(block.ln1, our_block.ln1), (block.ln2, our_block.ln2)]
        for name in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O"):
            getattr(block.attn, name).copy_(getattr(our_block.attn, name))
        for name in ("W_in", "W_out", "b_in", "b_out"):
            getattr(block.mlp, name).copy_(getattr(our_block.mlp, name))
    for norm, our_norm in norms:
        norm.w.copy_(our_norm.gain)
        norm.b.copy_(our_norm.bias)
