"""What does a vector added to the stream change in what a model writes? Texts side by side.

    v = mean of x over positive prompts − mean of x over negative prompts
    x ↦ x + strength · v        at every position of one place, while each token is generated

Or v is the decoder of a feature of a dictionary, whose activation is so raised by the strength; one
of a cross-layer transcoder has a decoder for each layer that it writes.

(Turner et al. 2023, "Activation Addition"; Rimsky et al. 2023, "Steering Llama 2 via Contrastive
Activation Addition".) Texts are generated with and without the vector from the same prompts and the
same seed. The effect of the vector is measured on the plain text, so that strengths can be
compared: the divergence KL(plain ‖ steered) of the distributions from which its tokens came.

Components, such as heads, can be ablated at the same time, or alone: their values are replaced with
zero or a mean in every forward of the edited texts, so strength 0 is the ablation by itself.

The control is a random vector of the same length: any vector that is long enough changes a text,
and only the difference from the control is due to v. A change of the text need not be one towards
the positive prompts; read the texts. Compare the length of the vector with that of the stream,
which is reported.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite
from numbers import Real
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.methods.components import Component, Replacements, components_named
from analyses.methods.finite import check_finite_weights, naming_first_nan
from analyses.results import (
    Curve,
    Curves,
    Drawing,
    Progress,
    Result,
    counted,
    grid,
    mean_frame,
    number,
)
from analyses.steer.steering import (
    Continuation,
    feature_directions,
    random_directions,
    steering_edits,
    steering_vector,
    stream_place,
)
from interp import Transformer, run
from interp.edits import Edit
from interp.errors import InvalidInput, shorten
from interp.execution import Provenance, check_temperature
from interp.integers import as_seed, at_least, integer
from interp.io import as_progress
from interp.metrics import at_least_float32
from interp.model import PAD, Batch
from interp.points import Place, Point
from interp.prompts import batches_to_continue, read_batches

SHOWN = 3
"""The most prompts whose texts a summary shows."""
TAIL = 12
"""The most tokens of a prompt that it shows."""


@dataclass(frozen=True, eq=False, repr=False)
class Steering(Result):
    """Texts with and without a vector, and how far their predictions diverge.

    Attributes:
        place: where the vector was added, such as ``resid_pre 1``; the first place that a feature
            writes; ``""`` without a vector.
        vector: what was added at strength 1; to several layers, one after another.
        stream_norm: the mean length of the stream there, over the tokens of the prompts.
        strengths: factors that the vector was multiplied by.
        kl: KL(plain ‖ steered) of the distribution of each token of the plain text, in nats; NaN
            after its end.
        control: the same with a random vector of the same length.
        plain: the new tokens without a vector; ``interp.PAD`` after the end of a text.
        steered: the new tokens with the vector.
        steered_control: the new tokens with the random vector.
        prompts: the last tokens of each prompt, as a text.
        token_labels: labels of the new tokens, by id.
        separator: text between labels.
        provenance: model, tokens and settings that the numbers depend on.
        ablated_names: names of the components that were ablated in all texts but the plain ones.
        method: ``zero`` or ``mean``; ``""`` if nothing was ablated.
        feature: the name of the feature whose decoders the vector is; ``""`` of another vector.
    """

    place: str
    vector: Float[Tensor, " d_written"]
    stream_norm: float
    strengths: tuple[float, ...]
    kl: Float[Tensor, "strength prompt token"]
    control: Float[Tensor, "strength prompt token"]
    plain: Int[Tensor, "prompt token"]
    steered: Int[Tensor, "strength prompt token"]
    steered_control: Int[Tensor, "strength prompt token"]
    prompts: tuple[str, ...]
    token_labels: dict[int, str]
    separator: str
    provenance: Provenance
    ablated_names: tuple[str, ...] = ()
    method: str = ""
    feature: str = ""

    @property
    def same(self) -> Int[Tensor, "strength prompt"]:
        """Number of tokens at the start of the steered text that are the same in the plain one."""
        return (self.steered == self.plain).int().cumprod(-1).sum(-1)

    @property
    def same_control(self) -> Int[Tensor, "strength prompt"]:
        """The same with the random vector."""
        return (self.steered_control == self.plain).int().cumprod(-1).sum(-1)

    @property
    def changed(self) -> Float[Tensor, " strength"]:
        """The share of texts that the vector changes."""
        return (self.steered != self.plain).any(-1).double().mean(-1)

    @property
    def changed_control(self) -> Float[Tensor, " strength"]:
        """The share of texts that the random vector changes."""
        return (self.steered_control != self.plain).any(-1).double().mean(-1)

    def to_frame(self) -> pd.DataFrame:
        """One row per strength.

        Columns:
            strength: factor that the vector was multiplied by.
            kl, low, high, n: mean over the tokens of each plain text, then over prompts, in nats,
                with the 95 % interval (NaN below five prompts).
            control: the same for the random vector.
            changed, changed_control: shares of texts that differ from the plain ones.
        """
        frame = mean_frame({"strength": self.strengths}, self.kl.nanmean(-1).double())
        return frame.rename(columns={"mean": "kl"}).assign(
            control=self.control.nanmean((1, 2)).numpy(),
            changed=self.changed.numpy(),
            changed_control=self.changed_control.numpy(),
        )

    def to_prompt_frame(self) -> pd.DataFrame:
        """One row per strength and prompt.

        Columns: strength, prompt, kl, control, same_tokens (see ``same``), plain_text,
        steered_text, steered_control_text.
        """
        n = len(self.plain)
        cells = grid(strength=self.strengths, prompt=range(n))
        return pd.DataFrame(cells).assign(
            kl=self.kl.nanmean(-1).flatten().numpy(),
            control=self.control.nanmean(-1).flatten().numpy(),
            same_tokens=self.same.flatten().numpy(),
            plain_text=[self.text(ids) for ids in self.plain] * len(self.strengths),
            steered_text=[self.text(ids) for ids in self.steered.flatten(0, 1)],
            steered_control_text=[self.text(ids) for ids in self.steered_control.flatten(0, 1)],
        )

    def to_token_frame(self) -> pd.DataFrame:
        """One row per strength, prompt and plain new token: pos (from 0), token, kl, control."""
        n, width = self.plain.shape
        tokens = [self.token_labels.get(id_, "") for id_ in self.plain.flatten().tolist()]
        frame = pd.DataFrame(grid(strength=self.strengths, prompt=range(n), pos=range(width)))
        numbers = {"kl": self.kl.flatten().numpy(), "control": self.control.flatten().numpy()}
        frame = frame.assign(token=tokens * len(self.strengths), **numbers)
        return frame.dropna(ignore_index=True)

    def drawing(self) -> Drawing:
        """KL at each token of the plain text, mean over prompts, by strength; and the control."""
        pos, last = list(range(self.plain.shape[1])), self._strongest
        lines = [
            Curve(f"strength {strength:g}", pos, kl.tolist())
            for strength, kl in zip(self.strengths, self.kl.nanmean(1), strict=True)
        ]
        name = f"random vector, strength {self.strengths[last]:g}"
        lines.append(Curve(name, pos, self.control[last].nanmean(0).tolist(), faint=True))
        return Curves(
            {"KL(plain ‖ steered)": lines},
            title=f"{self.edited[0].upper()}{self.edited[1:]}: divergence on the plain text",
            axis="new token",
            units=["nats"],
        )

    def summary(self, top: int = SHOWN) -> str:
        """The effect at the largest strength, and the texts of the first ``top`` prompts."""
        top = at_least(1, top, "top")
        texts = [line for p in range(min(top, len(self.plain))) for line in self._texts(p)]
        if self.place:
            length, stream = (number(norm, 3) for norm in (self.vector.norm(), self.stream_norm))
            texts.insert(0, f"the vector has length {length}, the stream {stream} on average")
        return "\n".join([self.headline(), *texts])

    def headline(self) -> str:
        """See :meth:`Result.headline`."""
        last, n = self._strongest, len(self.plain)
        kl, control = (tensor.nanmean((1, 2))[last] for tensor in (self.kl, self.control))
        changed, other = (
            round(float(share[last]) * n) for share in (self.changed, self.changed_control)
        )
        changes = f"changes {changed} of {n} texts, KL {number(kl, 3)} nats a token"
        if not self.place:
            return f"{self.edited} on {counted(n, 'prompt')} {changes}"
        return (
            f"{self.edited} on {counted(n, 'prompt')}: strength "
            f"{number(self.strengths[last])} {changes} (random vector: {other}, "
            f"{number(control, 3)})"
        )

    def text(self, tokens: Int[Tensor, " token"]) -> str:
        """New tokens as a text, up to its end."""
        return self.separator.join(self.token_labels[n] for n in tokens.tolist() if n != PAD)

    @property
    def edited(self) -> str:
        """A description of the edit, such as ``steering at resid_pre 1``."""
        ablation = f"ablation of {', '.join(self.ablated_names)} ({self.method})"
        if not self.place:
            return ablation
        where = f"along {self.feature}" if self.feature else f"at {self.place}"
        return f"steering {where}{f' and {ablation}' if self.ablated_names else ''}"

    def _texts(self, prompt: int) -> list[str]:
        """The texts of one prompt, one below the other."""
        rows, last = [("plain", self.text(self.plain[prompt]))], self._strongest
        for n, strength in enumerate(self.strengths):
            same, steered = int(self.same[n, prompt]), self.steered[n, prompt]
            differs = bool((steered != self.plain[prompt]).any())
            where = f"  (differs from token {same} on)" if differs else "  (the same)"
            name = f"strength {strength:g}" if self.place else "ablated"
            rows.append((name, self.text(steered) + where))
        if self.place:
            rows.append(
                (f"random {self.strengths[last]:g}", self.text(self.steered_control[last, prompt]))
            )
        width = max(len(name) for name, _ in rows)
        return [
            f"prompt {prompt}: {self.prompts[prompt]}",
            *(f"  {name:<{width}}  {text}" for name, text in rows),
        ]

    @property
    def _strongest(self) -> int:
        return max(range(len(self.strengths)), key=lambda n: abs(self.strengths[n]))


def steer(  # noqa: PLR0913 - the settings of one analysis, by keyword
    model: Transformer,
    prompts: Any,  # noqa: ANN401 - what model.check reads
    *,
    layer: int | None = None,
    vector: Tensor | None = None,
    contrast: Any = None,  # noqa: ANN401 - a pair of what model.check reads
    feature: str | None = None,
    at: str | Point = "resid_pre",
    pos: int | None = -1,
    strengths: Sequence[float | int] = (0.0, 1.0, 2.0, 4.0),
    ablate: Sequence[str] = (),
    method: str = "mean",
    reference: Any = None,  # noqa: ANN401 - as prompts
    new_tokens: int = 20,
    temperature: float = 0.0,
    seed: int = 0,
    progress: Progress | None = None,
) -> Steering:
    """Continue prompts with a vector added to the stream or components ablated, and without.

    Args:
        model: a model that generates text.
        prompts: texts, token ids padded with ``interp.PAD``, or a batch; for an encoder–decoder the
            source, or ``(source, target)`` with the first tokens of the target.
        layer: layer at which the vector is added, in an encoder–decoder that of the decoder;
            ``None`` without a vector.
        vector: what is added at strength 1, ``[d_model]``; such as one that was learned through
            ``interp.run(..., keep_graph=True)``.
        contrast: instead of a vector, ``(positive, negative)`` prompts, as ``interp.run`` takes
            them, from which it is computed: the difference of their means at the place.
        feature: instead of a vector, the name of a feature of ``interp.with_dictionaries(model,
            dictionaries)``, such as ``L0F17``; without ``layer`` and ``at``.
        at: a point of the stream, or of what is written to it, such as ``mlp_out``.
        pos: the position at which contrasting prompts are read; ``None`` for the mean over all.
        strengths: factors that the vector is multiplied by.
        ablate: names of heads, or other components, that are ablated together in every forward of
            the edited texts, and of the control's. With them, the vector may be left out.
        method: what replaces them: ``zero`` or ``mean``, which is over all tokens of ``reference``.
        reference: prompts from which means come; by default the prompts themselves.
        new_tokens: number of tokens to add, at most.
        temperature: sampling temperature; 0 takes the most probable token.
        seed: seed for sampling, the same for all texts, and for the random vector.
        progress: called with ``(texts done, texts in total)``, counting all prompts as one text.

    Returns:
        Texts, and divergences by strength, prompt and token. At strength 0 with nothing ablated,
        texts are those of the plain model, bit for bit. Without a vector, the only strength is 0.

    Raises:
        InvalidInput: the model can't continue a text; two of ``vector``, ``contrast`` and
            ``feature``, or none and nothing to ablate; a vector of another shape, or not finite; a
            component named twice; or settings out of range.
        UnknownPlace: there is no such place, or no such feature.
        InvalidTokens: prompts and new tokens exceed the context.

    Examples:
        >>> model = interp.load("induction-by-hand")
        >>> analyses.steer(model, "abcab", ablate=["L1H0"], new_tokens=3)
        Steering(ablation of L1H0 (mean) on 1 prompt changes 1 of 1 texts, KL 2.99 nats a token)
    """
    check_finite_weights(model)
    components = components_named(model, ablate)
    alone = bool(components) and vector is None and contrast is None and feature is None
    strengths = (0.0,) if alone else _strengths(strengths)
    new_tokens, seed = at_least(1, new_tokens, "new_tokens"), as_seed(seed)
    check_temperature(temperature)
    pos = None if pos is None else integer(pos, "pos")
    if feature is None:
        place = stream_place(model, at, 0 if alone and layer is None else layer)
        unscaled = torch.zeros(model.d_model) if alone else vector
        added = [(place, steering_vector(model, unscaled, contrast, place, pos))]
    elif layer is None and vector is None and contrast is None and at == "resid_pre":
        added = feature_directions(model, feature)
    else:
        raise InvalidInput("feature= has its own layers and vectors; leave out the others.")
    if not alone and not any(bool(part.any()) for _, part in added):
        raise InvalidInput("The vector is zero, so that it changes nothing.")
    *sources, read = batches_to_continue(model, prompts)
    inputs = [*sources, read.padded_left()]
    fixed = _ablation(model, inputs, components, method, reference)
    with naming_first_nan(model, inputs):
        plain = Continuation(
            model, inputs, new_tokens=new_tokens, temperature=temperature, seed=seed
        )
    both = added, random_directions(added, seed)
    new, kl = _continued(
        plain,
        [[*fixed, *steering_edits(parts, by)] for by in strengths for parts in both],
        progress,
    )
    steered, random = (torch.stack(new[number::2]) for number in (0, 1))
    ids = torch.cat([plain.new.cpu()[None], steered, random]).unique().tolist()
    separator = "" if model.tokenizer else " "
    return Steering(
        place="" if alone else f"{added[0][0].point.label} {added[0][0].layer}",
        vector=torch.cat([part.flatten() for _, part in added]).cpu(),
        stream_norm=_stream_norm(model, inputs, added[0][0]),
        strengths=strengths,
        kl=torch.stack(kl[::2]),
        control=torch.stack(kl[1::2]),
        plain=plain.new.cpu(),
        steered=steered,
        steered_control=random,
        prompts=tuple(
            separator.join(model.to_labels(ids[ids != PAD])[-TAIL:]) for ids in inputs[0].tokens
        ),
        token_labels={n: model.label(n) for n in ids if n != PAD},
        separator=separator,
        provenance=Provenance.of(model, *inputs, edits=fixed, seed=seed),
        ablated_names=tuple(component.name for component in components),
        method=method if components else "",
        feature=feature or "",
    )


def _continued(
    plain: Continuation, cases: Sequence[Sequence[Edit]], progress: Progress | None
) -> tuple[list[Int[Tensor, "prompt token"]], list[Float[Tensor, "prompt token"]]]:
    """The new tokens with the edits of each case, and the divergence on the plain text."""
    new: list[Tensor] = []
    kl: list[Tensor] = []
    report = as_progress(progress, "continuations")
    for made in cases:
        new.append(plain.edited(made).cpu())
        kl.append(plain.divergence(made).cpu())
        if report is not None:
            report(len(new), len(cases))
    return new, kl


def _stream_norm(model: Transformer, inputs: Sequence[Batch], place: Place) -> float:
    """The mean length of the stream at a place, over the tokens of the prompts."""
    x = at_least_float32(run(model, *inputs, record=place).cache[place]).flatten(2)
    return x.norm(dim=-1)[inputs[-1].is_real].mean().item()


def _ablation(
    model: Transformer,
    inputs: Sequence[Batch],
    components: Sequence[Component],
    method: str,
    reference: Any,  # noqa: ANN401 - as prompts
) -> tuple[Edit, ...]:
    """The edits that ablate components in every forward.

    Raises:
        InvalidInput: see :func:`steer`.
    """
    if method not in ("zero", "mean"):
        raise InvalidInput(
            f"method={shorten(method)} should be zero or mean: new tokens have no counterpart in "
            "another prompt."
        )
    others = None if reference is None else read_batches(model, reference)
    made = Replacements(model, inputs, method, others).edits_of(components)
    return tuple(edit for _, edit in made)


def _strengths(strengths: object) -> tuple[float, ...]:
    """The given strengths as numbers.

    Raises:
        InvalidInput: see :func:`steer`.
    """
    several = strengths.tolist() if isinstance(strengths, Tensor) else strengths
    numbers: list[Any] = list(several) if isinstance(several, Iterable) else []
    if not numbers or not all(
        not isinstance(strength, bool) and isinstance(strength, Real) and isfinite(strength)
        for strength in numbers
    ):
        raise InvalidInput(f"strengths={shorten(strengths)} should be one or more finite numbers.")
    return tuple(map(float, numbers))
