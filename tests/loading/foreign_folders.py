"""Small random models of ``transformers``, and folders with such models that tests change."""

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
    """A GPT-2 with two layers, tied by default."""
    sizes = {"vocab_size": D_VOCAB, "n_positions": N_CTX, "n_embd": 8, "n_layer": 2, "n_head": 2}
    specials = {"bos_token_id": 0, "eos_token_id": 1, "attn_implementation": "eager"}
    return randomised(GPT2LMHeadModel(GPT2Config(**{**sizes, **specials, **rest})))


def llama(**rest: Any) -> nn.Module:
    """A Llama with two layers and grouped heads, untied by default."""
    sizes = {"vocab_size": D_VOCAB, "max_position_embeddings": N_CTX, "hidden_size": 8}
    shape = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    specials = {"bos_token_id": 0, "eos_token_id": 1, "attn_implementation": "eager"}
    fields = {**sizes, **shape, "intermediate_size": 12, **specials, **rest}
    return randomised(LlamaForCausalLM(LlamaConfig(**fields)))


MODELS: dict[str, Callable[..., Any]] = {"gpt2": gpt2, "llama": llama}
EMBEDDING = {"gpt2": "transformer.wte.weight", "llama": "model.embed_tokens.weight"}
PREFIX = {"gpt2": "transformer.", "llama": "model."}


def randomised(model: nn.Module, seed: int = 0) -> nn.Module:
    """The model with all parameters randomised from N(0, ¼), gains and biases included."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator) * 0.5)
    return model.eval()


def random_tokens(rows: int = 2, pos: int = 7) -> Tensor:
    """Token ids in the vocabulary of both models."""
    return torch.randint(D_VOCAB, (rows, pos), generator=torch.Generator().manual_seed(1))


@dataclass(frozen=True)
class Folder:
    """A model's folder, with methods to change it.

    Attributes:
        path: of the folder.
    """

    path: Path

    @property
    def fields(self) -> dict[str, Any]:
        """The content of ``config.json``."""
        return json.loads((self.path / CONFIG).read_text())

    @property
    def weights(self) -> dict[str, Tensor]:
        """A copy of its weights."""
        return {key: weight.clone() for key, weight in load_file(self.path / WEIGHTS).items()}

    def set_fields(self, **fields: Any) -> None:
        """Change fields of ``config.json``."""
        (self.path / CONFIG).write_text(json.dumps(self.fields | fields))

    def remove_fields(self, *names: str) -> None:
        """Remove fields from ``config.json``."""
        left = {name: value for name, value in self.fields.items() if name not in names}
        (self.path / CONFIG).write_text(json.dumps(left))

    def set_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Replace the weights."""
        contiguous = {key: weight.contiguous() for key, weight in weights.items()}
        save_file(contiguous, self.path / WEIGHTS, {"format": "pt"})

    def split(self, **parts: list[str]) -> None:
        """Store the weights as shards with an index; ``parts`` maps the shards' stems to keys."""
        weights = self.weights
        for name, keys in parts.items():
            save_file({key: weights[key] for key in keys}, self.path / f"{name}.safetensors")
        self.write_index({k: f"{name}.safetensors" for name, keys in parts.items() for k in keys})

    def write_index(self, where: object) -> None:
        """Replace the weights by an index, a map of keys to file names."""
        (self.path / WEIGHTS).unlink(missing_ok=True)
        (self.path / f"{WEIGHTS}.index.json").write_text(json.dumps({"weight_map": where}))
