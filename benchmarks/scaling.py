"""Time of a forward, a recorded forward and a sweep by batch, length and depth."""

from collections.abc import Iterator
from functools import partial

from torch import Tensor

import interp
from benchmarks.bench import Bench, Makers, products
from benchmarks.limits import Products, multiply_adds
from benchmarks.sweeps import metric, swept
from benchmarks.table import Row
from benchmarks.timing import Work
from interp import edits

BATCHES, LENGTHS = (1, 2, 4, 8), (64, 128, 256, 512, 1024)
KERNEL = "default"


def scaling(bench: Bench) -> Iterator[Row]:
    """Vary the rows and the length of a batch of 1×128, and the number of layers, one at a time."""
    setting = bench.setting
    layers = setting.shape.n_layers
    width = setting.passes[0][1]
    lengths = [length for length in LENGTHS if length <= setting.shape.n_ctx]
    points = [("batch", rows, width, layers) for rows in BATCHES]
    points += [("length", 1, length, layers) for length in lengths]
    depths = sorted({max(1, layers // 4), max(1, layers // 2), layers})
    points += [("depth", 1, width, depth) for depth in depths]
    for axis, rows, width, depth in points[:: len(points) // 3 if setting.quick else 1]:
        yield from _at(bench, axis, setting.tokens(rows, width), depth)


def _at(bench: Bench, axis: str, tokens: Tensor, depth: int) -> Iterator[Row]:
    full = depth == bench.setting.shape.n_layers
    model = bench.ours.default if full else bench.ours.of_depth(depth)
    works: dict[str, Work] = {
        "plain forward": partial(model, tokens),
        "all recorded": partial(interp.run, model, tokens, record="all"),
        "sweep, one head per layer": swept(
            model, tokens, [edits.zero("z", layer=n, head=0) for n in range(depth)], metric()
        ),
    }
    alone = Products(model, tokens.numel())
    makers: Makers = {name: partial(_identity, work) for name, work in works.items()}
    timed = bench.timed({**makers, products(KERNEL): lambda: alone})
    each = Products.count(model, tokens.numel())
    for name, work in works.items():
        row = Row(
            section="scaling",
            work=f"{name} {'×'.join(map(str, tokens.shape))}, {depth} layers ({axis})",
            kernel=KERNEL,
        )
        row = bench.row(row, timed, name)
        yield bench.limited(row, timed, name, (multiply_adds(work), each))


def _identity(work: Work) -> Work:
    return work
