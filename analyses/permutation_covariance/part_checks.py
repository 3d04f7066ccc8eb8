"""Checks that permute heads, neurons or token ids, or change the basis within a head."""

import torch
from torch import Tensor

from analyses.methods.heads import every_attention
from analyses.methods.symmetries import (
    HEAD,
    PATTERN,
    TIGHT,
    Observed,
    OwnInputs,
    Part,
    observed,
    other_order,
    own_inputs,
    pattern_and_scores,
)
from analyses.permutation_covariance.bases import change_basis, free_bases, score_bases
from analyses.permutation_covariance.check import (
    AT_LAYERS,
    AT_MODEL,
    EVERYWHERE,
    OUTPUTS,
    Case,
    Rows,
    Symmetry,
    attentions,
    copy_with,
)
from analyses.permutation_covariance.parts import (
    head_orders,
    n_neurons,
    reorder_heads,
    reorder_neurons,
    reorder_vocabulary,
)
from interp.model import MLP, Experts, Network
from interp.weights import stripped


def check_heads(case: Case) -> Rows:
    """Reorder the heads of every layer."""
    model = case.model
    if all(attn.n_heads == 1 for attn in attentions(model)):
        case.notes.append("heads: not checked, since every layer has a single head.")
        return
    if any(attn.positions.has_bias for attn in attentions(model)):
        model = stripped(model, mask=False, positions=True)
        case.notes.append(
            "heads: checked without positions, whose biases belong to heads by their index."
        )
    orders = [head_orders(attn, case.generator) for attn in attentions(model)]
    layers = [(kind, n) for kind in every_attention(model) for n in range(len(kind.layers))]
    old_names = {
        kind.head_name(layer, new): kind.head_name(layer, old)
        for (kind, layer), (heads, _) in zip(layers, orders, strict=True)
        for new, old in enumerate(heads.tolist())
    }
    before = {(part.name, part.quantity): x for part, x in observed(model, case.batches).items()}

    def expected(part: Part) -> Tensor:
        return before[old_names.get(part.name, part.name), part.quantity]

    def reorder(new: Network, *, output: bool) -> None:
        for attn, (heads, kv_heads) in zip(attentions(new), orders, strict=True):
            reorder_heads(attn, heads, kv_heads, output=output)

    symmetry = Symmetry("heads", "Σ_h A_h x S_h, reordered")
    for output, kinds, change in ((True, EVERYWHERE, ""), (False, AT_LAYERS, "W_O unchanged")):
        after = case.after(lambda new, o=output: reorder(new, output=o), attentions(model), model)
        yield from symmetry.rows(after, expected, kinds, change)


def check_neurons(case: Case) -> Rows:
    """Reorder the neurons of every MLP, or of the experts of every layer."""
    mlps = _mlps(case.model)
    if not mlps:
        case.notes.append("neurons: not checked, since this model has no MLP.")
        return
    orders = [other_order(n_neurons(mlp), case.generator) for mlp in mlps]
    before = observed(case.model, case.batches)

    def reorder(new: Network, *, output: bool) -> None:
        for mlp, order in zip(_mlps(new), orders, strict=True):
            reorder_neurons(mlp, order, output=output)

    symmetry = Symmetry("neurons", "Σ_n act(x w_n) u_n, reordered")
    for output, change in ((True, ""), (False, "W_out unchanged")):
        after = case.after(lambda new, o=output: reorder(new, output=o), mlps)
        yield from symmetry.rows(after, before.__getitem__, AT_LAYERS, change)


def _mlps(model: Network) -> list[MLP | Experts]:
    return [part for part in model.modules() if isinstance(part, MLP | Experts)]


