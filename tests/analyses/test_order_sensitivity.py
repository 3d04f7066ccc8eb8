"""s is 0 where neither mask nor positions encode order; its variants show which of them does."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from architectures import (
    ARCHITECTURES,
    D_VOCAB,
    IMAGES,
    assert_close,
    assert_identical,
    build,
    build_new,
    covering,
    padded,
    tokens_of,
)
from declared import (
    Call,
    Command,
    Declared,
    EachPrompt,
    Made,
    Symmetric,
    example,
    odd,
    small,
)

from analyses import order_sensitivity
from analyses.methods.symmetries.orders import (
    KINDS,
    movable_tokens,
    order_of,
    permuted,
    token_orders,
)
from analyses.order_sensitivity.responses import sensitivity
from interp import PAD, run
from interp.errors import InvalidInput
from interp.model.batch import Batch

ZERO = 1e-14
FAST = ["gpt2", "llama", "bloom", "bert-types", "t5", "uneven-pair"]
NOTHING = "neither"


def prompts_of(name):
    """Rows of several lengths, padded; of a pair, both."""
    generator = torch.Generator().manual_seed(1)
    rows = [
        [torch.randint(D_VOCAB, (n,), generator=generator) for n in lengths]
        for lengths in ((4, 6, 5), (5, 3, 6))
    ]
    prompts = tuple(padded(sequences, "left") for sequences in rows)
    return prompts if len(ARCHITECTURES[name].stacks) > 1 else prompts[0]


# ---- with neither, nothing knows order -------------------------------------------------------


@pytest.mark.parametrize("scope", ["whole", "own"])
@pytest.mark.parametrize("name", covering(ARCHITECTURES, FAST))
def test_only_mask_and_positions_encode_order(name, scope):
    order_use = order_sensitivity(build(name), prompts_of(name), scope=scope, draws=1)
    assert order_use.value[order_use.variants.index(NOTHING)].nan_to_num().max() <= ZERO
    for variant in order_use.variants:
        if variant != NOTHING and scope == "whole":
            assert order_use.of(variant)[-1] > 1e-3, variant
    assert order_use.value.nan_to_num().max() <= 2


def test_patches_of_an_image_are_tokens():
    model = build(IMAGES)
    images = torch.randn(3, 2, 4, 6, generator=torch.Generator().manual_seed(0)).double()
    order_use = order_sensitivity(model, images, draws=1)
    assert order_use.variants == ("positions", "neither")
    assert order_use.value[1].max() <= ZERO
    assert order_use.value[0].min() > 1e-3
    batch = model.batch(images)
    order = torch.tensor([[0, 1, 4, 2, 3, 7, 5, 6]]).expand(3, -1)
    moved = permuted(batch, order, model.stacks[0].input)
    before, after = (run(model, inputs, record="embed").cache["embed"] for inputs in (batch, moved))
    assert_close(after, before[:, order[0]])


@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_learned_positions_move_along_with_a_heads_own_input(name):
    """Of itself, a head that reads them knows order by the mask alone."""
    order_use = order_sensitivity(build(name), prompts_of(name), scope="own", draws=1)
    assert "model" not in order_use.names
    assert order_use.of("positions").max() <= ZERO
    if "mask" in order_use.variants:
        assert order_use.of("mask").min() > 1e-3
        assert_close(order_use.of("mask and positions"), order_use.of("mask"))


def test_in_the_first_layer_a_head_reads_the_same_prompt_either_way():
    """Where no position is added to the stream, the own input permuted is the prompt permuted."""
    whole, own_input = (
        order_sensitivity(build("llama"), prompts_of("llama"), scope=scope, draws=1)
        for scope in ("whole", "own")
    )
    assert own_input.names == whole.names[:-1]
    assert_close(own_input.value[:, :, :4].nan_to_num(), whole.value[:, :, :4].nan_to_num())
    assert (own_input.of("positions") - whole.of("positions")[:-1])[4:].abs().max() > 1e-2


# ---- the number itself -----------------------------------------------------------------------


def test_s_is_computed_by_its_equation():
    model, (ids,) = build("gpt2"), tokens_of("gpt2", batch=1)
    order_use = order_sensitivity(model, ids, permutations=["random"], draws=1, seed=3)
    order = token_orders(torch.ones_like(ids).bool(), "random", 6)
    x, y = (
        run(model, prompt, record="result").cache["result", 1][0, :, 2]
        for prompt in (ids, ids[:, order[0]])
    )
    moved = x[order[0]]
    half = (moved.square().sum() + y.square().sum()) / 2
    part = order_use.names.index("L1H2")
    assert_close(order_use.value[0, 0, part, 0], (y - moved).norm() / half.sqrt())
    assert_close(order_use.unmoved[0, 0, part, 0], (x - moved).norm() / x.norm())


def test_s_of_unrelated_and_of_opposite_outputs():
    x = torch.eye(4, dtype=torch.float64)[None]
    read = torch.ones(1, 4).bool()
    assert_close(sensitivity(x, x.roll(1, 1), read, x), torch.tensor([2.0]).double().sqrt())
    assert_close(sensitivity(x, -x, read, x), torch.tensor([2.0]).double())
    assert sensitivity(x, x, read, x) == 0
    other = x.clone()
    other[0, 2] = 5
    assert sensitivity(x, other, read & (torch.arange(4) != 2), x) == 0
    assert sensitivity(1e-6 * x, 1e-6 * other, read, x) == 0
    assert sensitivity(1e-4 * x, 1e-4 * other, read, x) > 1


def test_what_follows_positions_alone_does_not_move():
    """All tokens are embedded alike: f(Px) = f(x), and s is that of the control."""
    model = build_new("bert")
    with torch.no_grad():
        model.encoder.weight_e.copy_(model.encoder.weight_e[:1].expand(D_VOCAB, -1))
    order_use = order_sensitivity(model, prompts_of("bert"), draws=2)
    measured = ~order_use.unmoved[0].isnan()
    assert_close(order_use.value[0][measured], order_use.unmoved[0][measured])
    assert order_use.of("positions").min() > 1e-3


def test_a_head_that_writes_nothing_uses_no_order():
    model = build_new("gpt2")
    with torch.no_grad():
        model.blocks[1].attn.W_O[2] = 0
    ids = padded([torch.arange(n) for n in (5, 6, 7, 8, 6)], "right")
    done: list[tuple[int, int]] = []
    order_use = order_sensitivity(
        model, ids, permutations=["random"], draws=2, progress=lambda *now: done.append(now)
    )
    assert [n for n, _ in done] == list(range(1, len(done) + 1))
    assert done[-1] == (len(done), 4 * (1 + 2 * 2))
    part = order_use.names.index("L1H2")
    assert order_use.value[:, :, part].nan_to_num().max() == 0
    assert {name for name, by in order_use.uses().items() if not by} == {"L1H2"}
    assert order_use.summary().startswith("5 of 6 heads use order: ")


# ---- the prefix as a bag ---------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpt2", "llama", "gptj"])
def test_the_first_layer_sums_over_a_set(name):
    """Without positions the last token sees its prefix as a bag; layer 1 sees what earlier saw."""
    order_use = order_sensitivity(build(name), prompts_of(name), permutations=["random"], draws=2)
    first, second, _ = order_use.of("mask", "bag")[-3:]
    assert first <= ZERO
    assert second > 1e-2
    assert order_use.of("mask and positions", "bag")[-3] > 1e-2
    assert order_use.of("mask")[-3] > 1e-2  # though earlier tokens of that layer do see less
    assert order_use.unmoved[:, order_use.permutations.index("bag")].isnan().all()


# ---- permutations ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_permutations_of_a_kind(kind):
    for seed in range(20):
        order = order_of(kind, 7, torch.Generator().manual_seed(seed))
        assert sorted(order.tolist()) == list(range(7))
        moved = int((order != torch.arange(7)).sum())
        neighbours = int((order.diff() == 1).sum())
        assert moved > 0
        assert moved == 2 or kind != "swap"
        assert neighbours == 5 or kind != "block"


def test_padding_bos_and_eos_stay():
    config = ARCHITECTURES["gpt2"]
    model = build(replace(config, tokens=replace(config.tokens, bos=3, eos=4)))
    ids = torch.tensor([[PAD, 3, 5, 3, 4, 4], [3, 6, 4, 5, 6, PAD], [5, 6, PAD, 3, 4, 7]])
    batch = model.batch(ids)
    movable = movable_tokens(model, model.stacks[0], batch)
    expected = [[0, 0, 1, 1, 1, 0], [0, 1, 1, 1, 1, 0], [1, 1, 0, 1, 1, 1]]
    assert movable.int().tolist() == expected
    order = token_orders(movable, "random", 0)
    columns = torch.arange(6).expand(3, -1)
    assert_identical(order[~movable], columns[~movable])
    assert_identical(order.sort(-1).values, columns)
    moved = permuted(batch, order, model.stacks[0].input)
    assert_identical(moved.tokens, ids.gather(-1, order))


def test_types_move_with_their_tokens():
    model = build("bert-types")
    batch = model.batch(torch.arange(6)[None], types=torch.tensor([[0, 0, 0, 1, 1, 1]]))
    order = torch.tensor([[5, 3, 1, 0, 2, 4]])
    moved = permuted(batch, order, model.stacks[0].input)
    assert isinstance(moved, Batch)
    assert_identical(moved.types, batch.types[:, order[0]])


# ---- what is asked ---------------------------------------------------------------------------


def test_variants_can_be_chosen():
    ids = prompts_of("gpt2")
    assert order_sensitivity(build("gpt2"), ids, draws=1, mask=True).variants == (
        "mask and positions",
        "mask",
    )
    order_use = order_sensitivity(build("gpt2"), ids, draws=1, mask=False, positions=True)
    assert order_use.variants == ("positions",)
    every = order_sensitivity(build("gpt2"), ids, draws=1)
    assert_close(order_use.of("positions", "swap"), every.of("positions", "swap"))
    seed = order_sensitivity(build("seed"), ids, draws=1)
    assert seed.variants == ("mask", "neither")


def test_below_five_prompts_no_head_is_reported_to_use_order():
    order_use = order_sensitivity(build("gpt2"), prompts_of("gpt2"), draws=1)
    assert set(order_use.uses().values()) == {""}
    first, *lines = order_use.summary().splitlines()
    assert first.startswith("fewer than 5 prompts, so that no head is said to use order")
    assert sum(" s: mask and positions" in line for line in lines) == 6


def test_prompts_too_short_are_left_out():
    ids = padded([torch.tensor([2]), torch.tensor([3, 1, 4])], "right")
    order_use = order_sensitivity(build("gpt2"), ids, draws=1)
    assert order_use.value[..., 0].isnan().all()
    assert not order_use.value[..., 1].isnan().any()
    assert set(order_use.to_prompt_frame()["prompt"]) == {1}
    two = order_sensitivity(build("gpt2"), torch.tensor([[3, 1]]), draws=1)
    assert two.value[:, two.permutations.index("bag")].isnan().all()


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("gpt2", {"permutations": ["sorted"]}, "several of random, swap, block"),
        ("gpt2", {"permutations": "random"}, "several of random, swap, block"),
        ("gpt2", {"permutations": []}, "several of random, swap, block"),
        ("gpt2", {"scope": "half"}, "whole or own"),
        ("gpt2", {"draws": 0}, "draws=0"),
        ("bert", {"mask": True}, "this model has no mask"),
        ("seed", {"positions": True}, "this model has no positions"),
    ],
)
def test_bad_settings_are_refused(name, settings, message):
    with pytest.raises(InvalidInput, match=message):
        order_sensitivity(build(name), prompts_of(name), **settings)


def test_prompts_without_order_and_models_with_nan_are_refused():
    with pytest.raises(InvalidInput, match="two tokens that could change places"):
        order_sensitivity(build("gpt2"), torch.tensor([[2], [3]]))
    model = build_new("gpt2")
    with torch.no_grad():
        for block in model.blocks:  # finite, but not their sum
            block.mlp.b_out.fill_(torch.finfo(torch.float64).max)
    with pytest.raises(InvalidInput, match="computes NaN on these prompts, first at"):
        order_sensitivity(model, prompts_of("gpt2"))


def test_a_variant_that_was_not_measured_is_named():
    order_use = order_sensitivity(build("bert"), prompts_of("bert"), draws=1)
    with pytest.raises(InvalidInput, match="there are positions, neither"):
        order_use.of("mask")
    with pytest.raises(InvalidInput, match="there are random, swap, block, bag"):
        order_use.of("positions", "shuffled")


# ---- declared for the tests of all analyses -------------------------------------------------


def numbers_of_prompts(model, prompts, n, **settings):
    result = order_sensitivity(model, prompts, permutations=["random"], draws=1, **settings)
    numbers = {"values": result.value, "unmoved": result.unmoved}
    return [{name: x[..., i].nan_to_num(-1) for name, x in numbers.items()} for i in range(n)]


DECLARED = Declared(
    analysis=order_sensitivity,
    made=Made(
        lambda: order_sensitivity(example.model(), ["abcab", "xyz"], draws=1),
        ("value", "mean"),
    ),
    call=Call(
        (small.MODEL, small.CLEAN),
        {},
        {
            "permutations": (odd.TEXT, odd.BELOW, odd.LISTED, [], ["random"] * 2, odd.NOTHING),
            "scope": (*odd.CHOICE, odd.NOTHING),
            **dict.fromkeys(("mask", "positions"), ("no", 1, odd.LISTED)),
            "draws": odd.COUNT,
            "seed": odd.SEED,
        },
    ),
    command=Command(
        "order",
        ("--draws", "1"),
        "order",
        "2 of 8 heads use order",
        "permutation=None scope=whole draws=4",
    ),
    of_each_prompt=EachPrompt(numbers_of_prompts),
    of_each_pair={"": numbers_of_prompts, "own": partial(numbers_of_prompts, scope="own")},
    symmetric=Symmetric(
        {
            "": lambda case: order_sensitivity(
                case.model, case.clean, permutations=["random"], draws=1
            )
        }
    ),
)
