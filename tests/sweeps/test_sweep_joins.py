"""Cases of different restarts run as one forward where the weights of blocks are large.

Fewer forwards, and the values of whole ones; :mod:`laws.test_sweep` has the same law for forwards
of one restart. Here the weights of small models count as large.
"""

from dataclasses import replace

import pytest
import torch
from architectures import ARCHITECTURES, assert_close, build_new, in_turn, padded, tokens_of

from interp import Sweep, edits, estimate_sweep, metrics, run, sweep
from interp.metrics import measure
from interp.model import MLP
from interp.sweeps import schedule
from interp.sweeps.batched import BatchedForward

LAYERS, PROMPTS, WIDTH = 4, 3, 8
LAST = metrics.logit_diff(1, 2)
NAMES = ("gpt2", "llama", "gptj", "bloom", "bert", "gemma2", "mixtral", "rotary-only")


@pytest.fixture
def forwards(monkeypatch):
    """The cases of each edited forward that runs, by their indices."""
    monkeypatch.setattr(schedule, "LARGE_BLOCK", 0)
    groups, values = [], BatchedForward.values

    def noted(forward):
        if forward.cases:
            groups.append([case.index for case in forward.cases])
        return values(forward)

    monkeypatch.setattr(BatchedForward, "values", noted)
    return groups


def deep(name):
    config = ARCHITECTURES[name]
    ((stack, stack_config),) = config.stacks.items()
    return build_new(replace(config, **{stack: replace(stack_config, n_layers=LAYERS)}))


def of_all_layers():
    """Edits from the first to the last place of a block, of all columns and of some."""
    for layer in range(LAYERS):
        yield edits.zero("z", layer=layer, head=0)
        yield edits.mean("z", layer=layer, head=1, pos=3)
        yield edits.scale("resid_pre", 0.5, layer=layer, pos=(2, 4))
        yield edits.add("resid_post", 0.5, layer=layer, pos=1)
        yield edits.zero("k", layer=layer, pos=1, batch=2)
    yield edits.scale("embed", 0.5, pos=1)


@pytest.mark.parametrize(
    ("name", "padding"), in_turn(NAMES, ["none", "right", "left"], ["gpt2", "llama"])
)
def test_joined_forwards_give_the_values_of_whole_ones(forwards, monkeypatch, name, padding):
    model, (ids,) = deep(name), tokens_of(name, batch=PROMPTS, pos=WIDTH)
    ids = ids if padding == "none" else padded([ids[0], ids[1][:-2], ids[2][:-1]], padding)
    every = [*of_all_layers()]
    for metric in (LAST, metrics.loss() if model.stacks[-1].name != "encoder" else LAST):
        joined = sweep(model, ids, every, metric)
        for number, edit in enumerate(every):
            logits = run(model, ids, edits=[edit]).require_logits()
            expected = measure(metric, logits, model.batch(ids)).expand(PROMPTS)
            assert_close(joined.values[number], expected.double(), what=edit)
    n_joined = len(forwards) // 2
    monkeypatch.setattr(schedule, "LARGE_BLOCK", 2**22)
    sweep(model, ids, every, LAST)
    assert 2 * n_joined <= len(forwards) - 2 * n_joined


def test_a_block_reads_its_weights_once_for_all_cells_of_a_grid(forwards, monkeypatch):
    """One prompt, and cells of all layers at all positions; apart, once for each."""
    model, (ids,) = deep("gpt2"), tokens_of("gpt2", batch=1, pos=WIDTH)
    cells = [edits.zero("resid_pre", layer=n, pos=2 * n) for n in range(LAYERS)]
    numbers = {id(block.mlp): number for number, block in enumerate(model.blocks)}
    calls, hidden = [], MLP.hidden

    def noted(part, x, *rest):
        calls.append(numbers[id(part)])
        return hidden(part, x, *rest)

    monkeypatch.setattr(MLP, "hidden", noted)
    sweep(model, ids, cells, LAST)
    # The baseline; its last block for the metric; the cells that join; the cell of the last block.
    assert sorted(calls[LAYERS:]) == [0, 1, 1, 2, 2, 3, 3]
    assert forwards == [[0, 1, 2], [3]]


def test_columns_are_not_computed_for_many_rows_only_to_join(forwards):
    """What joining saves is worth ``FIXED`` rows; so cells that begin far apart run apart."""
    model = deep("gpt2")
    cells = [edits.zero("resid_pre", layer=n, pos=7 * (n % 2)) for n in range(LAYERS - 1)]
    sweep(model, tokens_of("gpt2", batch=PROMPTS, pos=WIDTH)[0], cells, LAST)
    assert forwards == [[0, 1, 2]]
    forwards.clear()
    sweep(model, tokens_of("gpt2", batch=12, pos=WIDTH)[0], cells, LAST)
    assert forwards == [[0, 2], [1]]


def test_cases_with_later_edits_run_by_themselves(forwards):
    """With an edit in a later block, in the last one, or one that reads earlier tensors."""
    model, (ids,) = deep("gpt2"), tokens_of("gpt2", batch=PROMPTS, pos=WIDTH)
    z = [edits.zero("z", layer=n, head=0) for n in range(LAYERS)]
    edge = edits.edge("L0H1", "L2MLP", 0.0)
    cases = [[z[0]], [z[0], z[2]], [z[1]], [z[3]], [edge]]
    table = sweep(model, ids, cases, LAST)
    assert [0, 2] in forwards
    assert sorted(map(len, forwards)) == [1, 1, 1, 2]
    for number, case in enumerate(cases):
        logits = run(model, ids, edits=case).require_logits()
        assert_close(table.values[number], measure(LAST, logits, model.batch(ids)))


def test_a_stopped_sweep_of_joined_forwards_goes_on_with_the_same_values(forwards, tmp_path):
    model, (ids,) = deep("llama"), tokens_of("llama", batch=PROMPTS, pos=WIDTH)
    every = [*of_all_layers()]
    whole = sweep(model, ids, every, LAST)
    stopped = sweep(model, ids, every, LAST, cancelled=lambda: True)
    stopped.save(tmp_path / "part.safetensors")
    assert 0 < int(stopped.done.sum()) < stopped.done.numel()
    again = sweep(model, ids, every, LAST, resume=Sweep.load(tmp_path / "part.safetensors"))
    assert torch.equal(again.values, whole.values)


def test_the_budget_of_memory_limits_joined_cases(forwards):
    """And the estimate counts what is joined."""
    model, (ids,) = deep("gpt2"), tokens_of("gpt2", batch=PROMPTS, pos=WIDTH)
    heads = [edits.zero("z", layer=n, head=h) for n in range(LAYERS - 1) for h in range(3)]
    sizes, peaks = [], []
    for budget in (4e4, 3e6):
        forwards.clear()
        sweep(model, ids, heads, LAST, memory=budget)
        sizes.append(max(map(len, forwards)))
        peaks.append(estimate_sweep(model, ids, heads, LAST, memory=budget).peak)
    assert sizes[0] < sizes[1] == len(heads)
    assert peaks[0] < peaks[1] <= 3e6
