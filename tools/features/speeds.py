"""How long the libraries take, in plain forward passes of transformers that are timed beside them.

Libraries that can't be installed in one environment are so compared with the same work: a fused
forward pass of the GPT-2 of transformers, in GPT-2-small's shape with random weights.
"""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor

import interp
from benchmarks.timing import Work, alternate
from interp import edits
from interp.kernels import processor
from tools.features.lens import bridge, tokenizer, zeroed
from tools.features.trials import Lacks, Library, huggingface

SMALL = {"vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12}
ROWS, LENGTH = 4, 64
HEADS = [(layer, 0) for layer in range(12)]
D_HEAD = 64
ROUNDS, WARMUP = 5, 1
WORKS = {
    "record": "every activation kept, and the patterns of all heads read",
    "zero": "one head of layer 5 zeroed",
    "heads": f"{len(HEADS)} heads zeroed in turn, one per layer; a logit at the last position",
}
"""By the names that :func:`works` gives them."""
TARGET = 1
"""The token whose logit is the metric."""


def machine() -> str:
    """Describes what the times depend on."""
    return (
        f"{ROWS} × {LENGTH} tokens, float32, processor {processor()}, "
        f"threads {torch.get_num_threads()}, torch {torch.__version__}, "
        f"transformers {version('transformers')}"
    )


def plain_forwards(library: Library) -> dict[str, str]:
    """The time of each work in plain forward passes: the median of the ratio over the rounds.

    Raises:
        Lacks: the library does not run models.
    """
    make_works = WORKS_OF.get((library.package, library.below))
    if make_works is None:
        raise Lacks("it runs no model")
    kernel = "eager" if library.package in ("nnsight", "nnterp") else "sdpa"
    theirs, plain = huggingface(kernel, SMALL), huggingface("sdpa", SMALL)
    tokens = torch.randint(SMALL["vocab_size"], (ROWS, LENGTH))
    works = {"plain": lambda: plain(tokens).logits, **make_works(theirs, tokens)}
    timed = alternate(
        {name: partial(lambda work: work, work) for name, work in works.items()},
        ROUNDS,
        WARMUP,
        tokens.device,
    )
    return {name: f"{timed.ratio(name, 'plain'):.3g}" for name in WORKS}


def of_interp(theirs: Any, tokens: Tensor) -> dict[str, Work]:  # noqa: ANN401 - of transformers
    """A run that records, a run with an edit, and a sweep."""
    model = interp.load(theirs)
    zeros = {(layer, head): edits.zero("z", layer=layer, head=head) for layer, head in HEADS}
    metric = interp.metrics.logit(TARGET)

    def record() -> list[Tensor]:
        cache = interp.run(model, tokens, record="all").cache
        return [cache["pattern", layer] for layer in range(SMALL["n_layer"])]

    return {
        "record": record,
        "zero": lambda: interp.run(model, tokens, edits=[zeros[5, 0]]).logits,
        "heads": lambda: interp.sweep(model, tokens, list(zeros.values()), metric).values,
    }


def _of_lens(model: Any, tokens: Tensor) -> dict[str, Work]:  # noqa: ANN401
    """``run_with_cache`` and ``run_with_hooks``."""

    def zero(layer: int, head: int) -> Tensor:
        hook = (f"blocks.{layer}.attn.hook_z", zeroed(head))
        return model.run_with_hooks(tokens, fwd_hooks=[hook])

    return {
        "record": lambda: model.run_with_cache(tokens),
        "zero": lambda: zero(5, 0),
        "heads": lambda: [zero(*head)[:, -1, TARGET] for head in HEADS],
    }


def of_lens_three(theirs: Any, tokens: Tensor) -> dict[str, Work]:  # noqa: ANN401, ARG001
    """A ``HookedTransformer`` of the same shape, with random weights of its own."""
    library = import_module("transformer_lens")
    config = library.HookedTransformerConfig(
        n_layers=SMALL["n_layer"], d_model=SMALL["n_embd"], n_ctx=SMALL["n_positions"],
        d_head=D_HEAD, n_heads=SMALL["n_head"], d_mlp=4 * SMALL["n_embd"],
        d_vocab=SMALL["vocab_size"], act_fn="gelu_new", normalization_type="LN", device="cpu",
    )  # fmt: skip
    return _of_lens(library.HookedTransformer(config).eval(), tokens)


def of_lens_four(theirs: Any, tokens: Tensor) -> dict[str, Work]:  # noqa: ANN401
    """A ``TransformerBridge`` to the model."""
    return _of_lens(bridge(theirs), tokens)


def _of_traces(model: Any, tokens: Tensor) -> dict[str, Work]:  # noqa: ANN401
    """``tracer.cache()``, and a trace an edit."""

    def record() -> object:
        with model.trace(tokens) as tracer:
            cache = tracer.cache()
        return cache

    def zero(layer: int, head: int) -> Tensor:
        with model.trace(tokens):
            z = model.transformer.h[layer].attn.c_proj.input
            z[..., head * D_HEAD : (head + 1) * D_HEAD] = 0
            logits = model.lm_head.output.save()
        return logits

    return {
        "record": record,
        "zero": lambda: zero(5, 0),
        "heads": lambda: [zero(*head)[:, -1, TARGET] for head in HEADS],
    }


def of_nnsight(theirs: Any, tokens: Tensor) -> dict[str, Work]:  # noqa: ANN401
    """The model, wrapped."""
    return _of_traces(import_module("nnsight").LanguageModel(theirs, tokenizer=tokenizer()), tokens)


def of_nnterp(theirs: Any, tokens: Tensor) -> dict[str, Work]:  # noqa: ANN401
    """The model with standard names."""
    model = import_module("nnterp").StandardizedTransformer(theirs, tokenizer=tokenizer())
    return _of_traces(model, tokens)


WORKS_OF: dict[tuple[str, str], Callable[[Any, Tensor], dict[str, Work]]] = {
    ("interp", "9999"): of_interp,
    ("transformer-lens", "4"): of_lens_three,
    ("transformer-lens", "5"): of_lens_four,
    ("nnsight", "9999"): of_nnsight,
    ("nnterp", "9999"): of_nnterp,
}
"""By the package, and the version below which the works are written for."""
