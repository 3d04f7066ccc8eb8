"""Every name of a place means that place, and the error for any other name lists the nearest."""

from ast import literal_eval

import numpy as np
import pytest
import torch
from architectures import ARCHITECTURES, PAIRS, as_where, build, tokens_of
from tables import each

from interp import HeadConfig, InterpError, Place, Point, edits, run
from interp.errors import UnknownPlace
from interp.names import _OTHER_HOOKS, _SYNONYMS

GPT2, LLAMA, PAIR, UNEVEN = (build(n) for n in ("gpt2", "llama", "attention-pair", "uneven-pair"))
PATTERN = Place(Point.PATTERN, 0)


@each(
    "name",
    [
        PATTERN,
        (Point.PATTERN, 0),
        ("pattern", 0),
        ("pattern", -2),
        (Point.PATTERN, -2),
        ("pattern", 0, None),
        ("pattern", np.int64(0)),
        ("pattern", torch.tensor(0)),
        ("pattern", 0, "attn"),
        ("attn", 0),
        ("pattern", 0, "decoder"),
        "blocks.0.attn.hook_pattern",
        ("blocks.0.attn.hook_pattern",),
    ],
)
def test_every_name_of_it_means_the_same_place(name):
    assert GPT2.names.resolve(name) == PATTERN


@each(
    ("hook", "place"),
    [
        ("hook_embed", Place(Point.EMBED)),
        ("hook_pos_embed", Place(Point.POS_EMBED)),
        ("blocks.0.hook_resid_pre", Place(Point.RESID_PRE, 0)),
        ("blocks.1.hook_attn_in", Place(Point.ATTN_IN, 1)),
        ("blocks.0.ln1.hook_scale", Place(Point.SCALE, 0, "ln1")),
        ("blocks.1.ln2.hook_normalized", Place(Point.NORMALIZED, 1, "ln2")),
        ("blocks.0.attn.hook_q", Place(Point.Q, 0)),
        ("blocks.0.attn.hook_k", Place(Point.K, 0)),
        ("blocks.0.attn.hook_v", Place(Point.V, 0)),
        ("blocks.0.attn.hook_attn_scores", Place(Point.SCORES, 0)),
        ("blocks.0.attn.hook_pattern", Place(Point.PATTERN, 0)),
        ("blocks.1.attn.hook_z", Place(Point.Z, 1)),
        ("blocks.1.attn.hook_result", Place(Point.RESULT, 1)),
        ("blocks.1.hook_attn_out", Place(Point.ATTN_OUT, 1)),
        ("blocks.1.hook_resid_mid", Place(Point.RESID_MID, 1)),
        ("blocks.1.hook_mlp_in", Place(Point.MLP_IN, 1)),
        ("blocks.0.mlp.hook_pre", Place(Point.PRE, 0)),
        ("blocks.0.mlp.hook_post", Place(Point.POST, 0)),
        ("blocks.0.hook_mlp_out", Place(Point.MLP_OUT, 0)),
        ("blocks.1.hook_resid_post", Place(Point.RESID_POST, 1)),
        ("ln_final.hook_scale", Place(Point.FINAL_SCALE)),
        ("ln_final.hook_normalized", Place(Point.FINAL_NORMALIZED)),
    ],
)
def test_the_names_that_fingers_know_are_understood(hook, place):
    assert GPT2.names.resolve(hook) == place
    assert GPT2.names.hooks[place] == hook


@pytest.mark.parametrize("name", ["hook_embed", "blocks.0.hook_mlp_out", "embed", Point.EMBED])
def test_a_name_means_the_same_wherever_it_is_asked_for(name):
    """In record, store, keep, edits and hooks; also a hook's name without a dot in it."""
    tokens, place = tokens_of("gpt2"), GPT2.names.resolve(name)
    stored = run(GPT2, *tokens, store=name).cache
    assert list(run(GPT2, *tokens, record=name).cache) == list(stored) == stored.stored == [place]
    assert run(GPT2, *tokens, record="all").cache.keep(name).stored
    edited = run(GPT2, *tokens, record=[place], edits=[edits.zero(name)]).cache[place]
    assert not edited.any()
    hooked = []
    GPT2.run_with_hooks(*tokens, fwd_hooks=[(name, lambda x, hook: hooked.append(hook.place))])
    assert hooked == [place]


