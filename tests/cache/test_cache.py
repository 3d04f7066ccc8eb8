"""A cache holds the least from which all that was asked follows, and what it hands out is yours."""

import copy
import gc
import pickle
from contextlib import suppress

import pytest
import torch
from architectures import (
    ARCHITECTURES,
    D_VOCAB,
    PLAIN,
    assert_identical,
    build,
    build_new,
    covering,
    tokens_of,
)

from interp import (
    Cache,
    Config,
    LayerConfig,
    MLPConfig,
    Place,
    Point,
    StackConfig,
    Start,
    edits,
    metrics,
    run,
)
from interp.errors import InvalidInput, NotRecorded, StaleCache, UnknownPlace
from interp.execution.provenance import Provenance

LONG = Config(12, D_VOCAB, 128, decoder=StackConfig(2, PLAIN, MLPConfig(48)))


def recorded(record: object = "all", name: str = "gpt2", **settings: object) -> Cache:
    return run(build(name), *tokens_of(name), record=record, **settings).cache


def full_size(cache: Cache) -> int:
    """Bytes of everything that can be read from it."""
    return sum(value.nbytes for _, value in cache.items())


# What it holds.


def test_a_cache_of_everything_keeps_far_less_than_everything():
    """No score, pattern, result or scale; of a long text a small part of the whole."""
    cache = run(build(LONG), *tokens_of(LONG, pos=128), record="all").cache
    assert cache.nbytes < full_size(cache) / 5
    stored_points = {place.point for place in cache.stored}
    assert not stored_points & {Point.SCORES, Point.PATTERN, Point.RESULT, Point.SCALE}
    assert list(cache) == list(build(LONG).names)


@pytest.mark.parametrize("name", covering(ARCHITECTURES))
def test_what_is_kept_is_enough(name):
    cache = recorded(name=name)
    assert set(cache.stored) < set(cache)
    for place in cache:
        assert cache[place].isnan().sum() == 0


def test_a_pattern_recorded_alone_keeps_queries_and_keys():
    """2 · pos · d numbers instead of pos²."""
    cache = run(build(LONG), *tokens_of(LONG, pos=128), record=[("pattern", 0)]).cache
    assert {place.point for place in cache.stored} == {Point.Q, Point.K}
    assert cache.nbytes < cache["pattern", 0].nbytes / 5


@pytest.mark.parametrize("label", ["q", "k", "v"])
@pytest.mark.parametrize("name", ["gpt2", "llama", "gptj"])
def test_queries_alone_do_not_hold_keys_and_values(name, label):
    """They come from one product, but one of them is kept without the others."""
    cache = recorded([(label, 0)], name)
    assert cache.nbytes <= 1.25 * cache[label, 0].nbytes


def test_queries_keys_and_values_together_are_held_once():
    cache = recorded([("q", 0), ("k", 0), ("v", 0)])
    assert cache.nbytes == full_size(cache)


def test_nothing_recorded_holds_nothing():
    cache = recorded(None)
    assert (len(cache), cache.nbytes, cache.stored, cache.keys()) == (0, 0, [], [])


def test_gradients_count_among_the_bytes_held():
    cache = recorded([("z", 0)], gradients_of=metrics.loss())
    assert cache.nbytes == 2 * cache["z", 0].nbytes


@pytest.mark.gpu
def test_a_cache_stays_on_the_models_device():
    model = build_new("gpt2").cuda()
    cache = run(model, *tokens_of("gpt2"), record="all", gradients_of=metrics.loss()).cache
    for place, value in cache.items():
        assert value.device == model.device
        assert cache[(f"{place.point.label}_grad", place.layer, place.norm)].device == model.device


# Reading it.


@pytest.mark.parametrize("name", covering(ARCHITECTURES))
def test_a_cache_is_read_by_every_name_of_a_place(name):
    model, cache = build(name), recorded(name=name)
    for place, hook in model.names.hooks.items():
        assert place in cache
        assert hook in cache
        assert_identical(cache[hook], cache[place])


def test_a_cache_is_a_mapping():
    cache = recorded(["z", "embed"])
    expected = [Place(Point.EMBED), Place(Point.Z, 0), Place(Point.Z, 1)]
    assert list(cache) == cache.keys() == [place for place, _ in cache.items()] == expected
    assert len(cache) == 3
    assert_identical(cache["z", -1], cache["z", 1])


