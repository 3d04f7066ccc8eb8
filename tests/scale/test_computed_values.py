"""Values that differ from prompt to prompt, computed for the prompts that run together.

They are those that are computed for all prompts at once, whose donors are drawn in the same way, in
memory that no number of prompts changes.
"""

import pickle

import pytest
import torch
from allocations import allocated
from architectures import assert_close, build, covering, padded, tokens_of

import interp
from analyses import Ablation, ablate, predictions
from analyses.methods.components import Replacements, components_of, replaced_values
from analyses.results import nbytes
from interp import AttentionConfig, Config, StackConfig, Sweep, Transformer, metrics
from interp.errors import InvalidEdit, InvalidInput
from interp.executors import Processes
from interp.io import ComputedRows

N, LENGTHS = 11, (5, 3, 4, 5, 2, 5, 4, 4, 3, 5, 2)
LITTLE = 6e4
"""Bytes for a few prompts at a time: a sweep then has many jobs."""
KINDS = {
    "resampled z": {"method": "resample"},
    "resampled v": {"method": "resample", "part": "v"},
    "resampled patterns": {"method": "resample", "part": "pattern"},
    "of a reference": {"method": "resample", "reference": 4},
    "means by position": {"method": "mean", "per_position": True},
    "means of patterns": {"method": "mean", "part": "pattern"},
}


@pytest.fixture
def few_at_a_time(monkeypatch):
    """Values of all prompts are never in memory."""
    monkeypatch.setattr(replaced_values, "MOST", 0)


def prompts_of(name: str, *, of_patterns: bool, n: int = N, seed: int = 0):
    """Prompts of several lengths, padded on the left; for patterns, of one length at any column."""
    inputs = []
    for ids in tokens_of(name, n, 5, seed):
        if of_patterns:
            alone = [padded([row], ("left", "right")[k % 2], extra=1) for k, row in enumerate(ids)]
            inputs.append(torch.cat(alone))
        else:
            ragged = [row[:length] for row, length in zip(ids, LENGTHS, strict=False)]
            inputs.append(padded(ragged, "left"))
    return tuple(inputs) if len(inputs) > 1 else inputs[0]


def ablated(name: str, kind: str, **rest) -> Ablation:
    """The ablation of all heads."""
    options = dict(KINDS[kind])
    of_patterns = options.get("part") == "pattern"
    tokens = prompts_of(name, of_patterns=of_patterns)
    if n := options.pop("reference", None):
        options["reference"] = prompts_of(name, of_patterns=of_patterns, n=n, seed=3)
    options |= {"seed": 2, "rows": 3} | rest
    metric = metrics.logit_diff(tuple(k % 7 for k in range(N)), 9)
    return ablate(build(name), tokens, metric=metric, **options)


def count_computed(monkeypatch) -> list[int]:
    """The numbers of prompts whose values are computed, as they are."""
    computed, on = [], replaced_values.ReplacedValues.on

    def counted(self, place, rows):
        computed.append(len(rows))
        return on(self, place, rows)

    monkeypatch.setattr(replaced_values.ReplacedValues, "on", counted)
    return computed


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", covering(["gpt2", "llama", "bert", "t5"], ["llama", "t5"]))
def test_values_that_are_computed_for_some_prompts_are_those_of_all(name, kind, monkeypatch):
    """The ablation has the numbers of all values at once; with other donors, it has others."""
    at_once = ablated(name, kind, memory=LITTLE)
    monkeypatch.setattr(replaced_values, "MOST", 0)
    computed = count_computed(monkeypatch)
    by_parts = ablated(name, kind, memory=LITTLE)
    assert computed
    assert max(computed) < N
    assert_close(by_parts.ablated, at_once.ablated)
    if KINDS[kind]["method"] == "resample":
        other = ablated(name, kind, memory=LITTLE, seed=3)
        assert not torch.allclose(other.ablated, at_once.ablated)


@pytest.mark.parametrize("kind", KINDS)
def test_estimated_effects_are_those_of_values_of_all(kind, monkeypatch):
    at_once = ablated("gpt2", kind, estimate=True)
    monkeypatch.setattr(replaced_values, "MOST", 0)
    assert_close(ablated("gpt2", kind, estimate=True).ablated, at_once.ablated)


def test_a_function_of_the_logits_and_predictions_have_the_values_of_all(monkeypatch):
    """The first runs all prompts as one; the second runs them as it divides them."""
    model, tokens = build("gpt2"), prompts_of("gpt2", of_patterns=False)
    heads = components_of(model).heads

    def measured():
        replaced = Replacements(model, model.batches(tokens), "resample").edits(heads)
        table = interp.sweep(model, tokens, [*replaced.values()], lambda logits: logits[:, -1, 0])
        predicted = predictions(model, tokens, ablate=["L0H1"], method="resample", rows=2)
        return table.values, predicted.surprisal.nan_to_num()

    at_once = measured()
    monkeypatch.setattr(replaced_values, "MOST", 0)
    for values, expected in zip(measured(), at_once, strict=True):
        assert_close(values, expected)


