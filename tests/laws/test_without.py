"""Views without mask and positions treat tokens as a set, in runs, sweeps and analyses alike."""

from dataclasses import replace

import pytest
import torch
from architectures import (
    ARCHITECTURES,
    DECODERS,
    PAIRS,
    assert_close,
    assert_identical,
    build,
    build_new,
    covering,
    distance,
    tokens_of,
)
from torch.nn.utils import parametrize

import interp
from analyses import ablate_heads, head_roles, verify
from interp import Config, Transformer, edits, metrics, packed, run, sweep
from interp.errors import InvalidConfig, InvalidInput

BOUND = 1e-12
ORDER = torch.tensor([3, 1, 4, 0, 2])
ORDERED = [
    name
    for name, config in DECODERS.items()
    if any(layer.positions.kind != "none" for layer in config.decoder.layer_kinds)
]


def off_by(model: Transformer, name: str) -> float:
    """How far model(P ids) is from P model(ids)."""
    (ids,) = tokens_of(name)
    with torch.no_grad():
        return distance(model(ids[:, ORDER]), model(ids)[:, ORDER])


@pytest.mark.parametrize("name", covering(DECODERS))
def test_without_mask_and_positions_tokens_are_a_set(name):
    """h(Px) = P h(x)."""
    assert off_by(build(name).without(mask=True, positions=True), name) <= BOUND


@pytest.mark.parametrize("name", covering(DECODERS))
def test_the_mask_alone_breaks_it(name):
    assert off_by(build(name).without(positions=True), name) > 1e-3


@pytest.mark.parametrize("name", ORDERED)
def test_positions_alone_break_it(name):
    assert off_by(build(name).without(mask=True), name) > 1e-3


@pytest.mark.parametrize("name", PAIRS)
def test_both_stacks_of_a_pair_lose_their_order(name):
    """Permuting both permutes the logits; with the mask, the order of the target matters."""
    source, target = tokens_of(name)
    model, moved = build(name), torch.tensor([5, 2, 0, 4, 1, 3])
    with torch.no_grad():
        bare, masked = (model.without(mask=mask, positions=True) for mask in (True, False))
        expected = bare(source, target)[:, ORDER]
        assert_close(bare(source[:, moved], target[:, ORDER]), expected, BOUND)
        assert_close(masked(source[:, moved], target), masked(source, target), BOUND)
        assert distance(masked(source, target[:, ORDER]), masked(source, target)[:, ORDER]) > 1e-3


@pytest.mark.parametrize("name", covering(ARCHITECTURES))
def test_a_view_has_the_weights_themselves_and_leaves_the_model_as_it_is(name):
    model = build_new(name)
    tokens = tokens_of(name)
    with torch.no_grad():
        before = model(*tokens)
        view = model.without(mask=True, positions=True)
        weights = dict(model.named_parameters(remove_duplicate=False))
        for key, weight in view.named_parameters(remove_duplicate=False):
            assert weight is weights[key]
        view(*tokens)
        assert_identical(model(*tokens), before)
    assert view.config == Config.from_json(view.config.to_json())
    again = view.without(mask=True, positions=True)
    assert again.config == view.config
    built = Transformer(view.config).double()
    built.load_state_dict(view.state_dict())
    with torch.no_grad():
        assert_identical(built(*tokens), view(*tokens))


def test_no_random_numbers_are_drawn():
    model, state = build("gpt2"), torch.random.get_rng_state()
    model.without(mask=True)
    assert torch.equal(state, torch.random.get_rng_state())


VIEWS = ["gpt2", "llama", "gemma2", "mixtral", "t5"]


@pytest.mark.parametrize("name", VIEWS)
def test_a_sweep_of_a_view_is_one_whole_forward_for_each_edit(name):
    """An edit at a late position changes earlier columns, which a causal model would reuse."""
    view, tokens = build(name).without(mask=True), tokens_of(name)
    places = [place for place in view.layout if place.point.label in ("z", "resid_pre", "post")]
    made = [edits.scale(place, -0.5, pos=pos) for place in places for pos in (1, -1)]
    metric = metrics.logit(3, pos=0)
    batch = tokens if len(tokens) > 1 else tokens[0]
    table = sweep(view, batch, made, metric)
    brute = [
        metric(done.logits, done.batch) for done in (run(view, *tokens, edits=[e]) for e in made)
    ]
    assert_close(table.values, torch.stack(brute), BOUND)
    late = [row for row, edit in enumerate(made) if edit.select.pos == -1]
    assert (table.values[late] - table.baseline).abs().max() > 1e-3


@pytest.mark.parametrize("name", VIEWS)
def test_every_identity_holds_of_a_view(name):
    identities = {
        identity.name: identity
        for identity in verify(build(name).without(mask=True, positions=True))
    }
    assert all(identity.holds for identity in identities.values()), identities
    assert "later tokens do not reach earlier logits" not in identities


@pytest.mark.parametrize("name", covering(ARCHITECTURES))
def test_it_is_causal_exactly_where_no_token_sees_a_later_one(name):
    """config.is_causal ⇔ the last token changes no earlier logit."""
    model, (*sources, ids) = build(name), tokens_of(name)
    changed = ids.clone()
    changed[:, -1] = (ids[:, -1] + 1) % 7
    for view in (model, model.without(positions=True), model.without(mask=True)):
        with torch.no_grad():
            before, after = (view(*sources, tokens)[:, :-1] for tokens in (ids, changed))
        assert view.config.is_causal == (distance(after, before) <= BOUND)
    assert not model.without(mask=True).config.is_causal


def test_a_view_without_a_mask_predicts_no_next_token():
    view = build("gpt2").without(mask=True)
    (ids,) = tokens_of("gpt2")
    for use in (view.loss, view.generate, lambda ids: ablate_heads(view, ids)):
        with pytest.raises(InvalidInput, match="a decoder without its mask"):
            use(ids)
    unordered = build("gpt2").without(positions=True)
    assert unordered.loss(ids) > 0
    assert unordered.generate(ids, max_new_tokens=2).shape == (2, 7)


def test_roles_of_heads_follow_the_view():
    model = interp.load("induction-by-hand")
    roles, bare = (head_roles(view, rows=4) for view in (model, model.without(mask=True)))
    assert "induction" in roles.score
    assert "induction" not in bare.score
    assert any("not measured" in note for note in bare.notes)


def test_a_packed_model_has_views_too():
    model = build("gpt2", dtype=torch.float32)
    view = packed(model).without(positions=True)
    (ids,) = tokens_of("gpt2")
    with torch.no_grad():
        assert_close(view(ids), model.without(positions=True)(ids), 1e-5)


def test_what_can_not_be_left_out_is_refused():
    model = build_new("gpt2")
    with pytest.raises(InvalidInput, match="got neither"):
        model.without()
    parametrize.register_parametrization(model.blocks[0].attn, "weight_o", torch.nn.Identity())
    with pytest.raises(InvalidInput, match="remove_parametrizations"):
        model.without(mask=True)


@pytest.mark.parametrize(("side", "reason"), [("decoder", "set one"), ("encoder", "always is")])
def test_settings_of_the_mask_that_contradict_are_refused(side, reason):
    config = ARCHITECTURES["mixtral" if side == "decoder" else "bert"]

    def without_mask() -> Config:
        stack = config.stacks[side]
        attention = replace(stack.attention, bidirectional=True)
        return replace(config, **{side: replace(stack, attention=attention)})

    with pytest.raises(InvalidConfig, match=reason):
        without_mask()
