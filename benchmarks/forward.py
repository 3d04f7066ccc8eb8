"""How fast is a plain forward, against the GPT-2 of transformers with the same shape?

Both have random weights in float32 and run in one process, alternately, with a fixed number of
threads; what is printed is the median of each and of the ratios, pair by pair.

    python benchmarks/forward.py --rows 4 --width 256
"""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch

import interp

MARK = 1.1
"""The forward may take this many times what transformers takes."""


@dataclass(frozen=True)
class Shape:
    """Of the model and of what it reads."""

    n_layers: int = 12
    n_heads: int = 12
    d_model: int = 768
    d_vocab: int = 50257
    n_ctx: int = 1024
    rows: int = 4
    width: int = 256


def ours(shape: Shape) -> Callable[[torch.Tensor], torch.Tensor]:
    """Our forward of that shape."""
    model = interp.Transformer(
        interp.Config(
            d_model=shape.d_model,
            d_vocab=shape.d_vocab,
            n_ctx=shape.n_ctx,
            tied=True,
            decoder=interp.StackConfig(
                n_layers=shape.n_layers,
                attention=interp.AttentionConfig(shape.n_heads, shape.d_model // shape.n_heads),
                mlp=interp.MLPConfig(4 * shape.d_model, "gelu_tanh"),
            ),
        )
    )
    return model.eval()


def theirs(shape: Shape) -> Callable[[torch.Tensor], torch.Tensor]:
    """The forward of transformers, fused attention, without its key/value cache."""
    from transformers import GPT2Config, GPT2LMHeadModel  # noqa: PLC0415 - only benchmarks need it

    config = GPT2Config(
        vocab_size=shape.d_vocab,
        n_positions=shape.n_ctx,
        n_embd=shape.d_model,
        n_layer=shape.n_layers,
        n_head=shape.n_heads,
        attn_implementation="sdpa",
    )
    model = GPT2LMHeadModel(config).eval()
    return lambda tokens: model(tokens, use_cache=False).logits


def alternate(
    forwards: list[Callable[[torch.Tensor], torch.Tensor]], tokens: torch.Tensor, runs: int
) -> list[list[float]]:
    """Seconds of each forward, run in turn; two rounds of warm-up are not counted."""
    seconds: list[list[float]] = [[] for _ in forwards]
    with torch.inference_mode():
        for turn in range(runs + 2):
            for forward, own in zip(forwards, seconds, strict=True):
                begun = time.perf_counter()
                forward(tokens)
                taken = time.perf_counter() - begun
                if turn > 1:
                    own.append(taken)
    return seconds


def main() -> None:
    """Measure and print a table and a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=Shape.rows)
    parser.add_argument("--width", type=int, default=Shape.width)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    torch.manual_seed(0)
    shape = Shape(rows=asked.rows, width=asked.width)
    tokens = torch.randint(shape.d_vocab, (shape.rows, shape.width))
    own, other = alternate([ours(shape), theirs(shape)], tokens, asked.runs)
    ratios = [a / b for a, b in zip(own, other, strict=True)]
    ratio = statistics.median(ratios)
    print(f"forward of {shape.rows} × {shape.width} tokens, float32, {asked.threads} threads")
    print(f"  interp             {statistics.median(own):8.3f} s (median of {asked.runs})")
    print(f"  transformers sdpa  {statistics.median(other):8.3f} s")
    print(f"  ratio              {ratio:8.3f}   ({min(ratios):.3f} to {max(ratios):.3f})")
    print(f"  mark               {MARK:8.3f}   {'holds' if ratio <= MARK else 'does not hold'}")
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    print(
        json.dumps(
            {
                "shape": asdict(shape),
                "threads": asked.threads,
                "seconds": {"interp": own, "transformers": other},
                "ratio": ratio,
                "mark": MARK,
                "versions": versions,
                "machine": platform.machine(),
            }
        )
    )


if __name__ == "__main__":
    main()
