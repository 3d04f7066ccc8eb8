"""Calls of the ARENA exercises 1.2, 1.4.1 and 1.5.1, and views of CircuitsVis.

From the public sources of the exercises (callummcdougall/ARENA_3.0): a two-layer attention-only
model and its induction heads; patching, path patching and direct logit attribution as for indirect
objects; a bidirectional classifier of brackets whose padding is masked by permanent hooks.
"""

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import circuitsvis.attention
import circuitsvis.tokens
import torch
from transformer_lens import (
    ActivationCache,
    FactoredMatrix,
    HookedTransformer,
    HookedTransformerConfig,
    patching,
    utils,
)
from transformer_lens.hook_points import HookPoint

from tools.clients.models import draw_weights, fields, word_tokenizer

Values = Iterator[tuple[str, torch.Tensor]]
TEXTS = ["w5 w9 w7 w9 w4 w5 w8", "w6 w9 w7 w6 w4 w5 w8"]
PAD_TOKEN = 1


def results() -> Values:
    """Named values, in the order in which they are computed."""
    for exercise in (_induction, _circuits, _indirect_objects, _paths, _brackets, _views):
        for name, value in exercise():
            yield f"{exercise.__name__[1:]}: {name}", value


def _attention_only() -> HookedTransformer:
    """Exercise 1.2: two layers of attention, no norms, positions added to queries and keys."""
    cfg = HookedTransformerConfig(
        d_model=32,
        d_head=8,
        n_heads=4,
        n_layers=2,
        n_ctx=20,
        d_vocab=50,
        attention_dir="causal",
        attn_only=True,
        seed=398,
        use_attn_result=True,
        normalization_type=None,
        positional_embedding_type="shortformer",
        device="cpu",
    )
    model = HookedTransformer(cfg, tokenizer=word_tokenizer())
    draw_weights(model, 1)
    return model


def _repeated(model: HookedTransformer, half: int = 6, batch: int = 2) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    random = torch.randint(3, model.cfg.d_vocab, (batch, half), generator=generator)
    prefix = torch.full((batch, 1), model.tokenizer.bos_token_id)
    return torch.cat([prefix, random, random], dim=-1)


def _induction() -> Values:
    model = _attention_only()
    tokens = _repeated(model)
    yield "to_tokens", model.to_tokens(TEXTS)
    yield "to_string", model.to_tokens(model.to_string(model.to_tokens(TEXTS[0])[0, 1:]))
    yield "str tokens", torch.tensor([len(t) for t in model.to_str_tokens(TEXTS[0])])
    logits, cache = model.run_with_cache(tokens[:1], remove_batch_dim=True)
    yield "logits", logits
    yield "patterns", torch.stack([cache["pattern", layer] for layer in range(2)])
    yield "pattern by a full name", cache["blocks.0.attn.hook_pattern"]
    q, k = cache["q", 0], cache["k", 0]
    scores = torch.einsum("qhd,khd->hqk", q, k) / model.cfg.d_head**0.5
    yield "scores from q and k", scores.tril()
    yield "loss per token", model(tokens, return_type="loss", loss_per_token=True)
    score = torch.zeros(2, 4)

    def store(pattern: torch.Tensor, hook: HookPoint) -> None:
        stripe = pattern.diagonal(dim1=-2, dim2=-1, offset=1 - 6)
        score[hook.layer()] = stripe.mean((0, -1))

    is_pattern = lambda name: name.endswith("pattern")  # noqa: E731 - as the exercise has it
    model.run_with_hooks(tokens, return_type=None, fwd_hooks=[(is_pattern, store)])
    yield "induction scores by hooks", score

    def ablate(z: torch.Tensor, hook: HookPoint, head: int) -> torch.Tensor:  # noqa: ARG001
        z[:, :, head] = 0.0
        return z

    for layer in range(2):
        hook = utils.get_act_name("z", layer)
        for head in range(4):
            model.reset_hooks()
            ablated = model.run_with_hooks(
                tokens, return_type="loss", fwd_hooks=[(hook, partial(ablate, head=head))]
            )
            yield f"loss without L{layer}H{head}", ablated
    model.add_hook(utils.get_act_name("z", 0), partial(ablate, head=1))
    yield "loss with add_hook", model(tokens, return_type="loss")
    model.reset_hooks()
    yield "loss after reset_hooks", model(tokens, return_type="loss")
    embed, first, second = cache["embed"], cache["result", 0], cache["result", 1]
    W_U = model.W_U[:, tokens[0, 1:]]
    for name, part in {"embed": embed, "layer 0": first, "layer 1": second}.items():
        yield f"logits by {name}", torch.einsum("...d,dp->...p", part, W_U)


