"""A dictionary: directions that a tensor of a model is a sparse sum of.

    f(x) = activation((x − b_in) W_enc + b_enc)        x̂ = f W_dec + b_dec  (+ x W_skip)

A sparse autoencoder reads and writes at one place; a transcoder reads what an MLP reads, and
writes what it writes.
"""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field, fields, replace
from math import prod

import torch
from jaxtyping import Float
from torch import Tensor

from interp.dictionaries.activations import Activation, Features
from interp.dictionaries.claims import Claim, Claims
from interp.errors import InvalidInput
from interp.model import Network
from interp.points import Place

AROUND_MLP = ("hook_mlp_in", "ln2.hook_normalized", "hook_mlp_raw", "hook_mlp_out")
"""Places around the MLP: some models have a norm before it, some one after it."""
Read = Float[Tensor, "*batch d_in"]
Written = Float[Tensor, "*batch d_out"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Dictionary:
    """A trained dictionary. Weights that the library of the file stores otherwise are transposed.

    Attributes:
        w_enc: encoder; each column is what a feature reads.
        b_enc: bias of the encoder.
        b_in: what is subtracted from the input: ``b_dec``, or zeros.
        w_dec: decoder; each row is what a feature writes.
        b_dec: bias of the decoder.
        activation: which features are active, and how strongly.
        reads: TransformerLens name of the place that it was trained to read; empty if the file
            does not say.
        writes: name of the place that it reconstructs.
        format: the library that wrote the file.
        facts: what else the file says about it, such as the model's name.
        claims: what its publisher says of its quality, by the figure: ``fvu``, ``l0``, ``dead`` or
            ``recovered``; see :func:`analyses.check_dictionaries`, which measures them.
    """

    w_enc: Float[Tensor, "d_in feature"]
    b_enc: Float[Tensor, " feature"]
    b_in: Float[Tensor, " d_in"]
    w_dec: Float[Tensor, "feature d_out"]
    b_dec: Float[Tensor, " d_out"]
    activation: Activation
    reads: str = ""
    writes: str = ""
    format: str = ""
    facts: Mapping[str, object] = field(default_factory=dict[str, object])
    claims: Claims = field(default_factory=dict[str, Claim])

    def encode(self, x: Read) -> Features:
        """The activations of all features."""
        return self.activation((x - self.b_in) @ self.w_enc + self.b_enc)

    def decode(self, features: Features) -> Written:
        """What these features write: ``f W_dec + b_dec``."""
        return features @ self.w_dec + self.b_dec

    def output(self, features: Features, x: Read) -> Written:  # noqa: ARG002 - as in SkipDictionary
        """x̂: what the dictionary makes of its features (and of its input, if it has a skip)."""
        return self.decode(features)

    def reconstruct(self, x: Read) -> Written:
        """x̂: what the dictionary makes of ``x``."""
        return self.output(self.encode(x), x)

    def error(self, x: Read, target: Written) -> Written:
        """What the dictionary leaves out: ``target − x̂``.

        Args:
            x: the tensor that it reads.
            target: the tensor that it reconstructs; for an autoencoder ``x`` again.
        """
        return target - self.reconstruct(x)

    def places(self, model: Network) -> tuple[Place, Place]:
        """Where it reads and writes in a model.

        Heads of ``z`` are one after another in the tensors that the dictionary reads and writes.

        Raises:
            InvalidInput: the file does not say where, or tensors at these places have another
                width: the dictionary is of another model.
            UnknownPlace: the model has no such place.
        """
        pairs = (("reads", self.reads, len(self.w_enc)), ("writes", self.writes, len(self.b_dec)))
        read, written = (checked_place(model, *pair) for pair in pairs)
        return read, written

    @property
    def n_features(self) -> int:
        """Number of features."""
        return len(self.w_dec)

    def tensors(self) -> dict[str, Tensor]:
        """All its tensors by name; those of the activation as ``activation.threshold``."""
        pairs = [(field.name, getattr(self, field.name)) for field in fields(self)]
        pairs += [(f"activation.{name}", value) for name, value in vars(self.activation).items()]
        return {name: value for name, value in pairs if isinstance(value, Tensor)}

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> "Dictionary":
        """The same dictionary with other tensors, named as in :meth:`tensors`."""
        inner = {
            name.removeprefix("activation."): tensor
            for name, tensor in tensors.items()
            if name.startswith("activation.")
        }
        outer = {name: tensor for name, tensor in tensors.items() if "." not in name}
        return replace(self, **outer, activation=activation_with(self.activation, inner))

    def to(self, device: torch.device | str, dtype: torch.dtype) -> "Dictionary":
        """The same dictionary on a device and in a dtype."""
        return self.with_tensors({name: x.to(device, dtype) for name, x in self.tensors().items()})

    def __repr__(self) -> str:
        """Its sizes, places and source."""
        d_in, n_features = self.w_enc.shape
        where = self.reads if self.reads == self.writes else f"{self.reads} → {self.writes}"
        kind = type(self.activation).__name__
        return (
            f"{type(self).__name__}({n_features} features, {kind}, {d_in} → {len(self.b_dec)}, "
            f"{where or 'at an unknown place'}, {self.format})"
        )


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class SkipDictionary(Dictionary):
    """A transcoder with a linear path beside its features (Paulo et al. 2025, arXiv:2501.18823).

    Attributes:
        w_skip: the linear path.
    """

    w_skip: Float[Tensor, "d_in d_out"]

    def output(self, features: Features, x: Read) -> Written:
        """``f W_dec + b_dec + x W_skip``."""
        return self.decode(features) + x @ self.w_skip


def activation_with(activation: Activation, tensors: Mapping[str, Tensor]) -> Activation:
    """The same activation with other tensors, by the names of its attributes."""
    changed = copy(activation)
    for name, tensor in tensors.items():
        object.__setattr__(changed, name, tensor)
    return changed


def checked_place(model: Network, verb: str, name: str, width: int) -> Place:
    """The place of a name, where tensors have a width.

    Raises:
        InvalidInput: there is no name, or tensors have another width: the dictionary is of another
            model.
        UnknownPlace: the model has no such place.
    """
    if not name:
        raise InvalidInput(
            f"The file of this dictionary does not say what it {verb}; pass {verb}= to "
            'interp.dictionaries.load, such as "blocks.3.hook_resid_post".'
        )
    place = _resolved(model, name)
    axes = {axis: n for axis, n in model.fixed_axes(place).items() if axis in place.point.axes}
    of_model = prod(axes.values())
    if of_model != width:
        raise InvalidInput(
            f"The dictionary {verb} {width} numbers a token at {name}; in this model they are "
            f"{of_model}. Is it a dictionary of another model?"
        )
    return place


def _resolved(model: Network, name: str) -> Place:
    """The place of a name; ``mlp.hook_in`` and ``mlp.hook_out`` are what the MLP itself has.

    So circuit-tracer and the bridge of TransformerLens call them: its input after a norm before it,
    and its output before a norm after it.
    """
    block, _, hook = name.rpartition(".mlp.")
    if hook not in ("hook_in", "hook_out"):
        return model.names.resolve(name)
    around = {f"{block}.{place}" for place in AROUND_MLP}
    hooks = [hook for hook in model.names.hooks.values() if hook in around]
    outputs = [number for number, at in enumerate(hooks) if at.endswith(("mlp_raw", "mlp_out"))]
    if not outputs or not outputs[0]:
        return model.names.resolve(name)
    return model.names.resolve(hooks[outputs[0] - (hook == "hook_in")])
