"""Scores of nodes: estimates of the metric's change when one tensor is taken from other prompts.

    AtP    Δn · ∂m/∂n                      attribution patching (Nanda 2023)
    AtP*   ΔA · ∂m/∂A of queries and keys, |score| a mean over dropped layers (Kramár et al. 2024)

A saturated softmax has no gradient, so for queries and keys AtP* computes the patched pattern A and
uses the gradient with respect to it (the QK fix). And as the direct effect of a node and its effect
through later layers may cancel, AtP* computes, for each layer l, the gradient with the output of l
held constant, and averages the absolute scores over the layers other than the node's (GradDrop):

    |AtP*| = Σ_l |score without layer l| / (layers − 1)        for three layers or more
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.methods.components import gradient_at
from analyses.methods.finite import check_no_nan
from interp import edits
from interp.cache import Cache
from interp.edits import Edit
from interp.errors import InvalidInput
from interp.execution import run
from interp.metrics import Metric
from interp.model import Attention, Batch, Network
from interp.points import Place

HEAD_AXIS = 2
"""The head axis of queries, keys, values and z."""
MIN_LAYERS = 3
"""With fewer layers there is no GradDrop: without one of two, only direct effects are left."""


@dataclass(frozen=True)
class Node:
    """A tensor that is patched: a head's queries, keys, values or z, or the output of an MLP.

    Attributes:
        name: ``L1H0.q``, ``L1H0.k``, ``L1H0.v``, ``L1H0`` (z), ``L1MLP``; for shared keys and
            values ``L1KV0.k``.
        place: the place of the tensor.
        head: index of the (key/value) head, or ``None`` for the whole tensor.
    """

    name: str
    place: Place
    head: int | None = None

    def __str__(self) -> str:
        """The name."""
        return self.name


def nodes_of(model: Network) -> list[Node]:
    """The nodes of a model with one stack, in the order of its forward.

    Raises:
        InvalidInput: the model has two stacks.
    """
    if len(model.stacks) > 1:
        raise InvalidInput("Nodes are those of models with one stack; this one has two.")
    nodes: list[Node] = []
    for layer, step in model.stacks[0].branches():
        if not isinstance(step.f, Attention):
            nodes.append(Node(f"L{layer}MLP", Place(step.points.writes, layer)))
            continue
        at, heads, shared = step.f.points, step.f.n_heads, step.f.kv_heads
        kv = "H" if shared == heads else "KV"
        for point, n, name in (
            (at.q, heads, "H{}.q"),
            (at.k, shared, kv + "{}.k"),
            (at.v, shared, kv + "{}.v"),
            (at.z, heads, "H{}"),
        ):
            place = Place(point, layer)
            nodes += [Node(f"L{layer}{name.format(head)}", place, head) for head in range(n)]
    return nodes


@dataclass(frozen=True, eq=False)
class NodeRuns:
    """The runs that scores of nodes are computed from.

    Attributes:
        model: the model.
        clean: the clean prompts.
        metric: a metric that has a gradient.
        own: the tensors of the nodes on the clean prompts, and the outputs of all layers.
        other: the tensors of the nodes on the corrupted prompts.
    """

    model: Network
    clean: Batch
    metric: Metric
    own: Mapping[Place, Tensor]
    other: Mapping[Place, Tensor]

    @classmethod
    def of(cls, model: Network, clean: Batch, corrupt: Batch, metric: Metric) -> "NodeRuns":
        """The runs on prompts whose tokens are in the same columns."""
        places = list({node.place: None for node in nodes_of(model)})
        clean_tensors = dict(run(model, clean, record=[*places, *_writes(model)]).cache.items())
        corrupt_tensors = dict(run(model, corrupt, record=places).cache.items())
        check_no_nan(model, [clean], *clean_tensors.values())
        check_no_nan(model, [corrupt], *corrupt_tensors.values())
        return cls(model, clean, metric, clean_tensors, corrupt_tensors)

    def atp(self) -> Float[Tensor, "node prompt"]:
        """Δn · ∂m/∂n."""
        return self.atp_by_column().sum(-1)

    def atp_by_column(self) -> Float[Tensor, "node prompt column"]:
        """The terms of :meth:`atp`, by the column of the token."""
        nodes = nodes_of(self.model)
        gradients = self._gradients([node.place for node in nodes])
        return torch.stack([self._linear(node, gradients) for node in nodes])

    def atp_star(self) -> Float[Tensor, "node prompt"]:
        """Scores with the QK fix and absolute values from GradDrop; signs are without GradDrop."""
        changes = self._pattern_changes()
        whole, layers = self._with_qk_fix(changes, ()), self.model.n_layers
        if layers < MIN_LAYERS:
            return whole
        own_layer = torch.tensor([node.place.layer for node in nodes_of(self.model)])
        total = torch.zeros_like(whole)
        for layer in range(layers):
            without = self._with_qk_fix(changes, self._constant_outputs(layer)).abs()
            total[own_layer != layer] += without[own_layer != layer]
        return whole.sign() * total / (layers - 1)

    def edit(self, node: Node) -> Edit:
        """The edit that patches a node, for the exact effect with :func:`interp.sweep`."""
        value = self.other[node.place]
        patch = value if node.head is None else value.select(HEAD_AXIS, node.head)
        return edits.replace(
            node.place, patch, **({} if node.head is None else {"head": node.head})
        )

    def _linear(self, node: Node, gradients: Cache) -> Float[Tensor, "prompt column"]:
        change = self.other[node.place] - self.own[node.place]
        return _of_head(change * gradient_at(gradients, node.place), node.head)

    def _with_qk_fix(self, changes: dict[Place, Tensor], fixed_outputs: Sequence[Edit]) -> Tensor:
        """Scores with the QK fix, where the outputs of some layers are held constant."""
        nodes, at = nodes_of(self.model), self.model.blocks[0].attn.points
        patterns = [Place(at.pattern, layer) for layer in range(self.model.n_layers)]
        linear = {node.place for node in nodes} - changes.keys()
        gradients = self._gradients([*linear, *patterns], fixed_outputs)
        scores: list[Tensor] = []
        for node in nodes:
            if node.place not in changes:
                scores.append(self._linear(node, gradients).sum(-1))
                continue
            by_pattern = gradient_at(gradients, Place(at.pattern, node.place.layer))
            effect = (changes[node.place] * by_pattern).flatten(2).sum(-1)
            heads = self.own[node.place].shape[HEAD_AXIS]
            scores.append(effect.unflatten(1, (heads, -1)).sum(-1)[:, node.head])
        return torch.stack(scores)

    def _pattern_changes(self) -> dict[Place, Float[Tensor, "prompt head query key"]]:
        """The change of the pattern if all queries, or all keys, of its layer are patched."""
        changes: dict[Place, Tensor] = {}
        for layer, block in enumerate(self.model.blocks):
            at = block.attn.points
            pattern = self._pattern(layer, [])
            for place in (Place(at.q, layer), Place(at.k, layer)):
                patched = self._pattern(layer, [edits.replace(place, self.other[place])])
                changes[place] = patched - pattern
        return changes

    def _pattern(self, layer: int, made: Sequence[Edit]) -> Float[Tensor, "prompt head query key"]:
        place = Place(self.model.blocks[layer].attn.points.pattern, layer)
        done = run(self.model, self.clean, record=[place], edits=made, stop_at_layer=layer + 1)
        return done.cache[place]

    def _constant_outputs(self, layer: int) -> list[Edit]:
        """Edits that hold the outputs of a layer constant."""
        places = [place for place in _writes(self.model) if place.layer == layer]
        return [edits.replace(place, self.own[place]) for place in places]

    def _gradients(self, places: Sequence[Place], fixed_outputs: Sequence[Edit] = ()) -> Cache:
        return run(
            self.model, self.clean, record=places, edits=fixed_outputs, gradients_of=self.metric
        ).cache


def _writes(model: Network) -> list[Place]:
    """The places of all outputs that are added to the stream."""
    return [Place(step.points.writes, layer) for layer, step in model.stacks[0].branches()]


def _of_head(products: Tensor, head: int | None) -> Float[Tensor, "prompt column"]:
    """The sum over one head, or over the whole tensor, at each column."""
    of_head = products if head is None else products.select(HEAD_AXIS, head)
    return of_head.flatten(2).sum(-1)
