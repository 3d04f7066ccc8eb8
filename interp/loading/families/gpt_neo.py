"""GPT-Neo (Black et al. 2021): GPT-2, but every other layer sees only the nearest tokens.

Scores are not scaled; queries, keys and values have no bias, what attention writes has one.
"""

from dataclasses import replace
from typing import Any

from interp.config import AttentionConfig, Config, LayerConfig, MLPConfig, NormConfig, StackConfig
from interp.loading.family import Family
from interp.loading.foreign_config import Raw
from interp.loading.weight import (
    Table,
    at,
    each_layer,
    linear,
    norm,
    separate_qkv,
    under,
    unembedding,
)

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


def config(raw: Raw) -> Config:
    """Heads share d_model evenly."""
    d_model, n_heads = raw.whole("hidden_size"), raw.whole("num_heads")
    attention = AttentionConfig(
        n_heads, d_model // n_heads, bias_q=False, bias_k=False, bias_v=False, scale=1.0
    )
    local = tuple(n for n, kind in enumerate(kinds(raw)) if kind == LOCAL)
    near = replace(attention, window=raw.whole("window_size"))
    return Config(
        d_model=d_model,
        d_vocab=raw.whole("vocab_size"),
        n_ctx=raw.whole("max_position_embeddings"),
        tied=raw.head == "tied",
        unembeds=raw.head != "none",
        decoder=StackConfig(
            n_layers=raw.whole("num_layers"),
            attention=attention,
            mlp=MLPConfig(
                raw.get("intermediate_size", 4 * d_model), raw.activation("activation_function")
            ),
            norm=NormConfig(eps=raw.number("layer_norm_epsilon")),
            exceptions=(LayerConfig(local, near),) if local else (),
        ),
    )


def kinds(raw: Raw) -> list[str]:
    """Which layers are global and which local: ``attention_layers``, or [kinds, times] again.

    Raises:
        ModelLoadError: a kind that is not known, or one too many or too few.
    """
    name = "attention_types" if raw.get("attention_layers") is None else "attention_layers"
    told, n_layers = raw[name], raw.whole("num_layers")
    try:
        found = list(told) if name == "attention_layers" else _repeated(told)
    except (TypeError, ValueError):
        found = []
    if len(found) != n_layers or any(kind not in (GLOBAL, LOCAL) for kind in found):
        raise raw.refused(name, told, f"{n_layers} times {GLOBAL} or {LOCAL}")
    return found


def _repeated(types: Any) -> list[str]:  # noqa: ANN401 - JSON
    """[[[kinds], times], …] written out."""
    return [kind for several, times in types for kind in list(several) * times]


def weights(config: Config, raw: Raw) -> Table:
    """Each projection by itself."""
    own = "attn.attention"
    block = {
        **norm("ln1", "ln_1"),
        **separate_qkv(f"{own}.q_proj", f"{own}.k_proj", f"{own}.v_proj", biased=False),
        **linear("attn.weight_o", "attn.b_O", f"{own}.out_proj"),
        **norm("ln2", "ln_2"),
        **linear("mlp.weight_in", "mlp.b_in", "mlp.c_fc"),
        **linear("mlp.weight_out", "mlp.b_out", "mlp.c_proj"),
    }
    stack = {
        "weight_e": at("wte.weight"),
        "entry.W_pos": at("wpe.weight"),
        **each_layer(config.stacks["decoder"].n_layers, block, "blocks", "h.{}."),
        **norm("final_norm", "ln_f"),
    }
    return under("decoder.", stack) | unembedding(raw.head)


FAMILIES = [
    Family(
        name="GPT-Neo",
        model_types=("gpt_neo",),
        config=config,
        weights=weights,
        defaults=DEFAULTS,
        aliases={"num_attention_heads": "num_heads", "num_hidden_layers": "num_layers"},
        names=((r"^transformer\.", ""),),
        ignored=(r"^h\.\d+\.attn\.attention\.(bias|masked_bias)$",),
        embedding="wte.weight",
    ),
]