def test_the_error_for_what_was_not_recorded_lists_what_was():
    cache = recorded(["z", "embed"])
    assert ("pattern", 0) not in cache
    with pytest.raises(
        NotRecorded, match=r'"pattern", 0.*holds "embed", \("z", 0\), \("z", 1\).*record='
    ):
        cache["pattern", 0]
    with pytest.raises(NotRecorded, match="holds nothing"):
        recorded(None)["pattern", 0]
    with pytest.raises(KeyError) as caught:
        cache["q", 0]
    assert str(caught.value).startswith('("q", 0) was not recorded')


def test_what_is_kept_only_for_deriving_was_not_recorded():
    """The pattern needs q; but who asked for the pattern did not ask for q."""
    cache = recorded([("pattern", 0)])
    assert ("q", 0) not in cache
    with pytest.raises(NotRecorded, match='"q", 0'):
        cache["q", 0]


def test_a_misspelt_place_is_another_error_than_one_not_recorded():
    for wrong in (("patern", 0), ("pattern", 9), "blocks.0.attn.hook_patern"):
        with pytest.raises(UnknownPlace, match=r"Nearest|no layer 9"):
            recorded()[wrong]


@pytest.mark.parametrize("name", ["embed_grad", ("z_grad", 0), "blocks.0.attn.hook_z_grad"])
def test_a_gradient_not_taken_is_an_error(name):
    cache = recorded()
    assert name not in cache
    with pytest.raises(NotRecorded, match=r"No gradient of .*gradients_of=metric"):
        cache[name]


def test_gradients_are_read_by_the_same_names():
    cache = recorded(["z", "embed"], gradients_of=metrics.loss())
    for name in ("embed_grad", ("z_grad", 0), ("z_grad", -1), "blocks.0.attn.hook_z_grad"):
        assert name in cache
        assert cache[name].shape == cache[name].shape
    assert ("q_grad", 0) not in cache


# What it hands out is the reader's own.


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "uneven-pair"])
def test_changing_what_was_handed_out_changes_nothing(name, mode):
    model, tokens = build(name), tokens_of(name)
    with mode():
        cache = run(model, *tokens, record="all").cache
        before = {place: value.clone() for place, value in cache.items()}
        for place in cache:
            cache[place].fill_(7.0)
        for place, value in cache.items():
            assert_identical(value, before[place])
        assert_identical(run(model, *tokens).logits, before[Place(Point.LOGITS)])


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_changing_a_runs_logits_never_changes_the_cache_in_silence(mode):
    """They may share memory; then reading them afterwards is an error, not another number."""
    model, tokens = build("gpt2"), tokens_of("gpt2")
    with mode():
        done = run(model, *tokens, record=["logits"])
        before = done.logits.clone()
        done.logits.zero_()
        with suppress(StaleCache):
            assert_identical(done.cache["logits"], before)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_changing_the_stream_given_never_changes_the_cache_in_silence(mode):
    model, tokens = build("gpt2"), tokens_of("gpt2")
    with mode():
        x = run(model, *tokens, stop_at_layer=1).stream
        before = x.clone()
        done = run(model, *tokens, record=["resid_pre"], start=Start(1, x))
        x.zero_()
        with suppress(StaleCache):
            assert_identical(done.cache["resid_pre", 1], before)


def test_recording_copies_no_more_under_inference_mode():
    model, tokens = build("gpt2"), tokens_of("gpt2")
    copies = []
    for mode in (torch.no_grad, torch.inference_mode):
        with mode(), torch.profiler.profile() as profile:
            run(model, *tokens, record="all")
        counts = {row.key: row.count for row in profile.key_averages()}
        copies.append(counts.get("aten::clone", 0))
    assert copies[1] <= copies[0] < len(model.names)


def test_changing_gradients_changes_nothing():
    cache = recorded([("z", 0)], gradients_of=metrics.loss())
    before = cache["z_grad", 0]
    cache["z_grad", 0].zero_()
    assert_identical(cache["z_grad", 0], before)


