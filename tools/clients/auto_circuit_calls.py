"""What auto-circuit finds: edges by their gradient, integrated gradients and ACDC.

auto-circuit puts modules of its own in the place of hook points, through which every edge of the
model is interpolated between two inputs (Miller, Chughtai and Saunders 2024).
"""

import sys
from collections.abc import Iterator
from types import SimpleNamespace

import torch
import transformer_lens

# auto-circuit 1.0.1 imports it by the name that it had before TransformerLens 3.
if not hasattr(transformer_lens, "HookedTransformerKeyValueCache"):
    cache = transformer_lens.TransformerLensKeyValueCache
    transformer_lens.HookedTransformerKeyValueCache = cache
    module = SimpleNamespace(HookedTransformerKeyValueCache=cache)
    sys.modules["transformer_lens.past_key_value_caching"] = module
from auto_circuit.data import PromptDataLoader, PromptDataset
from auto_circuit.prune import run_circuits
from auto_circuit.prune_algos.ACDC import acdc_prune_scores
from auto_circuit.prune_algos.mask_gradient import mask_gradient_prune_scores
from auto_circuit.types import PatchType
from auto_circuit.utils.graph_utils import patchable_model
from auto_circuit.utils.patchable_model import PatchableModel
from transformer_lens import HookedTransformer, HookedTransformerConfig

from tools.clients.models import draw_weights, fields

SEPARATE_INPUTS = {
    "use_attn_result": True,
    "use_split_qkv_input": True,
    "use_hook_mlp_in": True,
}
N_PROMPTS, N_TOKENS = 4, 7


def results() -> Iterator[tuple[str, torch.Tensor]]:
    """Named values, in the order in which they are computed."""
    for shape in ("gpt2", "gemma-2"):
        for name, value in _circuits(shape):
            yield f"{shape}: {name}", value


def _prompts() -> PromptDataLoader:
    generator = torch.Generator().manual_seed(0)
    clean = torch.randint(3, 50, (N_PROMPTS, N_TOKENS), generator=generator)
    corrupt = clean.clone()
    corrupt[:, 2] = clean[:, 2].roll(1)
    answers = list(torch.randint(3, 50, (N_PROMPTS, 1), generator=generator))
    wrong = list(torch.randint(3, 50, (N_PROMPTS, 1), generator=generator))
    dataset = PromptDataset(clean, corrupt, answers, wrong)
    return PromptDataLoader(dataset, seq_len=None, diverge_idx=0, batch_size=2, shuffle=False)


def _model(shape: str) -> PatchableModel:
    model = HookedTransformer(HookedTransformerConfig(**fields(shape), **SEPARATE_INPUTS)).eval()
    draw_weights(model, 1)
    model.requires_grad_(requires_grad=False)
    return patchable_model(model, factorized=True, slice_output="last_seq", separate_qkv=True)


def _circuits(shape: str) -> Iterator[tuple[str, torch.Tensor]]:
    model, prompts = _model(shape), _prompts()
    batch = next(iter(prompts))
    yield "logits", model(batch.clean)
    how = {"grad_function": "logit", "answer_function": "avg_diff"}
    gradient = mask_gradient_prune_scores(model, prompts, None, mask_val=0.0, **how)
    for name in sorted(gradient):
        yield f"gradient {name}", gradient[name]
    path = mask_gradient_prune_scores(model, prompts, None, integrated_grad_samples=4, **how)
    for name in sorted(path):
        yield f"integrated gradient {name}", path[name]
    for patched in (PatchType.TREE_PATCH, PatchType.EDGE_PATCH):
        outputs = run_circuits(model, prompts, [0, 10, 40], gradient, patch_type=patched)
        for n_edges, of_batches in outputs.items():
            logits = torch.stack([of_batches[key] for key in of_batches])
            yield f"{patched.name} of {n_edges} edges", logits
    found = acdc_prune_scores(model, prompts, None, tao_exps=[-2], tao_bases=[1, 5])
    for name in sorted(found):
        yield f"ACDC {name}", found[name]
