"""The table of weights of a ``torch.nn.Transformer``, and of the matrices outside of it.

Queries, keys and values are stored as one matrix ``in_proj_weight``, in this order.
"""

from interp.config import AttentionConfig, Config, NormConfig, StackConfig
from interp.loading.torch_parts import NORMS
from interp.loading.weight import (
    Table,
    attention_output,
    each_layer,
    from_key,
    linear,
    norm,
    prefixed,
)

SIDES = {"encoder": "source", "decoder": "target"}


def table_of(config: Config) -> Table:
    """The table of the whole model."""
    table: Table = {}
    if config.unembeds and not config.tied:
        table["unembed.weight"] = from_key("unembedding")
    if config.bias_u:
        table["unembed.b_U"] = from_key("unembedding_bias")
    for name, stack in config.stacks.items():
        lines = {
            "weight_e": from_key(f"{SIDES[name]}_embedding"),
            **each_layer(stack.n_layers, _block(stack, name), f"{name}.layers.{{}}."),
            **_norm(stack.norm, "final_norm", f"{name}.norm"),
        }
        if stack.positions.kind == "learned":
            lines["entry.W_pos"] = from_key(f"{SIDES[name]}_positions")[: config.n_ctx]
        table |= prefixed(f"{name}.", lines)
    return table


def _block(stack: StackConfig, name: str) -> Table:
    if stack.mlp is None:
        raise TypeError("_block: the layers of a torch.nn.Transformer have MLPs.")
    table = _attention(stack.attention, "attn", "self_attn")
    if name == "decoder":
        table |= _attention(stack.attention, "cross_attn", "multihead_attn")
    for index, source in enumerate(NORMS[name], start=1):
        table |= _norm(stack.norm, f"ln{index}", source)
    return table | {
        **linear("mlp.weight_in", "mlp.b_in", "linear1", biased=stack.mlp.bias_in),
        **linear("mlp.weight_out", "mlp.b_out", "linear2", biased=stack.mlp.bias_out),
    }


def _attention(attention: AttentionConfig, name: str, source: str) -> Table:
    width = attention.n_heads * attention.d_head
    table = {
        f"{name}.weight_qkv": from_key(f"{source}.in_proj_weight"),
        **attention_output(f"{source}.out_proj", biased=attention.bias_o, name=name),
    }
    for n, part in enumerate("qkv" if attention.bias_q else ""):
        rows = slice(n * width, (n + 1) * width)
        table[f"{name}.b_{part}"] = from_key(f"{source}.in_proj_bias")[rows]
    return table


def _norm(config: NormConfig, name: str, source: str) -> Table:
    if not config.gain or (name == "final_norm" and not config.final):
        return {}
    return norm(name, source, bias=config.bias)