@each(
    ("name", "architecture", "place"),
    [
        (("attn", 1), "gpt2", Place(Point.PATTERN, 1)),
        (("attn_logits", 0), "gpt2", Place(Point.SCORES, 0)),
        (("attn_scores", 0), "gpt2", Place(Point.SCORES, 0)),
        (("pre_linear", 1), "llama", Place(Point.PRE, 1)),
        ("token_type_embed", "bert-types", Place(Point.TYPE_EMBED)),
        (("resid_mid_cross", 1), "marian", Place(Point.CROSS_RESID_MID, 1, None, "decoder")),
        ("hook_full_embed", "bert-types", Place(Point.EMBED_NORMALIZED)),
    ],
)
def test_second_names_of_the_field_are_understood(name, architecture, place):
    """Those of TransformerLens; each is a line in names.py."""
    assert build(architecture).names.resolve(name) == place


def test_no_second_name_is_without_its_test():
    """The table above holds every synonym that there is."""
    assert set(_SYNONYMS) | set(_OTHER_HOOKS) == {
        *("attn", "attn_logits", "attn_scores", "pre_linear", "token_type_embed"),
        *("resid_mid_cross", "hook_full_embed"),
    }


def test_a_gate_is_what_the_field_calls_hook_pre():
    """Of a gated MLP: hook_pre is before the activation, hook_pre_linear is the other factor."""
    assert LLAMA.names.resolve("blocks.0.mlp.hook_pre") == Place(Point.GATE, 0)
    assert LLAMA.names.resolve("blocks.0.mlp.hook_pre_linear") == Place(Point.PRE, 0)
    assert LLAMA.names.resolve("blocks.0.attn.hook_rot_q") == Place(Point.ROT_Q, 0)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_place_answers_to_its_tuple_hook_and_json(name):
    names = build(name).names
    assert len(set(names.hooks.values())) == len(names) == len(set(names))
    for place, hook in names.hooks.items():
        for spelling in (place, hook, (hook,), as_where(place), tuple(place.to_json())):
            assert names.resolve(spelling) == place


@pytest.mark.parametrize("name", ["gpt2", "uneven-pair"])
def test_every_place_answers_to_what_it_is_printed_as(name):
    """Messages offer places as they are printed: what is offered can be pasted as Python."""
    names = build(name).names
    for place in names:
        assert names.resolve(str(place)) == place
        assert names.resolve(literal_eval(str(place))) == place
        assert str(place) == repr(place)


@each(
    ("place", "printed"),
    [
        (Place(Point.PATTERN, 3), '("pattern", 3)'),
        (Place(Point.SCALE, 4, "ln1"), '("scale", 4, "ln1")'),
        (Place(Point.Z, 0, None, "encoder"), '("z", 0, "encoder")'),
        (Place(Point.EMBED), '"embed"'),
    ],
)
def test_a_place_prints_as_it_is_written(place, printed):
    assert str(place) == repr(place) == printed


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_negative_layers_count_from_the_end_of_their_own_stack(name):
    model = build(name)
    for place in model.names:
        if place.layer is not None:
            n = len(model.stack(place.stack).blocks)
            where = (place.point, place.layer - n, place.norm, place.stack)
            assert model.names.resolve(where) == place


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_places_come_in_the_order_of_the_forward(name):
    """The order in which hooks are called, and in which a cache lists them."""
    model, tokens, called = build(name), tokens_of(name), []

    def note(tensor: torch.Tensor, hook: object) -> None:
        called.append(hook.place)

    model.run_with_hooks(*tokens, fwd_hooks=[(lambda name: True, note)])
    assert called == list(model.names)
    assert list(run(model, *tokens, record="all").cache) == called


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_tensor_has_the_axes_of_its_point(name):
    model, tokens = build(name), tokens_of(name)
    cache, head = run(model, *tokens, record="all").cache, model.config.head or HeadConfig()
    for place, value in cache.items():
        config = model.config.stacks[place.stack or model.stacks[-1].name]
        config = config if place.layer is None else config.of_layer(place.layer)
        source, target = tokens[0].shape[1], tokens[-1].shape[1]
        length = source if place.stack == "encoder" else target
        attention = config.attention
        sizes = {
            "batch": 2,
            "pos": length,
            "query": length,
            "key": length,
            "source": source,
            "head": attention.n_heads,
            "kv_head": attention.kv_heads,
            "d_head": attention.d_head,
            "d_model": model.config.d_model,
            "d_mlp": config.mlp.d_mlp if config.mlp else None,
            "vocab": model.config.d_vocab,
            "one": 1,
        }
        if config.mlp is not None and config.mlp.experts is not None:
            sizes["expert"] = config.mlp.experts.n_experts
            if place.point.label in ("gate", "pre", "post"):
                sizes["d_mlp"] = config.mlp.experts.d_shared
        if place.point.label in ("q_scale", "k_scale") and attention.qk_norm_over == "heads":
            sizes["head"] = sizes["kv_head"] = 1
        if place.point.value.region == "entry":
            sizes["d_model"] = config.embedding.sum_width or model.config.d_model
        if place.point in (Point.HEAD_PRE, Point.HEAD_POST, Point.FINAL_NORMALIZED):
            sizes["d_model"] = head.width or model.config.d_model
        assert tuple(value.shape) == tuple(sizes[axis] for axis in place.point.axes), place


