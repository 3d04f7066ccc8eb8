"""Writes small dictionaries by the libraries that publish them, and what these compute.

    pip install sae-lens eai-sparsify
    python -m tools.dictionary_references tests/dictionaries/references

Each folder has the files of one dictionary with random weights, and ``reference.safetensors``: an
input ``x``, the activations ``features`` of it, and the output ``written``, in float32.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from sae_lens import saes
from sae_lens.saes.sae import SAEMetadata
from safetensors.torch import save_file
from sparsify import SparseCoder
from sparsify.config import SparseCoderConfig

D_IN, N_FEATURES, D_OUT, ROWS = 6, 16, 5, 7
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


def _draw(part: torch.nn.Module) -> None:
    """Random weights; thresholds are positive."""
    with torch.no_grad():
        for name, weight in part.named_parameters():
            weight.copy_(0.6 * torch.randn(weight.shape))
            if name == "threshold":
                weight.abs_()


def _save(into: Path, x: torch.Tensor, features: torch.Tensor, written: torch.Tensor) -> None:
    tensors = {"x": x, "features": features.detach(), "written": written.detach()}
    save_file(tensors, into / "reference.safetensors")


if __name__ == "__main__":
    main(sys.argv[1])
