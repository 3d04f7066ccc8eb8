"""The circuit in a card is the circuit of the weights: all of it, and no more."""

import pytest
import torch

import interp
from interp.loading import MODEL_FOLDER
from interp.zoo.card import read_card
from training.evaluations.induction import repeated_tokens
from training.recipes.rasp import random_rows

KNOWN = [name for name in interp.bundled() if read_card(MODEL_FOLDER / name).circuit is not None]
by_name = pytest.mark.parametrize("name", KNOWN)


def circuit_of(name):
    return read_card(MODEL_FOLDER / name).circuit


def tokens_of(model):
    if model.config.name == "induction-by-hand":
        return repeated_tokens(range(1, 63), rows=32, half=20, seed=3, bos=0)
    return model.to_tokens(random_rows(64, seed=2))


def writers(model):
    """What each node can write into the stream, by when it does: rows of d_model."""
    weights = {"embed": (-1, model.W_E), "pos_embed": (-1, model.W_pos)}
    for layer, block in enumerate(model.blocks):
        for head in range(block.attn.n_heads):
            weights[f"L{layer}H{head}"] = (2 * layer, block.attn.W_O[head])
        if getattr(block, "mlp", None) is not None:
            weights[f"L{layer}MLP"] = (2 * layer + 1, block.mlp.W_out)
    return weights


def readers(model):
    """What each node reads of the stream, by when it does: columns of d_model."""
    weights = {}
    for layer, block in enumerate(model.blocks):
        for head in range(block.attn.n_heads):
            for port in "qkv":
                weight = getattr(block.attn, f"W_{port.upper()}")[head]
                weights[f"L{layer}H{head}.{port}"] = (2 * layer, weight)
        if getattr(block, "mlp", None) is not None:
            weights[f"L{layer}MLP"] = (2 * layer + 1, block.mlp.W_in)
    return {**weights, "logits": (2 * len(model.blocks), model.W_U)}


def test_every_model_that_was_set_by_hand_has_its_circuit_in_its_card():
    assert ["induction-by-hand", *sorted(f"rasp-{kind}" for kind in RASP)] == KNOWN


RASP = ("fraction", "duplicates", "reverse", "histogram")


@by_name
def test_there_is_an_edge_exactly_where_one_node_reads_what_another_writes(name):
    model = interp.load(name)
    carried = {
        (source, target)
        for source, (written, out) in writers(model).items()
        for target, (read, into) in readers(model).items()
        if written < read and (out @ into).any()
    }
    assert set(circuit_of(name).edges) == carried


@by_name
def test_each_head_of_the_circuit_matters_and_no_other_does(name):
    model, circuit = interp.load(name), circuit_of(name)
    tokens = tokens_of(model)
    baseline, real = model(tokens), tokens >= 0
    for layer, block in enumerate(model.blocks):
        for head in range(block.attn.n_heads):
            without = interp.edits.zero("z", layer=layer, head=head)
            logits = interp.run(model, tokens, edits=[without]).logits
            changed = bool((logits.argmax(-1) != baseline.argmax(-1))[real].any())
            assert changed == (f"L{layer}H{head}" in circuit.heads)
            if not changed:
                assert torch.equal(logits[real], baseline[real])


@by_name
def test_each_mlp_of_the_circuit_matters_and_no_other_does(name):
    model, circuit = interp.load(name), circuit_of(name)
    tokens = tokens_of(model)
    baseline, real = model(tokens), tokens >= 0
    for layer, block in enumerate(model.blocks):
        if getattr(block, "mlp", None) is None:
            continue
        logits = interp.run(model, tokens, edits=[interp.edits.zero("post", layer=layer)]).logits
        changed = bool((logits.argmax(-1) != baseline.argmax(-1))[real].any())
        assert changed == (f"L{layer}MLP" in circuit.mlps)