def test_in_a_pair_the_stack_may_stand_anywhere():
    for name in [("z", 0, "encoder"), ("z", "encoder", 0), "encoder.0.attn.hook_z"]:
        assert PAIR.names.resolve(name) == Place(Point.Z, 0, None, "encoder")
    assert PAIR.names.resolve("decoder.1.cross_attn.hook_pattern").point is Point.CROSS_PATTERN
    assert PAIR.names.resolve(("scale", "encoder", 0)) == Place(Point.SCALE, 0, "ln1", "encoder")


def test_what_only_one_stack_has_needs_no_stack():
    """cross_* is in the decoder alone, logits in neither; negative layers are the decoder's."""
    for layer in (0, -2):
        place = PAIR.names.resolve(("cross_z", layer))
        assert place == Place(Point.CROSS_Z, 0, None, "decoder")
    assert PAIR.names.resolve("logits") == Place(Point.LOGITS)
    assert UNEVEN.names.resolve(("cross_z", -1)) == Place(Point.CROSS_Z, 0, None, "decoder")


@each("name", [("z", 0), ("resid_post", -1), "embed"])
def test_in_a_pair_what_both_have_needs_its_stack(name):
    for model in (PAIR, UNEVEN):
        with pytest.raises(UnknownPlace, match=r"is ambiguous.*encoder.*decoder"):
            model.names.resolve(name)


def test_a_norm_is_named_where_a_block_has_several():
    assert build("rotary-only").names.resolve(("scale", 0)) == Place(Point.SCALE, 0, "ln1")
    with pytest.raises(UnknownPlace, match=r'is ambiguous.*"scale", 0, "ln1".*"scale", 0, "ln2"'):
        GPT2.names.resolve(("scale", 0))


def test_a_layer_is_named_where_there_are_several():
    assert build("seed").names.resolve("z") == Place(Point.Z, 0)
    with pytest.raises(UnknownPlace, match=r'is ambiguous.*"z", 0.*"z", 1'):
        GPT2.names.resolve("z")


@each(
    ("wrong", "near"),
    [
        ("blocks.0.attn.hook_patern", "blocks.0.attn.hook_pattern"),
        ("blocks.0.hook_pattern", "blocks.0.attn.hook_pattern"),
        ("blocks.7.hook_resid_post", "blocks.1.hook_resid_post"),
        ("ln_final.hook_scal", "ln_final.hook_scale"),
        (("patern", 0), "pattern"),
        (("resid", 0), "resid_"),
        (("pattern", 7), r"no layer 7; its 2 layers are 0\.\.1"),
        (("pattern", -3), r"no layer -3; its 2 layers are 0\.\.1, or -2\.\.-1 from the end"),
        (("scale", 0, "ln3"), '"scale", 0, "ln'),
        (("z", 0, "encoder"), r'Nearest: \("z", 0\)'),
        (Place(Point.Z, 0, None, "encoder"), r'Nearest: \("z", 0\)'),
        ((), "pattern"),
        ((3, 0), r"\(3, 0\) names no place.*pattern"),
    ],
)
def test_a_misspelt_place_names_the_nearest(wrong, near):
    """Everywhere that a place is asked for."""
    with pytest.raises(UnknownPlace, match=near):
        GPT2.names.resolve(wrong)
    with pytest.raises(UnknownPlace, match=near):
        run(GPT2, *tokens_of("gpt2"), record=[wrong])
    with pytest.raises(InterpError, match=near):
        run(GPT2, *tokens_of("gpt2"), edits=[edits.zero(wrong)])
    with pytest.raises(UnknownPlace, match=near):
        GPT2.run_with_hooks(*tokens_of("gpt2"), fwd_hooks=[(wrong, print)])
    with pytest.raises(UnknownPlace, match=near):
        run(GPT2, *tokens_of("gpt2"), record="all").cache[wrong]


