"""Training the translators of a tuned lens by the divergence from the model's own prediction.

    minimize  Σ_l mean over tokens of KL(softmax(logits) ‖ softmax(logits_l))

(Belrose et al. 2023, equation 5.) The loss of a layer depends on its own translator only. The paper
takes 250 steps of SGD with Nesterov momentum, of 2¹⁸ tokens each. Here, Adam takes as many steps of
a few hundred tokens: with so few, SGD learns little where the stream is small. The learning rate
falls linearly to zero, as in the paper. With a large vocabulary, a step takes some tokens of its
prompts, drawn at random, so that 250 steps take minutes. The prompts and tokens of a step depend
only on the seed and the step's index, so training that was stopped resumes bit-identically on the
same processor.
"""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from analyses.methods.described_tensors import FileKind
from analyses.methods.lens import TunedLens, decode, translated
from analyses.train_lens.streams import PromptStreams, Streams, StreamSource, provenance_of
from interp.errors import InvalidInput, shorten
from interp.execution import Provenance
from interp.integers import as_seed, at_least
from interp.io import ProgressLike, as_progress, build
from interp.metrics import at_least_float32, divergence
from interp.model import Batch, Network

LOGITS_BYTES = 8 * 2**20
"""By default, the logits of the tokens of a step, in float32, take at most so many bytes: 42 tokens
of a vocabulary of 49 152."""
FILE = FileKind("interp_lens_training", 1, "the training of a lens", "Training.save(path)")
ROWS = 4
"""Prompts per update by default, if all of their tokens may be used."""


@dataclass(frozen=True)
class Settings:
    """The settings of the training of a lens.

    Attributes:
        steps: number of updates.
        rows: prompts per update.
        lr: learning rate of the first step.
        seed: seed of the order of the prompts.
        tokens: the most tokens per update; ``None``: those whose logits take ``LOGITS_BYTES``.
    """

    steps: int
    rows: int
    lr: float
    seed: int
    tokens: int | None = None

    def checked(self) -> "Settings":
        """The same settings, validated and converted to Python numbers.

        Raises:
            InvalidInput: a setting is invalid.
        """
        is_number = isinstance(self.lr, int | float) and self.lr is not True  # pyright: ignore[reportUnnecessaryIsInstance]
        if not is_number or not 0 < self.lr < float("inf"):
            raise InvalidInput(f"lr={shorten(self.lr)} must be a positive number.")
        steps, rows = at_least(1, self.steps, "steps"), at_least(1, self.rows, "rows")
        tokens = None if self.tokens is None else at_least(1, self.tokens, "tokens")
        return Settings(steps, rows, float(self.lr), as_seed(self.seed), tokens)

    def prompts_of_steps(self, n: int) -> Iterator[Int[Tensor, " row"]]:
        """The prompts of each step, from repeated passes over all ``n``, each in random order."""
        generator = torch.Generator().manual_seed(self.seed)
        left = torch.arange(0)
        for _ in range(self.steps):
            while len(left) < self.rows:
                left = torch.cat([left, torch.randperm(n, generator=generator)])
            yield left[: self.rows]
            left = left[self.rows :]

    def tokens_of_step(
        self, step: int, real: Bool[Tensor, "batch pos"], most: int
    ) -> Bool[Tensor, "batch pos"]:
        """The tokens of a step: all, or ``most`` of them, drawn at random."""
        n = int(real.sum())
        if n <= most:
            return real
        generator = torch.Generator().manual_seed(self.seed + step)
        drawn = torch.randperm(n, generator=generator)[:most].to(real.device)
        tokens = torch.zeros_like(real)
        tokens.view(-1)[real.flatten().nonzero()[drawn, 0]] = True
        return tokens


def rows_of_step(model: Network, prompts: StreamSource, tokens: int | None) -> int:
    """By default, the prompts of a step: :data:`ROWS`, or one if it has more tokens than are used.

    A forward over several prompts would cost more than the step itself.

    Args:
        model: the model.
        prompts: the prompts.
        tokens: as in :class:`Settings`.
    """
    longest = max(int(prompts.real(row).sum()) for row in torch.arange(len(prompts)).split(1))
    return ROWS if longest <= (tokens or _tokens_at_once(model)) else 1


