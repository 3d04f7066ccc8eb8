"""The weights of a dictionary in training, and the loss of a step.

See :mod:`interp.dictionaries.training` for the loss and its sources.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.dictionaries.activations import Activation, JumpReLU, TopK
from interp.dictionaries.dictionary import Dictionary, SkipDictionary
from interp.errors import InvalidInput, shorten
from interp.integers import as_seed, at_least

KINDS = ("topk", "batchtopk", "jumprelu")
AUX_SHARE = 1 / 32
"""Weight of the loss of features that are not active."""
DEAD_TOKENS = 200_000
"""A feature that was not active for so many tokens takes part in this loss."""
THRESHOLD_RATE = 0.01
"""Of the running mean of the threshold of ``batchtopk``."""
BANDWIDTH = 0.03
"""Width of the kernel by which thresholds of ``jumprelu`` get a gradient, in units of h."""
WARM_UP = 0.05
"""Share of the steps in which the penalty of ``jumprelu`` rises to its weight."""
Rows = Float[Tensor, "row d"]


@dataclass(frozen=True, kw_only=True)
class DictionarySettings:
    """The settings of the training of a dictionary.

    Attributes:
        kind: ``topk``, ``batchtopk`` or ``jumprelu``.
        n_features: number of features.
        k: mean number of features that are active for a token.
        skip: whether a transcoder has a linear path.
        steps: number of updates.
        batch: tokens of an update.
        lr: learning rate of Adam.
        seed: seed of the first weights and of the order of the rows.
    """

    kind: str = "batchtopk"
    n_features: int = 2048
    k: int = 32
    skip: bool = False
    steps: int = 1000
    batch: int = 2048
    lr: float = 1e-3
    seed: int = 0

    def checked(self) -> "DictionarySettings":
        """The same settings, validated.

        Raises:
            InvalidInput: a setting is invalid.
        """
        if self.kind not in KINDS:
            raise InvalidInput(f"kind={shorten(self.kind)} should be one of {', '.join(KINDS)}.")
        for name in ("n_features", "k", "steps", "batch"):
            at_least(1, getattr(self, name), name)
        if self.k > self.n_features:
            raise InvalidInput(f"k={self.k} should be at most n_features={self.n_features}.")
        is_number = isinstance(self.lr, int | float) and self.lr is not True  # pyright: ignore[reportUnnecessaryIsInstance]
        if not is_number or not 0 < self.lr < float("inf"):
            raise InvalidInput(f"lr={shorten(self.lr)} should be a positive number.")
        return replace(self, seed=as_seed(self.seed))


class TrainedWeights(nn.Module):
    """The weights in training, for scaled inputs and outputs.

    Args:
        d_in: width of what is read.
        d_out: width of what is written.
        settings: the settings of the training.
        tied: whether the bias of the decoder is subtracted from the input.
        n_targets: number of outputs that each feature writes, one after another in ``w_dec``, of
            which only the first has a bias.
    """

    scales: Tensor
    idle: Tensor
    threshold: Tensor

    def __init__(
        self,
        d_in: int,
        d_out: int,
        settings: DictionarySettings,
        *,
        tied: bool,
        n_targets: int = 1,
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(settings.seed)
        rows = torch.randn(settings.n_features, n_targets * d_out, generator=generator)
        rows /= rows.norm(dim=-1, keepdim=True)
        columns = torch.randn(d_in, settings.n_features, generator=generator)
        columns /= columns.norm(dim=0, keepdim=True)
        self.tied, self.settings = tied, settings
        self.w_dec = nn.Parameter(rows)
        self.w_enc = nn.Parameter(rows.T.clone() if d_in == rows.shape[1] else columns)
        self.b_enc = nn.Parameter(torch.zeros(settings.n_features))
        self.b_dec = nn.Parameter(torch.zeros(d_out))
        if settings.skip:
            self.w_skip = nn.Parameter(torch.zeros(d_in, d_out))
        if settings.kind == "jumprelu":
            self.log_threshold = nn.Parameter(torch.full((settings.n_features,), 0.1).log())
        # Not trained: scales of x and y, their number of steps, what was active when, and θ.
        for name, n in (("scales", 3), ("idle", settings.n_features), ("threshold", 1)):
            self.register_buffer(name, torch.zeros(n))

    def forward(self, x: Rows, y: Rows) -> tuple[Tensor, list[Tensor]]:
        """The loss, the fraction of variance unexplained, and the mean number of features."""
        x, y = x * self.scales[0], y * self.scales[1]
        h = self.encoded(x)
        features = self.active(h)
        written = features @ self.w_dec + self.b_dec
        error = y - (written + x @ self.w_skip if self.settings.skip else written)
        fvu = error.square().sum() / (y - y.mean(0)).square().sum()
        loss = fvu + self.penalties(h, error.detach())
        return loss, [fvu.detach(), (features > 0).sum() / len(x)]

    def encoded(self, x: Rows) -> Tensor:
        """h, of scaled rows."""
        return (x - self.b_dec if self.tied else x) @ self.w_enc + self.b_enc

    def penalties(self, h: Tensor, error: Tensor) -> Tensor:
        """The terms of the loss beside that of the error.

        Args:
            h: what the encoder computes.
            error: what is left out of all that the features write.
        """
        loss = AUX_SHARE * self._auxiliary(h, error)
        if self.settings.kind == "jumprelu":
            l0 = _step(h, self.log_threshold.exp()).sum() / len(h)
            loss = loss + self._warm_up() * (l0 / self.settings.k - 1).square()
        return loss

    def n_dead(self) -> Tensor:
        """Number of features that have not been active for ``DEAD_TOKENS`` tokens."""
        return (self.idle > DEAD_TOKENS).sum()

    def active(self, h: Tensor) -> Tensor:
        """The features of a step, which are counted."""
        features = self._active(h)
        self._count(features)
        return features

    def _active(self, h: Tensor) -> Tensor:
        """The features of a step."""
        k, kind = self.settings.k, self.settings.kind
        if kind == "jumprelu":
            return _jump(h, self.log_threshold.exp())
        positive = h.relu()
        if kind == "topk":
            values, indices = positive.topk(k, dim=-1)
            return torch.zeros_like(h).scatter(-1, indices, values)
        n = min(k * len(h), positive.numel())
        least = positive.detach().flatten().topk(n, sorted=False).values.min()
        features = positive * (positive >= least) * (positive > 0)
        smallest = features.detach()[features > 0]
        if smallest.numel():
            rate = THRESHOLD_RATE if bool(self.threshold) else 1.0
            self.threshold.lerp_(smallest.min()[None], rate)
        return features

    def _auxiliary(self, h: Tensor, error: Tensor) -> Tensor:
        """‖e − ê‖² / ‖e‖², with ê from features that are not active."""
        dead = self.idle > DEAD_TOKENS
        n = min(int(dead.sum()), error.shape[1] // 2)
        if not n:
            return error.new_zeros(())
        values, indices = h.masked_fill(~dead, -torch.inf).topk(n, dim=-1)
        features = torch.zeros_like(h).scatter(-1, indices, values.relu())
        share = min(1.0, n / (error.shape[1] // 2))
        missed = (error - features @ self.w_dec).square().sum()
        return share * missed / error.square().sum().clamp(min=torch.finfo(h.dtype).tiny)

    def _count(self, features: Tensor) -> None:
        active = (features.detach() > 0).any(0)
        self.idle.add_(len(features)).masked_fill_(active, 0)
        self.scales[2] += 1

    def _warm_up(self) -> float:
        return min(1.0, float(self.scales[2]) / max(1.0, WARM_UP * self.settings.steps))

    @torch.no_grad()
    def begin(self, *rows: Rows) -> None:
        """Set scales and the first bias from the rows of the first step: x, then y."""
        for number, several in enumerate(rows):
            mean_square = several.square().sum(-1).mean()
            if not bool(mean_square > 0):
                raise InvalidInput("All activations of the first step are zero.")
            self.scales[number] = (several.shape[1] / mean_square).sqrt()
        self.b_dec.copy_((rows[-1] * self.scales[1]).mean(0))

    @torch.no_grad()
    def normalize(self, *, gradient: bool) -> None:
        """Scale the decoder's rows to norm 1; or project their gradient, which keeps the norms."""
        if gradient and self.w_dec.grad is not None:
            along = (self.w_dec.grad * self.w_dec).sum(-1, keepdim=True)
            self.w_dec.grad -= along * self.w_dec
        else:
            self.w_dec /= self.w_dec.norm(dim=-1, keepdim=True)

    def dictionary(self, where: Mapping[str, Any]) -> Dictionary:
        """The dictionary for activations that are not scaled; decoders keep their norm."""
        x_scale, y_scale = self.scales[:2].tolist()
        tensors = {
            "w_enc": self.w_enc * (x_scale / y_scale),
            "b_enc": self.b_enc / y_scale,
            "b_in": self.b_dec / y_scale if self.tied else self.w_enc.new_zeros(len(self.w_enc)),
            "w_dec": self.w_dec,
            "b_dec": self.b_dec / y_scale,
        }
        fixed = {name: tensor.detach().clone() for name, tensor in tensors.items()}
        rest: dict[str, Any] = {**where, "activation": self._activation(y_scale)}
        if self.settings.skip:
            w_skip = (self.w_skip * (x_scale / y_scale)).detach().clone()
            return SkipDictionary(**fixed, **rest, w_skip=w_skip)
        return Dictionary(**fixed, **rest)

    def _activation(self, y_scale: float) -> Activation:
        if self.settings.kind == "topk":
            return TopK(self.settings.k)
        return JumpReLU(self.thresholds() / y_scale)

    def thresholds(self) -> Tensor:
        """θ of each feature, for scaled inputs and outputs."""
        is_jump = self.settings.kind == "jumprelu"
        threshold = self.log_threshold.exp() if is_jump else self.threshold.expand_as(self.b_enc)
        return threshold.detach()


