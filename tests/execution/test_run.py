"""A run records what it was asked for, calls what it was given, and leaves nothing behind."""

import pytest
import torch
from architectures import (
    ARCHITECTURES,
    GENERATORS,
    as_where,
    assert_close,
    assert_identical,
    build,
    build_new,
    covering,
    padded,
    tokens_of,
)
from tables import each

from interp import Place, Point, edits, metrics, run, sweep
from interp.edits import Hook
from interp.errors import HookFailed, InterpError, InvalidEdit, InvalidInput
from interp.execution.plan import Plan
from interp.execution.recorder import Recorder

MODEL = build("gpt2")
TOKENS = tokens_of("gpt2")
PLAIN = run(MODEL, *TOKENS).logits
Z = Place(Point.Z, 0)
HOOK_Z = "blocks.0.attn.hook_z"


def places(record: object, **settings: object) -> list[Place]:
    return list(run(MODEL, *TOKENS, record=record, **settings).cache)


# What to record.


@each(
    "record",
    [
        Z,
        ("z", 0),
        HOOK_Z,
        [Z],
        [("z", 0)],
        [HOOK_Z],
        (place for place in [Z]),
        {("z", 0), HOOK_Z, Z},
        [("z", -2)],
        lambda name: name == HOOK_Z,
    ],
)
def test_one_place_may_be_named_in_many_ways(record):
    assert places(record) == [Z]


@each("record", ["z", Point.Z, ["z"], [Point.Z], lambda n: n.endswith("hook_z")])
def test_a_bare_label_means_every_layer(record):
    assert places(record) == [Place(Point.Z, 0), Place(Point.Z, 1)]


def test_a_bare_label_means_every_norm_and_every_stack():
    assert [as_where(p) for p in places("scale")] == [
        ("scale", layer, norm) for layer in (0, 1) for norm in ("ln1", "ln2")
    ]
    pair, tokens = build("uneven-pair"), tokens_of("uneven-pair")
    cache = run(pair, *tokens, record="z").cache
    assert [(p.stack, p.layer) for p in cache] == [("encoder", 0), ("encoder", 1), ("decoder", 0)]


def test_all_means_every_place():
    assert places("all") == list(MODEL.names)


@each("record", [None, [], (lambda name: False)])
def test_nothing_asked_nothing_recorded(record):
    assert places(record) == []


def test_the_order_asked_and_repetitions_do_not_matter():
    assert places(["z", "embed", ("z", 1), "z"]) == [Place(Point.EMBED), Z, Place(Point.Z, 1)]


@pytest.mark.parametrize("name", covering(ARCHITECTURES))
def test_run_with_cache_is_a_run_of_everything(name):
    model, tokens = build(name), tokens_of(name)
    logits, cache = model.run_with_cache(*tokens)
    done = run(model, *tokens, record="all")
    assert_identical(logits, done.logits)
    assert list(cache) == list(done.cache)
    for place, value in cache.items():
        assert_identical(value, done.cache[place])


@pytest.mark.parametrize("wanted", [("pattern", 0), ["pattern", HOOK_Z], lambda n: "hook_k" in n])
def test_a_names_filter_is_what_record_is(wanted):
    _, cache = MODEL.run_with_cache(*TOKENS, names_filter=wanted)
    assert list(cache) == places(wanted)


def test_a_run_has_its_edits_and_its_tokens():
    edit = edits.zero("z", layer=0)
    ids = padded([TOKENS[0][0], TOKENS[0][1][:3]], "left")
    done = run(MODEL, ids, edits=[edit])
    assert done.edits == (edit,)
    assert_identical(done.batch.real, ids >= 0)


def test_an_unknown_kernel_is_refused():
    with pytest.raises(InterpError, match=r"kernel=.flash.*auto.*fused.*explicit"):
        run(MODEL, *TOKENS, kernel="flash")


@pytest.mark.parametrize("label", ["scores", "pattern"])
def test_the_fused_kernel_can_not_be_edited_where_it_forms_nothing(label):
    with pytest.raises(InvalidInput, match=f"fused.*{label}"):
        run(MODEL, *TOKENS, kernel="fused", edits=[edits.zero(label, layer=0)])
    with pytest.raises(InvalidInput, match=f"fused.*{label}"):
        run(MODEL, *TOKENS, kernel="fused", record=[label], gradients_of=lambda x: x.sum())
    assert places(label, kernel="fused") == places(label)


# Hooks.


def test_a_hook_is_handed_its_name_and_layer():
    calls = []

    def note(tensor, hook):
        calls.append((hook.name, hook.layer(), tuple(tensor.shape)))

    hooks = [("blocks.1.attn.hook_pattern", note), ("hook_embed", note), (("z", 0), note)]
    MODEL.run_with_hooks(*TOKENS, fwd_hooks=hooks)
    assert calls == [
        ("hook_embed", None, (2, 5, 12)),
        (HOOK_Z, 0, (2, 5, 3, 4)),
        ("blocks.1.attn.hook_pattern", 1, (2, 3, 5, 5)),
    ]