def check_vocabulary(case: Case) -> Rows:
    """f(π ids) = f(ids)_π, if W_E and W_U are both reordered by π."""
    model, config = case.model, case.model.config
    if any(stack.weight_e is None for stack in model.stacks):
        case.notes.append("vocabulary: not checked, since this model reads images.")
        return
    sizes = {stack.name: config.vocabulary_of(stack.name) for stack in model.stacks}
    drawn = {size: other_order(size, case.generator) for size in dict.fromkeys(sizes.values())}
    orders = {name: drawn[size].to(model.device) for name, size in sizes.items()}
    renamed = model.check(
        *(
            orders[stack.name].argsort()[batch.ids]
            for stack, batch in zip(model.stacks, case.batches, strict=True)
        )
    )
    has_columns = config.unembeds and config.n_classes is None
    columns = orders[model.stacks[-1].name] if has_columns else slice(None)
    before = observed(model, case.batches)
    tables = [stack.weight_e for stack in model.stacks if stack.weight_e is not None]
    new = copy_with(model, [*tables, *model.unembed.parameters()])
    reorder_vocabulary(new, orders)
    symmetry = Symmetry("vocabulary", "f(π ids) = f(ids)_π")
    for variant, change in ((new, ""), (model, "W_E, W_U unchanged")):
        after = observed(variant, renamed)
        yield from symmetry.rows(after, lambda part: before[part][..., columns], AT_MODEL, change)


def check_scores(case: Case) -> Rows:
    """W_Q G and W_K G⁻ᵀ give the pattern of W_Q and W_K, for each attention on its own input.

    A score s has a rounding error of about |s| ε, and so has A: where scores are over 1, the bound
    grows with them.
    """
    model = case.model
    if any(attn.has_qk_norm for attn in attentions(model)):
        done = "clips" if any(attn.has_clip for attn in attentions(model)) else "normalizes"
        case.notes.append(
            f"scores: not checked, since this model {done} queries and keys, so that their "
            "bases are fixed."
        )
        return
    inputs = own_inputs(model, case.batches)
    before, largest = _patterns(model, inputs)
    bases = [score_bases(attn, case.generator) for attn in attentions(model)]
    bound = TIGHT * max(1.0, largest)
    symmetry = Symmetry("scores", "W_Q G (W_K G⁻ᵀ)ᵀ = W_Q W_Kᵀ", bound=bound)
    for both, label in ((True, ""), (False, "W_K unchanged")):
        weights = (weight for attn in attentions(model) for weight in attn.parameters())
        new = copy_with(model, weights)
        for attn, G in zip(attentions(new), bases, strict=True):
            change_basis(attn, query=G, key=torch.linalg.inv(G).mT if both else None)
        after, _ = _patterns(new, inputs)
        yield from symmetry.rows(after, before.__getitem__, EVERYWHERE, label)


def _patterns(model: Network, inputs: OwnInputs) -> tuple[Observed, float]:
    """The pattern of every head on its recorded input, and the largest unmasked |score|."""
    patterns: dict[Part, Tensor] = {}
    largest = 0.0
    for kind in every_attention(model):
        for layer, attn in enumerate(kind.layers):
            x, context = inputs.streams[kind.z_place(layer)], inputs.contexts[kind.query]
            pattern, scores = pattern_and_scores(attn, x, context)
            largest = max(largest, float(scores[scores.isfinite()].abs().max()))
            for head in range(attn.n_heads):
                name = kind.head_name(layer, head)
                patterns[Part(HEAD, name, PATTERN, kind.query, kind.key)] = pattern[:, head]
    return patterns, largest


def check_values(case: Case) -> Rows:
    """W_V B and B⁻¹ W_O give the outputs of W_V and W_O."""
    if any(attn.has_clip for attn in attentions(case.model)):
        case.notes.append(
            "values: not checked, since this model clips values, so that their basis is fixed."
        )
        return
    bases = [free_bases(attn, case.generator) for attn in attentions(case.model)]

    def change(new: Network, *, both: bool) -> None:
        for attn, B in zip(attentions(new), bases, strict=True):
            change_basis(attn, value=B, output=torch.linalg.inv(B) if both else None)

    symmetry = Symmetry("values", "W_V B B⁻¹ W_O = W_V W_O")
    before = observed(case.model, case.batches)
    for both, label in ((True, ""), (False, "W_O unchanged")):
        after = case.after(lambda new, b=both: change(new, both=b), attentions(case.model))
        yield from symmetry.rows(after, before.__getitem__, OUTPUTS, label)
