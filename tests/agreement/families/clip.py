"""The towers of CLIP and SigLIP, with and without projection."""

import torch
from agreement.comparing import Family, Layers, Stack, called, inputs_of, off
from agreement.disk import published
from agreement.exact import exact
from agreement.families.vit import SIZES as IMAGE_SIZES
from agreement.small import SIZES, small
from transformers import (
    CLIPTextConfig,
    CLIPTextModel,
    CLIPTextModelWithProjection,
    CLIPVisionConfig,
    CLIPVisionModel,
    CLIPVisionModelWithProjection,
    SiglipTextConfig,
    SiglipTextModel,
    SiglipVisionConfig,
    SiglipVisionModel,
)

import interp

EOS = 7
IDS = {"pad_token_id": 1, "bos_token_id": 3, "eos_token_id": EOS}
clip_text = small(CLIPTextConfig, SIZES, projection_dim=10, **IDS)
clip_image = small(CLIPVisionConfig, IMAGE_SIZES, projection_dim=10)
siglip_text = small(SiglipTextConfig, SIZES, **IDS)
siglip_image = small(SiglipVisionConfig, IMAGE_SIZES)


PUBLISHED = {
    **{"architectures": ["CLIPTextModel"], "model_type": "clip_text_model", "vocab_size": 50},
    **{"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3, "projection_dim": 10},
    **{"num_attention_heads": 4, "max_position_embeddings": 32, "hidden_act": "quick_gelu"},
    **{"attention_dropout": 0.0, "dropout": 0.0, "initializer_factor": 1.0, "pad_token_id": 1},
    **{"bos_token_id": 3, "eos_token_id": 2, "layer_norm_eps": 1e-05, "torch_dtype": "float16"},
}
"""The fields of a text encoder of version 4, as image generators have it."""


def stack(base=""):
    """The stack of a model whose base is called ``base``."""
    layers = Layers(f"{base}encoder.layers")
    return Stack(
        {
            "resid_pre": layers.input(),
            "normalized ln1": layers.output("layer_norm1"),
            "q": layers.output("self_attn.q_proj"),
            "k": layers.output("self_attn.k_proj"),
            "v": layers.output("self_attn.v_proj"),
            **layers.through("self_attn.out_proj", "z", "attn_out"),
            **layers.through("layer_norm2", "resid_mid", "normalized ln2"),
            "pre": layers.output("mlp.fc1"),
            **layers.through("mlp.fc2", "post", "mlp_out"),
            "resid_post": layers.output(),
        }
    )


def images(name, cases, base="", **checks):
    """Image towers, whose base is called ``base``."""
    squares = f"{base}embeddings.patch_embedding.weight"
    return Family(
        name=name,
        cases=cases,
        stacks={"encoder": stack(base)},
        pads=(),
        checks=checks,
        embedding=lambda theirs: theirs.get_parameter(squares),
        own_embedding=lambda ours: ours.stacks[0].tokens.weight,
    )


@torch.no_grad()
def at_eos(theirs, ours):
    """The embedding of a text is that at its first EOS."""
    ids = torch.tensor([[3, 9, EOS, 4, EOS], [3, 5, 8, 9, EOS]])
    expected = called(theirs, [ids]).text_embeds
    return off(torch.stack([ours(ids)[0, 2], ours(ids)[1, 4]]), expected)


@torch.no_grad()
def at_largest(theirs, ours):
    """With the EOS of the first files, it is that at the largest id."""
    ids = torch.tensor([[3, 9, 49, 4, 7], [3, 5, 8, 9, 49]])
    expected = called(theirs, [ids]).text_embeds
    return off(torch.stack([ours(ids)[0, 2], ours(ids)[1, 4]]), expected)


@torch.no_grad()
def at_cls(theirs, ours):
    """The embedding of an image is that at CLS."""
    (pixels,) = inputs_of(ours)
    return off(ours(pixels)[:, 0], called(theirs, [pixels]).image_embeds)


@torch.no_grad()
def normed_cls(theirs, ours):
    """Their pooled output is our stream at CLS; their last stream is ours before the last norm."""
    (pixels,) = inputs_of(ours)
    with exact():
        out = theirs(pixel_values=pixels)
    before = interp.run(ours, pixels, record="all").cache["resid_post", -1]
    return max(off(ours(pixels)[:, 0], out.pooler_output), off(before, out.last_hidden_state))


@torch.no_grad()
def at_end(theirs, ours):
    """The embedding of a text is that at its last position; their last stream is ours."""
    (ids,) = inputs_of(ours)
    with exact():
        out = theirs(input_ids=ids, attention_mask=torch.ones_like(ids))
    normed = interp.run(ours, ids, record="all").cache["final_normalized"]
    return max(off(ours(ids)[:, -1], out.pooler_output), off(normed, out.last_hidden_state))


@torch.no_grad()
def pooled(theirs, ours):
    """The pooler's attention over all patches."""
    (pixels,) = inputs_of(ours)
    return off(ours.pooler(ours(pixels)), called(theirs, [pixels]).pooler_output)


FAMILIES = [
    # Their pooled output is that of EOS, which padding on the left displaces in random tokens.
    Family(
        name="CLIP (text)",
        cases={
            "plain": clip_text(CLIPTextModelWithProjection),
            "relu": clip_text(
                CLIPTextModelWithProjection,
                hidden_act="relu",
                layer_norm_eps=1e-3,
                num_attention_heads=3,
                projection_dim=24,
            ),
        },
        stacks={"decoder": stack("text_model.")},
        pads=("right",),
        checks={"EOS": at_eos},
    ),
    Family(
        name="CLIP (text)",
        cases={"first-files": clip_text(CLIPTextModelWithProjection, eos_token_id=2)},
        stacks={"decoder": stack("text_model.")},
        pads=("right",),
        checks={"EOS": at_largest},
    ),
    Family(
        name="CLIP (text)",
        cases={"base": clip_text(CLIPTextModel, hidden_act="gelu")},
        stacks={"decoder": stack()},
    ),
    Family(
        name="CLIP (text)",
        cases={"published": clip_text(CLIPTextModel, eos_token_id=2)},
        checks={
            "published": published(
                PUBLISHED, {"^": "text_model."}, {"text_model.embeddings.position_ids": (1, 32)}
            )
        },
    ),
    images(
        "CLIP (image)",
        {
            "plain": clip_image(CLIPVisionModelWithProjection),
            "relu": clip_image(
                CLIPVisionModelWithProjection,
                hidden_act="relu",
                layer_norm_eps=1e-3,
                num_channels=1,
                num_attention_heads=3,
            ),
        },
        base="vision_model.",
        cls=at_cls,
    ),
    images("CLIP (image)", {"base": clip_image(CLIPVisionModel)}, normed=normed_cls),
    Family(
        name="SigLIP (text)",
        cases={
            "plain": siglip_text(SiglipTextModel),
            "projected": siglip_text(
                SiglipTextModel, projection_size=10, hidden_act="relu", layer_norm_eps=1e-3
            ),
        },
        stacks={"encoder": stack()},
        pads=("left",),
        checks={"end": at_end},
    ),
    images(
        "SigLIP (image)",
        {
            "plain": siglip_image(SiglipVisionModel),
            "cropped": siglip_image(
                SiglipVisionModel,
                image_size=14,
                hidden_act="relu",
                layer_norm_eps=1e-3,
                num_channels=1,
            ),
        },
        pooler=pooled,
    ),
    images("SigLIP (image)", {"no-head": siglip_image(SiglipVisionModel, vision_use_head=False)}),
]
