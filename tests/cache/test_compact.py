"""A cache holds what it must and nothing twice; what it holds can be formed, moved and cast."""

import pytest
import torch
from architectures import (
    ARCHITECTURES,
    NIGHTLY,
    OTHER_HALF,
    VARIED,
    assert_close,
    assert_identical,
    build,
    build_new,
    covering,
    tokens_of,
)

from interp import (
    AttentionConfig,
    Cache,
    Config,
    MLPConfig,
    StackConfig,
    edits,
    metrics,
    run,
)
from interp.errors import InvalidInput, NotRecorded, StaleCache, UnknownPlace

# GPT-2 small at a sixteenth of its width: with 64 tokens for 1024, and 8 for 128, every tensor
# has the same share of the whole.
LAYERS, HEADS, D_HEAD = 12, 12, 4
D_MODEL = HEADS * D_HEAD
GPT2_SMALL = Config(
    D_MODEL,
    16,
    64,
    decoder=StackConfig(
        LAYERS, AttentionConfig(HEADS, D_HEAD), MLPConfig(4 * D_MODEL, "gelu_tanh")
    ),
    tied=True,
)
# What tools that store everything store of a layer; a stream that two names share counts once.
STORED = {"normalized", "scale", "q", "k", "v", "z", "scores", "pattern", "attn_out", "resid_mid"}
STORED |= {"pre", "post", "mlp_out", "resid_post"}
STORED_ONCE = ["embed", "pos_embed", ("resid_pre", 0), "final_scale", "final_normalized"]


def recorded(record: object = "all", name: str = "gpt2", pos: int = 5, **settings: object) -> Cache:
    return run(build(name), *tokens_of(name, pos=pos), record=record, **settings).cache


def small_run(pos: int, record: object = "all") -> Cache:
    model = build(GPT2_SMALL, dtype=torch.float32)
    return run(model, *tokens_of(GPT2_SMALL, 1, pos), record=record).cache


def labels(cache: Cache) -> set[str]:
    """Of the points whose tensors are held."""
    return {place.point.label for place in cache.stored}


# How much is held.


@pytest.mark.parametrize("pos", [8, 64])
def test_a_cache_of_everything_holds_six_streams_a_layer(pos):
    """q, k, v, z, resid_mid, resid_post; the embedding, the first stream; and the logits."""
    cache = small_run(pos)
    stream = pos * D_MODEL * 4
    assert cache.nbytes - cache["logits"].nbytes == (6 * LAYERS + 2) * stream


@pytest.mark.parametrize(("pos", "times"), [(64, 8.0), (8, 3.5)])
def test_it_is_many_times_smaller_than_storing_everything(pos, times):
    """GPT-2 small, 1 × 1024 and 1 × 128 tokens; logits left out on both sides."""
    cache = small_run(pos)
    layers = [v.nbytes for place, v in cache.items() if place.point.label in STORED]
    stored = sum(layers) + sum(cache[name].nbytes for name in STORED_ONCE)
    assert stored >= times * (cache.nbytes - cache["logits"].nbytes)


@pytest.mark.parametrize("name", covering(ARCHITECTURES, OTHER_HALF, NIGHTLY))
def test_recording_one_place_costs_no_more_than_that_place(name):
    for place in build(name).names:
        cache = recorded([place], name)
        assert list(cache) == [place]
        assert cache.nbytes <= 1.25 * cache[place].nbytes, place


def test_of_a_pattern_the_smaller_is_held():
    """It, where it is smaller than queries and keys: while pos < 2 · d_head."""
    for pos in (2 * D_HEAD - 1, 2 * D_HEAD + 1):
        cache = small_run(pos, "pattern")
        formed, sources = HEADS * pos * pos, 2 * HEADS * pos * D_HEAD
        assert cache.nbytes == LAYERS * min(formed, sources) * 4
        assert labels(cache) == ({"pattern"} if formed < sources else {"q", "k"})


def test_what_is_asked_for_besides_is_weighed_with_it():
    """Scores and pattern share queries and keys; values asked for do not hold those."""
    pos = D_HEAD + 1
    both = small_run(pos, ["scores", "pattern"])
    assert labels(both) == {"q", "k"}
    several = small_run(pos, ["pattern", "v"])
    assert several.nbytes == LAYERS * (HEADS * pos * pos + pos * D_MODEL) * 4
    queries = small_run(pos, ["pattern", "q", "k"])
    assert labels(queries) == {"q", "k"}


def test_a_scale_alone_does_not_hold_the_stream():
    cache = small_run(8, ["scale", "final_scale"])
    assert cache.nbytes == (2 * LAYERS + 1) * 8 * 4


def test_an_edited_place_is_weighed_as_any_other():
    """Of edited scores a pattern follows; they are as large as it is, so it is not formed."""
    edit = edits.zero("scores", layer=0, head=0)
    assert labels(recorded([("pattern", 0)], edits=[edit])) == {"scores"}


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_stream_of_two_names_is_held_once(mode):
    with mode():
        cache = recorded(["resid_pre", "resid_post"])
    assert cache.nbytes == 3 * cache["resid_post", 0].nbytes


# Kept formed.


