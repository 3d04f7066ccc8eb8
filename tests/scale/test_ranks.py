"""Models that several processes hold together have the numbers of one process.

Each test starts the processes, which run a program beside this file: ``on_ranks`` (runs, edits,
gradients, sweeps, weights), ``analyses_on_ranks`` and ``scenes_on_ranks``.
"""

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from architectures import ARCHITECTURES, HALF, build
from declared import declarations
from started_ranks import on_ranks

import interp
from interp.errors import InvalidInput
from interp.tensor_parallel import Ranks, parallel, rank_bytes

BOUND = 1e-12
"""Of differences in float64."""
BOUNDS = {"float64": BOUND, "float32": 1e-5}
"""Of differences in each dtype, relative to the largest number."""
COMMON = ("llama", "mixtral", "t5")
ON_TWO = (
    *(f"{name} float64" for name in dict.fromkeys([*COMMON, *HALF])),
    "llama float32",
)
"""Architectures of the slow test of two ranks; nightly, all of them run in both dtypes."""
ON_FOUR = ("llama float64", "mixtral float64", "llama float32")
"""Of four ranks, more than there are key/value heads: some hold copies of them."""
WITHOUT_COPIES = {"order_sensitivity", "permutation_covariance"}
"""Analyses that change a copy of the model."""

pytestmark = pytest.mark.timeout(300)


