"""Streams of prompts, and what is gathered of them, take memory that no number of them changes."""

import subprocess
import sys

import pytest
import torch
from allocations import allocated
from architectures import assert_close, build, padded, tokens_of

from analyses.methods.components import Replacements, components_of
from interp import AttentionConfig, Config, StackConfig, Transformer
from interp.model import Batch

STATISTICS = """
import sys
import torch
from analyses import attention_statistics
from benchmarks.memory import high_water
from interp import AttentionConfig, Config, MLPConfig, StackConfig, Transformer

torch.manual_seed(0)
stack = StackConfig(2, AttentionConfig(3, 4), MLPConfig(10))
model = Transformer(Config(12, 13, 64, decoder=stack))
for n in map(int, sys.argv[1:]):
    prompts = ([(k + i) % 13 for i in range(20 + k % 40)] for k in range(n))
    result = attention_statistics(model, prompts)
    assert result.n_prompts == n, result.n_prompts
    print(high_water())
"""
MEANS = """
import sys
import torch
from analyses.methods.components import Replacements, components_of
from benchmarks.memory import high_water
from interp import AttentionConfig, Config, StackConfig, Transformer

torch.manual_seed(0)
model = Transformer(Config(64, 13, 64, decoder=StackConfig(4, AttentionConfig(4, 16), None)))
for n in map(int, sys.argv[1:]):
    ids = torch.arange(n * 64).view(-1, 64) % 13
    Replacements(model, model.batches(ids), "mean").edits(components_of(model).heads)
    print(high_water())
"""


def peaks(program: str, *numbers: int) -> list[int]:
    """The most bytes that a process held until it had read each of these numbers of prompts."""
    words = [sys.executable, "-c", program, *map(str, numbers)]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    return [int(line) for line in done.stdout.split()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "few", "many"),
    [(STATISTICS, 1024, 10_240), (MEANS, 256, 2560)],
    ids=["statistics", "means"],
)
def test_memory_does_not_depend_on_the_number_of_prompts(program, few, many):
    """Ten times as many prompts: the same peak within 5 %."""
    of_few, of_many = peaks(program, few, many)
    assert of_many < 1.05 * of_few


ROWS, WIDTH, FEW, MANY = 8, 24, 32, 256
TABLES = 3 * 8 * (MANY - FEW) * WIDTH
"""Bytes of three numbers for each token that is more."""
KINDS = {
    "mean": {"method": "mean"},
    "mean by position": {"method": "mean", "per_position": True},
    "resampled": {"method": "resample"},
}


@pytest.fixture(scope="module")
def model() -> Transformer:
    """One whose heads are what takes the memory."""
    return Transformer(Config(64, 13, WIDTH, decoder=StackConfig(4, AttentionConfig(4, 16), None)))


def prompts(n: int) -> torch.Tensor:
    return torch.arange(n * WIDTH).view(-1, WIDTH) % 13


def most_bytes(model: Transformer, part: str, n: int, n_reference: int | None, **kind) -> int:
    """The most bytes that are allocated to gather what replaces all heads."""
    batches, heads = model.batches(prompts(n)), components_of(model, part).heads
    others = None if n_reference is None else model.batches(prompts(n_reference))
    replaced = Replacements(model, batches, reference=others, rows=ROWS, **kind)
    with torch.no_grad():
        return allocated(lambda: replaced.edits(heads))[0]


@pytest.mark.parametrize("part", ["z", "pattern"])
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_what_replaces_heads_takes_memory_that_no_number_of_references_changes(model, kind, part):
    """But for tables like that of the token ids. Activations would take 1 kB a token."""
    few, many = (most_bytes(model, part, 4, n, **kind) for n in (FEW, MANY))
    assert many - few < TABLES


@pytest.mark.parametrize(("kind", "part"), [("mean by position", "z"), ("mean", "pattern")])
def test_means_by_position_take_memory_that_no_number_of_prompts_changes(model, kind, part):
    """Likewise: each position has one value, which all prompts are given."""
    few, many = (most_bytes(model, part, n, None, **KINDS[kind]) for n in (FEW, MANY))
    assert many - few < TABLES


def test_resampled_values_take_the_memory_of_one_value_a_token_and_a_forward(model):
    """Below the limit, of each prompt; those of one of four layers are there twice, for its heads.

    Above it, see ``test_computed_values.py``.
    """
    few, many = (most_bytes(model, "z", n, None, method="resample") for n in (FEW, MANY))
    values = (MANY - FEW) * WIDTH * 64 * 4 * 4  # tokens, width of all heads, layers, float32
    assert values < many - few < 1.3 * values


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("part", ["z", "v"])
@pytest.mark.parametrize("name", ["gpt2", "t5"])
def test_means_by_position_do_not_depend_on_the_forwards(name, part, side):
    """Prompts of several lengths: those of one forward, and of one forward for each prompt."""
    model, lengths = build(name), (5, 3, 4, 5, 2)
    inputs = [
        padded([row[:n] for row, n in zip(ids, lengths, strict=True)], side)
        for ids in tokens_of(name, 5, 5)
    ]
    batches = model.batches(tuple(inputs) if len(inputs) > 1 else inputs[0])
    heads = components_of(model, part).heads
    whole, each, other = (
        Replacements(model, batches, "mean", of, per_position=True, rows=rows).edits(heads)
        for of, rows in ((None, 64), (None, 1), ([_first_two(x) for x in batches], 64))
    )
    for head in whole:
        values = [made[head].values.tensor for made in (whole, each, other)]
        assert_close(values[1], values[0], what=head)
        assert not torch.allclose(values[2], values[0])


@pytest.mark.parametrize("part", ["z", "pattern"])
def test_prompts_that_are_no_donors_are_not_run(monkeypatch, model, part):
    """Four prompts have four donors of one length, whose values are those of any forward."""
    n_run, module = [], sys.modules["analyses.methods.components.replacements"]
    run, reference = module.run, model.batches(prompts(MANY))

    def counted(*arguments, **options):
        n_run.append(len(arguments[1].ids))
        return run(*arguments, **options)

    monkeypatch.setattr(module, "run", counted)
    made = [
        Replacements(model, model.batches(prompts(4)), "resample", reference, rows=rows).edits(
            components_of(model, part).heads
        )
        for rows in (3, MANY)
    ]
    assert n_run == [3, 1, 4]
    for head, edit in made[0].items():
        assert_close(edit.values.tensor, made[1][head].values.tensor, 1e-6)


def _first_two(batch: Batch) -> Batch:
    return batch.rows(torch.arange(2))
