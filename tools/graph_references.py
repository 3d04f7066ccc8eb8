"""Writes a small model with transcoders, and the attribution graph of circuit-tracer for it.

    pip install circuit-tracer transformer-lens
    python -m tools.graph_references tests/dictionaries/references/circuit_tracer-graph
    python -m tools.graph_references --cross-layer tests/dictionaries/references/circuit_tracer-…

The folder has the transcoders as a set of circuit-tracer (or one that is cross-layer),
``model.safetensors`` with the weights by the names of TransformerLens, and ``graph.safetensors``:
``A`` [target, source]; ``features``, the layer, position and feature of its first nodes, after
which come the errors of each layer and position, the tokens and the logits; the ids and
probabilities of the logits; influence; two scores.
"""

import sys
from pathlib import Path

import torch
from circuit_tracer import attribute
from circuit_tracer.graph import compute_graph_scores, compute_node_influence
from circuit_tracer.replacement_model.replacement_model_transformerlens import (
    TransformerLensReplacementModel,
)
from circuit_tracer.transcoder.cross_layer_transcoder import CrossLayerTranscoder
from circuit_tracer.transcoder.single_layer_transcoder import SingleLayerTranscoder, TranscoderSet
from safetensors.torch import save_file
from torch.nn import functional as F  # noqa: N812 - as everyone writes it
from transformer_lens import HookedTransformerConfig

from tools.clients.models import draw_weights, fields, word_tokenizer

SHAPE, N_FEATURES = "llama", 20
TOKENS = torch.tensor([1, 5, 9, 13, 7, 22, 31])
HOOKS = {"feature_input_hook": "mlp.hook_in", "feature_output_hook": "mlp.hook_out"}
CPU = torch.device("cpu")


def _set(cfg: HookedTransformerConfig) -> TranscoderSet:
    coders = {
        layer: SingleLayerTranscoder(
            cfg.d_model, N_FEATURES, F.relu, layer, device=CPU, dtype=torch.float32
        )
        for layer in range(cfg.n_layers)
    }
    return TranscoderSet(coders, **HOOKS)


def _cross_layer(cfg: HookedTransformerConfig) -> CrossLayerTranscoder:
    return CrossLayerTranscoder(
        cfg.n_layers,
        N_FEATURES,
        cfg.d_model,
        lazy_decoder=False,
        device=CPU,
        dtype=torch.float32,
        **HOOKS,
    )


def main(folder: Path, *, is_cross_layer: bool) -> None:
    """Write all of it."""
    cfg = HookedTransformerConfig(**fields(SHAPE))
    transcoders = _cross_layer(cfg) if is_cross_layer else _set(cfg)
    draw_weights(transcoders, 2)
    folder.mkdir(parents=True)
    transcoders.to_safetensors(str(folder))
    kind = "cross_layer_transcoder" if is_cross_layer else "transcoder_set"
    lines = {"model_kind": kind, "model_name": "random", **HOOKS, "scan": "random"}
    settings = "".join(f"{key}: {value}\n" for key, value in lines.items())
    (folder / "config.yaml").write_text(settings)
    model = TransformerLensReplacementModel.from_config(
        cfg, transcoders, tokenizer=word_tokenizer()
    )
    draw_weights(model, 1)
    draw_weights(transcoders, 2)  # they are parts of the model
    for name, weight in model.named_parameters():
        if name.endswith("mlp.b_in"):  # a gated MLP of this package has none
            weight.data.zero_()
    weights = {
        name.replace("old_mlp.", "").replace("old_unembed.", ""): value.contiguous()
        for name, value in model.state_dict().items()
        if "transcoder" not in name and "mask" not in name and "rotary" not in name
    }
    save_file(weights, folder / "model.safetensors")
    graph = attribute(TOKENS, model, max_n_logits=4, batch_size=16)
    start = torch.zeros(len(graph.adjacency_matrix))
    start[-len(graph.logit_targets) :] = graph.logit_probabilities
    tensors = {
        "A": graph.adjacency_matrix,
        "features": graph.active_features[graph.selected_features],
        "logits": torch.tensor([target.vocab_idx for target in graph.logit_targets]),
        "probabilities": graph.logit_probabilities,
        "influence": compute_node_influence(graph.adjacency_matrix, start),
        "scores": torch.tensor(compute_graph_scores(graph)),
        "tokens": TOKENS,
    }
    contiguous = {name: value.detach().contiguous() for name, value in tensors.items()}
    save_file(contiguous, folder / "graph.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[-1]), is_cross_layer="--cross-layer" in sys.argv)
