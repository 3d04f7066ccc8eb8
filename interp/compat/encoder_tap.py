"""The tap of the forward of an encoder, and of a decoder that is paired with one.

It handles what TransformerLens's BERT and T5 compute differently from its decoders:

- ``hook_mlp_in`` is at the stream that the MLP's output is added to or, in BERT, at the input of
  ``ln1``: what it returns replaces the stream;
- ``hook_full_embed`` and ``hook_normalized_resid_post`` are after the gain and bias of a norm;
- BERT's attention reads the stream itself;
- T5 adds the least finite number to the scores of padded keys, where the core has −∞;
- padded keys are masked for every query, and positions count columns, padding included.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from interp.compat.facade import Facade, Where
from interp.compat.facade_tap import FacadeTap
from interp.compat.hook_calls import call_hooks
from interp.model import Context, Mask, Visible
from interp.points import Point

_SUMS = (Point.RESID_MID, Point.CROSS_RESID_MID)
"""Points followed by ``hook_mlp_in``, if ``cfg.use_hook_mlp_in`` is set."""


@dataclass(frozen=True, eq=False)
class EncoderFacade(Facade):
    """The parts of one stack that its tap uses.

    Attributes:
        after: for some places, a second hook point that is called after the first.
        is_post_norm: whether norms come after the residual sums.
        finite: the scores whose padded keys have the least finite number.
    """

    after: Mapping[Where, nn.Module]
    is_post_norm: bool
    finite: tuple[Point, ...] = ()

    @property
    def has_input_norm(self) -> bool:
        """Whether ``ln1`` is the norm of the input of attention."""
        return not self.is_post_norm


@dataclass(frozen=True, eq=False)
class EncoderTap(FacadeTap):
    """The tap of one forward of one stack."""

    facade: EncoderFacade

    def __call__(self, point: Point, value: Tensor) -> Tensor:
        """The tensor after the hooks of its point, and of the second point if there is one."""
        value = super().__call__(point, value)
        second = self.facade.after.get(self._where(point))
        if second is None or (point in _SUMS and not self.facade.cfg.use_hook_mlp_in):
            return value
        value = call_hooks(second, value)
        self.pending.norm_input = value
        return value

    def _scores(self, point: Point, scores: Tensor) -> Tensor:
        if point not in self.facade.finite or not self._is_hooked(point):
            return super()._scores(point, scores)
        least = torch.finfo(scores.dtype).min
        finite = scores.masked_fill(scores.isneginf(), least)
        edited = self._hooked(point, finite)
        if edited is finite:
            return scores
        self.pending.pattern = edited.softmax(-1)
        return edited


@dataclass(frozen=True)
class KeyPadding:
    """The mask of a layer, with padded keys masked for every query.

    Attributes:
        mask: the mask of the layer.
    """

    mask: Mask

    @property
    def is_bidirectional(self) -> bool:
        """Whether the mask of the layer is bidirectional."""
        return self.mask.is_bidirectional

    def is_causal(self, context: Context) -> bool:
        """Whether there is no padding and the mask of the layer is causal."""
        return context.encoder_real is None and self.mask.is_causal(context)

    def visible(self, context: Context) -> Visible | None:
        """True where a query may attend to a key; ``None`` if every query attends to every key."""
        visible, real = self.mask.visible(context), context.encoder_real
        if real is None:
            return visible
        keys = real[:, None, None, :]
        return keys if visible is None else visible & keys