def test_workers_get_the_values_of_their_prompts(few_at_a_time):
    local = ablated("gpt2", "resampled z", memory=LITTLE)
    with Processes(2, threads=1) as pool, interp.use(executor=pool):
        scaled = ablated("gpt2", "resampled z", memory=LITTLE)
    assert_close(scaled.ablated, local.ablated)


# ---- memory ------------------------------------------------------------------------------------


WIDTH, FEW = 24, 256
RAGGED = [WIDTH - k % 5 for k in range(4 * FEW)]


@pytest.fixture(scope="module")
def model() -> Transformer:
    """One whose heads and forwards take far more than the ids of tokens."""
    torch.manual_seed(0)
    return Transformer(Config(256, 13, WIDTH, decoder=StackConfig(2, AttentionConfig(4, 64), None)))


def most_bytes(model: Transformer, n: int, **options) -> int:
    """The most bytes that are allocated while all heads are ablated together."""
    rows = [(torch.arange(length) + k) % 13 for k, length in enumerate(RAGGED[:n])]
    heads = {"all": [head.name for head in components_of(model).heads]}
    ids = padded(rows, "left")
    options |= {"units": heads, "memory": 3e7, "rows": 16}
    return allocated(lambda: ablate(model, ids, **options))[0]


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"method": "resample"}, id="resampled", marks=pytest.mark.slow),
        pytest.param(
            {"method": "mean", "per_position": True},
            id="means by position",
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_an_ablation_takes_memory_that_no_number_of_prompts_changes(model, options, monkeypatch):
    """Four times as many: within 10 %. With the values of all at once, three times as much."""
    monkeypatch.setattr(replaced_values, "MOST", 2**20)
    few, many = (most_bytes(model, n, **options) for n in (FEW, 4 * FEW))
    assert many < 1.1 * few
    monkeypatch.setattr(replaced_values, "MOST", 2**40)
    few, many = (most_bytes(model, n, **options) for n in (FEW, 4 * FEW))
    assert many > 1.5 * few


def test_values_in_memory_are_those_of_the_last_prompts(model, monkeypatch):
    """As many as the limit allows, so that jobs which alternate do not run their donors anew."""
    batches = model.batches(torch.arange(8 * WIDTH).view(8, WIDTH) % 13)
    row = WIDTH * 256 * 2 * 4  # bytes: columns, width of all heads, layers, float32
    monkeypatch.setattr(replaced_values, "MOST", 5 * row)
    replaced = Replacements(model, batches, "resample")
    heads = components_of(model).heads
    values = replaced.edits(heads)[heads[0].name].values
    assert isinstance(values, ComputedRows)
    assert (values.shape, values.nbytes) == ((8, WIDTH, 64), 0)
    first = values.rows([0, 1]).tensor
    assert values.rows([2, 3]).tensor.data_ptr() != first.data_ptr()
    assert values.rows([0, 1]).tensor.data_ptr() == first.data_ptr()
    values.rows([4, 5])
    again = values.rows([0, 1]).tensor
    assert again.data_ptr() != first.data_ptr()
    assert torch.equal(again, first)


# ---- as data -----------------------------------------------------------------------------------


def test_a_saved_sweep_has_no_computed_values_and_is_resumed(few_at_a_time, tmp_path):
    """Its edits equal those of the same call only, and can't be applied."""
    cells = []
    stop = {"progress": lambda *at: cells.append(at), "cancelled": lambda: bool(cells)}
    whole = ablated("gpt2", "resampled z", memory=LITTLE)
    partial = ablated("gpt2", "resampled z", memory=LITTLE, **stop).partial
    assert partial is not None
    partial.save(tmp_path / "partial")
    read = Sweep.load(tmp_path / "partial")
    assert read.edits == partial.edits
    assert (tmp_path / "partial").stat().st_size < 20_000
    resumed = ablated("gpt2", "resampled z", memory=LITTLE, resume=read)
    assert torch.equal(resumed.ablated, whole.ablated)
    for other in ({"seed": 3}, {"reference": None, "method": "zero"}):
        with pytest.raises(InvalidInput, match="resume"):
            ablated("gpt2", "resampled z", memory=LITTLE, resume=read, **other)
    model, tokens = build("gpt2"), prompts_of("gpt2", of_patterns=False)
    for edit in (read.edits[0][0], pickle.loads(pickle.dumps(partial.edits[0][0]))):
        assert edit == partial.edits[0][0]
        assert nbytes(edit.values) == 0
        assert interp.edits.from_dict(edit.to_dict()) == edit
        with pytest.raises(InvalidEdit, match="not saved"):
            interp.run(model, tokens, edits=[edit])
