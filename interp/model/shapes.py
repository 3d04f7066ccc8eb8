"""Shapes of the tensors in a forward, and the axis sizes that a configuration determines."""

from jaxtyping import Float
from torch import Tensor

from interp.config import Config, MLPConfig
from interp.points import Place, Point

Stream = Float[Tensor, "batch pos d_model"]
Heads = Float[Tensor, "batch pos head d_head"]
KeyHeads = Float[Tensor, "batch key kv_head d_head"]
Matrix = Float[Tensor, "batch head query key"]
Logits = Float[Tensor, "batch pos vocab"]


def _neurons(mlp: MLPConfig, point: Point) -> int:
    """Number of neurons of the MLP, of each expert, or of the shared expert."""
    shared = None if mlp.experts is None else mlp.experts.d_shared
    of_shared = (Point.GATE, Point.PRE, Point.POST)
    return mlp.d_mlp if shared is None or point not in of_shared else shared


def fixed_axes(config: Config, place: Place) -> dict[str, int]:
    """Size of each axis at a place that does not depend on the input, by name."""
    stack = config.stacks[place.stack or list(config.stacks)[-1]]
    layer_config = stack if place.layer is None else stack.of_layer(place.layer)
    attention, mlp = layer_config.attention, layer_config.mlp
    one_norm = place.point.is_head_scale and attention.qk_norm_over == "heads"
    return {
        "head": 1 if one_norm else attention.n_heads,
        "kv_head": 1 if one_norm else attention.kv_heads,
        "d_head": attention.d_head,
        "d_mlp": 0 if mlp is None else _neurons(mlp, place.point),
        "expert": 0 if mlp is None or mlp.experts is None else mlp.experts.n_experts,
        "d_model": _stream_width(config, place),
        "vocab": config.n_logits,
        "one": 1,
    }


def _stream_width(config: Config, place: Place) -> int:
    """The width of the stream, of the embeddings before their projection, or after a head."""
    if place.point.value.region == "entry":
        embedding = config.stacks[place.stack or list(config.stacks)[-1]].embedding
        return embedding.sum_width or config.d_model
    after_head = place.point in (Point.HEAD_PRE, Point.HEAD_POST, Point.FINAL_NORMALIZED)
    has_width = after_head and config.head is not None
    return config.unembed_width if has_width and config.d_unembed is None else config.d_model
