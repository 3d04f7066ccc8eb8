"""Direct effects of neurons on the logits at their largest activations in a corpus."""

import torch

from analyses.methods.corpus import ActivationsOf, Streamed
from analyses.neurons.neuron_terms import DirectEffects, direct_effects, places_of_neurons
from interp.execution import run
from interp.model import MaskedHead, MeanPooledNorm, Network, Unembedding
from interp.prompts import rows_of


def writes_logits(model: Network, measure: ActivationsOf) -> bool:
    """Whether the output of these neurons is mapped linearly to the logits of its position."""
    last = model.stacks[-1]
    exits = not isinstance(last.final_norm, MaskedHead | MeanPooledNorm)
    linear = isinstance(model.unembed, Unembedding) and exits
    return linear and measure.stack == len(model.stacks) - 1


def largest_effects(
    model: Network,
    measure: ActivationsOf,
    streamed: Streamed,
    *,
    tokens: int,
    rows: int,
    seed: int,
) -> DirectEffects | None:
    """The direct effects of each neuron at its largest activation.

    Args:
        model: the model.
        measure: the neurons.
        streamed: the result that has their largest activations.
        tokens: number of promoted and of suppressed tokens to report.
        rows: texts per forward.
        seed: of the random vectors.

    Returns:
        The effects, or ``None`` if neurons of this MLP have no direct effect on logits; see
        :func:`writes_logits`.
    """
    if not writes_logits(model, measure):
        return None
    parts: list[DirectEffects] = []
    layer, numbers = measure.place.layer or 0, torch.tensor(measure.neurons)
    for units in torch.arange(len(numbers)).split(rows):
        batches = rows_of([streamed.texts[n] for n in streamed.text[units, 0].tolist()])
        cache = run(model, *batches, record=places_of_neurons(model, layer)).cache
        column = streamed.pos[units, 0].to(model.device)
        neuron = numbers[units].to(model.device)
        parts.append(direct_effects(model, cache, column, layer, neuron, top=tokens, seed=seed))
    return DirectEffects.joined(parts)