class _Jump(torch.autograd.Function):
    """h where h > θ; θ gets a gradient from h within half of ``BANDWIDTH``."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, threshold: Tensor) -> Tensor:  # noqa: ANN401 - torch's context
        """The activations."""
        ctx.save_for_backward(h, threshold)
        return h * (h > threshold)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        """By h, and by θ."""
        h, threshold = ctx.saved_tensors
        near = ((h - threshold).abs() < BANDWIDTH / 2) / BANDWIDTH
        return gradients[0] * (h > threshold), -(threshold * near * gradients[0]).sum(0)


class _Step(torch.autograd.Function):
    """1 where h > θ; only θ gets a gradient, as in :class:`_Jump`."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, threshold: Tensor) -> Tensor:  # noqa: ANN401 - torch's context
        """Which features are active."""
        ctx.save_for_backward(h, threshold)
        return (h > threshold).to(h.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:  # noqa: ANN401
        """By θ."""
        h, threshold = ctx.saved_tensors
        near = ((h - threshold).abs() < BANDWIDTH / 2) / BANDWIDTH
        return None, -(near * gradients[0]).sum(0)


def _jump(h: Tensor, threshold: Tensor) -> Tensor:
    return _Jump.apply(h, threshold)  # pyright: ignore[reportReturnType]


def _step(h: Tensor, threshold: Tensor) -> Tensor:
    return _Step.apply(h, threshold)  # pyright: ignore[reportReturnType]
