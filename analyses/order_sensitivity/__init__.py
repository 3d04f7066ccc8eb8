"""Which heads and layers use the order of tokens, by positions or by the mask? By permutations.

    s = ‖f(Px) − P f(x)‖ / √(½ ‖f(Px)‖² + ½ ‖f(x)‖²)

for permutations P of the tokens, and f what a head writes, what a layer adds to the stream, or the
logits. A function of a set is equivariant, f(Px) = P f(x) and s = 0 (Zaheer et al. 2017, "Deep
Sets"); only a causal mask and positions can break this. s is therefore measured with both, with
either and with neither; the last is a control, 0 within rounding. Permutations are ``random``;
``swap`` two neighbours, so that few tokens change position; or exchange two blocks (``block``), so
that few tokens change neighbours. BOS and EOS stay in place.

Another control shows how large s could be: that of outputs which do not move with the tokens,
‖f(x) − P f(x)‖ / ‖f(x)‖. It is small where a head writes the same at every token, and equals s
where a head depends on positions alone.

``bag`` is another test: the tokens before the last are permuted, and the outputs at the last one
are compared. In the first layer without positions such an output is a sum over a set, whatever the
mask: s = 0. Under a causal mask, earlier tokens have then seen different sets, which later layers
can read (Haviv et al. 2022, "Transformer Language Models without Positional Encodings Still Learn
Positional Information").

Without its mask or positions, a model is not the one that was trained: s shows from what a part
could infer order, not that it uses the order for anything.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from analyses.methods.finite import check_finite_weights
from analyses.methods.symmetries import HEAD, KINDS, LAYER, MODEL
from analyses.order_sensitivity.order_variants import (
    BAG,
    BOTH,
    MASK,
    NEITHER,
    POSITIONS,
    SCOPES,
    PermutedPrompts,
    order_variants,
)
from analyses.order_sensitivity.responses import responders
from analyses.results import (
    FEWEST,
    Drawing,
    Heatmap,
    Progress,
    Result,
    counted,
    fixed,
    grid,
    mean_frame,
    number,
    plotted,
    prompt_frame,
)
from interp import Transformer
from interp.errors import InvalidInput, shorten
from interp.execution import Provenance
from interp.integers import as_seed, at_least
from interp.prompts import read_batches

TOGETHER = "both together"
BY = (MASK, POSITIONS, BOTH, TOGETHER)
"""What a head can infer order from."""
LEAST = 0.05
"""The s that a head must exceed to be said to use order."""


@dataclass(frozen=True, eq=False, repr=False)
class OrderSensitivity(Result):
    """How far heads, layers and the model are from being permutation-equivariant.

    Attributes:
        value: s, from 0 to 2, mean over draws; 0 for a part that writes nothing, less than 1e-5
            of the stream. NaN where a prompt has no two tokens to exchange.
        unmoved: the control: s of outputs that do not move with the tokens; NaN for ``bag``.
        variants: which of mask and positions are kept: ``mask and positions``, ``mask``,
            ``positions``, ``neither``; those that the model allows, the model itself first.
        permutations: kinds of permutations, and ``bag``.
        names: names of heads, layers and the model.
        kinds: kind of each part: ``head``, ``layer`` or ``model``.
        scope: ``whole`` if the model's tokens were permuted; ``own`` if each part's own input.
        provenance: model, tokens and seed that the numbers depend on.
    """

    value: Float[Tensor, "variant permutation part prompt"]
    unmoved: Float[Tensor, "variant permutation part prompt"]
    variants: tuple[str, ...]
    permutations: tuple[str, ...]
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    scope: str
    provenance: Provenance

    def of(self, variant: str, permutation: str | None = None) -> Float[Tensor, " part"]:
        """The mean s of each part over the prompts that have it.

        Raises:
            InvalidInput: a variant or permutation that was not measured.
        """
        kind = self.permutations[0] if permutation is None else permutation
        for name, value, choices in (
            ("variant", variant, self.variants),
            ("permutation", kind, self.permutations),
        ):
            if value not in choices:
                raise InvalidInput(f"{name}={shorten(value)}: there are {', '.join(choices)}.")
        cell = self.variants.index(variant), self.permutations.index(kind)
        return self.value[cell].nanmean(-1)

    def to_frame(self) -> pd.DataFrame:
        """One row per part, variant and permutation.

        Columns:
            kind, name: the part.
            variant: which of mask and positions are kept.
            permutation: the kind of permutation.
            mean, low, high: mean of s over prompts, and its 95 % interval (NaN below five prompts).
            n: number of prompts.
            unmoved: the control, s of outputs that do not move with the tokens.
        """
        frame = mean_frame(self._cells, self.value.flatten(0, 2))
        return frame.assign(unmoved=self.unmoved.flatten(0, 2).nanmean(-1).numpy())

    def to_prompt_frame(self) -> pd.DataFrame:
        """One row per part, variant, permutation and prompt; ``value`` is s."""
        return prompt_frame(self._cells, value=self.value.flatten(0, 2)).dropna(ignore_index=True)

    def uses(self) -> dict[str, str]:
        """What each head infers order from: ``mask``, ``positions``, both; ``""`` if it does not.

        A head uses order if the whole interval of its s in the model itself is above 0.05. It
        infers order from whichever of mask and positions suffices for that alone, or from
        ``both together`` if neither does. Only the first kind of permutation counts; below five
        prompts, all heads have ``""``.
        """
        frame = self.to_frame()
        first = frame[(frame["permutation"] == self.permutations[0]) & (frame["kind"] == HEAD)]
        over = first.assign(over=first["low"] > LEAST).pivot_table(
            index="name", columns="variant", values="over", sort=False
        )
        return {str(name): self._by(set(row[row > 0].index)) for name, row in over.iterrows()}

    def _by(self, over: set[str]) -> str:
        if self.variants[0] not in over:
            return ""
        alone = [name for name in (MASK, POSITIONS) if name in over]
        if not {MASK, POSITIONS} <= set(self.variants):
            return self.variants[0]
        return " and ".join(alone) or TOGETHER

    def drawing(self, permutation: str | None = None) -> Drawing:
        """Heatmap of s on one scale: heads, layers and the model down, the variants across."""
        kind = self.permutations[0] if permutation is None else permutation
        what = "prefix shuffled, last token read" if kind == BAG else f"{kind} permutations"
        of = "its own input" if self.scope == "own" else "the prompt"
        return Heatmap(
            torch.stack([self.of(variant, kind) for variant in self.variants], -1),
            title=f"Sensitivity to the order of {of}: {what}",
            rows=self.names,
            columns=self.variants,
            axes=("part", "what the model has"),
            unit="sensitivity s",
        )

    figure = plotted(drawing)

    def summary(self, top: int = 10) -> str:
        """How many heads use order, and from what; the ``top`` heads; the bag test; the control."""
        top = at_least(1, top, "top")
        uses, n = self.uses(), self.value.shape[-1]
        s = dict(zip(self.names, self.of(self.variants[0]).tolist(), strict=True))
        ordered = sorted(uses, key=s.__getitem__, reverse=True)
        names = [name for name in ordered if uses[name] or n < FEWEST]
        lines = [self._line(name, uses[name]) for name in names[:top]]
        lines += [f"… and {len(names) - top} more heads"] if len(names) > top else []
        return "\n".join([self.headline(), *lines, *self._checks()])

    def headline(self) -> str:
        """See :meth:`Result.headline`."""
        prompts = counted(self.value.shape[-1], "prompt")
        of = f"own inputs on {prompts}" if self.scope == "own" else prompts
        return f"{self._uses_text()} ({self.permutations[0]} permutations of {of})"

    def _uses_text(self) -> str:
        """How many heads use order, and from what."""
        uses = self.uses()
        if self.value.shape[-1] < FEWEST:
            return f"fewer than {FEWEST} prompts, so that no head is said to use order"
        kinds = [by for by in uses.values() if by]
        counts = [f"{kinds.count(by)} by {by}" for by in sorted(set(kinds), key=BY.index)]
        sentence = f"{len(kinds)} of {len(uses)} heads use order"
        return f"{sentence}: {', '.join(counts)}" if counts else sentence

    def _line(self, name: str, by: str) -> str:
        part = self.names.index(name)
        each = [f"{variant} {fixed(self.of(variant)[part], 2)}" for variant in self.variants]
        return f"{name:<10} {f'by {by}' if by else '':<24} s: {', '.join(each)}"

    def _checks(self) -> Iterator[str]:
        if MASK in self.variants and BAG in self.permutations:
            bag = self.of(MASK, BAG)
            layers = [
                f"{name} {number(s, 2)}"
                for name, kind, s in zip(self.names, self.kinds, bag.tolist(), strict=True)
                if kind == LAYER
            ]
            yield f"prefix as a bag, without positions: s at the last token {', '.join(layers)}"
        if NEITHER in self.variants:
            worst = self.value[self.variants.index(NEITHER)].nan_to_num().max()
            yield f"control, with neither mask nor positions: s at most {worst:.1e}"

    @property
    def _cells(self) -> dict[str, list[object]]:
        of_kind = dict(zip(self.names, self.kinds, strict=True))
        cells = grid(variant=self.variants, permutation=self.permutations, name=self.names)
        return {"kind": [of_kind[str(name)] for name in cells["name"]], **cells}


def order_sensitivity(  # noqa: PLR0913 - the settings of one analysis, by keyword
    model: Transformer,
    prompts: Any,  # noqa: ANN401 - what model.check reads
    *,
    permutations: Sequence[str] = KINDS,
    scope: str = "whole",
    mask: bool | None = None,
    positions: bool | None = None,
    draws: int = 4,
    seed: int = 0,
    progress: Progress | None = None,
) -> OrderSensitivity:
    """Permute the tokens of prompts, and compare what heads and layers write.

    Padding, BOS (or a decoder's start token), EOS and special tokens of images stay where they are;
    for an encoder–decoder, both source and target are permuted. Prompts with the same number of
    tokens get the same permutations, so a prompt's numbers do not depend on the others.

    Args:
        model: the model.
        prompts: texts, token ids padded with ``interp.PAD``, images, or a batch that
            ``model.batch`` made; ``(source, target)`` for an encoder–decoder.
        permutations: one or more of ``random``, ``swap`` and ``block``; ``bag`` is always measured
            too.
        scope: ``whole`` permutes the prompt; ``own`` the recorded input of each head and layer,
            with which positions that were added to the stream move along.
        mask: measure with the mask (``True``), without (``False``), or both (``None``).
        positions: measure with positions (``True``), without (``False``), or both (``None``).
        draws: number of permutations of each kind.
        seed: seed for the permutations.
        progress: called with ``(forwards done, forwards in total)``.

    Returns:
        s by variant, permutation, part and prompt.

    Raises:
        InvalidInput: an unknown permutation or scope, no prompt with two tokens to exchange, or
            mask or positions that this model does not have.

    Examples:
        >>> model = interp.load("induction-by-hand")
        >>> texts = ["abcab", "xyzxy", "ghigh", "mnomn", "rstrs"]
        >>> analyses.order_sensitivity(model, texts, draws=1)
        OrderSensitivity(2 of 8 heads use order: 1 by positions, 1 by mask and positions (random
        permutations of 5 prompts))
    """
    check_finite_weights(model)
    _check(permutations, scope)
    draws, seed = at_least(1, draws, "draws"), as_seed(seed)
    views = order_variants(model, mask=mask, positions=positions)
    batches = read_batches(model, prompts)
    kinds = (*permutations, BAG)
    parts = [part for part in responders(model) if scope == "whole" or part.kind != MODEL]
    prompts_of = PermutedPrompts(model, batches, parts, scope, range(seed, seed + draws))
    values, unmoved = prompts_of.measure(views.values(), kinds, progress)
    if bool(values.isnan().all()):
        raise InvalidInput(
            "No prompt has two tokens that could change places (BOS and EOS stay where they are)."
        )
    return OrderSensitivity(
        value=values,
        unmoved=unmoved,
        variants=tuple(views),
        permutations=kinds,
        names=tuple(part.name for part in parts),
        kinds=tuple(part.kind for part in parts),
        scope=scope,
        provenance=Provenance.of(model, *batches, seed=seed),
    )


def _check(permutations: Sequence[str], scope: str) -> None:
    names = permutations if isinstance(permutations, list | tuple) else ()
    if not names or any(name not in KINDS or names.count(name) > 1 for name in names):
        raise InvalidInput(
            f"permutations={shorten(permutations)} should be several of {', '.join(KINDS)}, each "
            "once."
        )
    if scope not in SCOPES:
        raise InvalidInput(f"scope={shorten(scope)} should be {' or '.join(SCOPES)}.")
