"""Names of hook points from short forms: ``get_act_name("pattern", 3)``."""

import re

IN_ATTENTION = ("k", "v", "q", "z", "rot_k", "rot_q", "result", "pattern", "attn_scores")
IN_MLP = ("pre", "post", "mid", "pre_linear")
OF_A_NORM = ("scale", "normalized")
LAYER_TYPES = {
    "a": "attn",
    "m": "mlp",
    "b": "",
    "block": "",
    "blocks": "",
    "attention": "attn",
}
OTHER_NAMES = {
    "attn": "pattern",
    "attn_logits": "attn_scores",
    "key": "k",
    "query": "q",
    "value": "v",
    "mlp_pre": "pre",
    "mlp_mid": "mid",
    "mlp_post": "post",
}
SHORT_FORM = re.compile(r"([a-z]+)(\d+)([a-z]?.*)")


def get_act_name(name: str, layer: int | str | None = None, layer_type: str | None = None) -> str:
    """The name of a hook point.

        get_act_name("resid_pre", 2)          # blocks.2.hook_resid_pre
        get_act_name("k", 6, "a")             # blocks.6.attn.hook_k
        get_act_name("scale4ln1")             # blocks.4.ln1.hook_scale
        get_act_name("normalized")            # ln_final.hook_normalized

    Args:
        name: the name of the activation, followed by the layer and the layer type if these are not
            given; a full name is returned unchanged.
        layer: the layer.
        layer_type: the part of the block, if several have an activation of this name.
    """
    if ("." in name or name.startswith("hook_")) and layer is None and layer_type is None:
        return name
    short = SHORT_FORM.match(name)
    if short is not None:
        name, layer, layer_type = short.groups()
    name = OTHER_NAMES.get(name, name)
    if name in IN_ATTENTION:
        part = "attn"
    elif name in IN_MLP:
        part = "mlp"
    else:
        part = LAYER_TYPES.get(layer_type or "", layer_type)
    outside = "ln_final." if name in OF_A_NORM else ""
    block = outside if layer is None else f"blocks.{layer}."
    return f"{block}{f'{part}.' if part else ''}hook_{name}"
