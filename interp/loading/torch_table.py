"""Where does each weight of a ``torch.nn.Transformer`` go? Queries, keys and values are packed."""

from interp.config import AttentionConfig, Config, NormConfig, StackConfig
from interp.loading.torch_parts import NORMS
from interp.loading.weight import Table, at, each_layer, linear, norm, under

SIDES = {"encoder": "source", "decoder": "target"}


def table_of(config: Config) -> Table:
    """Queries, keys and values are packed, in this order."""
    lines: Table = {} if config.tied else {"unembed.weight": at("unembedding")}
    lines |= {"unembed.b_U": at("unembedding_bias")} if config.bias_u else {}
    for name, stack in config.stacks.items():
        tower = {
            "weight_e": at(f"{SIDES[name]}_embedding"),
            **each_layer(stack.n_layers, _block(stack, name), "blocks", f"{name}.layers.{{}}."),
            **_norm_lines(stack.norm, "final_norm", f"{name}.norm"),
        }
        if stack.positions.kind == "learned":
            tower["entry.W_pos"] = at(f"{SIDES[name]}_positions")[: config.n_ctx]
        lines |= under(f"{name}.", tower)
    if not config.unembeds:
        del lines["unembed.weight"]
    return lines


def _block(stack: StackConfig, name: str) -> Table:
    if stack.mlp is None:
        raise TypeError("_block: the layers of a torch.nn.Transformer have MLPs.")
    lines = _attention_lines(stack.attention, "attn", "self_attn")
    if name == "decoder":
        lines |= _attention_lines(stack.attention, "cross_attn", "multihead_attn")
    for own, source in enumerate(NORMS[name], start=1):
        lines |= _norm_lines(stack.norm, f"ln{own}", source)
    return lines | {
        **linear("mlp.weight_in", "mlp.b_in", "linear1", biased=stack.mlp.bias_in),
        **linear("mlp.weight_out", "mlp.b_out", "linear2", biased=stack.mlp.bias_out),
    }


def _attention_lines(attention: AttentionConfig, name: str, source: str) -> Table:
    width = attention.n_heads * attention.d_head
    lines = {
        f"{name}.weight_qkv": at(f"{source}.in_proj_weight"),
        **linear(f"{name}.weight_o", f"{name}.b_O", f"{source}.out_proj", biased=attention.bias_o),
    }
    for n, part in enumerate("qkv" if attention.bias_q else ""):
        lines[f"{name}.b_{part}"] = at(f"{source}.in_proj_bias")[n * width : (n + 1) * width]
    return lines


def _norm_lines(config: NormConfig, name: str, source: str) -> Table:
    if not config.gain or (name == "final_norm" and not config.final):
        return {}
    return norm(name, source, bias=config.bias)
