"""A cross-layer transcoder: features that read what one MLP reads, and write what later ones write.

    f_l = activation(x_l W_enc,l + b_enc,l)             x_l: what the MLP of layer l reads
    ŷ_m = Σ_{l ≤ m} f_l W_dec,l→m + b_dec,m (+ x_m W_skip,m)     y_m: what the MLP of layer m writes

Each layer has its own features, with a decoder for each layer from their own on (Ameisen et al.
2025, "Circuit Tracing").
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from hashlib import sha256
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.dictionaries.activations import Activation, Features, JumpReLU, ReLU
from interp.dictionaries.dictionary import (
    Dictionary,
    SkipDictionary,
    activation_with,
    checked_place,
)
from interp.errors import InvalidInput, shorten
from interp.io import TensorData
from interp.model import Network
from interp.points import Place

Inputs = Float[Tensor, "layer *batch d_in"]
Outputs = Float[Tensor, "layer *batch d_out"]
EveryFeature = Float[Tensor, "layer *batch feature"]


@runtime_checkable
class Decoder(Protocol):
    """Decoders of one layer's features: a tensor ``[feature target d_out]``, or a file of it."""

    @property
    def shape(self) -> torch.Size:
        """Features, layers that they write, and numbers of each output."""
        ...

    def __getitem__(self, which: Tensor, /) -> Tensor:
        """The decoders of some features, ``[chosen target d_out]``."""
        ...

    def to(self, device: torch.device, dtype: torch.dtype) -> "Decoder":
        """The same decoders, on another device and in another dtype."""
        ...