def test_a_hooks_name_may_be_a_filter():
    calls = []
    note = (lambda name: name.endswith("hook_z"), lambda z, hook: calls.append(hook.name))
    MODEL.run_with_hooks(*TOKENS, fwd_hooks=[note])
    assert calls == [HOOK_Z, "blocks.1.attn.hook_z"]


def test_what_a_hook_returns_takes_the_tensors_place():
    hooked = MODEL.run_with_hooks(*TOKENS, fwd_hooks=[(HOOK_Z, lambda z, hook: z * 0.0)])
    expected = run(MODEL, *TOKENS, edits=[edits.zero("z", layer=0)]).logits
    assert_identical(hooked.detach(), expected)


def test_none_keeps_what_was_changed_in_place():
    """And without a change, what was there: bit by bit."""

    def in_place(z, hook):
        z[:, :, 1] = 0.0

    hooked = MODEL.run_with_hooks(*TOKENS, fwd_hooks=[(HOOK_Z, in_place)]).detach()
    expected = run(MODEL, *TOKENS, edits=[edits.zero("z", layer=0, head=1)]).logits
    assert_identical(hooked, expected)
    hooked = MODEL.run_with_hooks(*TOKENS, fwd_hooks=[(HOOK_Z, lambda z, hook: None)]).detach()
    assert_identical(hooked, PLAIN)


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_in_place_changes_are_seen_in_every_grad_mode(mode):
    def in_place(z, hook):
        z.zero_()

    expected = run(MODEL, *TOKENS, edits=[edits.zero("z", layer=0)]).logits
    with mode():
        hooked = MODEL.run_with_hooks(*TOKENS, fwd_hooks=[(HOOK_Z, in_place)])
        assert_identical(hooked.detach().clone(), expected)


def test_a_tensor_kept_by_a_hook_can_not_spoil_the_run():
    """What is handed out is a copy: changing it after the hook returned changes nothing."""
    handed_out = []

    def keep(z, hook):
        handed_out.append(z)

    def fill(x, hook):
        handed_out[0].detach().fill_(1e9)

    spoil = [(HOOK_Z, keep), ("blocks.0.hook_resid_mid", fill)]
    assert_identical(MODEL.run_with_hooks(*TOKENS, fwd_hooks=spoil).detach(), PLAIN)


@pytest.mark.parametrize("error", [ValueError("no"), KeyError("k"), AssertionError("a")])
@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "uneven-pair"])
def test_a_hook_that_raises_names_its_point_keeps_the_cause_and_leaves_nothing(name, error):
    model, tokens = build_new(name), tokens_of(name)
    before = run(model, *tokens, record="all")
    place = next(p for p in model.names if p.point is Point.RESID_POST)
    hook = model.names.hooks[place]

    def broken(tensor, hook):
        tensor.zero_()
        raise error

    attached = {key: dict(vars(module)) for key, module in model.named_modules()}
    for attempt in (
        lambda: model.run_with_hooks(*tokens, fwd_hooks=[(hook, broken)]),
        lambda: run(model, *tokens, record="all", edits=[edits.apply(as_where(place), broken)]),
    ):
        with pytest.raises(HookFailed) as caught:
            attempt()
        assert place.point.label in str(caught.value)
        assert type(error).__name__ in str(caught.value)
        assert caught.value.__cause__ is error
    for key, module in model.named_modules():
        assert dict(vars(module)) == attached[key]
        assert not module._forward_hooks
    after = run(model, *tokens, record="all")
    assert_identical(after.logits, before.logits)
    for place, value in after.cache.items():
        assert_identical(value, before.cache[place])


@pytest.mark.parametrize(
    ("fn", "has_form"), [(lambda tensor: tensor * 0, True), (lambda tensor, _: tensor + "a", False)]
)
def test_the_error_of_a_function_with_other_parameters_has_the_form_of_its_call(fn, has_form):
    """The call's form is in the message if the signature is wrong, not if the body raises."""
    model, tokens = build("gpt2"), tokens_of("gpt2")
    with pytest.raises(HookFailed, match="TypeError") as caught:
        run(model, *tokens, edits=[edits.apply("z", fn, layer=0)])
    assert ("fn(tensor, hook)" in str(caught.value)) is has_form


@pytest.mark.parametrize("name", ["gpt2", "uneven-pair"])
def test_a_hook_that_raises_while_generating_leaves_nothing(name):
    model, tokens = build_new(name), tokens_of(name, pos=3)
    before = model.generate(*tokens, max_new_tokens=4)
    calls = []

    def broken(tensor, hook):
        calls.append(hook.name)
        if len(calls) == 3:
            raise ValueError("third")

    where = ("z", 0, list(GENERATORS[name].stacks)[-1])
    with pytest.raises(HookFailed, match="third"):
        model.generate(*tokens, max_new_tokens=4, edits=[edits.apply(where, broken)])
    assert_identical(model.generate(*tokens, max_new_tokens=4), before)


