"""What circuit-tracer computes with random transcoders; written for TransformerLens."""

from collections.abc import Iterator

import torch
from circuit_tracer import attribute
from circuit_tracer.replacement_model.replacement_model_transformerlens import (
    TransformerLensReplacementModel,
)
from circuit_tracer.transcoder.single_layer_transcoder import SingleLayerTranscoder, TranscoderSet
from torch.nn import functional as F  # noqa: N812 - as everyone writes it
from transformer_lens import HookedTransformerConfig

from tools.clients.models import draw_weights, fields, word_tokenizer

N_FEATURES = 20
TOKENS = torch.tensor([1, 5, 9, 13, 7, 22, 31])
PLACES = {
    "hook_resid_mid, hook_mlp_out": ("hook_resid_mid", "hook_mlp_out"),
    "mlp.hook_in, mlp.hook_out": ("mlp.hook_in", "mlp.hook_out"),
    "ln2.hook_normalized, hook_mlp_out": ("ln2.hook_normalized", "hook_mlp_out"),
}
"""The input and the output of transcoders."""


def results() -> Iterator[tuple[str, torch.Tensor]]:
    """Named values, in the order in which they are computed."""
    for shape in ("gpt2", "llama", "gemma-2"):
        for title, places in PLACES.items():
            for skip in (False, True):
                model = _model(shape, places, skip=skip)
                for name, value in _values(model):
                    yield f"{shape}, {title}{', skip' * skip}: {name}", value


def _model(shape: str, places: tuple[str, str], *, skip: bool) -> TransformerLensReplacementModel:
    cfg = HookedTransformerConfig(**fields(shape))
    transcoders = {
        layer: SingleLayerTranscoder(
            cfg.d_model,
            N_FEATURES,
            F.relu,
            layer,
            skip_connection=skip,
            device=torch.device("cpu"),
            dtype=torch.float32,
        )
        for layer in range(cfg.n_layers)
    }
    every = TranscoderSet(transcoders, *places)
    draw_weights(every, 2)
    model = TransformerLensReplacementModel.from_config(cfg, every, tokenizer=word_tokenizer())
    draw_weights(model, 1)
    return model


def _values(model: TransformerLensReplacementModel) -> Iterator[tuple[str, torch.Tensor]]:
    logits, activations = model.get_activations(TOKENS)
    yield "logits", logits
    yield "activations of features", activations
    graph = attribute(TOKENS, model, max_n_logits=4, batch_size=16)
    for name in ("adjacency_matrix", "active_features", "selected_features", "activation_values"):
        yield f"graph.{name}", getattr(graph, name)
    yield "graph.logit_probabilities", graph.logit_probabilities
    layer, position, feature = (int(index) for index in graph.active_features[0])
    for constrained in (None, range(model.cfg.n_layers)):
        changed, features = model.feature_intervention(
            TOKENS, [(layer, position, feature, 3.0)], constrained_layers=constrained
        )
        yield f"feature_intervention, constrained_layers={constrained}", changed
        if features is not None:
            yield f"its features, constrained_layers={constrained}", features