@dataclass(frozen=True, eq=False, kw_only=True)
class CrossLayerTranscoder:
    """A trained cross-layer transcoder of all layers of a model.

    Attributes:
        w_enc: encoder of each layer; each column is what a feature reads.
        b_enc: bias of the encoders.
        w_dec: for each layer, what its features write to it and to each later one:
            ``[feature target d_out]``, whose first target is the layer itself.
        b_dec: bias of each layer's reconstruction.
        activation: of each layer, which features are active, and how strongly.
        reads: TransformerLens name of what each layer's features read.
        writes: name of what is reconstructed in each layer.
        format: the library that wrote the files.
        facts: what else the files say about it, such as the model's name.
        w_skip: the linear path of each layer beside its features; ``None`` without one.
    """

    w_enc: Float[Tensor, "layer d_in feature"]
    b_enc: Float[Tensor, "layer feature"]
    w_dec: tuple[Decoder, ...]
    b_dec: Float[Tensor, "layer d_out"]
    activation: tuple[Activation, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    format: str = ""
    facts: Mapping[str, object] = field(default_factory=dict[str, object])
    w_skip: Float[Tensor, "layer d_in d_out"] | None = None

    def __post_init__(self) -> None:
        """Check that each layer has decoders to itself and to each later layer.

        Raises:
            InvalidInput: one has others.
        """
        n, (_, d_out) = len(self.w_enc), self.b_dec.shape
        expected = [(self.n_features, n - layer, d_out) for layer in range(n)]
        shapes = [tuple(each.shape) for each in self.w_dec]
        lengths = {len(self.activation), len(self.reads), len(self.writes)}
        lengths |= set[int]() if self.w_skip is None else {len(self.w_skip)}
        if shapes != expected or lengths != {n}:
            raise InvalidInput(
                f"w_dec has the shapes {shorten(shapes)}, and activation, reads, writes and w_skip "
                f"{shorten(sorted(lengths))} elements; expected {shorten(expected)} [feature "
                f"target d_out], and {n} elements, one for each layer."
            )

    @classmethod
    def of(cls, transcoders: Sequence[Dictionary]) -> "CrossLayerTranscoder":
        """Transcoders with one layer each as a cross-layer one: decoders to later layers are 0.

        Args:
            transcoders: that of each layer, in order; the sizes of all are the same.

        Raises:
            InvalidInput: there is none, sizes differ, some have a skip and some none, or one
                subtracts something from its input.
        """
        several = list(transcoders)
        alike = len({(type(each), each.w_enc.shape, each.w_dec.shape) for each in several}) == 1
        if not alike or any(each.b_in.any() for each in several):
            raise InvalidInput(
                f"transcoders={shorten(several)} should be one of each layer, all of the same "
                "sizes, all with a skip or none, and with b_in = 0."
            )
        skips = [each.w_skip for each in several if isinstance(each, SkipDictionary)]
        padded = [
            nn.functional.pad(each.w_dec[:, None], (0, 0, 0, len(several) - 1 - layer))
            for layer, each in enumerate(several)
        ]
        return cls(
            w_enc=torch.stack([each.w_enc for each in several]),
            b_enc=torch.stack([each.b_enc for each in several]),
            w_dec=tuple(padded),
            b_dec=torch.stack([each.b_dec for each in several]),
            activation=tuple(each.activation for each in several),
            reads=tuple(each.reads for each in several),
            writes=tuple(each.writes for each in several),
            format=several[0].format,
            w_skip=torch.stack(skips) if skips else None,
        )

    @property
    def n_layers(self) -> int:
        """Number of layers."""
        return len(self.w_enc)

    @property
    def n_features(self) -> int:
        """Number of features of each layer."""
        return self.w_enc.shape[2]

    def encode(self, x: Inputs) -> EveryFeature:
        """The activations of all features of all layers."""
        return torch.stack([self.encode_at(layer, part) for layer, part in enumerate(x)])

    def encode_at(self, layer: int, x: Float[Tensor, "*batch d_in"]) -> Features:
        """The activations of the features of one layer."""
        return self.activation[layer](x @ self.w_enc[layer] + self.b_enc[layer])

    def encode_one(
        self, layer: int, feature: int, x: Float[Tensor, "*batch d_in"]
    ) -> Float[Tensor, "*batch one"]:
        """The activation of one feature; others are not computed if it doesn't depend on them."""
        activation = self.activation[layer]
        if not isinstance(activation, ReLU | JumpReLU):
            return self.encode_at(layer, x)[..., [feature]]
        if isinstance(activation, JumpReLU):
            activation = JumpReLU(activation.threshold[[feature]])
        w_enc, b_enc = self.w_enc[layer][:, [feature]], self.b_enc[layer][[feature]]
        return activation(x @ w_enc + b_enc)

    def decode(self, features: EveryFeature) -> Outputs:
        """What the features of each layer and of those before write to it, and its bias."""
        return torch.stack([self.decode_at(layer, features) for layer in range(self.n_layers)])

    def decode_at(
        self, layer: int, features: EveryFeature | Sequence[Tensor]
    ) -> Float[Tensor, "*batch d_out"]:
        """What features write to one layer, and its bias: ŷ, but for a skip.

        Args:
            layer: the layer.
            features: those of each layer up to this one; those of later layers are not read.
        """
        written = [self.written(n, features[n], layer) for n in range(layer + 1)]
        return torch.stack(written).sum(0) + self.b_dec[layer]

    def written(self, layer: int, features: Features, target: int) -> Float[Tensor, "*batch d_out"]:
        """What the features of one layer write to the output of a layer, that or a later one."""
        # Few are active, so that of decoders on disk few are read.
        active = (features != 0).flatten(0, -2).any(0).nonzero()[:, 0]
        return features[..., active] @ self.writers(layer, active, target)

    def writers(self, layer: int, which: Tensor, target: int) -> Float[Tensor, "chosen d_out"]:
        """The decoders of some features of a layer to the output of that or a later one."""
        if not layer <= target < self.n_layers:
            raise InvalidInput(
                f"Features of layer {layer} write the layers {layer} to {self.n_layers - 1}; got "
                f"{target}."
            )
        return self.w_dec[layer][which][:, target - layer]

    def output_at(
        self, layer: int, features: EveryFeature | Sequence[Tensor], x: Float[Tensor, "*batch d_in"]
    ) -> Float[Tensor, "*batch d_out"]:
        """ŷ of one layer, with its skip if it has one.

        Args:
            layer: the layer.
            features: as for :meth:`decode_at`.
            x: what this layer reads.
        """
        written = self.decode_at(layer, features)
        return written if self.w_skip is None else written + x @ self.w_skip[layer]

    def reconstruct(self, x: Inputs) -> Outputs:
        """ŷ of all layers, from what all of them read."""
        features = self.encode(x)
        return torch.stack([self.output_at(n, features, part) for n, part in enumerate(x)])

    def error(self, x: Inputs, target: Outputs) -> Outputs:
        """What is left out of each layer's output: y − ŷ.

        Args:
            x: what the MLP of each layer reads.
            target: y, what it writes.
        """
        return target - self.reconstruct(x)

    def places(self, model: Network) -> list[tuple[Place, Place]]:
        """Where each layer's features read, and what is reconstructed there, in a model.

        Raises:
            InvalidInput: the model has another number of layers or another width, or what a layer
                reads is after what it writes.
            UnknownPlace: the model has no such place.
        """
        n = len(model.stacks[-1].blocks)
        if len(model.stacks) > 1 or n != self.n_layers:
            raise InvalidInput(
                f"This cross-layer transcoder is of a model with one stack of {self.n_layers} "
                f"layers; this model has {' and '.join(str(len(s.blocks)) for s in model.stacks)}."
            )
        order = {place: number for number, place in enumerate(model.layout)}
        pairs: list[tuple[Place, Place]] = []
        for layer, names in enumerate(zip(self.reads, self.writes, strict=True)):
            sizes = (self.w_enc.shape[1], self.b_dec.shape[1])
            read, written = (
                checked_place(model, *each)
                for each in zip(("reads", "writes"), names, sizes, strict=True)
            )
            if order[read] >= order[written] or {read.layer, written.layer} != {layer}:
                raise InvalidInput(
                    f"Layer {layer} of this cross-layer transcoder reads {read} and writes "
                    f"{written}; both should be in this layer, the former before the latter."
                )
            if {read.point.axes, written.point.axes} != {("batch", "pos", "d_model")}:
                raise InvalidInput(
                    f"A cross-layer transcoder reads and writes vectors of the stream's width; "
                    f"{read} is [{' '.join(read.point.axes)}], {written} "
                    f"[{' '.join(written.point.axes)}]."
                )
            pairs.append((read, written))
        return pairs

    def to(self, device: torch.device, dtype: torch.dtype) -> "CrossLayerTranscoder":
        """The same transcoder, on another device and in another dtype."""
        if (self.w_enc.device, self.w_enc.dtype) == (device, dtype):
            return self
        tensors = {
            each.name: x.to(device, dtype)
            for each in fields(self)
            if torch.is_tensor(x := getattr(self, each.name))
        }
        activation = tuple(
            activation_with(
                each,
                {name: x.to(device, dtype) for name, x in vars(each).items() if torch.is_tensor(x)},
            )
            for each in self.activation
        )
        w_dec = tuple(each.to(device, dtype) for each in self.w_dec)
        return replace(self, **tensors, activation=activation, w_dec=w_dec)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of its weights; of decoders that stay on disk, of what identifies their file."""
        total = sha256()
        parts = [getattr(self, each.name) for each in fields(self)]
        parts += [value for each in self.activation for value in vars(each).values()]
        parts += list(self.w_dec)
        for part in parts:
            if torch.is_tensor(part):
                total.update(TensorData(part.contiguous()).digest.encode())
            elif not isinstance(part, tuple | Mapping | None):
                total.update(str(part).encode())
        return total.hexdigest()

    def __repr__(self) -> str:
        kinds = " and ".join(sorted({type(each).__name__ for each in self.activation}))
        sizes = f"{self.w_enc.shape[1]} → {self.b_dec.shape[1]}"
        return (
            f"CrossLayerTranscoder({self.n_layers} layers of {self.n_features} features, {kinds}, "
            f"{sizes}, {self.reads[0]} → {self.writes[0]}, …, {self.format})"
        )
