"""Dictionaries of dictionary_learning: a folder with ``config.json`` and ``ae.pt``.

After dictionary-learning 0.1.0: `utils.load_dictionary`, `dictionary.py`, `trainers/*.py`. The
file is a pickle, of which only tensors and plain values are read. Features are those of
``encode()`` without arguments: AutoEncoderTopK takes the k largest, BatchTopKSAE and
MatryoshkaBatchTopKSAE those above a threshold; AutoEncoder is rescaled to a decoder with rows of
norm 1.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from interp.dictionaries.activations import Activation, Gated, JumpReLU, ReLU, TopK
from interp.dictionaries.claims import evaluated_claims
from interp.dictionaries.dictionary import Dictionary
from interp.dictionaries.files import (
    Settings,
    Tensors,
    is_count,
    settings_of,
    sizes_of,
    take,
    unpickled_of,
)
from interp.errors import ModelLoadError, shorten

SETTINGS, WEIGHTS = "config.json", "ae.pt"
OF_LINEAR = {"W_enc": "encoder.weight", "b_enc": "encoder.bias", "W_dec": "decoder.weight"}
"""Names of parameters that are those of `torch.nn.Linear`, whose matrices are transposed."""
SUBMODULE = re.compile(r"resid_post(?:_layer_(\d+))?")
"""The name that the package gives to the output of a layer; other names are the user's own."""


@dataclass(frozen=True)
class Form:
    """What a class of dictionaries stores, and what of it is subtracted from the input.

    Attributes:
        b_dec: name of the bias of the decoder.
        vectors: names of what has a number for each feature, in addition to ``b_enc``.
        is_linear: whether the matrices are those of `torch.nn.Linear`.
        has_b_enc: whether the encoder has a bias.
        subtracts: whether ``b_dec`` is subtracted from the input.
        buffers: names of what is not a weight.
    """

    b_dec: str = "b_dec"
    vectors: tuple[str, ...] = ()
    is_linear: bool = True
    has_b_enc: bool = True
    subtracts: bool = True
    buffers: tuple[str, ...] = ()


COUNTED = ("k", "threshold")
INTEGERS = (torch.int32, torch.int64)
FORMS = {
    "AutoEncoder": Form("bias"),
    "AutoEncoderNew": Form("decoder.bias", subtracts=False),
    "GatedAutoEncoder": Form("decoder_bias", ("gate_bias", "r_mag", "mag_bias"), has_b_enc=False),
    "JumpReluAutoEncoder": Form(vectors=("threshold",), is_linear=False, subtracts=False),
    "AutoEncoderTopK": Form(buffers=COUNTED),
    "BatchTopKSAE": Form(buffers=COUNTED),
    "MatryoshkaBatchTopKSAE": Form(is_linear=False, buffers=(*COUNTED, "group_sizes")),
}
"""The classes that are read."""


def read_dictionary_learning(folder: Path, dtype: torch.dtype) -> Dictionary:
    """The dictionary of a folder.

    Raises:
        ModelLoadError: the files are damaged or contradict one another, or the dictionary is of
            another class.
    """
    settings, path = settings_of(folder / SETTINGS), folder / WEIGHTS
    trainer, name = _trainer(settings, folder)
    form = FORMS[name]
    tensors, buffers = unpickled_of(path, dtype, form.buffers)
    weights = _weights(tensors, form, path)
    d_in, n_features = weights["w_enc"].shape
    for setting, size in (("activation_dim", d_in), ("dict_size", n_features)):
        if trainer.get(setting, size) != size:
            raise ModelLoadError(
                f"{folder / SETTINGS}: {setting} is {shorten(trainer[setting])}, but {path.name} "
                f"has {size}."
            )
    if name == "AutoEncoder":
        weights = _with_unit_decoder(weights, path)
    place = _place(trainer, settings)
    return Dictionary(
        **weights,
        activation=_activation(name, tensors, _Buffers(buffers, trainer, n_features, path)),
        reads=place,
        writes=place,
        format=f"dictionary_learning {name}",
        facts=settings,
        claims=evaluated_claims(folder, n_features),
    )


def _trainer(settings: Settings, folder: Path) -> tuple[Mapping[str, Any], str]:
    """The section of the trainer, and the name of the class.

    Raises:
        ModelLoadError: there is no such section, or the class is unknown.
    """
    trainer = settings.get("trainer")
    if not isinstance(trainer, dict):
        raise ModelLoadError(
            f"{folder / SETTINGS}: trainer is {shorten(trainer)}; an object was expected, as "
            "dictionary_learning writes it beside ae.pt."
        )
    name: object = trainer.get("dict_class")
    if not isinstance(name, str) or name not in FORMS:
        raise ModelLoadError(
            f"{folder / SETTINGS}: dictionaries of the class {shorten(name)} are not read; those "
            f"that are: {', '.join(FORMS)}."
        )
    return trainer, name