@dataclass(frozen=True, eq=False)
class Training:
    """The state of training after some of its steps.

    Attributes:
        lens: the translators.
        kl: KL(final prediction ‖ prediction of each layer) on the prompts of each step, before its
            update; the mean over tokens, in nats.
        optimizer: the state of Adam.
        settings: the settings of the whole training.
    """

    lens: TunedLens
    kl: Float[Tensor, "step layer"]
    optimizer: dict[str, Any]
    settings: Settings

    def __repr__(self) -> str:
        return f"Training({len(self.kl)} of {self.settings.steps} steps of {self.lens!r})"

    def save(self, path: str | Path) -> None:
        """Write everything that is needed to continue to a safetensors file, atomically.

        Raises:
            InvalidInput: the path is that of a folder, or its folder does not exist.
            OutOfResources: the file can't be written.
        """
        provenance = self.lens.provenance.to_dict()
        moments = {
            f"adam.{number}.{name}": tensor
            for number, each in self.optimizer["state"].items()
            for name, tensor in each.items()
        }
        tensors = {"A": self.lens.A, "b": self.lens.b, "kl": self.kl, **moments}
        FILE.write(path, {"settings": asdict(self.settings), "provenance": provenance}, tensors)

    @classmethod
    def load(cls, path: str | Path) -> "Training":
        """Read a training that :meth:`save` wrote.

        Raises:
            InvalidInput: there is no such file, or it is damaged, of another kind or version.
        """
        return FILE.read(path, _training)


@dataclass(frozen=True)
class _Header:
    """What a file of a training holds besides tensors."""

    settings: Settings
    provenance: Provenance


def _training(description: object, tensors: dict[str, Tensor]) -> Training:
    """A training from what its file has.

    Raises:
        KeyError: a tensor is missing.
        ValueError: the description is not one of a training.
    """
    about = build(_Header, description, "header")
    lens = TunedLens(tensors["A"], tensors["b"], about.provenance)
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith("adam."):
            _, number, moment = name.split(".")
            state.setdefault(int(number), {})[moment] = tensor
    adam = torch.optim.Adam([lens.A, lens.b], lr=about.settings.lr).state_dict()
    return Training(lens, tensors["kl"], {**adam, "state": state}, about.settings)


def train(  # noqa: PLR0913 - the settings of one training, by keyword
    model: Network,
    prompts: StreamSource | Sequence[Batch],
    settings: Settings,
    *,
    progress: ProgressLike = None,
    cancelled: Callable[[], bool] | None = None,
    checkpoint: Callable[[Training], None] | None = None,
    resume: Training | None = None,
) -> Training:
    """Train a lens; the model is not changed.

    Args:
        model: a model with an unembedding.
        prompts: the prompts, or batches of them, one per stack.
        settings: the settings of the training.
        progress: called after each step with the number of steps done and of all steps.
        cancelled: called after each step; if it returns True, the state so far is returned.
        checkpoint: called after each step with the state so far, whose tensors the next step
            changes: it may be saved or copied.
        resume: the result of an earlier call with the same model, prompts and settings.

    Raises:
        InvalidInput: a setting is invalid; ``resume`` has other weights, prompts or settings; or
            the loss is not finite.
    """
    settings, progress = settings.checked(), as_progress(progress, "training steps")
    source = _source(model, prompts)
    lens = TunedLens.untrained(model, provenance_of(model, settings.seed, source))
    optimizer = torch.optim.Adam([lens.A, lens.b], lr=settings.lr)
    kl: list[Tensor] = []
    if resume is not None:
        _check_same(resume, lens, settings)
        lens.A.copy_(resume.lens.A)
        lens.b.copy_(resume.lens.b)
        optimizer.load_state_dict(deepcopy(resume.optimizer))  # it would share the tensors
        kl += resume.kl.to(lens.A.device)
    for step, rows in enumerate(settings.prompts_of_steps(len(source))):
        if step < len(kl):
            continue
        most = settings.tokens or _tokens_at_once(model)
        tokens = settings.tokens_of_step(step, source.real(rows), most)
        lens.A.grad, lens.b.grad, losses = _gradients(model, lens, *source.read(rows, tokens))
        if not bool(losses.isfinite().all()):
            source.check_finite(rows)
            raise InvalidInput(
                f"The KL of step {step + 1} is not finite: the training diverged, or the logits of "
                f"this model are not finite. Try a lower lr than {settings.lr}."
            )
        optimizer.param_groups[0]["lr"] = settings.lr * (1 - step / settings.steps)
        optimizer.step()
        kl.append(losses)
        if progress is not None:
            progress(len(kl), settings.steps)
        if checkpoint is not None:
            checkpoint(Training(lens, torch.stack(kl), optimizer.state_dict(), settings))
        if cancelled is not None and cancelled():
            break
    lens.A.grad = lens.b.grad = None
    return Training(lens, torch.stack(kl), optimizer.state_dict(), settings)


