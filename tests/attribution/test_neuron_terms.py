"""What neurons write into the logits, and how what they read compares with what they write."""

import pytest
import torch
from architectures import ARCHITECTURES, assert_close, build, covering, tokens_of

import interp
from analyses.methods.attribution.logit_terms import logit_terms
from analyses.neurons.neuron_terms import (
    direct_effects,
    input_output_cosines,
    logits_of_writes,
    mlp_step,
    neuron_terms,
    places_of_neurons,
)
from interp.errors import InvalidInput
from interp.model.mlp import MLP
from interp.points import Point

BOUND = 1e-10
NEURONS = [
    name
    for name, config in ARCHITECTURES.items()
    if config.unembeds
    and config.head is None
    and isinstance(getattr(build(name).stacks[-1].block(0), "mlp", None), MLP)
]


def run_of(name: str):
    """A model, a run of it, a column of each row, and the direction of a logit there."""
    model = build(name)
    done = interp.run(model, *tokens_of(name), record=places_of_neurons(model, 0))
    column = torch.tensor([1, 3])
    return model, done.cache, column, model.unembed.W_U[:, [3, 5]].mT.detach()


@pytest.mark.parametrize("name", covering(NEURONS))
def test_the_terms_of_neurons_sum_to_the_term_of_the_mlp(name):
    """Σ_n post[n] · W_out[n]·w′ = the MLP's term = (MLP(x) − b_out)·w′."""
    model, cache, column, w = run_of(name)
    by_neuron = neuron_terms(model, cache, w, column, 0)
    terms = {p.name: x for p, x in logit_terms(model, cache, w, column).items()}
    prefix = "decoder." if len(model.stacks) > 1 else ""
    assert_close(by_neuron.sum(-1), terms[f"{prefix}L0MLP"], BOUND)
    effects = direct_effects(model, cache, column, 0, torch.tensor([2, 7]), top=3)
    assert effects.sum_error <= BOUND
    assert by_neuron.abs().amax() > 0.01


@pytest.mark.parametrize("name", covering(NEURONS))
def test_the_logits_of_a_write_are_its_terms_for_every_token(name):
    """Each neuron's term of the logit of v = post[n] · (what W_out[n] writes)_v."""
    model, cache, column, _ = run_of(name)
    neuron, rows = torch.tensor([2, 7]), torch.arange(2)
    mlp = mlp_step(model, 0)[1]
    logits = logits_of_writes(model, cache, mlp.W_out[neuron], column, 0)
    stack = model.stacks[-1].name if len(model.stacks) > 1 else None
    post = cache[interp.Place(Point.POST, 0, stack=stack)][rows, column, neuron]
    for token in range(logits.shape[1]):
        w = model.unembed.W_U[:, token].detach().expand(2, -1)
        terms = neuron_terms(model, cache, w, column, 0)[rows, neuron]
        assert_close(post * logits[:, token], terms, BOUND)


def test_the_effects_are_the_largest_less_the_mean_and_the_control_another_vector():
    model, cache, column, _ = run_of("gpt2")
    neuron, rows = torch.tensor([2, 7]), torch.arange(2)
    effects = direct_effects(model, cache, column, 0, neuron, top=13)
    mlp = mlp_step(model, 0)[1]
    logits = logits_of_writes(model, cache, mlp.W_out[neuron], column, 0)
    logits = logits * cache["post", 0][rows, column, neuron, None]
    logits = logits - logits.mean(-1, keepdim=True)
    assert_close(effects.promoted_logits, logits.sort(-1, descending=True).values)
    assert_close(effects.suppressed_logits, logits.sort(-1).values)
    assert_close(logits.gather(-1, effects.promoted), effects.promoted_logits)
    other = direct_effects(model, cache, column, 0, neuron, top=13, seed=1)
    assert (other.control != effects.control).all()
    assert torch.equal(other.promoted, effects.promoted)


@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma2", "bert"])
def test_cosines_are_those_of_the_vectors(name):
    model = build(name)
    step, mlp = mlp_step(model, 1)
    gain = getattr(step.input_norm, "multiplier", None)

    def read(weights: torch.Tensor) -> torch.Tensor:
        w = weights.mT if gain is None else weights.mT * gain
        return w - w.mean(-1, keepdim=True) if name == "gpt2" else w

    vectors = {"in": read(mlp.W_in), "out": mlp.W_out}
    vectors |= {"gate": read(mlp.W_gate)} if name in ("llama", "gemma2") else {}
    cosines = input_output_cosines(model, 1)
    gated = ["in out", "gate out", "gate in"]
    assert list(cosines) == (gated if "gate" in vectors else gated[:1])
    for pair, (cosine, control) in cosines.items():
        a, b = (vectors[part] for part in pair.split())
        every = torch.nn.functional.cosine_similarity(a[:, None], b[None], dim=-1).detach()
        assert_close(cosine, every.diagonal())
        others = every.square().fill_diagonal_(0).sum(-1) / (len(every) - 1)
        assert_close(control, others.sqrt())


def test_a_mixture_of_experts_and_a_layer_without_mlp_are_refused():
    for name in ("mixtral", "seed"):
        with pytest.raises(InvalidInput, match="no MLP with neurons of its own"):
            mlp_step(build(name), 0)
