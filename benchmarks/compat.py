"""Time of ``interp.compat`` against TransformerLens 3.9: the same calls, with the same weights.

Patching uses 8 prompts of 15 tokens, as TransformerLens's demonstration of activation patching
does: clean and corrupted prompts differ in one name. Harder prompts, without a common token, are
timed too. The loops of TransformerLens are timed on some cells, evenly spaced, and their seconds
are scaled to all cells, since each cell takes them one forward.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from typing import Any

import torch
from torch import Tensor

from benchmarks.bench import Bench, Makers
from benchmarks.peers import imported
from benchmarks.sweeps import LastResult, gap_note
from benchmarks.table import Mark, Row
from benchmarks.timing import Work
from interp import compat

FORWARD = Mark(1.1)
PATCHING = Mark(4, times_less=True)
PROMPTS, NAME, TARGET, DISTRACTOR = (8, 15), 10, 3, 4
"""Rows and columns of the patched prompts; the column of the name that differs, and two tokens."""
LOOPED = 24
"""Number of cells on which the loops of TransformerLens are timed."""
GRIDS = {
    "get_act_patch_attn_head_out_all_pos": ("layer", "head"),
    "get_act_patch_resid_pre": ("layer", "pos"),
    "get_act_patch_attn_head_pattern_all_pos": ("layer", "head_index"),
}
FILTERED = "hook_resid_post"


def against_lens(bench: Bench) -> Iterator[Row]:
    """Forwards with and without hooks, then patching."""
    models = Models(bench)
    yield from _forwards(bench, models)
    for grid in GRIDS:
        yield from _grid(bench, models, grid, "prompts that differ in a name", _pairs(bench))
    first, *_ = GRIDS
    yield from _grid(bench, models, first, "prompts of other tokens", _unrelated(bench))


@dataclass(frozen=True, eq=False)
class Models:
    """TransformerLens's model, and ours with its weights."""

    bench: Bench

    @property
    def theirs(self) -> Any:  # noqa: ANN401 - a class of transformer_lens
        """``transformer_lens.HookedTransformer``."""
        return self.bench.peers.lens

    @cached_property
    def ours(self) -> compat.HookedTransformer:
        """``interp.compat.HookedTransformer``."""
        cfg = compat.HookedTransformerConfig.from_dict(self.theirs.cfg.to_dict())
        made = compat.HookedTransformer(cfg).eval()
        made.load_state_dict(self.theirs.state_dict())
        return made

    def makers(self, of: Callable[[Any], Work]) -> Makers:
        """A work of each model."""
        return {"ours": lambda: of(self.ours), "theirs": lambda: of(self.theirs)}


# ---- forwards -----------------------------------------------------------------------------------


def _forwards(bench: Bench, models: Models) -> Iterator[Row]:
    tokens = bench.setting.tokens(*bench.setting.passes[0])
    shape = "×".join(map(str, tokens.shape))

    def halved(z: Tensor, hook: object) -> Tensor:  # noqa: ARG001 - passed by the library
        return 0.5 * z

    hooks = [("blocks.0.attn.hook_z", halved)]
    works: dict[str, Callable[[Any], Work]] = {
        "forward": lambda model: partial(model, tokens),
        "run_with_hooks, one hook": lambda model: partial(
            model.run_with_hooks, tokens, fwd_hooks=hooks
        ),
        f"run_with_cache of {FILTERED}": lambda model: partial(
            model.run_with_cache, tokens, names_filter=_is_filtered
        ),
        "run_with_cache": lambda model: partial(model.run_with_cache, tokens),
    }
    for work, of in works.items():
        timed = bench.timed(models.makers(of))
        row = Row(
            section="compat",
            work=f"{work} {shape}",
            kernel="default",
            against="TransformerLens",
            mark=bench.mark(FORWARD),
        )
        yield bench.row(row, timed, "ours", "theirs")


def _is_filtered(name: str) -> bool:
    return name.endswith(FILTERED)


# ---- patching -----------------------------------------------------------------------------------


def _pairs(bench: Bench) -> tuple[Tensor, Tensor]:
    """Clean and corrupted prompts that differ in one column."""
    clean = _prompts(bench)
    corrupted = clean.clone()
    at = min(NAME, clean.shape[1] - 1)
    corrupted[:, at] = (clean[:, at] + 1) % bench.setting.shape.d_vocab
    return clean, corrupted


def _unrelated(bench: Bench) -> tuple[Tensor, Tensor]:
    """Clean and corrupted prompts that differ in every column."""
    clean = _prompts(bench)
    return clean, (clean + 1) % bench.setting.shape.d_vocab


def _prompts(bench: Bench) -> Tensor:
    return bench.setting.tokens(*(bench.setting.prompts if bench.setting.quick else PROMPTS))


def _difference(logits: Tensor) -> Tensor:
    """The mean difference of two logits at the last position."""
    return (logits[:, -1, TARGET] - logits[:, -1, DISTRACTOR]).mean()


def _grid(
    bench: Bench, models: Models, grid: str, prompts: str, ids: tuple[Tensor, Tensor]
) -> Iterator[Row]:
    """Time one function of ``patching`` on prompts of one kind."""
    clean, corrupted = ids
    shape = bench.setting.shape
    sizes = [shape.n_heads if "head" in axis else corrupted.shape[1] for axis in GRIDS[grid][1:]]
    cells = list(product(range(shape.n_layers), *map(range, sizes)))
    every = max(1, len(cells) // LOOPED)
    results: dict[str, LastResult] = {}

    def make_ours() -> Work:
        patch = getattr(compat.patching, grid)
        _, cache = models.ours.run_with_cache(clean)
        arguments = (models.ours, corrupted, cache, _difference)
        results["ours"] = LastResult(lambda: patch(*arguments).flatten())
        return results["ours"]

    def make_theirs() -> Work:
        work = _their_loop(models.theirs, grid, ids, cells[::every])
        results["theirs"] = LastResult(work)
        return results["theirs"]

    makers: Makers = {"ours": make_ours, "theirs": make_theirs}
    looped = len(cells[::every])
    timed = bench.timed(
        makers, rounds=bench.setting.long_rounds, warmup=min(1, bench.setting.warmup)
    )
    row = Row(
        section="compat",
        work=f"{grid}, {len(cells)} cells, {prompts}, {'×'.join(map(str, corrupted.shape))}",
        kernel="default",
        against="TransformerLens",
        mark=bench.mark(PATCHING, PATCHING),
        note=f"{gap_note(results, 'ours', 'theirs', every)}; their loop on {looped} cells",
    )
    yield bench.row(row, timed.scaled({"theirs": len(cells) / looped}), "ours", "theirs")


def _their_loop(
    model: Any,  # noqa: ANN401 - a class of transformer_lens
    grid: str,
    ids: tuple[Tensor, Tensor],
    cells: list[tuple[int, ...]],
) -> Callable[[], Tensor]:
    """The function of TransformerLens on some of the cells."""
    theirs = imported("transformer_lens.patching", "transformer-lens")
    theirs.tqdm = iter  # pyright: ignore[reportAttributeAccessIssue] - no progress bar
    options = dict(getattr(theirs, grid).keywords)
    options["index_axis_names"] = None
    table = imported("pandas", "pandas").DataFrame(cells, columns=list(GRIDS[grid]))
    clean, corrupted = ids
    with torch.no_grad():
        _, cache = model.run_with_cache(clean)
    return lambda: theirs.generic_activation_patch(
        model, corrupted, cache, _difference, **options, index_df=table
    )