def lens_divergence(
    model: Network,
    lens: TunedLens,
    prompts: StreamSource | Sequence[Batch],
    settings: Settings,
) -> Float[Tensor, "layer prompt"]:
    """KL(final prediction ‖ prediction of each layer) in nats, the mean over each prompt's tokens.

    Of a prompt that has more tokens than a step may use, as many are drawn.

    Args:
        model: the model of the lens.
        lens: the lens, trained or not.
        prompts: as for :func:`train`.
        settings: the settings of the training.
    """
    kl: list[Tensor] = []
    source, most = _source(model, prompts), settings.tokens or _tokens_at_once(model)
    for row in torch.arange(len(source)).split(1):
        tokens = settings.tokens_of_step(int(row), source.real(row), most)
        streams, final = source.read(row, tokens)
        with torch.no_grad():
            each = [
                _divergence(model, lens.translate(x, layer), final).mean()
                for layer, x in enumerate(streams)
            ]
        kl.append(torch.stack(each).to(lens.A.dtype))
    return torch.stack(kl, dim=1)


def _source(model: Network, prompts: StreamSource | Sequence[Batch]) -> StreamSource:
    return PromptStreams(model, prompts) if isinstance(prompts, list | tuple) else prompts  # pyright: ignore[reportReturnType]


def _tokens_at_once(model: Network) -> int:
    """The number of tokens whose logits take at most ``LOGITS_BYTES``."""
    return max(1, LOGITS_BYTES // (model.config.n_logits * torch.float32.itemsize))


def _gradients(
    model: Network, lens: TunedLens, streams: Streams, final: Float[Tensor, "one token vocab"]
) -> tuple[Tensor, Tensor, Float[Tensor, " layer"]]:
    """The gradients of the loss with respect to A and b, and the loss of each layer.

    They are computed one layer at a time, so that only the logits of that layer are in memory; the
    weights of the model get no gradients.
    """
    of_A, of_b = torch.zeros_like(lens.A), torch.zeros_like(lens.b)
    losses: list[Tensor] = []
    for layer, x in enumerate(streams):
        A, b = (tensor[layer].detach().requires_grad_() for tensor in (lens.A, lens.b))
        with torch.enable_grad():
            loss = _divergence(model, translated(x, A, b), final).mean()
        of_A[layer], of_b[layer] = torch.autograd.grad(loss, (A, b))
        losses.append(loss.detach())
    return of_A, of_b, torch.stack(losses)


def _divergence(
    model: Network,
    x: Float[Tensor, "one token d_model"],
    final: Float[Tensor, "one token vocab"],
) -> Float[Tensor, "one token"]:
    """KL(final prediction ‖ prediction of ``x``) in nats."""
    return divergence(at_least_float32(final), at_least_float32(decode(model, x)))


def _check_same(resume: Training, lens: TunedLens, settings: Settings) -> None:
    """Check that ``resume`` has the same model, prompts and settings.

    Raises:
        InvalidInput: it has not.
    """
    before, now = resume.lens.provenance, lens.provenance
    differing = [
        *(name for name in ("weights", "tokens") if getattr(before, name) != getattr(now, name)),
        *(
            f.name
            for f in fields(Settings)
            if getattr(resume.settings, f.name) != getattr(settings, f.name)
        ),
    ]
    if differing:
        raise InvalidInput(
            f"resume= is from a call with other {', '.join(differing)}; give the arguments of that "
            "call."
        )
