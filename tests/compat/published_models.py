"""Thin random models in a cache of the hub, under the names and with the files of published ones.

Each has the architecture, the settings and the tokenizer class that the published repository has,
and few and narrow layers. Both libraries read them by name.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

COMMIT = "0123456789abcdef" * 2 + "01234567"
CORPUS = (
    "The quick brown fox jumps over the lazy dog. When Mary and John went to the store, John gave "
    "a drink to Mary. 12345 + 67890 = 80235; def f(x):\n    return x ** 2\n Café, naïve, Zürich. "
)
TEXTS = (
    *("The quick brown fox", " jumps over the lazy dog.", "a", " a", "Mary and John", "\n", ""),
    *("  two spaces", "trailing space ", "tab\there", "line\nbreak\n\n", "Café naïve Zürich"),
    *("12345 + 67890 = 80235", "def f(x):\n    return x ** 2", "UPPER lower MiXeD", "日本語", "🙂"),
    *("'quoted' \"double\"", "don't can't won't", "e.g. i.e. etc.", "a-b_c/d\\e", "<b>bold</b>"),
    *("https://example.org/?q=1&r=2", "$5.00 (50%)", "one\r\ntwo", "\u00a0nbsp", "é é"),
    *("the " * 20, "store, " * 9, "x" * 40, " " * 7, "...", "!?", "#hash @at", "{}[]()", "\\n"),
    *("John gave a drink to", " Mary", "When", " when", "0", "007", "3.14159", "1,000,000"),
    *("Ünïcödé", "ß", "Ω≈ç√", "naïve\u0301", "A\u030angstrom", "end."),
)
"""Fifty texts."""
LOREM = "The quick brown fox jumps over the lazy dog. " * 80
"""A text that is longer than any thin model's context where that is capped."""


@dataclass(frozen=True)
class Published:
    """A published model, thinned.

    Attributes:
        architecture: the class of its configuration, in ``transformers``.
        config: the fields of its configuration.
        tokenizer: the kind of its ``tokenizer.json``.
        settings: its ``tokenizer_config.json``.
    """

    architecture: str
    config: Mapping[str, Any]
    tokenizer: str
    settings: Mapping[str, Any]
    sizes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    old_fields: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def d_vocab(self) -> int:
        """The size of the vocabulary."""
        return tokenizer_file(self.tokenizer, adds_bos=False).get_vocab_size()


END = "<|endoftext|>"
GPT2_TOKENS = {"tokenizer_class": "GPT2Tokenizer", "bos_token": END, "eos_token": END}
GPT2_TOKENS |= {"unk_token": END, "add_prefix_space": False}
NEOX_TOKENS = GPT2_TOKENS | {"tokenizer_class": "GPTNeoXTokenizer"}
LLAMA_TOKENS = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>"}
LLAMA_TOKENS |= {"unk_token": "<unk>", "add_bos_token": True, "add_eos_token": False}
LLAMA_TOKENS |= {"legacy": False}
GEMMA_TOKENS = {"tokenizer_class": "GemmaTokenizer", "bos_token": "<bos>", "eos_token": "<eos>"}
GEMMA_TOKENS |= {"pad_token": "<pad>", "unk_token": "<unk>", "add_bos_token": True}
QWEN_TOKENS = {"tokenizer_class": "Qwen2Tokenizer", "bos_token": None, "eos_token": END}
QWEN_TOKENS |= {"pad_token": END, "unk_token": None, "add_prefix_space": False}

WIDE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
GATED = WIDE | {"intermediate_size": 48, "max_position_embeddings": 4096}
GROUPED = GATED | {"num_key_value_heads": 2}
THIN = {"d_model": 32, "d_head": 8, "n_heads": 4, "d_mlp": 48, "n_layers": 2, "rotary_dim": 8}
N_POSITIONS = 128
BOS_EOS = {"bos_token_id": 0, "eos_token_id": 0}

