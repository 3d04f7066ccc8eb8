"""The logits that each head writes when it attends to a token: its OV circuit on some tokens.

The stream of a token is its embedding, after layer 0 with the output of the first MLP added, if
there is one: the effective embedding (McDougall et al. 2023; Gould et al. 2023). Norms as in
:func:`analyses.ov`.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from jaxtyping import Int
from torch import Tensor

from analyses.head_census.kinds import Case, NotShown
from analyses.methods.circuits import TokenCircuits
from interp.errors import InvalidInput
from interp.linalg import LowRank

Sources = Int[Tensor, " source"]
Outputs = Int[Tensor, " output"]


@torch.no_grad()
def ov_logits(case: Case, sources: Sources, outputs: Outputs) -> Iterator[tuple[int, int, LowRank]]:
    """Layer, head and ``[source, output]`` logits of each head, in the order of the forward.

    Raises:
        NotShown: heads of this model write no logits of the tokens that they attend to.
    """
    model = case.model
    if model.config.n_classes is not None:
        raise NotShown("this model has no logits of tokens")
    layers, heads = case.sizes
    for layer in range(layers):
        first = TokenCircuits.of(model, layer, 0, first_mlp=case.has_first_mlp and layer > 0)
        try:
            first.output()
        except InvalidInput as error:
            raise NotShown(str(error)) from error
        W_V = torch.cat([*first.weights.W_V], -1)
        values = first.read_keys(sources, W_V).unflatten(-1, (heads, -1))
        for head in range(heads):
            circuit = replace(first, head=head)
            right = circuit.logits(circuit.output())[:, outputs]
            yield layer, head, LowRank(values[:, head], right)
        case.done((layer + 1) / layers)