def _circuits() -> Values:
    model = _attention_only()
    A = model.W_E
    yield "W_Q of a head", model.W_Q[1, 2]
    ov = FactoredMatrix(model.W_V[1, 2], model.W_O[1, 2])
    full = A @ ov @ model.W_U
    yield "full OV circuit", full.AB
    yield "a part of it", full[3:7, 2:9].AB
    yield "transposed", full.T.AB
    yield "norm", full.norm()
    yield "singular values", full.svd()[1][: model.cfg.d_head]
    eigenvalues = full.eigenvalues
    yield "copying score", (eigenvalues.sum() / eigenvalues.abs().sum()).real
    yield "OV of all heads", model.OV.AB
    yield "QK of all heads", model.QK.AB
    positions = model.W_pos @ model.W_Q[0, 1] @ model.W_K[0, 1].T @ model.W_pos.T
    yield "scores of positions", positions
    yield "largest in rows", (full.AB.argmax(dim=-1) == torch.arange(50)).float().mean()
    composed = FactoredMatrix(model.W_K[1, 0].T, (model.W_V[0, 3] @ model.W_O[0, 3]).T)
    yield "K-composition", composed.norm() / (model.W_K[1, 0].norm() * model.W_V[0, 3].norm())
    yield "composition scores", model.all_composition_scores("K")


def _language_model() -> HookedTransformer:
    model = HookedTransformer(HookedTransformerConfig(**fields("gpt2")), word_tokenizer())
    draw_weights(model, 2)
    return model


def _difference(logits: torch.Tensor, answers: torch.Tensor) -> torch.Tensor:
    last = logits[:, -1].gather(-1, answers)
    return (last[:, 0] - last[:, 1]).mean()


def _indirect_objects() -> Values:
    model = _language_model()
    tokens = model.to_tokens(TEXTS, prepend_bos=True)
    answers = torch.tensor([[model.to_single_token("w5"), model.to_single_token("w9")]] * 2)
    logits, cache = model.run_with_cache(tokens)
    yield "logit difference", _difference(logits, answers)
    residual = model.tokens_to_residual_directions(answers)
    yield "residual directions", residual
    direction = residual[:, 0] - residual[:, 1]
    final = cache["resid_post", -1][:, -1]
    yield "scaled stream", cache.apply_ln_to_stack(final, layer=-1, pos_slice=-1) @ direction.T
    accumulated, _ = cache.accumulated_resid(
        layer=-1, incl_mid=True, pos_slice=-1, return_labels=True
    )
    yield "logit lens", accumulated
    parts, _ = cache.decompose_resid(layer=-1, pos_slice=-1, return_labels=True)
    yield "parts", cache.apply_ln_to_stack(parts, layer=-1, pos_slice=-1)
    heads, _ = cache.stack_head_results(layer=-1, pos_slice=-1, return_labels=True)
    yield "heads", heads
    yield "logits by heads", cache.logit_attrs(heads, tokens=answers[:, 0], pos_slice=-1)
    corrupted = tokens.roll(1, 0)
    metric = partial(_difference, answers=answers)
    grids = {
        "stream": patching.get_act_patch_resid_pre,
        "blocks": patching.get_act_patch_block_every,
        "heads": patching.get_act_patch_attn_head_out_all_pos,
        "parts of heads": patching.get_act_patch_attn_head_all_pos_every,
    }
    for name, grid in grids.items():
        yield f"patched {name}", grid(model, corrupted, cache, metric)