PUBLISHED = {
    "gpt2": Published(
        "GPT2LMHeadModel",
        {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": N_POSITIONS, **BOS_EOS},
        "gpt2",
        {"model_max_length": N_POSITIONS},
        old_fields={"n_ctx": N_POSITIONS},
    ),
    "EleutherAI/gpt-neo-125M": Published(
        "GPTNeoForCausalLM",
        {
            **{"hidden_size": 32, "num_layers": 2, "num_heads": 4, "window_size": 5},
            **{"attention_types": [[["global", "local"], 1]], **BOS_EOS},
            "max_position_embeddings": N_POSITIONS,
        },
        "gpt2",
        GPT2_TOKENS | {"add_bos_token": False},
    ),
    "roneneldan/TinyStories-1M": Published(
        "GPTNeoForCausalLM",
        {
            **{"hidden_size": 32, "num_layers": 2, "num_heads": 4, "window_size": 5},
            **{"attention_types": [[["global", "local"], 1]], **BOS_EOS},
            "max_position_embeddings": 2048,
        },
        "gpt2",
        GPT2_TOKENS | {"add_bos_token": False},
    ),
    "EleutherAI/gpt-j-6B": Published(
        "GPTJForCausalLM",
        {
            **{"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": N_POSITIONS, **BOS_EOS},
            **{"rotary_dim": 4, "tie_word_embeddings": False},
        },
        "gpt2",
        GPT2_TOKENS | {"add_bos_token": False},
    ),
    "facebook/opt-125m": Published(
        "OPTForCausalLM",
        {
            **{"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 48},
            **{"max_position_embeddings": N_POSITIONS, "word_embed_proj_dim": 32},
            **{"bos_token_id": 2, "eos_token_id": 2, "pad_token_id": 1},
        },
        "opt",
        {
            **{"tokenizer_class": "GPT2Tokenizer", "bos_token": "</s>", "eos_token": "</s>"},
            **{"unk_token": "</s>", "pad_token": "<pad>", "add_bos_token": True},
            **{"add_prefix_space": False, "errors": "replace"},
        },
    ),
    "EleutherAI/pythia-70m": Published(
        "GPTNeoXForCausalLM",
        {**WIDE, "intermediate_size": 48, "max_position_embeddings": N_POSITIONS, **BOS_EOS},
        "gpt2",
        NEOX_TOKENS,
    ),
    "stabilityai/stablelm-base-alpha-3b": Published(
        "GPTNeoXForCausalLM",
        {**WIDE, "intermediate_size": 48, "max_position_embeddings": N_POSITIONS, **BOS_EOS},
        "gpt2",
        NEOX_TOKENS,
    ),
    "bigscience/bloom-560m": Published(
        "BloomForCausalLM",
        {
            **{"hidden_size": 32, "n_layer": 2, "n_head": 4, "seq_length": 2048},
            **{"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3},
        },
        "bloom",
        {
            **{"tokenizer_class": "BloomTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"},
            **{"unk_token": "<unk>", "pad_token": "<pad>", "padding_side": "left"},
            "add_prefix_space": False,
        },
    ),
    "01-ai/Yi-6B": Published(
        "LlamaForCausalLM",
        {**GROUPED, "bos_token_id": 1, "eos_token_id": 2, "rope_theta": 5000000.0},
        "llama",
        LLAMA_TOKENS | {"add_bos_token": False},
    ),
    "meta-llama/Llama-2-7b-hf": Published(
        "LlamaForCausalLM",
        {**GATED, "bos_token_id": 1, "eos_token_id": 2, "rms_norm_eps": 1e-5},
        "llama",
        LLAMA_TOKENS,
        THIN,
    ),
    "meta-llama/Llama-3.2-1B": Published(
        "LlamaForCausalLM",
        {
            **{**GROUPED, "rms_norm_eps": 1e-5, "bos_token_id": 0, "eos_token_id": 1},
            "max_position_embeddings": 131072,
            "rope_parameters": {
                **{"rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0},
                **{"low_freq_factor": 1.0, "high_freq_factor": 4.0},
                "original_max_position_embeddings": 8192,
            },
        },
        "llama3",
        {
            **{"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|begin_of_text|>"},
            **{"eos_token": "<|end_of_text|>", "clean_up_tokenization_spaces": True},
            "model_input_names": ["input_ids", "attention_mask"],
        },
        THIN | {"n_key_value_heads": 2},
    ),
    "mistralai/Mistral-7B-v0.1": Published(
        "MistralForCausalLM",
        {**GROUPED, "sliding_window": 7, "bos_token_id": 1, "eos_token_id": 2},
        "llama",
        LLAMA_TOKENS,
    ),
    "mistralai/Mixtral-8x7B-v0.1": Published(
        "MixtralForCausalLM",
        {
            **{**GATED, "num_key_value_heads": 4, "bos_token_id": 1, "eos_token_id": 2},
            **{"num_local_experts": 3, "num_experts_per_tok": 2, "sliding_window": None},
        },
        "llama",
        LLAMA_TOKENS,
    ),
    "Qwen/Qwen2-0.5B": Published(
        "Qwen2ForCausalLM",
        {**GROUPED, "bos_token_id": 0, "eos_token_id": 0, "initializer_range": 0.02},
        "qwen",
        QWEN_TOKENS,
    ),
    "Qwen/Qwen3-0.6B": Published(
        "Qwen3ForCausalLM",
        {**GATED, "num_key_value_heads": 4, "head_dim": 16, "eos_token_id": 0},
        "qwen",
        QWEN_TOKENS,
    ),
    "microsoft/phi-2": Published(
        "PhiForCausalLM",
        {**WIDE, "intermediate_size": 48, "max_position_embeddings": N_POSITIONS, **BOS_EOS},
        "gpt2",
        GPT2_TOKENS | {"tokenizer_class": "CodeGenTokenizer"},
    ),
    "microsoft/Phi-3-mini-4k-instruct": Published(
        "Phi3ForCausalLM",
        {
            **{**GATED, "num_key_value_heads": 4, "sliding_window": 7, "pad_token_id": 0},
            **{"bos_token_id": 1, "eos_token_id": 2, "original_max_position_embeddings": 4096},
        },
        "llama",
        LLAMA_TOKENS | {"add_bos_token": False, "pad_token": "</s>", "padding_side": "left"},
    ),
    "google/gemma-2b": Published(
        "GemmaForCausalLM",
        {
            **{**GATED, "num_key_value_heads": 1, "head_dim": 8, "max_position_embeddings": 8192},
            **{"bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0},
        },
        "gemma",
        GEMMA_TOKENS,
        # TransformerLens computes the exact GELU; transformers and this package, its tanh form.
        THIN | {"n_key_value_heads": 1, "act_fn": "gelu_pytorch_tanh"},
    ),
    "google/gemma-2-2b": Published(
        "Gemma2ForCausalLM",
        {
            **{**GROUPED, "head_dim": 8, "max_position_embeddings": 8192, "sliding_window": 4096},
            **{"bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0},
            "query_pre_attn_scalar": 8,
        },
        "gemma",
        GEMMA_TOKENS,
        THIN | {"n_key_value_heads": 2, "attn_types": ["local", "global"]},
    ),
    "allenai/OLMo-1B-hf": Published(
        "OlmoForCausalLM",
        {
            **{**GATED, "max_position_embeddings": 2048, "eos_token_id": 0, "pad_token_id": 1},
            "tie_word_embeddings": True,
        },
        "gpt2",
        {
            **{"tokenizer_class": "GPTNeoXTokenizer", "bos_token": None, "eos_token": END},
            **{"pad_token": "<|padding|>", "unk_token": None, "add_bos_token": False},
        },
        THIN | {"attn_types": ["global"] * 2},
    ),
    "allenai/OLMo-2-0425-1B": Published(
        "Olmo2ForCausalLM",
        {
            **{**GATED, "eos_token_id": 0, "pad_token_id": 1, "rms_norm_eps": 1e-6},
            "rope_theta": 500000.0,
        },
        "gpt2",
        GPT2_TOKENS | {"pad_token": "<|padding|>", "add_bos_token": False},
        THIN | {"attn_types": ["global"] * 2},
    ),
}
"""Published models by name: one of each architecture that both libraries read."""

SPECIAL = {
    "gpt2": [END, "<|padding|>"],
    "opt": ["<s>", "<pad>", "</s>", "<unk>"],
    "bloom": ["<unk>", "<s>", "</s>", "<pad>"],
    "llama3": ["<|begin_of_text|>", "<|end_of_text|>"],
    "qwen": [END, "<|im_start|>", "<|im_end|>"],
    "llama": ["<unk>", "<s>", "</s>"],
    "gemma": ["<pad>", "<eos>", "<bos>", "<unk>"],
}
"""The first tokens of each kind of vocabulary."""
BEFORE = {"llama3": "<|begin_of_text|>", "llama": "<s>", "gemma": "<bos>", "opt": "</s>"}
"""The token that the post-processor of each kind adds before a text."""


def tokenizer_file(kind: str, *, adds_bos: bool) -> Any:
    """A small tokenizer of a kind, as published."""
    tokenizers = pytest.importorskip("tokenizers")
    special, models = SPECIAL[kind], tokenizers.models
    pre, normalizers = tokenizers.pre_tokenizers, tokenizers.normalizers
    decoders = tokenizers.decoders
    if kind in ("llama", "gemma"):
        backend = tokenizers.Tokenizer(
            models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True)
        )
        space = normalizers.Replace(" ", "▁")
        backend.normalizer = space
        if kind == "llama":
            backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), space])
        alphabet = [*(f"<0x{byte:02X}>" for byte in range(256)), "▁"]
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=340, special_tokens=[*special, *alphabet], show_progress=False
        )
        words = [" " + word for word in CORPUS.split()]
        backend.train_from_iterator(words, trainer)
        description = json.loads(backend.to_str())
        description["added_tokens"] = description["added_tokens"][: len(special)]
        backend = tokenizers.Tokenizer.from_str(json.dumps(description))
        steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
        steps += [decoders.Strip(" ", 1, 0)] if kind == "llama" else []
        backend.decoder = decoders.Sequence(steps)
    else:
        backend = tokenizers.Tokenizer(models.BPE())
        backend.normalizer = normalizers.NFC() if kind == "qwen" else None
        backend.pre_tokenizer = pre.ByteLevel(add_prefix_space=False)
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=320,
            special_tokens=special,
            initial_alphabet=pre.ByteLevel.alphabet(),
            show_progress=False,
        )
        backend.train_from_iterator([CORPUS], trainer)
        backend.decoder = decoders.ByteLevel()
        backend.post_processor = tokenizers.processors.ByteLevel(trim_offsets=False)
    if kind in BEFORE and adds_bos:
        bos = BEFORE[kind]
        backend.post_processor = tokenizers.processors.TemplateProcessing(
            single=f"{bos} $A",
            pair=f"{bos} $A {bos}:1 $B:1",
            special_tokens=[(bos, special.index(bos))],
        )
    return backend


def live_model(published: Published, d_vocab: int) -> Any:
    """The model of ``transformers``, in which every bias and gain matters."""
    transformers = pytest.importorskip("transformers")
    kind = getattr(transformers, published.architecture)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = kind(kind.config_class(**published.config, vocab_size=d_vocab))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.2 * torch.randn(weight.shape, generator=generator))
    return model.eval()


def publish(cache: Path, name: str, published: Published, *, revision: str = "main") -> Path:
    """Add a model to a cache of the hub under a name; its folder."""
    store = cache / f"models--{name.replace('/', '--')}"
    folder, reference = store / "snapshots" / COMMIT, store / "refs" / revision
    reference.parent.mkdir(parents=True, exist_ok=True)
    reference.write_text(COMMIT)
    settings = published.settings
    adds_bos = bool(settings.get("add_bos_token", True))
    backend = tokenizer_file(published.tokenizer, adds_bos=adds_bos)
    live_model(published, backend.get_vocab_size()).save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text()) | published.old_fields
    (folder / "config.json").write_text(json.dumps(config))
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder
