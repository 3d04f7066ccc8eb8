"""How large is the tensor at a place, along the axes that no batch decides?"""

from interp.config import Config
from interp.points import Place, Point

KEYS_AND_VALUES = frozenset(
    {
        Point.K,
        Point.V,
        Point.ROT_K,
        Point.K_SCALE,
        Point.K_NORMALIZED,
        Point.CROSS_K,
        Point.CROSS_V,
    }
)
SCALES_OF_HEADS = frozenset({Point.Q_SCALE, Point.K_SCALE})


def fixed_axes(config: Config, place: Place) -> dict[str, int]:
    """Sizes of heads, dimensions, neurons, experts and vocabulary at a place, by axis."""
    stack = config.stacks[place.stack or list(config.stacks)[-1]]
    own = stack if place.layer is None else stack.of_layer(place.layer)
    attention, mlp = own.attention, own.mlp
    heads = attention.kv_heads if place.point in KEYS_AND_VALUES else attention.n_heads
    if place.point in SCALES_OF_HEADS and attention.qk_norm_over == "heads":
        heads = 1
    return {
        "head": heads,
        "d_head": attention.d_head,
        "d_mlp": 0 if mlp is None else mlp.d_mlp,
        "expert": 0 if mlp is None or mlp.experts is None else mlp.experts.n_experts,
        "d_model": config.d_model,
        "vocab": config.n_logits,
        "one": 1,
    }