# After the weights have changed.


def step(model):
    loss = model(*tokens_of("gpt2")).square().mean()
    loss.backward()
    torch.optim.AdamW(model.parameters(), lr=0.1).step()


def in_place(model):
    with torch.no_grad():
        model.blocks[0].attn.weight_qkv.mul_(2.0)


def loaded(model):
    model.load_state_dict(build_new("gpt2", seed=1).state_dict())


def swapped(model):
    model.blocks[0].attn.weight_qkv = torch.nn.Parameter(model.blocks[0].attn.weight_qkv * 2)


@pytest.mark.parametrize("change", [step, in_place, loaded, swapped, lambda m: m.float()])
def test_once_the_weights_have_changed_nothing_is_derived(change):
    model, tokens = build_new("gpt2"), tokens_of("gpt2")
    cache = run(model, *tokens, record="all").cache
    stored = {place: cache[place] for place in cache.stored}
    change(model)
    for place in cache:
        if place in stored:
            assert_identical(cache[place], stored[place])
        else:
            with pytest.raises(StaleCache, match="weights"):
                cache[place]


def test_a_weight_that_took_anothers_address_is_another():
    """Assigned twice, the second may lie where the first had been freed."""
    model, tokens = build_new("gpt2"), tokens_of("gpt2")
    cache = run(model, *tokens, record="all").cache
    attention = model.blocks[0].attn
    numbers = attention.weight_qkv.data
    attention.weight_qkv = torch.nn.Parameter(numbers)
    assert attention.weight_qkv.data_ptr() == numbers.data_ptr()
    with pytest.raises(StaleCache, match="weights"):
        cache["pattern", 0]


def test_a_new_run_after_a_change_is_of_the_new_weights():
    """The converse, and edits of a run do not count as a change."""
    model, tokens = build_new("gpt2"), tokens_of("gpt2")
    old = run(model, *tokens, record="all").cache
    run(model, *tokens, edits=[edits.zero("z", layer=0)])
    before = old["pattern", 0]
    in_place(model)
    assert not torch.equal(run(model, *tokens, record="all").cache["pattern", 0], before)


def test_weights_that_change_during_the_run_leave_nothing_to_derive():
    """Whatever block they are of: the cache is of the weights that the run began with."""

    def changing(x, hook):
        in_place(model)

    for layer in range(2):
        model, tokens = build_new("gpt2"), tokens_of("gpt2")
        edit = edits.apply("resid_mid", changing, layer=layer)
        cache = run(model, *tokens, record="all", edits=[edit]).cache
        assert_identical(cache["z", 1], cache["z", 1])
        for place in cache:
            if place not in cache.stored:
                with pytest.raises(StaleCache, match="weights"):
                    cache[place]


# All layers at once.


@pytest.mark.parametrize("name", ["gpt2", "llama", "seed", "bert"])
def test_a_name_without_a_layer_stacks_the_layers(name):
    """``[layer …]``; of a model with one layer too."""
    cache, n = recorded(name=name, gradients_of=metrics.logit(1)), len(build(name).blocks)
    for label in ("resid_pre", "pattern", "z", "q", "attn", Point.PATTERN, "pattern_grad"):
        each = [cache[label, layer] for layer in range(n)]
        assert_identical(cache[label], torch.stack(each))
        assert label in cache
    assert cache["pattern"].shape == (n, *cache["pattern", 0].shape)
    assert_identical(cache["embed"], recorded(["embed"], name)["embed"])


def test_a_name_without_a_layer_leaves_nothing_else_open():
    cache = recorded()
    ln1 = [cache["scale", layer, "ln1"] for layer in range(2)]
    assert_identical(cache["scale", "ln1"], torch.stack(ln1))
    with pytest.raises(UnknownPlace, match="ambiguous"):
        cache["scale"]
    pair = recorded(name="uneven-pair")
    assert pair["z", "encoder"].shape[0] == 2
    assert pair["z", "decoder"].shape[0] == 1
    with pytest.raises(UnknownPlace, match="ambiguous"):
        pair["z"]


