"""What SAELens computes with sparse autoencoders in a model; written for TransformerLens."""

import tempfile
from collections.abc import Iterator

import torch
from datasets import Dataset
from sae_lens import (
    HookedSAETransformer,
    LanguageModelSAERunnerConfig,
    LanguageModelSAETrainingRunner,
    LoggingConfig,
    StandardSAE,
    StandardSAEConfig,
    StandardTrainingSAEConfig,
)
from sae_lens.saes.sae import SAEMetadata
from sae_lens.training.activations_store import ActivationsStore
from transformer_lens import HookedTransformer, HookedTransformerConfig

from tools.clients.models import draw_weights, fields

N_FEATURES, CONTEXT = 24, 16
PLACES = {
    "blocks.0.hook_mlp_out": "d_model",
    "blocks.1.hook_resid_pre": "d_model",
    "blocks.1.attn.hook_z": "heads",
    "blocks.0.mlp.hook_post": "d_mlp",
}
"""Places of autoencoders, and the width of each."""


def results() -> Iterator[tuple[str, torch.Tensor]]:
    """Named values, in the order in which they are computed."""
    for shape in ("gpt2", "llama"):
        for name, value in _with_saes(shape):
            yield f"{shape}: {name}", value
    yield from _activations()
    yield from _training()


def _sae(place: str, cfg: HookedTransformerConfig, *, use_error_term: bool) -> StandardSAE:
    """An autoencoder with random weights."""
    widths = {"d_model": cfg.d_model, "heads": cfg.n_heads * cfg.d_head, "d_mlp": cfg.d_mlp}
    sae = StandardSAE(
        StandardSAEConfig(
            d_in=widths[PLACES[place]],
            d_sae=N_FEATURES,
            device="cpu",
            reshape_activations="hook_z" if place.endswith("hook_z") else "none",
            metadata=SAEMetadata(hook_name=place),
        ),
        use_error_term=use_error_term,
    )
    draw_weights(sae, 3)
    return sae


def _with_saes(shape: str) -> Iterator[tuple[str, torch.Tensor]]:
    model = HookedSAETransformer(HookedTransformerConfig(**fields(shape)))
    draw_weights(model, 1)
    tokens = torch.randint(0, 50, (2, 9), generator=torch.Generator().manual_seed(0))
    plain = model(tokens)
    yield "logits without autoencoders", plain
    saes = [_sae(place, model.cfg, use_error_term=False) for place in PLACES]
    first, *others = saes
    features = first.encode(model.run_with_cache(tokens)[1][first.cfg.metadata.hook_name])
    yield "encode", features
    yield "decode", first.decode(features)
    for sae in saes:
        name = sae.cfg.metadata.hook_name
        yield f"run_with_saes {name}", model.run_with_saes(tokens, saes=sae)
        with_error = model.run_with_saes(tokens, saes=sae, use_error_term=True)
        yield f"run_with_saes {name}, error term", with_error
    yield "run_with_saes, all", model.run_with_saes(tokens, saes=saes)
    logits, cache = model.run_with_cache_with_saes(tokens, saes=saes, use_error_term=True)
    yield "run_with_cache_with_saes", logits
    for name in sorted(cache.keys()):
        yield f"cache {name}", cache[name]

    def scale(acts: torch.Tensor, hook: object) -> torch.Tensor:  # noqa: ARG001
        return 2 * acts

    place = f"{others[0].cfg.metadata.hook_name}.hook_sae_acts_post"
    edited = model.run_with_hooks_with_saes(tokens, saes=others[0], fwd_hooks=[(place, scale)])
    yield "run_with_hooks_with_saes", edited
    model.add_sae(first, use_error_term=True)
    yield "add_sae, loss", model(tokens, return_type="loss")
    yield "add_sae, stop_at_layer", model(tokens, stop_at_layer=1)
    loss = model.run_with_saes(tokens, saes=others[0], return_type="loss")
    loss.backward()
    yield "gradient of W_enc", first.W_enc.grad
    yield "gradient of W_Q", model.blocks[1].attn.W_Q.grad
    model.reset_saes()
    yield "reset_saes", model(tokens)
    how = {"do_sample": False, "stop_at_eos": False, "use_past_kv_cache": False, "verbose": False}
    yield "generate", model.generate(tokens, max_new_tokens=4, **how)


def _dataset() -> Dataset:
    generator = torch.Generator().manual_seed(5)
    rows = torch.randint(0, 50, (400, CONTEXT), generator=generator).tolist()
    return Dataset.from_dict({"tokens": rows})


def _model() -> HookedTransformer:
    model = HookedTransformer(HookedTransformerConfig(**fields("gpt2")))
    draw_weights(model, 1)
    return model


def _activations() -> Iterator[tuple[str, torch.Tensor]]:
    cfg = _runner_config(_dataset(), "")
    store = ActivationsStore.from_config(_model(), cfg, override_dataset=_dataset())
    yield "ActivationsStore.get_activations", store.get_activations(store.get_batch_tokens())
    torch.manual_seed(0)
    yield "ActivationsStore.next_batch", store.next_batch()


def _runner_config(dataset: Dataset, folder: str) -> LanguageModelSAERunnerConfig:
    del dataset
    return LanguageModelSAERunnerConfig(
        sae=StandardTrainingSAEConfig(d_in=32, d_sae=N_FEATURES, l1_coefficient=0.01),
        model_name="custom",
        hook_name="blocks.1.hook_resid_pre",
        is_dataset_tokenized=True,
        prepend_bos=False,
        streaming=False,
        context_size=CONTEXT,
        training_tokens=200 * 64,
        train_batch_size_tokens=64,
        store_batch_size_prompts=8,
        n_batches_in_buffer=4,
        lr=1e-3,
        seed=1,
        device="cpu",
        logger=LoggingConfig(log_to_wandb=False),
        n_checkpoints=0,
        checkpoint_path=folder or None,
        output_path=folder or None,
        save_final_checkpoint=False,
        verbose=False,
    )


def _training() -> Iterator[tuple[str, torch.Tensor]]:
    """The weights of an autoencoder after 200 steps."""
    with tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(0)
        dataset = _dataset()
        runner = LanguageModelSAETrainingRunner(
            _runner_config(dataset, folder), override_model=_model(), override_dataset=dataset
        )
        trained = runner.run()
        x = torch.randn(64, 32, generator=torch.Generator().manual_seed(9))
        for name, weight in sorted(trained.state_dict().items()):
            yield f"after 200 steps, {name}", weight
        loss = (trained(x) - x).square().sum(-1).mean()
        yield "after 200 steps, error of random vectors", loss
