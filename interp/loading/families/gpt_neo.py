"""GPT-Neo (Black et al. 2021): GPT-2 with a window in every other layer.

Scores are not scaled; queries, keys and values have no biases. Matrices are stored as
``[out, in]``.
"""

from dataclasses import replace
from typing import Any

from interp.config import AttentionConfig, Config, LayerConfig, MLPConfig, StackConfig
from interp.loading.families import gpt2
from interp.loading.foreign_config import ForeignConfig
from interp.loading.settings import biases, plain_exit
from interp.loading.weight import Table, attention_output, mlp, norm, separate_qkv

GLOBAL, LOCAL = "global", "local"
DEFAULTS: dict[str, Any] = {
    "vocab_size": 50257,
    "max_position_embeddings": 2048,
    "hidden_size": 2048,
    "num_layers": 24,
    "attention_types": [[[GLOBAL, LOCAL], 12]],
    "num_heads": 16,
    "window_size": 256,
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
    "bos_token_id": 50256,
    "eos_token_id": 50256,
}


def config(fields: ForeignConfig) -> Config:
    """Local layers have a window of ``window_size``."""
    d_model, n_heads = fields.integer("hidden_size"), fields.integer("num_heads")
    bias = biases(qkv=False, output=True)
    attention = AttentionConfig(n_heads, d_model // n_heads, **bias, scale=1.0)
    local = tuple(n for n, kind in enumerate(attention_types(fields)) if kind == LOCAL)
    windowed = replace(attention, window=fields.integer("window_size"))
    d_mlp = fields.get("intermediate_size", 4 * d_model)
    return Config(
        d_model=d_model,
        d_vocab=fields.integer("vocab_size"),
        n_ctx=fields.integer("max_position_embeddings"),
        **plain_exit(fields),
        decoder=StackConfig(
            n_layers=fields.integer("num_layers"),
            attention=attention,
            mlp=MLPConfig(d_mlp, fields.activation("activation_function")),
            norm=gpt2.layer_norm(fields),
            exceptions=(LayerConfig(local, windowed),) if local else (),
        ),
    )


def attention_types(fields: ForeignConfig) -> list[str]:
    """The type of each layer: ``attention_layers``, or ``attention_types`` as [types, repeats].

    Raises:
        ModelLoadError: a type is unknown, or there is not one for each layer.
    """
    name = "attention_types" if fields.get("attention_layers") is None else "attention_layers"
    value, n_layers = fields[name], fields.integer("num_layers")
    try:
        types = list(value) if name == "attention_layers" else _expanded(value)
    except (TypeError, ValueError):
        types = []
    if len(types) != n_layers or any(kind not in (GLOBAL, LOCAL) for kind in types):
        raise fields.unsupported(name, value, f"{n_layers} times {GLOBAL} or {LOCAL}")
    return types


def _expanded(pairs: Any) -> list[str]:  # noqa: ANN401 - JSON
    """[[types, repeats], …] as one list."""
    return [kind for types, repeats in pairs for kind in list(types) * repeats]


def weights(config: Config, fields: ForeignConfig) -> Table:
    """All projections are separate matrices."""
    source = "attn.attention"
    names = (f"{source}.q_proj", f"{source}.k_proj", f"{source}.v_proj")
    block = {
        **norm("ln1", "ln_1"),
        **separate_qkv(*names, biased=False),
        **attention_output(f"{source}.out_proj"),
        **norm("ln2", "ln_2"),
        **mlp("mlp.c_fc", "mlp.c_proj"),
    }
    return gpt2.decoder(config, fields, block)


FAMILIES = [
    replace(
        gpt2.GPT2,
        name="GPT-Neo",
        model_types=("gpt_neo",),
        config=config,
        weights=weights,
        defaults=DEFAULTS,
        fields=("attention_layers", "intermediate_size"),
        unread=(),
        aliases={"num_attention_heads": "num_heads", "num_hidden_layers": "num_layers"},
        ignored=(r"^h\.\d+\.attn\.attention\.(bias|masked_bias)$",),
    )
]