def test_layers_that_can_not_be_stacked_are_an_error():
    with pytest.raises(NotRecorded, match=r'\("pattern", 1\) was not recorded'):
        recorded([("pattern", 0)])["pattern"]
    assert "pattern" not in recorded([("pattern", 0)])
    with pytest.raises(InvalidInput, match=r"Not every layer has 'pre'.*one by one: .*pre"):
        recorded(name="qwen-moe")["pre"]
    wide = LayerConfig((1,), mlp=MLPConfig(7))
    uneven = StackConfig(2, PLAIN, MLPConfig(10), exceptions=(wide,))
    config = Config(12, D_VOCAB, 16, decoder=uneven)
    cache = run(build(config), *tokens_of(config), record="all").cache
    with pytest.raises(
        InvalidInput, match=r'"pre", 0\) is \(2, 5, 10\) and \("pre", 1\) is \(2, 5, 7\)'
    ):
        cache["pre"]


# Pickled and copied.


def same(cache: Cache, other: Cache) -> None:
    assert list(cache) == list(other)
    for place, value in cache.items():
        assert_identical(value, other[place])


@pytest.mark.parametrize("name", covering(ARCHITECTURES))
def test_a_run_can_be_pickled_and_copied(name):
    """All that it holds, derived places too; in one pickle the model is there once."""
    model, tokens = build(name), tokens_of(name)
    edit = edits.add("logits", torch.ones(1, dtype=torch.float64))
    done = run(model, *tokens, record="all", edits=[edit])
    for again in (pickle.loads(pickle.dumps(done)), copy.deepcopy(done)):
        same(done.cache, again.cache)
        assert_identical(again.logits, done.logits)
        assert again.edits == done.edits
        assert_identical(again.batch.ids, done.batch.ids)
    other, cache = pickle.loads(pickle.dumps((model, done.cache)))
    assert cache._model is other
    with torch.no_grad():
        next(other.parameters()).add_(1)
    derived = next(place for place in cache if place not in cache.stored)
    with pytest.raises(StaleCache):
        cache[derived]


def test_a_run_is_not_stale_after_its_pickle_was_collected():
    """With PyTorch 2.9 this can collect Python's objects of storages that live on."""
    for generation in (0, 1, 2) * 2:
        done = run(build("opt-350m"), *tokens_of("opt-350m"), record="all")
        pickle.loads(pickle.dumps(done))
        gc.collect(generation)
        same(done.cache, done.cache)


def test_gradients_are_pickled_and_copied():
    cache = recorded(["z"], gradients_of=metrics.loss())
    for again in (pickle.loads(pickle.dumps(cache)), copy.deepcopy(cache)):
        assert_identical(again["z_grad"], cache["z_grad"])


def test_a_pickle_holds_each_tensor_once():
    """Views of one product would each bring all of it."""
    model, tokens = build(LONG), tokens_of(LONG, pos=128)
    cache = run(model, *tokens, record="all").cache
    assert len(pickle.dumps(cache)) < cache.nbytes + len(pickle.dumps(model)) + 50_000


def test_a_copy_shares_the_model_and_nothing_else():
    model, tokens = build_new("gpt2"), tokens_of("gpt2")
    done = run(model, *tokens, record="all")
    copied = copy.deepcopy(done.cache)
    before = copied["logits"]
    done.logits.zero_()
    assert_identical(copied["logits"], before)
    in_place(model)
    with pytest.raises(StaleCache):
        copied["pattern", 0]


@pytest.mark.parametrize("change", [step, in_place])
def test_a_stale_cache_is_still_stale_when_it_was_pickled(change):
    model, tokens = build_new("gpt2"), tokens_of("gpt2")
    cache = run(model, *tokens, record="all").cache
    change(model)
    again = pickle.loads(pickle.dumps(cache))
    assert_identical(again["z", 0], cache["z", 0])
    with pytest.raises(StaleCache):
        again["pattern", 0]


def test_results_and_what_they_are_made_of_can_be_pickled():
    model, tokens = build("gpt2"), tokens_of("gpt2")
    for value in (Provenance.of(model, *model.check(*tokens)), Start(1, torch.zeros(1, 2, 12))):
        again = pickle.loads(pickle.dumps(value))
        assert {k: str(v) for k, v in vars(again).items()} == {
            k: str(v) for k, v in vars(value).items()
        }
