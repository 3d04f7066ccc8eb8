"""Time of an attribution graph against circuit-tracer's, with the same model and transcoders.

Six layers of width 256 with random weights, and transcoders of 2 048 features, of which about 27
are active at a token. Ours also splits every edge by the heads that carry it, which circuit-tracer
does not. circuit-tracer needs older libraries than this package is developed with: `make clients`
makes an environment for it, `.venv-circuit_tracer`.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import nn

import interp
from benchmarks.bench import Bench
from benchmarks.memory import high_water, reset_high_water
from benchmarks.models import config_of
from benchmarks.peers import imported
from benchmarks.table import Mark, Row
from benchmarks.timing import Work
from interp import compat, dictionaries
from tools.clients.models import word_tokenizer

FASTER = Mark(2, times_less=True)
SIZES = {"32 tokens, 300 rows": (32, 300), "96 tokens, 1000 rows": (96, 1000)}
"""Numbers of tokens, and of features whose rows are computed."""
LONG, MOST_ROWS = (2300, 16), 7500
"""Tokens and rows of the graph whose memory is measured; rows that are estimated."""
N_FEATURES, SPARSE = 2048, -2.2
"""Number of features of a transcoder, and the bias that makes few of them active."""
FIELDS: dict[str, Any] = {
    **{"d_model": 256, "d_head": 32, "n_heads": 8, "n_layers": 6, "d_mlp": 1024, "n_ctx": 128},
    **{"d_vocab": 2000, "device": "cpu", "act_fn": "silu", "gated_mlp": True},
    **{"normalization_type": "RMS", "positional_embedding_type": "rotary", "rotary_dim": 32},
}
HOOKS = {"feature_input_hook": "mlp.hook_in", "feature_output_hook": "mlp.hook_out"}


def graphs(bench: Bench) -> Iterator[Row]:
    """Graphs of one logit of two prompts, unpruned by circuit-tracer."""
    models = Models()
    for work, (n_tokens, n_rows) in SIZES.items():
        generator = torch.Generator().manual_seed(0)
        tokens = torch.randint(3, FIELDS["d_vocab"], (n_tokens,), generator=generator)
        makers = {
            "theirs": lambda tokens=tokens, n=n_rows: models.work_of_theirs(tokens, n),
            "ours": lambda tokens=tokens, n=n_rows: models.work_of_ours(tokens, n),
        }
        timed = bench.timed(makers, rounds=bench.setting.long_rounds, warmup=1)
        row = Row(
            section="graphs",
            work=f"attribution graph of features, {work}",
            kernel="default",
            against="circuit-tracer",
            mark=bench.mark(FASTER),
        )
        yield bench.row(row, timed, "ours", "theirs")


def graph_memory(bench: Bench) -> Iterator[Row]:
    """Most memory beyond the model of a graph of a long prompt, and its estimate.

    The walk of a few rows takes all but what rows are stored in, of which the estimate has a bound.
    """
    from analyses import attribution_graph, estimate_attribution_graph  # noqa: PLC0415 - pandas

    quick = bench.setting.quick
    n_tokens, n_rows = (32, 8) if quick else LONG
    shape = replace(bench.setting.shape, n_ctx=max(n_tokens, bench.setting.shape.n_ctx))
    plain = interp.Transformer(config_of(shape))
    plain.requires_grad_(requires_grad=False)
    model = _with_transcoders(plain)
    tokens = bench.setting.tokens(1, n_tokens)
    settings: dict[str, Any] = {"units": "features", "heads": False, "check": 0}
    estimated = estimate_attribution_graph(model, tokens, max_nodes=MOST_ROWS, **settings)
    before, began = reset_high_water(), perf_counter()
    attribution_graph(model, tokens, targets=1, max_nodes=n_rows, **settings)
    seconds = perf_counter() - began
    yield Row(
        section="graph_memory",
        work=f"memory of a graph of features, {n_tokens} tokens, {n_rows} rows",
        kernel="default",
        against="",
        ours=(high_water() - before) / 1e6,
        unit="MB",
        note=f"{seconds:.0f} s; with {MOST_ROWS} rows: {estimated}",
    )


def _with_transcoders(model: interp.Transformer) -> interp.DictionaryTransformer:
    """A model with transcoders of random weights, of which few features write much."""
    generator, d = torch.Generator().manual_seed(1), model.d_model
    made: list[dictionaries.Dictionary] = []
    for layer in range(len(model.blocks)):
        sizes = (2.5 * torch.randn(N_FEATURES, 1, generator=generator)).exp()
        made.append(
            dictionaries.Dictionary(
                w_enc=torch.randn(d, N_FEATURES, generator=generator) / d**0.5,
                b_enc=torch.full((N_FEATURES,), SPARSE),
                b_in=torch.zeros(d),
                w_dec=sizes * torch.randn(N_FEATURES, d, generator=generator) / 16,
                b_dec=torch.zeros(d),
                activation=dictionaries.ReLU(),
                reads=f"blocks.{layer}.ln2.hook_normalized",
                writes=f"blocks.{layer}.hook_mlp_out",
            )
        )
    return interp.with_dictionaries(model, made)


class Models:
    """One model with transcoders, in both libraries."""

    def work_of_theirs(self, tokens: torch.Tensor, n_rows: int) -> Work:
        """circuit-tracer's graph."""
        attribute, model = imported("circuit_tracer", "circuit-tracer").attribute, self.theirs
        settings = {"max_n_logits": 1, "batch_size": 256, "max_feature_nodes": n_rows}
        return torch.enable_grad()(lambda: attribute(tokens, model, **settings))

    def work_of_ours(self, tokens: torch.Tensor, n_rows: int) -> Work:
        """Our graph."""
        from analyses import attribution_graph  # noqa: PLC0415 - imports pandas

        view = self.ours
        target = int(view(tokens[None])[0, -1].argmax())
        settings: dict[str, Any] = {"units": "features", "max_nodes": n_rows, "check": 0}
        return lambda: attribution_graph(view, tokens[None], targets=target, **settings)

    @cached_property
    def theirs(self) -> Any:  # noqa: ANN401 - a class of circuit_tracer
        """circuit-tracer's model."""
        replacement = imported(
            "circuit_tracer.replacement_model.replacement_model_transformerlens", "circuit-tracer"
        )
        lens = imported("transformer_lens", "transformer-lens")
        single = imported("circuit_tracer.transcoder.single_layer_transcoder", "circuit-tracer")
        cfg = lens.HookedTransformerConfig(**FIELDS)
        coders = {
            layer: single.SingleLayerTranscoder(
                cfg.d_model, N_FEATURES, nn.functional.relu, layer, dtype=torch.float32
            )
            for layer in range(cfg.n_layers)
        }
        transcoders = single.TranscoderSet(coders, **HOOKS)
        model = replacement.TransformerLensReplacementModel.from_config(
            cfg, transcoders, tokenizer=word_tokenizer()
        )
        _draw(model)
        return model

    @cached_property
    def ours(self) -> interp.DictionaryTransformer:
        """Ours, with the weights of theirs."""
        model = compat.HookedTransformer(FIELDS)
        weights = {
            name.replace("old_mlp.", "").replace("old_unembed.", ""): value
            for name, value in self.theirs.state_dict().items()
            if not any(part in name for part in ("transcoder", "mask", "rotary"))
        }
        model.load_state_dict(weights)
        lines = {"model_kind": "transcoder_set", "model_name": "random", **HOOKS}
        with tempfile.TemporaryDirectory() as folder:
            self.theirs.transcoders.to_safetensors(folder)
            settings = "".join(f"{key}: {value}\n" for key, value in lines.items())
            (Path(folder) / "config.yaml").write_text(settings)
            return interp.with_dictionaries(model.core, dictionaries.load_set(folder))


def _draw(model: nn.Module) -> None:
    """Draw all weights; gated MLPs have no biases, as ours."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, weight in sorted(model.named_parameters()):
            spread = 1 / 16 if weight.ndim > 1 else 0.1
            weight.copy_(spread * torch.randn(weight.shape, generator=generator))
            for end, value in {".w": 1.0, "mlp.b_in": 0.0, "b_enc": SPARSE}.items():
                if name.endswith(end):
                    weight.fill_(value)
