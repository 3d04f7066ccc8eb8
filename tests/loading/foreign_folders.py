"""Small random models of transformers, as models and as folders that can be changed."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

D_VOCAB, N_CTX = 30, 16
CONFIG, WEIGHTS = "config.json", "model.safetensors"


def gpt2(**rest: Any) -> nn.Module:
    """Two layers; tied unless said otherwise."""
    sizes = {"vocab_size": D_VOCAB, "n_positions": N_CTX, "n_embd": 8, "n_layer": 2, "n_head": 2}
    specials = {"bos_token_id": 0, "eos_token_id": 1, "attn_implementation": "eager"}
    return drawn(GPT2LMHeadModel(GPT2Config(**{**sizes, **specials, **rest})))


def llama(**rest: Any) -> nn.Module:
    """Two layers, grouped heads; untied unless said otherwise."""
    sizes = {"vocab_size": D_VOCAB, "max_position_embeddings": N_CTX, "hidden_size": 8}
    shape = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    specials = {"bos_token_id": 0, "eos_token_id": 1, "attn_implementation": "eager"}
    fields = {**sizes, **shape, "intermediate_size": 12, **specials, **rest}
    return drawn(LlamaForCausalLM(LlamaConfig(**fields)))


MODELS: dict[str, Callable[..., nn.Module]] = {"gpt2": gpt2, "llama": llama}
EMBEDDING = {"gpt2": "transformer.wte.weight", "llama": "model.embed_tokens.weight"}
PREFIX = {"gpt2": "transformer.", "llama": "model."}


def drawn(model: nn.Module, seed: int = 0) -> nn.Module:
    """Every weight, gain and bias random and well away from zeros and ones."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator) * 0.5)
    return model.eval()


def some_tokens(rows: int = 2, pos: int = 7) -> Tensor:
    """Token ids that both models know."""
    return torch.randint(D_VOCAB, (rows, pos), generator=torch.Generator().manual_seed(1))


@dataclass(frozen=True)
class Folder:
    """A folder with a model, which tests change.

    Attributes:
        path: where it is.
    """

    path: Path

    @property
    def fields(self) -> dict[str, Any]:
        """What its ``config.json`` says."""
        return json.loads((self.path / CONFIG).read_text())

    @property
    def weights(self) -> dict[str, Tensor]:
        """Its weights, in memory of their own."""
        return {key: weight.clone() for key, weight in load_file(self.path / WEIGHTS).items()}

    def says(self, **fields: Any) -> None:
        """Change some fields."""
        (self.path / CONFIG).write_text(json.dumps(self.fields | fields))

    def lacks(self, *names: str) -> None:
        """Take some fields out."""
        left = {name: value for name, value in self.fields.items() if name not in names}
        (self.path / CONFIG).write_text(json.dumps(left))

    def holds(self, weights: Mapping[str, Tensor]) -> None:
        """Other weights in place of its own."""
        kept = {key: weight.contiguous() for key, weight in weights.items()}
        save_file(kept, self.path / WEIGHTS, {"format": "pt"})

    def split(self, **parts: list[str]) -> None:
        """The weights in several files with an index, by the files' names less their suffix."""
        weights = self.weights
        for name, keys in parts.items():
            save_file({key: weights[key] for key in keys}, self.path / f"{name}.safetensors")
        self.promises({k: f"{name}.safetensors" for name, keys in parts.items() for k in keys})

    def promises(self, where: object) -> None:
        """Nothing but an index that says which file each weight is in."""
        (self.path / WEIGHTS).unlink(missing_ok=True)
        (self.path / f"{WEIGHTS}.index.json").write_text(json.dumps({"weight_map": where}))