def test_an_interrupt_is_not_dressed_up():
    """Ctrl-C passes through as it is."""

    def interrupted(tensor, hook):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        MODEL.run_with_hooks(*TOKENS, fwd_hooks=[(HOOK_Z, interrupted)])


@each(
    ("fn", "message"),
    [
        (lambda z, hook: z[:, :-1], r"shape \(2, 4, 3, 4\).*expected \(2, 5, 3, 4\)"),
        (lambda z, hook: z.sum(), r"shape \(\).*expected \(2, 5, 3, 4\)"),
        (lambda z, hook: z.float(), r"dtype torch.float32.*expected torch.float64"),
        (lambda z, hook: z.to("meta"), r"device meta.*expected cpu"),
        (lambda z, hook: 3.0, r"returned float"),
        (lambda z, hook: z.numpy(force=True), r"returned ndarray"),
        (lambda z, hook: (z,), r"returned tuple"),
    ],
)
def test_a_hook_that_returns_something_else_is_refused_by_name(fn, message):
    with pytest.raises(InvalidEdit, match=HOOK_Z.replace(".", r"\.") + ".*" + message):
        MODEL.run_with_hooks(*TOKENS, fwd_hooks=[(HOOK_Z, fn)])
    with pytest.raises(InvalidEdit, match=HOOK_Z.replace(".", r"\.") + ".*" + message):
        run(MODEL, *TOKENS, edits=[edits.apply("z", fn, layer=0)])
    assert_identical(run(MODEL, *TOKENS).logits, PLAIN)


def test_the_function_of_an_edit_may_be_handed_on_with_a_name_of_its_own():
    hooks = []
    edit = edits.apply("z", lambda z, hook: hooks.append(hook), layer=0)
    run(MODEL, *TOKENS, edits=[edit])
    assert isinstance(hooks[0], Hook)
    assert hooks[0].place == Z
    assert hooks[0].layer() == 0


@pytest.mark.parametrize("name", covering(ARCHITECTURES, ["llama", "uneven-pair"]))
def test_a_function_is_handed_the_same_name_wherever_it_is_called(name):
    """The TransformerLens name of every place: in hooks, runs, sweeps and generated texts."""
    model, tokens = build(name), tokens_of(name)
    hooks, seen = model.names.hooks, []

    def note(x, hook):
        seen.append((hook.place, hook.name))

    def names_of(call) -> dict[Place, str]:
        seen.clear()
        call()
        return dict(seen)

    noting = [edits.apply(place, note) for place in hooks]
    batch = tokens if len(tokens) > 1 else tokens[0]
    named = [(hook, note) for hook in hooks.values()]
    assert names_of(lambda: model.run_with_hooks(*tokens, fwd_hooks=named)) == hooks
    assert names_of(lambda: run(model, *tokens, edits=noting)) == hooks
    assert names_of(lambda: sweep(model, batch, [*noting], metrics.logit(1))) == hooks
    if name in GENERATORS:
        assert names_of(lambda: model.generate(*tokens, max_new_tokens=1, edits=noting)) == hooks


@pytest.mark.parametrize(
    "place", [("pattern", 0), ("scores", 1), ("result", 0), ("scale", 0, "ln1")]
)
def test_what_is_stored_is_held_and_the_same_as_what_is_derived(place):
    stored, derived = run(MODEL, *TOKENS, store=[place]), run(MODEL, *TOKENS, record="all")
    assert MODEL.names.resolve(place) in stored.cache.stored
    assert_close(stored.cache[place], derived.cache[place])
    assert_close(stored.logits, derived.logits)


def test_storing_records_and_recording_all_does_not_store():
    both = run(MODEL, *TOKENS, record="q", store="attn_out").cache
    assert {place.point.label for place in both} == {"q", "attn_out"}
    whole = run(MODEL, *TOKENS, record="all").cache
    assert MODEL.names.resolve(("attn_out", 0)) not in whole.stored


def test_storing_a_scale_leaves_the_norm_as_it_is():
    """And an edit does not: the scale that is written is the one that divides."""
    stored = run(MODEL, *TOKENS, store="scale")
    assert_identical(stored.logits, PLAIN)
    doubled = run(MODEL, *TOKENS, edits=[edits.scale("scale", 2.0, layer=0, norm="ln1")])
    assert not torch.allclose(doubled.logits, PLAIN)


def test_the_fused_kernel_stores_no_pattern():
    with pytest.raises(InvalidInput, match="fused"):
        run(MODEL, *TOKENS, store="pattern", kernel="fused")


def test_an_edit_of_a_tensor_that_is_never_formed_is_an_error():
    """The recorder notices what a plan got wrong; and the converse: formed, it is applied."""
    place = Place(Point.PATTERN, 0)
    for formed in (frozenset(), frozenset({place})):
        plan = Plan({place: [edits.zero("pattern", layer=0)]}, must_form=formed)
        recorder, model = Recorder(plan), build("gpt2")
        model.stream(model.check(*tokens_of("gpt2")), recorder)
        if formed:
            recorder.check_applied()
        else:
            with pytest.raises(InvalidEdit, match=r'"pattern", 0\) had no effect'):
                recorder.check_applied()