def _weights(tensors: Tensors, form: Form, path: Path) -> Tensors:
    """The matrices and biases by the names of :class:`Dictionary`."""
    names = {name: OF_LINEAR[name] if form.is_linear else name for name in OF_LINEAR}
    rows, columns = sizes_of(tensors, names["W_enc"], path)
    d_in, n_features = (columns, rows) if form.is_linear else (rows, columns)
    d_out_at = 0 if form.is_linear else 1
    d_out = sizes_of(tensors, names["W_dec"], path)[d_out_at]
    shapes: dict[str, tuple[int, ...]] = {
        names["W_enc"]: (rows, columns),
        names["W_dec"]: (d_out, n_features) if form.is_linear else (n_features, d_out),
        form.b_dec: (d_in if form.subtracts else d_out,),
        **dict.fromkeys(form.vectors, (n_features,)),
    }
    if form.has_b_enc:
        shapes[names["b_enc"]] = (n_features,)
    take(tensors, shapes, path)
    w_enc, w_dec, b_dec = (tensors[name] for name in (names["W_enc"], names["W_dec"], form.b_dec))
    zeros = w_enc.new_zeros
    return {
        "w_enc": w_enc.T if form.is_linear else w_enc,
        "b_enc": tensors[names["b_enc"]] if form.has_b_enc else zeros(n_features),
        "b_in": b_dec if form.subtracts else zeros(d_in),
        "w_dec": w_dec.T if form.is_linear else w_dec,
        "b_dec": b_dec,
    }


def _with_unit_decoder(weights: Tensors, path: Path) -> Tensors:
    """The same function with rows of the decoder of norm 1, as `AutoEncoder.from_pretrained`.

    Raises:
        ModelLoadError: a row is zero.
    """
    norms = weights["w_dec"].norm(dim=-1)
    if torch.allclose(norms, torch.ones_like(norms)):
        return weights
    if not norms.all():
        n_zero = int((norms == 0).sum())
        raise ModelLoadError(
            f"{path}: {n_zero} features have a decoder of norm 0, by which dictionary_learning "
            "divides when it reads an AutoEncoder."
        )
    return weights | {
        "w_enc": weights["w_enc"] * norms,
        "b_enc": weights["b_enc"] * norms,
        "w_dec": weights["w_dec"] / norms[:, None],
    }


@dataclass(frozen=True)
class _Buffers:
    """Tensors that are not weights, with what they are compared to."""

    tensors: Mapping[str, Tensor]
    trainer: Mapping[str, Any]
    n_features: int
    path: Path

    def k(self) -> int:
        """The number of active features.

        Raises:
            ModelLoadError: it is not one, or the settings have another.
        """
        stored = self.tensors["k"]
        k = int(stored) if stored.ndim == 0 and stored.dtype in INTEGERS else None
        if k is None or not is_count(k, self.n_features) or self.trainer.get("k", k) != k:
            raise ModelLoadError(
                f"{self.path}: k is {shorten(stored.tolist())}, and {SETTINGS} has "
                f"{shorten(self.trainer.get('k'))}; both should be one integer from 1 to "
                f"{self.n_features}."
            )
        return k

    def threshold(self) -> float:
        """The threshold of all features.

        Raises:
            ModelLoadError: it is not a number, or was never set.
        """
        stored = self.tensors["threshold"]
        is_number = stored.ndim == 0 and stored.is_floating_point() and bool(stored.isfinite())
        if not is_number or stored < 0:
            raise ModelLoadError(
                f"{self.path}: threshold is {shorten(stored.tolist())}; a number of at least 0 was "
                "expected. It is -1 until it is set in training; dictionary_learning then encodes "
                "all positive features, not the k of a batch that were trained."
            )
        return float(stored)

    def check_groups(self) -> None:
        """Refuse groups that are not those of the features.

        Raises:
            ModelLoadError: they are not.
        """
        sizes = self.tensors["group_sizes"]
        are_sizes = sizes.ndim == 1 and sizes.dtype in INTEGERS
        if not are_sizes or bool((sizes < 1).any()) or int(sizes.sum()) != self.n_features:
            raise ModelLoadError(
                f"{self.path}: group_sizes is {shorten(sizes.tolist())}; positive integers with "
                f"the sum {self.n_features} were expected."
            )


def _activation(name: str, tensors: Tensors, buffers: _Buffers) -> Activation:
    if name == "GatedAutoEncoder":
        return Gated(tensors["gate_bias"], tensors["r_mag"], tensors["mag_bias"])
    if name == "JumpReluAutoEncoder":
        return JumpReLU(tensors["threshold"])
    if not FORMS[name].buffers:
        return ReLU()
    k = buffers.k()
    if name == "AutoEncoderTopK":
        return TopK(k)
    if "group_sizes" in buffers.tensors:
        buffers.check_groups()
    some = next(iter(tensors.values()))
    return JumpReLU(some.new_full((buffers.n_features,), buffers.threshold()))


def _place(trainer: Mapping[str, Any], settings: Settings) -> str:
    """The output of a layer, if the settings say that it was read; else nothing."""
    layer, submodule = trainer.get("layer"), trainer.get("submodule_name")
    match = SUBMODULE.fullmatch(str(submodule))
    is_layer = isinstance(layer, int) and not isinstance(layer, bool)
    buffer = settings.get("buffer")
    io = buffer.get("io", "out") if isinstance(buffer, dict) else "out"
    if not is_layer or match is None or match[1] not in (None, str(layer)) or io != "out":
        return ""
    return f"blocks.{layer}.hook_resid_post"
