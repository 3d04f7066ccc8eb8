"""A logit of many prompts, or the difference of two, as the sum of its terms, beside a control."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.methods.attribution import (
    Part,
    StreamWalk,
    Terms,
    TokenLogits,
    feature_walk,
    heads_together,
    not_read,
    outputs_of,
    parts_in_order,
    places_of_features,
    places_of_logits,
)
from analyses.methods.finite import check_total
from interp.execution import run
from interp.metrics import at_least_float32, parts_of_rows
from interp.model import Batch, Network

BY = ("component", "head", "source", "feature")
SOURCES = ("sources", "sources_of_target")
ROWS = 64
"""Prompts run at a time, at most."""
Ids = Int[Tensor, "token prompt"]
"""The target of each prompt, then its distractor, if there is one."""


@dataclass(frozen=True, eq=False)
class AttributedLogits:
    """The logit of each prompt, or the difference of two, and its terms.

    Attributes:
        parts: what writes each term.
        values: the logits or differences, before any soft-cap.
        terms: the terms, which sum to the values.
        of_target: the same terms of the target's logit alone; ``None`` if there is no distractor.
        control: the same terms for random tokens.
        sources: each head's term by the token that it attends to; ``None`` unless by source.
        sources_of_target: the same of the target's logit alone; ``None`` without a distractor.
        notes: which dictionaries are not read.
    """

    parts: tuple[Part, ...]
    values: Float[Tensor, " prompt"]
    terms: Float[Tensor, "term prompt"]
    of_target: Float[Tensor, "term prompt"] | None
    control: Float[Tensor, "term prompt"]
    sources: Float[Tensor, "head prompt key"] | None
    sources_of_target: Float[Tensor, "head prompt key"] | None
    notes: tuple[str, ...]


@torch.no_grad()
def attribute_logits(
    model: Network,
    batches: Sequence[Batch],
    column: Int[Tensor, " prompt"],
    ids: Ids,
    *,
    by: str,
    seed: int,
) -> AttributedLogits:
    """Attribute a logit of each prompt to the parts that write it.

    Args:
        model: the model.
        batches: the prompts of each stack.
        column: the column of each prompt whose logits are read.
        ids: the tokens.
        by: ``component`` sums the heads of a layer; ``head`` and ``source`` do not; ``feature``
            also splits outputs into features of dictionaries.
        seed: seed for the random tokens of the control.

    Raises:
        InvalidInput: the logits are not linear in the stream, or one is not finite.
    """
    drawn = _drawn(ids, model.config.n_logits, seed)
    outputs = outputs_of(model) if by == "feature" else {}
    record = places_of_logits(model, sources=by == "source") + places_of_features(outputs)
    walk = feature_walk(outputs) if outputs else StreamWalk
    terms: dict[str, list[Terms]] = defaultdict(list)
    numbers: dict[str, list[Tensor]] = defaultdict(list)
    shape = (*batches[-1].ids.shape, model.config.n_logits)
    for rows in parts_of_rows(shape, model.device, most=ROWS):
        some = [batch.rows(rows) for batch in batches]
        cache = run(model, *some, record=record).cache
        logits, random_logits, target = (
            TokenLogits(model, cache, column[rows], of[:, rows], walk)
            for of in (ids, drawn, ids[:1])
        )
        problem = "A logit is NaN or infinite, so no terms sum to it"
        check_total(logits.values(), cache, problem)
        by_part = {"terms": logits.terms(), "control": random_logits.terms()}
        if len(ids) > 1:
            by_part["of_target"] = target.terms()
        if by == "component":
            by_part = {name: heads_together(of_rows) for name, of_rows in by_part.items()}
        if by == "source":
            numbers["sources"].append(_by_key(logits.sources(), some))
            if len(ids) > 1:
                numbers["sources_of_target"].append(_by_key(target.sources(), some))
        numbers["values"].append(logits.values())
        for name, of_rows in by_part.items():
            terms[name].append(of_rows)
    parts = parts_in_order(terms["terms"])
    tensors = {name: torch.cat(each) for name, each in numbers.items()}
    tensors |= {name: _stacked(parts, each) for name, each in terms.items()}
    tensors = {name: at_least_float32(each).cpu() for name, each in tensors.items()}
    by_source = {name: tensors[name].transpose(0, 1) for name in SOURCES if name in tensors}
    return AttributedLogits(
        parts=parts,
        values=tensors["values"],
        terms=tensors["terms"].mT,
        of_target=tensors["of_target"].mT if len(ids) > 1 else None,
        control=tensors["control"].mT,
        sources=by_source.get("sources"),
        sources_of_target=by_source.get("sources_of_target"),
        notes=tuple(not_read(outputs, parts)[1]),
    )


def _stacked(parts: Sequence[Part], batches: Sequence[Terms]) -> Float[Tensor, "every_prompt term"]:
    """The terms of all batches; 0 for features that are not active in a batch."""
    rows: list[Tensor] = []
    for terms in batches:
        none = torch.zeros_like(next(iter(terms.values())))
        rows.append(torch.stack([terms.get(part, none) for part in parts], -1))
    return torch.cat(rows)


def _by_key(
    sources: Mapping[Part, Float[Tensor, "prompt key"]], batches: Sequence[Batch]
) -> Float[Tensor, "prompt head every_key"]:
    """The terms of heads by key: the source's columns, if there is one, then the target's."""
    terms: list[Tensor] = []
    for part, values in sources.items():
        by_stack = [values.new_zeros(batch.ids.shape) for batch in batches]
        by_stack[0 if part.name.startswith("cross.") else -1] = values
        terms.append(torch.cat(by_stack, -1))
    return torch.stack(terms, 1)


def _drawn(ids: Ids, n_logits: int, seed: int) -> Ids:
    """Random tokens: one other than the target, and a distractor other than the new target."""
    generator = torch.Generator().manual_seed(seed)
    steps = torch.randint(1, max(n_logits, 2), ids.shape, generator=generator).to(ids.device)
    return (ids[:1] + steps.cumsum(0)) % n_logits