def is_shared(name: str, size: int) -> bool:
    """Whether the ranks divide all layers of an architecture."""
    for stack in ARCHITECTURES[name].stacks.values():
        for kind in stack.layer_kinds:
            attention = kind.attention
            kv_heads = attention.n_kv_heads or attention.n_heads
            copies, rest = divmod(size, kv_heads)
            if size > kv_heads and (rest or copies > attention.n_heads // kv_heads):
                return False
            experts = getattr(kind.mlp, "experts", None)
            if experts is not None and experts.n_experts < size:
                return False
    return True


def in_both_dtypes(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{name} {dtype}" for name in dict.fromkeys(names) for dtype in BOUNDS)


@pytest.mark.parametrize(
    ("size", "cases"),
    [
        pytest.param(2, ON_TWO, marks=pytest.mark.slow),
        pytest.param(4, ON_FOUR, marks=pytest.mark.slow),
        pytest.param(2, in_both_dtypes(ARCHITECTURES), marks=pytest.mark.nightly),
        pytest.param(4, in_both_dtypes(ARCHITECTURES), marks=pytest.mark.nightly),
    ],
    ids=["2 ranks, many kinds of part", "4 ranks", "2 ranks, all", "4 ranks, all"],
)
def test_runs_edits_gradients_and_sweeps_are_those_of_one_process(tmp_path, size, cases):
    """Of every architecture that the ranks divide, in float64 and in float32, which is less exact.

    The others say why not.
    """
    every = on_ranks(size, "on_ranks", tmp_path, *cases)
    assert len(every) == size
    for results in every:
        assert results.pop("without sums")["plain"] > 0.01
        assert set(results) == set(cases)
        compared = {case for case, result in results.items() if isinstance(result, dict)}
        assert compared == {case for case in cases if is_shared(case.split()[0], size)}
        for case in compared:
            bound = BOUNDS[case.split()[1]]
            wrong = {kind: x for kind, x in results[case].items() if not x <= bound}
            assert not wrong, case
            assert results[case]["exchanged"] == results[case]["recorded, not inert"] == 0
        rounded = [case for case in compared if case.endswith("float32")]
        assert any(results[case]["recorded"] > BOUND for case in rounded)
        assert all("ranks can't share" in results[case] for case in set(cases) - compared)


@pytest.mark.parametrize(
    "left_out",
    [
        pytest.param({"trace_paths"}, marks=pytest.mark.slow),
        pytest.param(set[str](), marks=pytest.mark.nightly),
    ],
    ids=["most", "all"],
)
def test_analyses_are_those_of_one_process(tmp_path, left_out):
    """The nightly test has those that take as long as ten others, too."""
    names = [name for name in declarations() if name not in left_out]
    for results in on_ranks(2, "analyses_on_ranks", tmp_path, *names):
        different = {name: text for name, text in results.items() if text}
        assert "a view of a model with dictionaries" in different.pop("check_dictionaries")
        assert set(different) == WITHOUT_COPIES
        assert all("this process has a share of the weights" in x for x in different.values())
        assert len(results) > 35


@pytest.fixture(scope="module", params=[pytest.param(2, marks=pytest.mark.slow)], ids=["2 ranks"])
def scenes(request, tmp_path_factory) -> list[dict[str, Any]]:
    """What each of two ranks saw."""
    folder = tmp_path_factory.mktemp("scenes")
    build("llama").save(folder / "model")
    names = ("traffic", "generation", "recording", "folder", "harvest", "mesh", "refusals", "dead")
    return on_ranks(request.param, "scenes_on_ranks", folder, *names)


def test_a_plain_forward_gives_the_bytes_of_the_formula(scenes):
    """Two sums for each block, and one for the embedding; and z of a layer where it is edited."""
    for seen in (every["traffic"] for every in scenes):
        embedding = 3 * 5 * 12 * 8
        assert seen["plain"]["all_reduce"] == seen["of blocks"] + embedding
        vocabulary = 3 * 5 * 7 * 8  # the larger share of 13 tokens
        assert seen["plain"]["all_gather"] == vocabulary
        assert seen["edited"]["all_gather"] == vocabulary + seen["of z"]
        assert seen["edited"]["all_reduce"] == seen["plain"]["all_reduce"]


def test_text_is_generated_from_keys_and_values_of_each_ranks_heads(scenes):
    """The text of one process, with edits too; of a token the bytes of a forward are exchanged."""
    for seen in (every["generation"] for every in scenes):
        assert seen["same"] == [True, True]
        assert seen["edited is another"]
        assert seen["heads"] == [1]
        embeddings = 3 * (5 + 5) * 12 * 8
        assert seen["sent"]["all_reduce"] == seen["of blocks"] + embeddings


def test_a_rank_stores_its_part_of_a_recording(scenes):
    """Half of the bytes of heads and neurons; all of them, once they are joined to be kept."""
    for seen in (every["recording"] for every in scenes):
        stored, whole, joined = seen["bytes"]
        assert stored == seen["estimated"] == whole / 2
        assert joined == whole
        assert seen["described"] == [2 * 10, {}]


def test_parts_are_joined_when_they_are_read(scenes):
    """With the numbers of one process, from a file too; a part alone is not the whole."""
    for seen in (every["recording"] for every in scenes):
        assert seen["shapes"] == [[3, 5, 2, 4], [3, 5, 4, 4]]
        of_read, whole, of_kept = seen["sent"]
        assert (of_read, of_kept) == (whole / 2, {})
        assert max(seen["differences"].values()) <= BOUND
        assert seen["again"]
        assert seen["rounded"]
        assert '(rank 0: ("q", 0), rank 1: ("k", 0))' in seen["other places"]
        assert seen["no folder"].startswith("InvalidInput: There is no folder")
        assert "pickling: this process has a share" in seen["pickled"]


def test_a_rank_reads_its_share_of_a_folder(scenes):
    for rank, seen in enumerate(every["folder"] for every in scenes):
        assert seen["difference"] <= BOUND
        assert seen["held"] < 0.6 * seen["whole"]
        assert f"2; rank {rank} holds {seen['held']:,} parameters" in seen["description"]


def test_ranks_compute_each_shard_of_a_harvest_together(scenes):
    """A rank that took another shard would add what it computes to those of other texts."""
    for seen in (every["harvest"] for every in scenes):
        assert seen["difference"] <= BOUND
        assert seen["shards"] > 4
        assert seen["again"] == 30


def test_one_dimension_of_a_mesh_is_taken(scenes):
    for seen in (every["mesh"] for every in scenes):
        assert seen["difference"] <= BOUND
        assert "one dimension was expected" in seen["two"]
        assert seen["number"].startswith("InvalidInput: mesh=2")


def test_what_needs_all_weights_or_another_model_is_refused(scenes):
    """On all ranks, which can go on."""
    seen, other = (every["refusals"] for every in scenes)
    for name in ("save", "processed"):
        assert seen[name].startswith(f"InvalidInput: {name}: this process has a share")
    assert seen["packed"].startswith("InvalidInput")
    assert "got a ShardedTransformer" in seen["parallel"]
    assert "device: options of loading" in seen["options"]
    assert "Rank 1 has another model than rank 0: architecture, weights" in seen["another model"]
    assert "Rank 1 has another model than rank 0: weights differ" in seen["other weights"]
    assert "Rank 0 has another model than rank 1: weights differ" in other["other weights"]
    assert "head 9 is outside" in seen["misspelt"]
    assert seen["after"] == other["after"]


def assert_rank_1_is_named(error: str, collective: str) -> None:
    assert "ranks that do not answer: 1. All ranks must run the same calls" in error
    assert error.startswith(f"OutOfResources: Rank 0: {collective} with 2 ranks failed")


def test_a_rank_that_has_ended_is_named_where_a_cache_is_read(scenes):
    assert_rank_1_is_named(scenes[0]["dead"]["error"], "objects")


@pytest.mark.slow
def test_a_rank_that_does_not_answer_is_named(tmp_path):
    (seen, _) = on_ranks(2, "scenes_on_ranks", tmp_path, "late")
    assert_rank_1_is_named(seen["late"]["error"], "all_reduce")


def test_a_process_that_was_started_alone_is_refused():
    with pytest.raises(InvalidInput, match="use torchrun --nproc-per-node N PROGRAM"):
        parallel(build("gpt2"))


def test_each_rank_holds_its_share_of_a_large_model():
    """Llama 3 70B in bfloat16: 70,553,706,496 parameters, of which only norms are on all ranks."""
    attention = interp.AttentionConfig(64, 128, 8, False, False, False, False)
    mlp = interp.MLPConfig(28672, "silu", gated=True, bias_in=False, bias_out=False)
    norm = interp.NormConfig("rmsnorm", bias=False)
    positions = interp.PositionsConfig("rotary", base=500000.0)
    stack = interp.StackConfig(80, attention, mlp, norm, positions)
    norms = (2 * 80 + 1) * 8192
    whole = 2 * 70_553_706_496
    shares = rank_bytes(interp.Config(8192, 128256, 8192, decoder=stack), 8)
    assert sum(shares) == whole + 7 * 2 * norms
    assert max(shares) - min(shares) == 0
    assert sum(rank_bytes(build("llama").config, 1, torch.float64)) == 2268 * 8


def test_more_ranks_than_key_value_heads_hold_copies_of_them():
    """Four ranks of two key/value heads: two hold the same keys, and each a half of the queries."""
    config = build("llama").config
    two, four = (rank_bytes(config, size, torch.float64) for size in (2, 4))
    assert sum(four) > sum(two)
    with pytest.raises(InvalidInput, match="3 ranks can't share 4 heads with 2 key/value heads"):
        rank_bytes(config, 3)
    assert Ranks(0, 4).size == 4
