"""The features of one layer of a cross-layer transcoder, which write to that and to later layers.

    f_l = encode(x_l)                                            x_l: what the MLP of layer l reads
    ε_m = y_m − (Σ_{l ≤ m} f_l W_dec,l→m + b_dec,m + x_m W_skip,m)
    y_m ← y_m + Σ_{l ≤ m} (f′_l − f_l) W_dec,l→m + (ε′_m − ε_m)         f′, ε′: after their edits

What features write to later layers, and its changes, reach their blocks in the context of the
forward, so nothing is stored in the model, and forwards with different edits do not mix. A sweep
restarts a forward before the first of its edits, so the changes of all edited layers are computed
in that forward; it restarts before x_0 if an error is edited.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor

from interp.dictionaries.activations import Activation, Features
from interp.dictionaries.attached import Attached, Inputs
from interp.dictionaries.cross_layer import CrossLayerTranscoder, Decoder
from interp.dictionaries.dictionary import activation_with
from interp.io import TensorData
from interp.model import Context, Recipe, Tap, in_forward_mode
from interp.points import Place, Point

_CARRIED = "changes of the features of cross-layer transcoders"
_EXPLAINED = "what features of cross-layer transcoders write to layers whose error is formed"


@dataclass(frozen=True, eq=False)
class Writers:
    """What some features of one layer write in one forward, or how it changes.

    Attributes:
        features: f, or f′ − f of the features that are changed.
        w_dec: their decoders, the first of which is that to their own layer.
    """

    features: Float[Tensor, "batch pos chosen"]
    w_dec: Float[Tensor, "chosen target d_out"]

    def written(self, later: int) -> Float[Tensor, "batch pos d_out"]:
        """What it adds to the output of the layer that is ``later`` layers after its own."""
        return self.features @ self.w_dec[:, later]


Changes = dict[tuple[str, int], Writers]


def changes_in(context: Context) -> Changes:
    """The changes of features in one forward, by the names and layers of the features."""
    return context.once(_CARRIED, dict)


class AttachedLayer(Attached):
    """One layer of a cross-layer transcoder.

    Attributes:
        layer: the layer.
        targets: the layers that its features write.
        first: the place that the first layer reads.
        format: the library that wrote the files of the transcoder.
        facts: what else they say about it.
    """

    w_enc: Tensor
    b_enc: Tensor
    b_dec: Tensor

    def __init__(
        self,
        transcoder: CrossLayerTranscoder,
        layer: int,
        reads: Place,
        writes: Place,
        first: Place,
    ) -> None:
        super().__init__(reads, writes)
        self.layer, self.first = layer, first
        self.targets = range(layer, transcoder.n_layers)
        self.format, self.facts = transcoder.format, transcoder.facts
        self._activation, self._decoder = transcoder.activation[layer], transcoder.w_dec[layer]
        tensors = {name: getattr(transcoder, name)[layer] for name in ("w_enc", "b_enc", "b_dec")}
        tensors |= {} if transcoder.w_skip is None else {"w_skip": transcoder.w_skip[layer]}
        for name, value in vars(self._activation).items():
            tensors |= {f"activation_{name}": value} if torch.is_tensor(value) else {}
        if torch.is_tensor(self._decoder):
            tensors["w_dec"] = self._decoder
            self._decoder = None  # the buffer is moved with the model
        else:
            # Decoders on disk are identified by their file in the hash of the weights.
            digest = TensorData(torch.tensor([*str(self._decoder).encode()])).digest
            tensors["w_dec_file"] = torch.tensor([*bytes.fromhex(digest)], dtype=torch.uint8)
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor, persistent=False)

    @property
    def activation(self) -> Activation:
        """Which features are active, and how strongly."""
        prefix = "activation_"
        names = [name for name in self._buffers if name.startswith(prefix)]
        tensors = {name.removeprefix(prefix): self.get_buffer(name) for name in names}
        return activation_with(self._activation, tensors)

    @property
    def decoder(self) -> Decoder:
        """The decoders to its own layer and to later ones."""
        if self._decoder is None:
            return self.get_buffer("w_dec")
        return self._decoder.to(self.w_enc.device, self.w_enc.dtype)

    @property
    def n_features(self) -> int:
        """Number of its features."""
        return self.w_enc.shape[1]

    def encode(self, x: Float[Tensor, "*batch d_in"]) -> Features:
        """The activations of its features."""
        return self.activation(x @ self.w_enc + self.b_enc)

    def is_used(self, tap: Tap) -> bool:
        """Whether a forward forms its features, its error or that of a later layer."""
        return super().is_used(tap) or any(self._must_form_error(m, tap) for m in self.targets)

    def _must_form_error(self, target: int, tap: Tap) -> bool:
        """Whether a forward forms the error of a layer."""
        return tap.scoped(layer=target, norm=self.name).must_form(Point.FEATURES_ERROR)

    def changed(self, y: Tensor, inputs: Inputs, tap: Tap, context: Context) -> Tensor:
        """y + Σ_l (f′_l − f_l) W_dec + (ε′ − ε), over its own layer and those before it."""
        changes, written = changes_in(context), y
        for (name, layer), change in changes.items():
            if name == self.name and layer < self.layer:
                y = y + change.written(self.layer - layer)
        changes.pop((self.name, self.layer), None)
        if not self.is_used(tap):
            return y
        x, at = inputs[self.name], tap.scoped(norm=self.name)
        features = self.encode(x)
        edited = at(Point.FEATURES, features)
        change = self._chosen(edited - features) if edited is not features else None
        if change is not None:
            changes[self.name, self.layer] = change
            y = y + change.written(0)
        explained = self._explained(features, tap, context)
        if explained is None:
            return y
        error = written - explained - self.b_dec
        if "w_skip" in self._buffers:
            error = error - x @ self.get_buffer("w_skip")
        edited_error = at(Point.FEATURES_ERROR, error)
        return y if edited_error is error else y + (edited_error - error)

    def _explained(self, features: Features, tap: Tap, context: Context) -> Tensor | None:
        """Σ_{l ≤ m} f_l W_dec,l→m of this layer; ``None`` if its error is not formed.

        Args:
            features: f of this layer, whose part of the sums of later layers is added here, too.
            tap: the tap of the block, which says which errors are formed.
            context: the context of the forward, which has the sums of later layers.
        """
        targets = [m for m in self.targets if self._must_form_error(m, tap)]
        if not targets:
            return None
        sums: dict[tuple[str, int], Tensor] = context.once(_EXPLAINED, dict)
        in_memory = torch.is_tensor(w_dec := self.decoder)
        writers = Writers(features, w_dec) if in_memory else self._chosen(features)
        for m in targets:
            sums.setdefault((self.name, m), features.new_zeros(()))
            if writers is not None:
                sums[self.name, m] = sums[self.name, m] + writers.written(m - self.layer)
        return sums.pop((self.name, self.layer), None)

    def _chosen(self, features: Features) -> Writers | None:
        """The features that differ from zero, with their decoders; ``None`` if none does.

        With gradients all features, as these are also of features that are zero.
        """
        if features.is_meta:
            return Writers(features, features.new_empty(self.decoder.shape))
        if features.requires_grad or in_forward_mode():
            which = torch.arange(self.n_features, device=features.device)
            w_dec = self.decoder
            return Writers(features, w_dec if torch.is_tensor(w_dec) else w_dec[which])
        which = (features != 0).flatten(0, -2).any(0).nonzero()[:, 0]
        return Writers(features[..., which], self.decoder[which]) if len(which) else None

    def layout(self) -> dict[Place, Recipe]:
        """The places of its features and of its error, which is formed where it is recorded."""
        x = self.reads

        def features(part: AttachedLayer, of: Any) -> Features:  # noqa: ANN401 - a Reader
            return part.encode(of(x.point, x.norm))

        recipe = Recipe(
            features,
            needs=(x,),
            absent_when_fused=True,
            before_edits=True,
            carried=True,
            part=self.path,
            sizes=(("feature", self.n_features),),
        )
        error = Recipe(
            absent_when_fused=True,
            before_edits=True,
            reads_since=self.first if self.layer else None,
            part=self.path,
            sizes=(("written", len(self.b_dec)),),
        )
        return {
            Place(Point.FEATURES, norm=self.name): recipe,
            Place(Point.FEATURES_ERROR, norm=self.name): error,
        }

    def recipe_of_output(self, recipe: Recipe) -> Recipe:
        """Stored: it may have changes that no other tensor of the block has."""
        return Recipe(part=recipe.part, sizes=recipe.sizes, hook=recipe.hook)


def transcoder_of(
    parts: Sequence[AttachedLayer], names: Sequence[tuple[str, str]]
) -> CrossLayerTranscoder:
    """The cross-layer transcoder of all layers, with the present weights.

    Args:
        parts: its layers, in order.
        names: the TransformerLens names of the places that each one reads and writes.
    """
    reads, writes = zip(*names, strict=True)
    skips = [part.get_buffer("w_skip") for part in parts if "w_skip" in dict(part.named_buffers())]
    return CrossLayerTranscoder(
        w_enc=torch.stack([part.w_enc for part in parts]),
        b_enc=torch.stack([part.b_enc for part in parts]),
        w_dec=tuple(part.decoder for part in parts),
        b_dec=torch.stack([part.b_dec for part in parts]),
        activation=tuple(part.activation for part in parts),
        reads=cast("tuple[str, ...]", reads),
        writes=cast("tuple[str, ...]", writes),
        format=parts[0].format,
        facts=parts[0].facts,
        w_skip=torch.stack(skips) if skips else None,
    )
