"""StarCoder2, with biases and windows and without."""

from agreement.comparing import Family, Stack
from agreement.disk import as_before, published
from agreement.families.llama import LAYERS, SHARED
from agreement.small import FAR, LLAMA3, small
from transformers import Starcoder2Config, Starcoder2ForCausalLM, Starcoder2Model

starcoder = small(Starcoder2Config, num_key_value_heads=2, eos_token_id=0, bos_token_id=0)

UNGATED = {name: read for name, read in SHARED.items() if name not in ("gate", "pre", "post")}
UNGATED |= {
    "pre": LAYERS.output("mlp.c_fc"),
    **LAYERS.through("mlp.c_proj", "post", "mlp_out"),
}

# As of StarCoder2 3B.
PUBLISHED = {
    "architectures": ["Starcoder2ForCausalLM"],
    "attention_dropout": 0.1,
    "bos_token_id": 0,
    "embedding_dropout": 0.1,
    "eos_token_id": 0,
    "hidden_act": "gelu_pytorch_tanh",
    "hidden_size": 24,
    "initializer_range": 0.018042,
    "intermediate_size": 40,
    "max_position_embeddings": 32,
    "mlp_type": "default",
    "model_type": "starcoder2",
    "norm_epsilon": 1e-05,
    "norm_type": "layer_norm",
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "num_key_value_heads": 2,
    "residual_dropout": 0.1,
    "rope_theta": 999999.4420358813,
    "sliding_window": 4,
    "torch_dtype": "bfloat16",
    "use_bias": True,
    "use_cache": True,
    "vocab_size": 50,
}

FAMILIES = [
    Family(
        name="StarCoder2",
        cases={
            "plain": starcoder(Starcoder2ForCausalLM),
            "unbiased-untied": starcoder(
                Starcoder2ForCausalLM,
                use_bias=False,
                tie_word_embeddings=False,
                norm_epsilon=1e-3,
                num_key_value_heads=4,
                hidden_act="relu",
                rope_parameters=LLAMA3 | FAR,
            ),
        },
        stacks={"decoder": Stack(UNGATED)},
        checks={"disk of version 4": as_before},
    ),
    Family(
        name="StarCoder2",
        cases={
            "published": starcoder(
                Starcoder2ForCausalLM,
                sliding_window=4,
                rope_parameters={"rope_theta": 999999.4420358813},
            )
        },
        stacks={"decoder": Stack(UNGATED)},
        checks={"published": published(PUBLISHED)},
    ),
    Family(name="StarCoder2", cases={"base": starcoder(Starcoder2Model)}),
]