@each(
    ("name", "architecture", "part"),
    [
        (("gate", 0), "gpt2", "no 'gate', which needs a gated MLP"),
        (("rot_q", 0), "gpt2", "no 'rot_q', which needs rotary positions"),
        ("cross_z", "gpt2", "no 'cross_z', which needs cross-attention"),
        (("pre", 0), "seed", "no 'pre', which needs an MLP without experts"),
        (("resid_mid", 0), "neox", "no 'resid_mid', which needs an MLP after attention"),
        (("post", -1), "mixtral", "no 'post', which needs an MLP without experts"),
        ("blocks.0.attn.hook_rot_k", "gpt2", "no 'rot_k', which needs rotary positions"),
        ("blocks.0.ln1.hook_scale", "seed", "no 'scale', which needs norms in the blocks"),
        ("decoder.hook_pos_embed", "t5", "no 'pos_embed', which needs position embeddings"),
    ],
)
def test_a_point_that_the_architecture_lacks_is_named_as_lacking(name, architecture, part):
    """It is not misspelt, so that no other name is offered."""
    with pytest.raises(UnknownPlace, match=part) as caught:
        build(architecture).names.resolve(name)
    assert "Nearest" not in str(caught.value)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_point_is_either_there_or_named_as_lacking(name):
    """And the error for a point that is lacking names what it needs."""
    names = build(name).names
    for point in set(Point) - {place.point for place in names}:
        for asked in (point, point.label, (point.label, 0), f"blocks.0.{point.value.hook}"):
            with pytest.raises(UnknownPlace, match=f"no '{point.label}', which needs") as caught:
                names.resolve(asked)
            assert "another architecture" not in str(caught.value)


@each("name", [("z", 0.0), ("z", [0]), ("z", 0, 1.5)])
def test_what_is_neither_layer_norm_nor_stack_is_refused(name):
    with pytest.raises(UnknownPlace, match="z"):
        GPT2.names.resolve(name)


def test_a_misspelt_place_is_refused_before_the_forward():
    """The model is never run: one whose every forward fails still names the place."""

    class Broken(type(GPT2)):
        def stream(self, *args, **kwargs):
            raise AssertionError("a forward was run")

    model = Broken(GPT2.config)
    tokens = tokens_of("gpt2")
    good = ("z", 0)
    for wrong in (("patern", 0), "blocks.0.attn.hook_patern"):
        with pytest.raises(UnknownPlace):
            run(model, *tokens, record=[good, wrong])
        with pytest.raises(UnknownPlace):
            run(model, *tokens, edits=[edits.zero(good), edits.zero(wrong)])
        with pytest.raises(UnknownPlace):
            model.run_with_hooks(*tokens, fwd_hooks=[(good, print), (wrong, print)])
        with pytest.raises(UnknownPlace):
            model.run_with_cache(*tokens, names_filter=wrong)
        with pytest.raises(UnknownPlace):
            model.generate(*tokens, max_new_tokens=1, edits=[edits.zero(wrong)])
    with pytest.raises(AssertionError, match="forward"):
        run(model, *tokens, record=[good])


def test_a_filter_that_no_hook_passes_is_refused():
    with pytest.raises(UnknownPlace, match="accepts no place"):
        GPT2.run_with_hooks(*tokens_of("gpt2"), fwd_hooks=[(lambda name: "nope" in name, print)])


def test_unknown_places_are_key_errors_with_a_readable_message():
    with pytest.raises(KeyError) as caught:
        GPT2.names.resolve(("patern", 0))
    assert str(caught.value).startswith("There is no place ('patern', 0).")


def test_listing_the_points_is_their_documentation():
    """Label, axes, one line and a hook name, each label and name once."""
    assert len({point.label for point in Point}) == len(Point)
    for point in Point:
        for part in (point.label, " ".join(point.axes), point.value.meaning, point.value.hook):
            assert part
            assert part in point.describe()


def test_every_point_is_somewhere():
    """No point is documented that no architecture here has, but for those of dictionaries."""
    of_dictionaries = {Point.FEATURES, Point.FEATURES_ERROR}
    assert {p.point for n in ARCHITECTURES for p in build(n).names} == {*Point} - of_dictionaries
    assert {p.stack for n in PAIRS for p in build(n).names} == {"encoder", "decoder", None}
