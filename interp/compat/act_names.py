"""Short names of activations: ``("k", 6)`` is ``blocks.6.attn.hook_k``."""

import re

_NUMBERED = re.compile(r"(?P<name>[a-z]+)(?P<layer>\d+)(?P<part>[a-z]?.*)")
_PARTS = {
    "a": "attn",
    "m": "mlp",
    "b": "",
    "block": "",
    "blocks": "",
    "attention": "attn",
}
_SYNONYMS = {
    "attn": "pattern",
    "attn_logits": "attn_scores",
    "key": "k",
    "query": "q",
    "value": "v",
    "mlp_pre": "pre",
    "mlp_mid": "mid",
    "mlp_post": "post",
}
_OF_ATTENTION = frozenset(
    ("k", "v", "q", "z", "rot_k", "rot_q", "result", "pattern", "attn_scores")
)
_OF_MLP = frozenset(("pre", "post", "mid", "pre_linear"))
_OF_NORM = frozenset(("scale", "normalized"))


def act_name(name: str, layer: int | str | None = None, part: str | None = None) -> str:
    """The full name of an activation.

    Args:
        name: a short name (``k``, ``resid_pre``, ``scale``); with layer and part in it
            (``k6``, ``scale4ln1``); or a full name, which is returned.
        layer: the layer, of what is in a block.
        part: the part of the block, where the name leaves it open (``ln1``), or a short form.
    """
    if ("." in name or name.startswith("hook_")) and layer is None and part is None:
        return name
    match = _NUMBERED.fullmatch(name)
    if match is not None:
        name, layer, part = match["name"], match["layer"], match["part"] or None
    name = _SYNONYMS.get(name, name)
    part = _PARTS.get(part, part) if part else part
    if name in _OF_ATTENTION:
        part = "attn"
    elif name in _OF_MLP:
        part = "mlp"
    prefix = "" if layer is None else f"blocks.{layer}."
    if layer is None and name in _OF_NORM:
        prefix = "ln_final."
    return f"{prefix}{f'{part}.' if part else ''}hook_{name}"
