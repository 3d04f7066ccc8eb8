"""OLMo 2 (OLMo Team 2025, arXiv:2501.00656): Llama's parts, of which what is written is normed.

What attention and MLP read is not. Queries and keys are normed over all heads together, before they
turn.
"""

from typing import Any

from interp.config import AttentionConfig, Config
from interp.loading.families import llama
from interp.loading.family import Family
from interp.loading.foreign_config import Raw
from interp.loading.weight import Table, at, norm

DEFAULTS: dict[str, Any] = {
    **llama.DEFAULTS,
    "vocab_size": 50304,
    "rms_norm_eps": 1e-5,
}


def config(raw: Raw) -> Config:
    """Llama's parts, normed elsewhere."""
    attention = llama.attention(
        raw,
        biased=raw.flag("attention_bias"),
        qk_norm=llama.rms_norm(raw),
        qk_norm_over="heads",
    )
    norms = llama.rms_norm(raw, placement="write")
    return llama.of_parts(raw, attention, llama.gated_mlp(raw), norm=norms)


def weights(config: Config, raw: Raw) -> Table:
    """Gains of queries and keys cut into heads."""
    attention = config.stacks["decoder"].attention
    block = {
        **llama.self_attention(attention),
        **gains_by_head(attention),
        **norm("ln1", "post_attention_layernorm", bias=False),
        **llama.gated(),
        **norm("ln2", "post_feedforward_layernorm", bias=False),
    }
    return llama.decoder(config, raw, block)


def gains_by_head(attention: AttentionConfig) -> Table:
    """``[head d_head]``, of gains that are stored in a row."""
    gains = {own: at(f"self_attn.{own}_norm.weight") for own in ("q", "k")}
    return {
        f"attn.{own}_norm.gain": gain.then(lambda x: x.view(-1, attention.d_head))
        for own, gain in gains.items()
    }


FAMILIES = [
    Family(
        name="OLMo 2",
        model_types=("olmo2",),
        config=config,
        weights=weights,
        defaults=DEFAULTS,
        names=(llama.PREFIX,),
        ignored=llama.IGNORED,
        embedding="embed_tokens.weight",
        ties=False,
    ),
]
