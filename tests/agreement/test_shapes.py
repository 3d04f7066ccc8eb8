"""The parts of a model follow the field's conventions: two Hugging Face models in float64.

Loading of whole families is tested with the loaders. Here the weights are copied one by one, so
that a wrong convention in a part can't be hidden by the same mistake in a loader.
"""

from functools import partial

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaRMSNorm

import interp

pytestmark = pytest.mark.agreement
BOUND = 1e-9


def assert_agree(ours, theirs):
    assert (ours - theirs).abs().max() <= BOUND * max(1.0, theirs.abs().max().item())


@pytest.fixture
def tokens():
    return torch.randint(50, (2, 11), generator=torch.Generator().manual_seed(1))


def randomised(model):
    generator = torch.Generator().manual_seed(0)
    for weight in model.parameters():
        weight.data.add_(torch.randn(weight.shape, generator=generator) * 0.1)
    return model.double().eval()


@torch.no_grad()
def gpt2():
    config = GPT2Config(
        vocab_size=50, n_positions=32, n_embd=24, n_layer=3, n_head=4, attn_implementation="eager"
    )
    theirs = randomised(GPT2LMHeadModel(config))
    ours = interp.Transformer(
        interp.Config(
            d_model=24,
            d_vocab=50,
            n_ctx=32,
            tied=True,
            decoder=interp.StackConfig(
                n_layers=3,
                attention=interp.AttentionConfig(n_heads=4, d_head=6),
                mlp=interp.MLPConfig(d_mlp=96, activation="gelu_tanh"),
            ),
        )
    ).double()
    body = theirs.transformer
    ours.W_E.copy_(body.wte.weight)
    ours.W_pos.copy_(body.wpe.weight)
    for block, layer in zip(ours.blocks, body.h, strict=True):
        q, k, v = layer.attn.c_attn.bias.chunk(3)
        block.attn.weight_qkv.copy_(layer.attn.c_attn.weight.T)
        for parameter, bias in ((block.attn.b_q, q), (block.attn.b_k, k), (block.attn.b_v, v)):
            parameter.copy_(bias)
        block.attn.weight_o.copy_(layer.attn.c_proj.weight.T)
        block.attn.b_O.copy_(layer.attn.c_proj.bias)
        block.mlp.weight_in.copy_(layer.mlp.c_fc.weight.T)
        block.mlp.b_in.copy_(layer.mlp.c_fc.bias)
        block.mlp.weight_out.copy_(layer.mlp.c_proj.weight.T)
        block.mlp.b_out.copy_(layer.mlp.c_proj.bias)
        copy_norm(block.ln1, layer.ln_1)
        copy_norm(block.ln2, layer.ln_2)
    copy_norm(ours.decoder.final_norm, body.ln_f)
    return ours, theirs


def copy_norm(ours, theirs):
    ours.gain.copy_(theirs.weight)
    if ours.bias is not None:
        ours.bias.copy_(theirs.bias)


def exact_angles(x, position_ids):
    wavelengths = 10_000.0 ** (torch.arange(0, 8, 2).double() / 8)
    angles = (position_ids[..., None] / wavelengths).repeat(1, 1, 2)
    return angles.cos(), angles.sin()


def exact_norm(norm, x):
    mean_square = x.square().mean(-1, keepdim=True)
    return norm.weight * x / (mean_square + norm.variance_epsilon).sqrt()


@torch.no_grad()
def llama():
    config = LlamaConfig(
        vocab_size=50,
        hidden_size=24,
        intermediate_size=40,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=32,
        attn_implementation="eager",
    )
    theirs = randomised(LlamaForCausalLM(config))
    # They compute angles and norms in float32 whatever the weights are: have them in float64.
    theirs.model.rotary_emb.forward = exact_angles
    for module in theirs.modules():
        if isinstance(module, LlamaRMSNorm):
            module.forward = partial(exact_norm, module)
    ours = interp.Transformer(
        interp.Config(
            d_model=24,
            d_vocab=50,
            n_ctx=32,
            decoder=interp.StackConfig(
                n_layers=3,
                attention=interp.AttentionConfig(4, 8, 2, False, False, False, False),
                mlp=interp.MLPConfig(40, "silu", gated=True, bias_in=False, bias_out=False),
                norm=interp.NormConfig(kind="rmsnorm", bias=False, eps=1e-6),
                positions=interp.PositionsConfig(kind="rotary"),
            ),
        )
    ).double()
    body = theirs.model
    ours.W_E.copy_(body.embed_tokens.weight)
    ours.unembed.weight.copy_(theirs.lm_head.weight)
    for block, layer in zip(ours.blocks, body.layers, strict=True):
        attention = layer.self_attn
        joint = [attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight]
        block.attn.weight_qkv.copy_(torch.cat(joint))
        block.attn.weight_o.copy_(attention.o_proj.weight)
        block.mlp.weight_in.copy_(layer.mlp.up_proj.weight)
        block.mlp.weight_gate.copy_(layer.mlp.gate_proj.weight)
        block.mlp.weight_out.copy_(layer.mlp.down_proj.weight)
        copy_norm(block.ln1, layer.input_layernorm)
        copy_norm(block.ln2, layer.post_attention_layernorm)
    copy_norm(ours.decoder.final_norm, body.norm)
    return ours, theirs


@pytest.fixture(params=[gpt2, llama], ids=["gpt2", "llama"])
def pair(request, monkeypatch):
    # Their softmax, too, is taken in float32 whatever the scores are.
    softmax = torch.nn.functional.softmax
    monkeypatch.setattr(torch.nn.functional, "softmax", lambda x, dim, dtype=None: softmax(x, dim))
    return request.param()


def test_logits_streams_and_patterns_agree(pair, tokens):
    ours, theirs = pair
    run = interp.run(ours, tokens, record="all")
    out = theirs(tokens, output_hidden_states=True, output_attentions=True)
    assert_agree(run.logits, out.logits)
    for layer, pattern in enumerate(out.attentions):
        assert_agree(run.cache["resid_pre", layer], out.hidden_states[layer])
        assert_agree(run.cache["pattern", layer], pattern)
    # The last of their hidden states is taken after the final norm.
    assert_agree(run.cache["final_normalized"], out.hidden_states[-1])


@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_rows_agree(pair, tokens, side):
    ours, theirs = pair
    columns = slice(4, None) if side == "left" else slice(0, 7)
    mask = torch.zeros(2, 11, dtype=torch.long)
    mask[0], mask[1, columns] = 1, 1
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    out = theirs(tokens, attention_mask=mask, position_ids=positions).logits
    logits = ours(tokens, mask=mask)
    assert_agree(logits[mask.bool()], out[mask.bool()])


def test_gradients_agree(pair, tokens):
    ours, theirs = pair
    metric = interp.metrics.logit_diff(3, 5)
    run = interp.run(ours, tokens, record="embed", gradients_of=metric)
    embedding = theirs.get_input_embeddings().weight[tokens].detach().requires_grad_()
    logits = theirs(inputs_embeds=embedding).logits
    (logits[:, -1, 3] - logits[:, -1, 5]).sum().backward()
    assert_agree(run.cache["embed_grad"], embedding.grad)
