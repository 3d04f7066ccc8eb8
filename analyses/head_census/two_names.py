"""What does each head do for the one of two names that is not repeated?

    When Mary and John went …, John gave a drink to            IO = Mary, S = John, END = to

    kind                 score                                       further evidence
    name-mover           direct effect on IO's logit                 attends to IO; ablation lowers
    negative-mover       − direct effect on IO's logit               attends to IO; ablation raises
    subject-suppression  − direct effect on S's logit                attends to S; ablation lowers
    subject-inhibition   attention from END to the second S          no direct effect; lowers
    duplicate-name       attention from the second S to the first    –

(Wang et al. 2022, "Interpretability in the Wild".) Ablation raises or lowers logit(IO) − logit(S).
The further evidence is that of the labels of :func:`analyses.head_effects`; a mover whose ablation
changes nothing, because later heads stand in, needs a large direct effect. The control of a direct
effect is that on the logit of the name that another prompt asks for; of attention from END, that
of uniform attention; of duplicate names, the same attention in the corrupted text, where the other
name is repeated. Ablated are heads that have such an effect, or attend to S, on average.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from analyses.direct_logit_attribution import direct_logit_attribution
from analyses.head_census.kinds import Case, Family, Kind, Measured, NotShown, Task
from analyses.head_effects import head_effects
from analyses.methods.heads import attentions_of, pattern_at, uniform_weights, visible_keys
from interp import run
from interp.metrics import LogitDiff, columns_read
from interp.model import Batch
from interp.prompts import logit_diff_of_prompts

PAPER = 'Wang et al. 2022, "Interpretability in the Wild"'
NAME_MOVER = Kind("name-mover", "direct effect on IO's logit", PAPER, "logits")
NEGATIVE = Kind("negative-mover", "− direct effect on IO's logit", PAPER, "logits")
SUPPRESSION = Kind("subject-suppression", "− direct effect on S's logit", PAPER, "logits")
INHIBITION = Kind("subject-inhibition", "attention from the end to the second S", PAPER)
DUPLICATE = Kind("duplicate-name", "attention from the second S to the first", PAPER)
DIRECT_ONLY = "direct only"
NEEDED: dict[Kind, Callable[[Mapping[Hashable, Any]], bool]] = {
    NAME_MOVER: lambda row: (
        row["label"] in ("moves the target", DIRECT_ONLY)
        and row["attends"] == "target"
        and row["to_target"] > abs(row["to_distractor"])
    ),
    NEGATIVE: lambda row: (
        row["label"] in ("works against the answer", DIRECT_ONLY)
        and row["attends"] == "target"
        and row["to_target"] < -abs(row["to_distractor"])
    ),
    SUPPRESSION: lambda row: (
        row["label"] in ("suppresses the distractor", DIRECT_ONLY)
        and row["attends"] == "distractor"
        and row["to_distractor"] < -abs(row["to_target"])
    ),
    INHIBITION: lambda row: (
        row["label"] == "acts indirectly" and row["attends"] == "distractor" and row["effect"] < 0
    ),
}
"""What a row of :class:`analyses.HeadEffects` must be for each kind."""
OCCURRENCES = 2
Each = Float[Tensor, "layer head prompt"]


def measure(case: Case) -> list[Measured]:
    """The scores of the five kinds, by prompt."""
    metric, batch, corrupt, places = _pairs(case)
    io, s = torch.as_tensor(metric.target), torch.as_tensor(metric.distractor)
    to_io, to_s, to_other = (_direct(case, batch, ids) for ids in (io, s, _another(io, s)))
    case.done(0.3)
    end, (first, second) = columns_read(batch, -1), places
    to_second, even = _attention(case, batch, end, second)
    to_first, _ = _attention(case, batch, second, first)
    elsewhere, _ = _attention(case, corrupt, second, first)
    case.done(0.5)
    direct = torch.stack([to_io, to_s, to_io - to_s]).mean(-1).abs().amax(0)
    attends = (to_second - even).mean(-1)
    candidates = (direct > NAME_MOVER.least) | (attends > INHIBITION.least)
    agrees = _agreeing(case, batch, metric, candidates)
    task = Task(batch, metric, "logit(IO) − logit(S)")
    return [
        Measured(NAME_MOVER, to_io, to_other, agrees[NAME_MOVER], task),
        Measured(NEGATIVE, -to_io, -to_other, agrees[NEGATIVE], task),
        Measured(SUPPRESSION, -to_s, -to_other, agrees[SUPPRESSION], task),
        Measured(INHIBITION, to_second, even, agrees[INHIBITION], task),
        Measured(DUPLICATE, to_first, elsewhere, None, task),
    ]


def _pairs(case: Case) -> tuple[LogitDiff, Batch, Batch, Int[Tensor, "two prompt"]]:
    """The metric, both texts of each pair, and the columns of both occurrences of S.

    Raises:
        NotShown: names are not single tokens, or texts are not of this form.
    """
    model = case.model
    if not case.continues_texts:
        raise NotShown("this model does not continue texts")
    if not case.pairs or any(pair.corrupt is None for pair in case.pairs):
        raise NotShown("it needs minimal pairs of texts")
    names = {name for pair in case.pairs for name in (pair.target, pair.distractor)}
    split = sorted(str(name) for name in names if name is None or case.token_of(name) is None)
    if split:
        raise NotShown(f"{split[0]!r} is not a single token that it was trained on")
    metric = logit_diff_of_prompts(model.to_single_token, case.pairs)
    batch = model.batch([pair.text for pair in case.pairs])
    corrupt = model.batch([str(pair.corrupt) for pair in case.pairs])
    is_name = batch.ids == torch.as_tensor(metric.distractor, device=batch.ids.device)[:, None]
    is_twice = bool((is_name.sum(-1) == OCCURRENCES).all())
    if not is_twice or not torch.equal(batch.is_real, corrupt.is_real):
        raise NotShown("each text should have its distractor twice, and its pair as many tokens")
    return metric, batch, corrupt, is_name.nonzero()[:, 1].view(-1, 2).T


def _another(io: Int[Tensor, " prompt"], s: Int[Tensor, " prompt"]) -> Int[Tensor, " prompt"]:
    """A name for each prompt that is not in it.

    Raises:
        NotShown: all prompts have the same names.
    """
    others = [io[(io != io[row]) & (io != s[row])] for row in range(len(io))]
    if not all(map(len, others)):
        raise NotShown("prompts should ask for three names or more")
    return torch.stack([names[row % len(names)] for row, names in enumerate(others)])


def _direct(case: Case, batch: Batch, ids: Int[Tensor, " prompt"]) -> Each:
    """The direct effect of each head on the logit of one token per prompt."""
    result = direct_logit_attribution(case.model, batch, target=ids.tolist(), pos=-1, by="head")
    row = {part.name: number for number, part in enumerate(result.parts)}
    layers, heads = case.sizes
    names = [row[f"L{layer}H{head}"] for layer in range(layers) for head in range(heads)]
    return result.effect[names].unflatten(0, (layers, heads)).float()


@torch.no_grad()
def _attention(
    case: Case, batch: Batch, query: Int[Tensor, " prompt"], key: Int[Tensor, " prompt"]
) -> tuple[Each, Each]:
    """Attention from a column to another, and that of uniform attention."""
    kind = attentions_of(case.model)
    places = [kind.places(layer)[0] for layer in range(len(kind.layers))]
    cache = run(case.model, batch, record=places, stop_at_layer=len(places)).cache
    (context,) = case.model.contexts([batch])
    row, weights, uniform = torch.arange(len(query), device=query.device), [], []
    for attn, place in zip(kind.layers, places, strict=True):
        pattern = pattern_at(cache, place)
        even = uniform_weights(visible_keys(attn, context, pattern.shape[-1]), pattern.dtype)
        weights.append(pattern[row, :, query, key].T)
        uniform.append(even.expand_as(pattern)[row, :, query, key].T)
    return torch.stack(weights).cpu(), torch.stack(uniform).cpu()


def _agreeing(
    case: Case, batch: Batch, metric: LogitDiff, candidates: Bool[Tensor, "layer head"]
) -> dict[Kind, Bool[Tensor, "layer head"]]:
    """The heads of each kind whose pattern, direct effect and ablation agree."""
    agrees = {kind: torch.zeros_like(candidates) for kind in NEEDED}
    if not bool(candidates.any()):
        return agrees
    effects = head_effects(
        case.model,
        batch,
        target=torch.as_tensor(metric.target),
        distractor=torch.as_tensor(metric.distractor),
        pos=-1,
        heads=[f"L{layer}H{head}" for layer, head in candidates.nonzero().tolist()],
    )
    for row in effects.to_frame().to_dict("records"):
        for kind, needs in NEEDED.items():
            agrees[kind][row["layer"], row["head"]] = needs(row)
    return agrees


FAMILY = Family("two names", measure)
