"""GPT-BigCode (Ben Allal et al. 2023, arXiv:2301.03988): SantaCoder, StarCoder and others.

GPT-2 with multi-query attention: one key/value head, unless ``multi_query`` is false.
Matrices are stored as ``[out, in]``.
"""

from dataclasses import replace
from typing import Any

from interp.config import AttentionConfig, Config, StackConfig
from interp.loading.families import gpt2
from interp.loading.families.neox import qkv_by_head
from interp.loading.foreign_config import ForeignConfig
from interp.loading.settings import plain_exit
from interp.loading.weight import Table, attention_output, from_key, fused_qkv, mlp, norm

DEFAULTS: dict[str, Any] = {
    **gpt2.DEFAULTS,
    "activation_function": "gelu_pytorch_tanh",
    "multi_query": True,
    "bos_token_id": 50256,
    "eos_token_id": 50256,
}


def config(fields: ForeignConfig) -> Config:
    """One key/value head, or as many as query heads."""
    fields.allow_only("add_cross_attention", values=(False,))
    d_model, n_heads = fields.integer("n_embd"), fields.integer("n_head")
    return Config(
        d_model=d_model,
        d_vocab=fields.integer("vocab_size"),
        n_ctx=fields.integer("n_positions"),
        **plain_exit(fields),
        decoder=StackConfig(
            n_layers=fields.integer("n_layer"),
            attention=AttentionConfig(
                n_heads,
                d_model // n_heads,
                n_kv_heads=1 if fields.flag("multi_query") else n_heads,
                scale=gpt2.score_scale(fields),
            ),
            mlp=gpt2.mlp(fields),
            norm=gpt2.layer_norm(fields),
        ),
    )


def weights(config: Config, fields: ForeignConfig) -> Table:
    """One matrix with all queries, the key and the value; without ``multi_query``, head by head."""
    attention = config.stacks["decoder"].attention
    is_multi_query = fields.flag("multi_query")
    block = {
        **norm("ln1", "ln_1"),
        **(_multi_query(attention) if is_multi_query else qkv_by_head("attn.c_attn", attention)),
        **attention_output("attn.c_proj"),
        **norm("ln2", "ln_2"),
        **mlp("mlp.c_fc", "mlp.c_proj"),
    }
    return gpt2.decoder(config, fields, block)


def _multi_query(attention: AttentionConfig) -> Table:
    weight, bias = from_key("attn.c_attn.weight"), from_key("attn.c_attn.bias")
    return fused_qkv(weight, bias, attention.n_heads * attention.d_head, attention.d_head)


FAMILIES = [
    replace(
        gpt2.GPT2,
        name="GPT-BigCode, StarCoder",
        model_types=("gpt_bigcode",),
        config=config,
        weights=weights,
        defaults=DEFAULTS,
        unread=(
            *("inference_runner", "max_batch_size", "max_sequence_length", "num_key_value_heads"),
            *("pad_key_length", "pre_allocate_kv_cache", "validate_runner_input"),
        ),
        ignored=(*gpt2.GPT2.ignored, r"^bias$"),
    )
]