@pytest.mark.parametrize("name", VARIED)
def test_what_is_kept_formed_is_the_same(name):
    before, cache = dict(recorded(name=name).items()), recorded(name=name)
    assert cache.keep("all") is cache
    assert set(cache.stored) == set(cache)
    for place, value in cache.items():
        assert_identical(value, before[place])


def test_keeping_takes_the_room_of_what_is_formed():
    cache = recorded()
    lean, layer = cache.nbytes, cache["pattern", 0].nbytes
    assert cache.keep(("pattern", 1)).nbytes == lean + layer
    assert cache.keep("pattern").nbytes == lean + 2 * layer
    assert cache.keep(["pattern", "blocks.0.attn.hook_attn_scores"]).nbytes == lean + 3 * layer
    assert cache.keep("attn_in").nbytes == lean + 3 * layer  # it is the stream itself


def test_what_is_kept_formed_is_handed_out_as_a_copy():
    cache = recorded().keep("pattern")
    before = cache["pattern", 0]
    cache["pattern", 0].zero_()
    assert_identical(cache["pattern", 0], before)


def test_what_is_kept_formed_outlives_the_weights():
    model, tokens = build_new("gpt2"), tokens_of("gpt2")
    cache = run(model, *tokens, record="all").cache.keep(("pattern", 0))
    before = cache["pattern", 0]
    with torch.no_grad():
        model.blocks[0].attn.weight_qkv.mul_(2.0)
    assert_identical(cache["pattern", 0], before)
    with pytest.raises(StaleCache, match="weights"):
        cache.keep("pattern")


def test_only_what_was_recorded_can_be_kept():
    cache = recorded([("pattern", 0), "z"], pos=12)
    with pytest.raises(NotRecorded, match=r'"q", 0\) was not recorded'):
        cache.keep("q")
    with pytest.raises(NotRecorded, match='"pattern", 1'):
        cache.keep([("pattern", 0), ("pattern", 1)])
    with pytest.raises(UnknownPlace, match="Nearest"):
        cache.keep("patern")
    assert ("pattern", 0) in cache.keep("pattern")  # the one layer that was recorded


# Moved and cast.


def test_in_a_wider_type_everything_is_the_same_number():
    model, tokens = build("gpt2", dtype=torch.float32), tokens_of("gpt2")
    cache = run(model, *tokens, record="all").cache
    wide = cache.to(torch.float64)
    for place, value in cache.items():
        assert value.dtype == torch.float32
        assert_identical(wide[place], value.double())
        assert_identical(wide.to(torch.float32)[place], value)


@pytest.mark.parametrize("name", VARIED)
def test_in_a_narrower_type_it_follows_from_what_was_rounded(name):
    cache = recorded(name=name)
    narrow = cache.to(torch.float32)
    assert narrow.nbytes == cache.nbytes / 2
    for place, value in cache.items():
        assert_close(narrow[place], value.float(), 1e-5, place)


def test_what_was_kept_formed_is_rounded_but_once():
    cache = recorded().keep("pattern")
    narrow = cache.to(torch.bfloat16)
    assert_identical(narrow["pattern", 0], cache["pattern", 0].bfloat16())
    rounded = recorded().to(torch.bfloat16)["pattern", 0]
    assert rounded.dtype == torch.bfloat16
    assert not torch.equal(rounded, narrow["pattern", 0])


def test_gradients_are_cast_too():
    cache = recorded(["z"], gradients_of=metrics.loss())
    narrow = cache.to(torch.float32)
    assert_identical(narrow["z_grad", 0], cache["z_grad", 0].float())
    assert narrow.nbytes == cache.nbytes / 2


def test_a_cast_cache_is_another_one():
    cache = recorded()
    before, stored = cache["z", 0], cache.stored
    narrow = cache.to(torch.float32).keep("pattern")
    narrow["z", 0].zero_()
    assert cache.stored == stored
    assert_identical(cache["z", 0], before)
    assert_identical(cache.to("cpu")["pattern", 0], cache["pattern", 0])


def test_casting_does_not_make_a_changed_cache_good_again():
    model, tokens = build_new("gpt2"), tokens_of("gpt2")
    done = run(model, *tokens, record="all")
    with torch.no_grad():
        model.blocks[0].attn.weight_qkv.mul_(2.0)
    with pytest.raises(StaleCache, match="weights"):
        done.cache.to(torch.float32)["pattern", 0]
    done.logits.zero_()
    with pytest.raises(StaleCache, match="logits"):
        done.cache.to(torch.float32)


@pytest.mark.parametrize("target", [torch.int64, torch.bool, "cpuu", "cuda:99"])
def test_a_cache_goes_only_where_tensors_with_fractions_go(target):
    with pytest.raises(InvalidInput, match=r"floating-point|device"):
        recorded().to(target)


@pytest.mark.gpu
def test_moved_to_the_cpu_everything_is_the_same_number():
    model = build_new("gpt2").cuda()
    cache = run(model, *tokens_of("gpt2"), record="all", gradients_of=metrics.loss()).cache
    lean = run(model, *tokens_of("gpt2"), record="all").cache
    for source in (cache, lean):
        moved = source.to("cpu")
        for place, value in source.items():
            assert moved[place].device.type == "cpu"
            assert_identical(moved[place], value.cpu())
            assert_identical(moved.to("cuda")[place], value)
    assert cache.to("cpu")["z_grad", 0].device.type == "cpu"
