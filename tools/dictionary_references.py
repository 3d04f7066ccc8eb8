"""Writes small dictionaries by the libraries that publish them, and what these compute.

    pip install sae-lens eai-sparsify dictionary-learning circuit-tracer
    python -m tools.dictionary_references tests/dictionaries/references

Each folder has the files of one dictionary with random weights, and ``reference.safetensors``: an
input ``x``, the activations ``features`` of it, and the output ``written``, in float32.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from circuit_tracer.transcoder.activation_functions import JumpReLU, TopK
from circuit_tracer.transcoder.cross_layer_transcoder import CrossLayerTranscoder, load_clt
from circuit_tracer.transcoder.single_layer_transcoder import (
    SingleLayerTranscoder,
    TranscoderSet,
    load_gemma_scope_2_transcoder,
)
from dictionary_learning import dictionary as classes
from dictionary_learning.trainers.batch_top_k import BatchTopKSAE
from dictionary_learning.trainers.matryoshka_batch_top_k import MatryoshkaBatchTopKSAE
from dictionary_learning.trainers.top_k import AutoEncoderTopK
from dictionary_learning.utils import load_dictionary
from sae_lens import saes
from sae_lens.saes.sae import SAEMetadata
from safetensors.torch import save_file
from sparsify import SparseCoder
from sparsify.config import SparseCoderConfig

D_IN, N_FEATURES, D_OUT, ROWS, N_LAYERS = 6, 16, 5, 7, 3
PLACES = {"hook_name": "blocks.0.hook_resid_post", "model_name": "random"}
SPARSE = {
    "topk": {"k": 3},
    "groupmax": {"k": 4, "activation": "groupmax"},
    "transcoder": {"k": 3, "transcode": True},
    "skip": {"k": 3, "transcode": True, "skip_connection": True},
}


def of_saelens() -> Iterator[tuple[str, Any]]:
    """Dictionaries of SAELens by name."""
    sizes: dict[str, Any] = {"d_in": D_IN, "d_sae": N_FEATURES, "metadata": SAEMetadata(**PLACES)}
    wider = {**sizes, "d_out": D_OUT, "apply_b_dec_to_input": False}
    yield "standard", saes.StandardSAE(saes.StandardSAEConfig(**sizes))
    plain = saes.StandardSAEConfig(**sizes, apply_b_dec_to_input=False)
    yield "standard-without-b_dec", saes.StandardSAE(plain)
    yield "gated", saes.GatedSAE(saes.GatedSAEConfig(**sizes))
    yield "jumprelu", saes.JumpReLUSAE(saes.JumpReLUSAEConfig(**sizes))
    yield "topk", saes.TopKSAE(saes.TopKSAEConfig(**sizes, k=3))
    scaled = saes.TopKSAEConfig(**sizes, k=3, rescale_acts_by_decoder_norm=True)
    yield "topk-rescaled", saes.TopKSAE(scaled)
    yield "transcoder", saes.Transcoder(saes.TranscoderConfig(**wider))
    yield "skip_transcoder", saes.SkipTranscoder(saes.SkipTranscoderConfig(**wider))
    yield (
        "jumprelu_transcoder",
        saes.JumpReLUTranscoder(saes.JumpReLUTranscoderConfig(**wider)),
    )


def of_dictionary_learning() -> Iterator[Any]:
    """Dictionaries of dictionary_learning."""
    yield classes.AutoEncoder(D_IN, N_FEATURES)
    yield classes.AutoEncoderNew(D_IN, N_FEATURES)
    yield classes.GatedAutoEncoder(D_IN, N_FEATURES)
    yield classes.JumpReluAutoEncoder(D_IN, N_FEATURES)
    yield AutoEncoderTopK(D_IN, N_FEATURES, 3)
    yield BatchTopKSAE(D_IN, N_FEATURES, 3)
    yield MatryoshkaBatchTopKSAE(D_IN, N_FEATURES, 3, [4, 12])


def write_dictionary_learning(folder: Path, coder: Any) -> None:  # noqa: ANN401 - of any class
    """Write one of them, and what it computes after it is read again."""
    _draw(coder)
    if hasattr(coder, "k"):
        coder.threshold.fill_(0.7)
    name = type(coder).__name__
    trainer = {"dict_class": name, "activation_dim": D_IN, "dict_size": N_FEATURES, "layer": 2}
    trainer |= {"submodule_name": "resid_post_layer_2", "lm_name": "random"}
    trainer |= {"k": 3} if hasattr(coder, "k") else {}
    into = folder / f"dictionary_learning-{name}"
    into.mkdir(parents=True)
    torch.save(coder.state_dict(), into / "ae.pt")
    settings = {"trainer": trainer, "buffer": {"io": "out", "ctx_len": 128}}
    (into / "config.json").write_text(json.dumps(settings))
    read, _ = load_dictionary(str(into), device="cpu")
    x = torch.randn(ROWS, D_IN)
    _save(into, x, read.encode(x), read(x))


def write_gemma_scope_2(folder: Path, *, has_skip: bool) -> None:
    """Write a transcoder of Gemma Scope 2, and what circuit-tracer computes with it."""
    into = folder / f"gemma_scope_2-{'skip_' * has_skip}transcoder"
    into.mkdir(parents=True)
    shapes = {"w_enc": (D_IN, N_FEATURES), "w_dec": (N_FEATURES, D_IN), "b_enc": (N_FEATURES,)}
    shapes |= {"b_dec": (D_IN,), "threshold": (N_FEATURES,)}
    shapes |= {"affine_skip_connection": (D_IN, D_IN)} if has_skip else {}
    tensors = {name: 0.6 * torch.randn(shape) for name, shape in shapes.items()}
    save_file(tensors | {"threshold": tensors["threshold"].abs()}, into / "params.safetensors")
    settings = {
        "architecture": "jump_relu",
        "model_name": "random",
        "hf_hook_point_in": "model.layers.1.pre_feedforward_layernorm.output",
        "hf_hook_point_out": "model.layers.1.post_feedforward_layernorm.output",
        "affine_connection": has_skip,
    }
    (into / "config.json").write_text(json.dumps(settings))
    read = load_gemma_scope_2_transcoder(
        str(into / "params.safetensors"), 1, device=torch.device("cpu")
    )
    x = torch.randn(ROWS, D_IN)
    _save(into, x, read.encode(x), read(x))


def write_set(folder: Path, kind: str, activations: list[Any], *, has_skip: bool = False) -> None:
    """Write a set of transcoders of circuit-tracer, and what it computes.

    The reference has an axis of layers at the front.
    """
    into = folder / f"circuit_tracer-{kind}"
    coders = {
        layer: SingleLayerTranscoder(
            D_IN, N_FEATURES, activation, layer, has_skip, dtype=torch.float32
        )
        for layer, activation in enumerate(activations)
    }
    for coder in coders.values():
        _draw(coder)
        # So that some of the k largest are negative, which circuit-tracer keeps.
        coder.b_enc.data -= 1.5 if kind == "topk" else 0
    hooks = {"feature_input_hook": "mlp.hook_in", "feature_output_hook": "mlp.hook_out"}
    transcoders = TranscoderSet(coders, **hooks)
    transcoders.to_safetensors(str(into))
    lines = {"model_kind": "transcoder_set", "model_name": "random", **hooks, "scan": "random"}
    lines |= {"activation": "topk", "k": 3} if kind == "topk" else {}
    (into / "config.yaml").write_text("".join(f"{key}: {value}\n" for key, value in lines.items()))
    x = torch.randn(len(coders), ROWS, D_IN)
    features = transcoders.encode(x)
    _save(into, x, features, transcoders.decode(features, x))


def write_cross_layer(folder: Path, kind: str) -> None:
    """Write a cross-layer transcoder, and what circuit-tracer computes after it is read again."""
    torch.manual_seed(1)  # the same, whatever is written before
    into = folder / f"circuit_tracer-cross-layer-{kind}"
    coder = CrossLayerTranscoder(
        N_LAYERS,
        N_FEATURES,
        D_IN,
        "jump_relu" if kind == "jumprelu" else "relu",
        lazy_decoder=False,
        device=torch.device("cpu"),
        dtype=torch.float32,
    )
    _draw(coder)
    coder.to_safetensors(str(into))
    hooks = {"feature_input_hook": "hook_resid_mid", "feature_output_hook": "hook_mlp_out"}
    lines = {"model_kind": "cross_layer_transcoder", "model_name": "random", **hooks}
    (into / "config.yaml").write_text("".join(f"{key}: {value}\n" for key, value in lines.items()))
    read = load_clt(str(into), device=torch.device("cpu"), dtype=torch.float32)
    x = torch.randn(N_LAYERS, ROWS, D_IN)
    with torch.no_grad():
        _save(into, x, read.encode(x), read(x))


def main(folder: str) -> None:
    """Write all of them."""
    torch.manual_seed(0)
    for name, dictionary in of_saelens():
        _draw(dictionary)
        into = Path(folder) / f"saelens-{name}"
        dictionary.save_model(into)
        x = torch.randn(ROWS, D_IN)
        _save(into, x, dictionary.encode(x), dictionary(x))
    for name, settings in SPARSE.items():
        config = SparseCoderConfig(num_latents=N_FEATURES, **settings)  # pyright: ignore
        coder = SparseCoder(D_IN, config)
        _draw(coder)
        into = Path(folder) / f"sparsify-{name}" / "layers.0.mlp"
        coder.save_to_disk(into)
        x = torch.randn(ROWS, D_IN)
        top = coder.encode(x)
        features = torch.zeros(ROWS, N_FEATURES).scatter(-1, top.top_indices, top.top_acts)
        _save(into, x, features, coder(x).sae_out)
    for coder in of_dictionary_learning():
        write_dictionary_learning(Path(folder), coder)
    for has_skip in (False, True):
        write_gemma_scope_2(Path(folder), has_skip=has_skip)
    thresholds = [JumpReLU(torch.zeros(N_FEATURES)) for _ in range(2)]
    write_set(Path(folder), "jumprelu", thresholds)
    write_set(Path(folder), "relu", [torch.relu] * 2, has_skip=True)
    write_set(Path(folder), "topk", [TopK(3)] * 2)
    for kind in ("relu", "jumprelu"):
        write_cross_layer(Path(folder), kind)


def _draw(part: torch.nn.Module) -> None:
    """Random weights; thresholds are positive."""
    with torch.no_grad():
        for name, weight in part.named_parameters():
            weight.copy_(0.6 * torch.randn(weight.shape))
            if name.endswith("threshold"):
                weight.abs_()


def _save(into: Path, x: torch.Tensor, features: torch.Tensor, written: torch.Tensor) -> None:
    tensors = {"x": x, "features": features.detach(), "written": written.detach()}
    save_file(tensors, into / "reference.safetensors")


if __name__ == "__main__":
    main(sys.argv[1])
