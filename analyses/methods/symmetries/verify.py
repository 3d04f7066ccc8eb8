"""Identities that every model must satisfy, each with its numerical error.

They are checked in float64 on random tokens. Errors are relative to the largest expected value (or
absolute if it is below 1); a bound of 0 requires bit-identical results.
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from interp import edits
from interp.execution import Run, Start, generate, run
from interp.metrics import logit
from interp.model import (
    PAD,
    Attention,
    Bidirectional,
    Context,
    Experts,
    Masking,
    Network,
    NoPositions,
    Patches,
    Stack,
    as_network,
)
from interp.points import Place, Point
from interp.sweeps import sweep

EXACT = 0.0
TIGHT = 1e-12


@dataclass(frozen=True)
class Identity:
    """One identity, and its error for a model.

    Attributes:
        name: the identity in words or as an equation.
        error: the largest relative difference.
        bound: the largest allowed error.
    """

    name: str
    error: float
    bound: float

    @property
    def holds(self) -> bool:
        """Whether the error is within the bound (NaN is not)."""
        return self.error <= self.bound


def verify(model: Network, seed: int = 0) -> list[Identity]:
    """Check the identities on ``model``.

    Args:
        model: any model; it is copied to float64 and not changed.
        seed: seed of the random tokens.

    Returns:
        Every identity that applies to a model of this kind, with its error.

    Examples:
        >>> identities = analyses.verify(interp.load("rasp-histogram"))
        >>> all(identity.holds for identity in identities)
        True
    """
    exact = copy.deepcopy(as_network(model)).double().eval()
    tokens = random_inputs(exact, seed)
    recorded = run(exact, *tokens, record="all")
    checks: list[Callable[[], Iterator[Identity]]] = [
        lambda: _inert(exact, tokens, recorded),
        lambda: _residual(exact, recorded),
        lambda: _heads(exact, recorded),
        lambda: _permutation(exact, recorded),
        lambda: _derived(exact, tokens, recorded),
        lambda: _restart(exact, tokens, recorded),
        lambda: _sweep(exact, tokens),
        lambda: _padding(exact, tokens, recorded),
        lambda: _causality(exact, tokens, recorded),
        lambda: _generation(exact, tokens),
    ]
    with torch.no_grad():
        return [identity for check in checks for identity in check()]


def difference(actual: Tensor, expected: Tensor) -> float:
    """Largest absolute difference over max(1, largest expected); NaN if an element is not finite.

    Minus infinity, which marks masked scores, must be in the same entries of both.
    """
    masked = actual == -torch.inf
    if not torch.equal(masked, expected == -torch.inf):
        return float("nan")
    actual, expected = actual.masked_fill(masked, 0.0), expected.masked_fill(masked, 0.0)
    if actual.numel() == 0:
        return 0.0
    return ((actual - expected).abs().max() / expected.abs().max().clamp(min=1.0)).item()


def random_inputs(model: Network, seed: int, rows: int = 3) -> list[Tensor]:
    """Random tokens for each stack of a model, or random images in float64."""
    generator = torch.Generator().manual_seed(seed)
    first = model.stacks[0].tokens
    if isinstance(first, Patches):
        images = torch.randn(rows, *first.image_shape, generator=generator, dtype=torch.float64)
        return [images.to(model.device)]
    width = min(24, model.config.n_ctx)
    sizes = [model.config.vocabulary_of(stack.name) for stack in model.stacks]
    return [
        torch.randint(size, (rows, width), generator=generator).to(model.device) for size in sizes
    ]


def _output(done: Run) -> Tensor:
    """The logits, or the output of a model without logits."""
    output = done.stream if done.logits is None else done.logits
    return torch.empty(0) if output is None else output


def _layers(model: Network) -> Iterator[tuple[Stack, str | None, int]]:
    for stack in model.stacks:
        for layer in range(len(stack.blocks)):
            yield stack, stack.name_in_places, layer


def _inert(model: Network, tokens: list[Tensor], recorded: Run) -> Iterator[Identity]:
    plain = model(*tokens)
    yield Identity("recording changes nothing", difference(_output(recorded), plain), EXACT)
    fused = [place for place, recipe in model.layout.items() if not recipe.absent_when_fused]
    noops = [edits.scale(place, 1.0) for place in fused]
    edited = _output(run(model, *tokens, edits=noops))
    yield Identity("edits that change nothing change nothing", difference(edited, plain), EXACT)


def _residual(model: Network, recorded: Run) -> Iterator[Identity]:
    """Each step adds its output to the stream, and, without norms in the stream, so do stacks."""
    worst = worst_sum = 0.0
    adding = [s for s in model.stacks if all(step.preserves_stream for step in s.block(0).steps)]
    for stack in model.stacks:

        def at(place: Place, layer: int, name: str | None = stack.name_in_places) -> Tensor:
            return recorded.cache[replace(place, layer=layer, stack=name)]

        total = at(Place(Point.RESID_PRE), 0)
        for layer in range(len(stack.blocks)):
            block, before = stack.block(layer), Place(Point.RESID_PRE)
            for step in block.steps:
                base = at(step.base(before), layer)
                written = sum((at(Place(out), layer) for out in step.written), start=0.0 * base)
                worst = max(worst, difference(base + written, at(Place(step.points.sum), layer)))
                total, before = total + written, step.end()
        if stack in adding:
            last = at(Place(Point.RESID_POST), len(stack.blocks) - 1)
            worst_sum = max(worst_sum, difference(total, last))
    yield Identity("stream + what a step writes = the next stream", worst, TIGHT)
    if adding:
        yield Identity("embedding + everything written = the final stream", worst_sum, TIGHT)


def _heads(model: Network, recorded: Run) -> Iterator[Identity]:
    """H(x) = Σ_h A_h x S_h + the contribution of the biases, if no values are clipped."""
    worst, layers = 0.0, list(_layers(model))
    if any(stack.block(layer).attn.has_clip for stack, _, layer in layers):
        return
    for stack, name, layer in layers:
        attn = stack.block(layer).attn
        x = _attention_input(stack, name, layer, recorded)
        pattern = recorded.cache[Place(Point.PATTERN, layer, None, name)]
        written = sum((pattern[:, h] @ x @ attn.S(h)).form() for h in range(attn.n_heads))
        out = recorded.cache[Place(attn.points.out, layer, None, name)]
        worst = max(worst, difference(written + attn.bias_output(pattern), out))
    yield Identity("H(x) = Σ A·x·S, head by head", worst, TIGHT)


def _attention_input(stack: Stack, name: str | None, layer: int, recorded: Run) -> Tensor:
    block = stack.block(layer)
    return recorded.cache[replace(block.steps[0].source(), layer=layer, stack=name)]


def _permutation(model: Network, recorded: Run) -> Iterator[Identity]:
    """Attention without mask and positions commutes with permutations."""
    worst = 0.0
    for stack, name, layer in _layers(model):
        x = _attention_input(stack, name, layer, recorded)
        bare = stripped(stack.block(layer).attn)
        order = torch.randperm(x.shape[1], generator=torch.Generator().manual_seed(layer))
        moved = bare(x[:, order], Context.plain(x))
        worst = max(worst, difference(moved, bare(x, Context.plain(x))[:, order]))
    yield Identity("h(Px) = P h(x) without mask and positions", worst, TIGHT)


def stripped(attn: Attention) -> Attention:
    """An attention with the same weights, every key visible, and no positions."""
    bare = copy.copy(attn)
    bare.masking, bare.positions = Masking(Bidirectional(), NoPositions()), NoPositions()
    return bare


def _derived(model: Network, tokens: list[Tensor], recorded: Run) -> Iterator[Identity]:
    """Tensors derived by the cache = tensors formed by a forward with explicit attention."""
    formed: dict[Place, Tensor] = {}

    def keep(place: Place) -> edits.Edit:
        return edits.apply(place, lambda tensor, _: formed.update({place: tensor.clone()}))

    run(model, *tokens, edits=[keep(place) for place in model.names], kernel="explicit")
    worst = max(difference(recorded.cache[place], tensor) for place, tensor in formed.items())
    yield Identity("derived activations = formed activations", worst, TIGHT)


def _restart(model: Network, tokens: list[Tensor], recorded: Run) -> Iterator[Identity]:
    worst = 0.0
    last = model.stacks[-1]
    for layer in range(len(last.blocks)):
        place = Place(Point.RESID_PRE, layer, None, last.name_in_places)
        start = Start(layer, recorded.cache[place])
        again = _output(run(model, *tokens, start=start))
        worst = max(worst, difference(again, _output(recorded)))
    yield Identity("starting at a layer = running from the tokens", worst, TIGHT)


def _sweep(model: Network, tokens: list[Tensor]) -> Iterator[Identity]:
    """A sweep = one whole forward per edit: heads, the stream at a position, neurons."""
    if not model.config.unembeds:
        return
    points = (Point.Z, Point.RESID_MID, Point.RESID_PRE, Point.POST)
    places = [place for place in model.layout if place.point in points]
    made = [edits.scale(place, -0.5) for place in places]
    made += [edits.scale(place, -0.5, pos=1) for place in places]
    table = sweep(model, tokens[0] if len(tokens) == 1 else tuple(tokens), made, logit(0))
    # Copies, since a view would keep all logits of its run.
    whole = [_output(run(model, *tokens, edits=[edit]))[:, -1, 0].clone() for edit in made]
    brute = torch.stack(whole)
    error = difference(table.values.to(brute.device), brute)
    yield Identity("a sweep = one whole forward per edit", error, TIGHT)


def _padding(model: Network, tokens: list[Tensor], recorded: Run) -> Iterator[Identity]:
    """Rows of a padded batch = the same rows alone."""
    if tokens[0].is_floating_point():
        return  # images have no padding
    short = min(5, tokens[0].shape[1])
    for side in ("left", "right"):
        columns = slice(-short, None) if side == "left" else slice(0, short)
        padded = [t.clone() for t in tokens]
        for padded_ids, whole in zip(padded, tokens, strict=True):
            padded_ids[1] = PAD
            padded_ids[1, columns] = whole[1, :short]
        actual = model(*padded)
        alone = model(*(t[1:2, :short] for t in tokens))[0]
        error = difference(actual[1, columns], alone)
        error = max(error, difference(actual[0], _output(recorded)[0]))
        yield Identity(f"padding on the {side} changes nothing", error, TIGHT)


def _causality(model: Network, tokens: list[Tensor], recorded: Run) -> Iterator[Identity]:
    """Changing later tokens does not change earlier logits, bit-identically.

    With experts, the number of tokens per expert changes, and with it the order of summation.
    """
    if not model.config.is_causal:
        return
    half = tokens[-1].shape[1] // 2
    changed = tokens[-1].clone()
    changed[:, half:] = (changed[:, half:] + 1) % model.config.d_vocab
    actual = model(*tokens[:-1], changed)[:, :half]
    error = difference(actual, _output(recorded)[:, :half])
    routed = any(isinstance(part, Experts) for part in model.modules())
    bound = TIGHT if routed else EXACT
    yield Identity("later tokens do not reach earlier logits", error, bound)


def _generation(model: Network, tokens: list[Tensor], new: int = 4) -> Iterator[Identity]:
    """Greedy text with a KV cache = greedy text without."""
    if not model.config.is_causal or not model.config.unembeds or model.config.n_ctx == 1:
        return
    *sources, target = tokens
    new = min(new, model.config.n_ctx - 1)
    begun = target[:, : model.config.n_ctx - new][:, :8]
    written = generate(model, *sources, begun, max_new_tokens=new)
    slow = begun
    for _ in range(written.shape[1] - begun.shape[1]):
        slow = torch.cat([slow, model(*sources, slow)[:, -1:].argmax(-1)], dim=1)
    same = (written == PAD) | (written == slow)
    wrong = float((~same).sum())
    yield Identity("generating with a KV cache = without (tokens that differ)", wrong, EXACT)