def _paths() -> Values:
    """Path patching: from a head to what later heads read, with other heads frozen."""
    model = _language_model()
    tokens = model.to_tokens(TEXTS)
    clean = _z_of(model, tokens)
    corrupted = _z_of(model, tokens.roll(1, 0))

    def freeze(z: torch.Tensor, hook: HookPoint, head: int) -> torch.Tensor:
        z[...] = clean[hook.name][...]
        if hook.layer() == 0:
            z[:, :, head] = corrupted[hook.name][:, :, head]
        return z

    def replace(value: torch.Tensor, hook: HookPoint, source: ActivationCache) -> torch.Tensor:
        value[:, :, 2] = source[hook.name][:, :, 2]
        return value

    queries = utils.get_act_name("q", 1)
    for head in range(4):
        model.reset_hooks()
        model.add_hook(lambda name: name.endswith("z"), partial(freeze, head=head), level=1)
        _, patched = model.run_with_cache(tokens, names_filter=[queries], return_type=None)
        model.reset_hooks()
        with model.hooks(fwd_hooks=[(queries, partial(replace, source=patched))]):
            yield f"L0H{head} → query of L1H2", model(tokens)
    model.set_use_attn_result(True)
    _, cache = model.run_with_cache(tokens, names_filter=lambda name: name.endswith("result"))
    yield "hook_result", cache["result", 1]
    model.set_use_split_qkv_input(True)
    _, cache = model.run_with_cache(tokens)
    yield "hook_q_input", cache["q_input", 1]


def _z_of(model: HookedTransformer, tokens: torch.Tensor) -> Any:  # noqa: ANN401 - a cache
    return model.run_with_cache(tokens, names_filter=lambda name: name.endswith("z"))[1]


def _brackets() -> Values:
    cfg = HookedTransformerConfig(
        n_ctx=12,
        d_model=28,
        d_head=14,
        n_heads=2,
        d_mlp=28,
        n_layers=3,
        attention_dir="bidirectional",
        act_fn="relu",
        d_vocab=5,
        d_vocab_out=2,
        use_attn_result=True,
        device="cpu",
        use_hook_tokens=True,
    )
    model = HookedTransformer(cfg).eval()
    draw_weights(model, 4)

    def note_padding(tokens: torch.Tensor, hook: HookPoint) -> None:
        hook.ctx["padding"] = (tokens == PAD_TOKEN)[:, None, None]

    def mask(scores: torch.Tensor, hook: HookPoint) -> torch.Tensor:  # noqa: ARG001
        padding = model.hook_dict["hook_tokens"].ctx["padding"]
        return scores.masked_fill(padding, -1e5)

    model.reset_hooks(including_permanent=True)
    model.hook_dict["hook_tokens"].add_perma_hook(note_padding)
    for name, hook in model.hook_dict.items():
        if name.endswith("attn_scores"):
            hook.add_perma_hook(mask)
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(3, 5, (4, 10), generator=generator)
    tokens[:, 0], tokens[1, 7:] = 0, PAD_TOKEN
    logits, cache = model.run_with_cache(tokens)
    yield "logits", logits
    yield "probabilities", logits[:, 0].softmax(-1)
    yield "pattern", cache["pattern", 0]
    yield "normalized", cache[utils.get_act_name("normalized", 1, "ln1")]
    yield "ln_final", model.ln_final(cache["resid_post", 2])
    heads = cache.stack_head_results(layer=3)
    yield "heads", heads
    yield "stream after MLP 0", cache["resid_post", 0]
    neurons = cache["post", 2][..., None] * model.W_out[2]
    yield "neurons", neurons @ model.W_U
    alone = model.blocks[0].attn
    x = model.blocks[0].ln1(cache["resid_pre", 0])
    yield "attention by itself", alone(x, x, x)


def _views() -> Values:
    """The numbers that CircuitsVis draws."""
    model = _attention_only()
    _, cache = model.run_with_cache(TEXTS[0], remove_batch_dim=True)
    names = model.to_str_tokens(TEXTS[0])
    patterns = circuitsvis.attention.attention_patterns(tokens=names, attention=cache["pattern", 0])
    yield "attention_patterns", torch.tensor(_drawn(patterns)["attention"])
    heads = circuitsvis.attention.attention_heads(cache["pattern", 1], names)
    yield "attention_heads", torch.tensor(_drawn(heads)["attention"])
    colored = circuitsvis.tokens.colored_tokens(names, cache["resid_post", 1][:, 0])
    yield "colored_tokens", torch.tensor(_drawn(colored)["values"])


def _drawn(rendered: Any) -> dict[str, Any]:  # noqa: ANN401 - a view of CircuitsVis
    """The properties in the script of a view."""
    source = rendered.cdn_src
    return json.JSONDecoder().raw_decode(source[source.index('{"') :])[0]
