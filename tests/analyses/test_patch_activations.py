"""Activation patching: 0 where nothing is patched, 1 where everything is, each cell as by hand."""

import pytest
import torch
from architectures import D_VOCAB, assert_close, assert_identical, build, padded, tokens_of
from declared import Call, Command, Declared, EachPrompt, Made, Symmetric, example, odd, small
from declared.prompts import other_tokens
from tables import each

import interp
from analyses import patch_activations
from analyses.methods.components.minimal_pairs import aligned_prompts
from analyses.methods.components.patching import Recorded
from interp import Interrupted, edits, metrics, run
from interp.errors import InvalidInput, UnknownPlace
from interp.metrics import at_position
from interp.prompts import logit_diff_of_prompts

METRIC = metrics.logit_diff(3, 5)
NAMES = ["gpt2", "llama", "gptj", "gemma2", "opt-post", "bert", "attention-pair"]


def pair_of(name: str, at: int = 1):
    """The model with inputs of which every row differs in one token."""
    model = build(name)
    *before, last = tokens_of(name)
    other = last.clone()
    other[:, at] = (other[:, at] + 1) % D_VOCAB
    if not before:
        return model, last, other
    return model, (*before, last), (*before, other)


def bundled(name: str, **settings):
    model, prompts = interp.load(name), interp.read_prompts(f"{name}-pairs")
    metric = logit_diff_of_prompts(model.to_single_token, prompts)
    return patch_activations(model, *aligned_prompts(model, prompts), metric=metric, **settings)


@pytest.mark.parametrize("direction", ["denoise", "noise"])
@pytest.mark.parametrize("name", NAMES)
def test_all_of_the_first_stream_is_all_of_the_difference(name, direction):
    model, clean, corrupt = pair_of(name)
    patching = patch_activations(
        model, clean, corrupt, metric=METRIC, over=("layer",), direction=direction
    )
    assert_close(patching.effect[0, 0], torch.ones_like(patching.clean), 1e-9)
    assert_close(
        patching.together, (patching.clean if direction == "denoise" else patching.corrupt)[None]
    )


def test_the_decoder_of_a_pair_holds_nothing_of_its_source():
    model = build("attention-pair")
    source, target = tokens_of("attention-pair")
    settings = {"metric": METRIC, "over": ("layer",)}
    decoder, encoder = (
        patch_activations(
            model, (source, target), (source.flip(0), target), stack=stack, **settings
        )
        for stack in ("decoder", "encoder")
    )
    assert_close(encoder.effect[0, 0], torch.ones(2, dtype=torch.float64), 1e-9)
    assert_close(decoder.effect[0, 0], torch.zeros(2, dtype=torch.float64), 1e-9)


@pytest.mark.parametrize("point", ["resid_pre", "attn_out", "mlp_out", "z", "k", "v"])
def test_a_run_patched_with_itself_is_bit_identical(point):
    model, clean, _ = pair_of("llama")
    batches, places = model.check(clean), model.names.every_layer(point)
    recorded = Recorded.of(model, batches, places, METRIC)
    plain = run(model, *batches).logits
    for pos in (None, 2):
        made = [recorded.edit(place, pos=pos) for place in places]
        assert_identical(run(model, *batches, edits=made).logits, plain)


def test_before_the_texts_differ_nothing_is_patched():
    model, clean, corrupt = pair_of("gpt2", at=3)
    patching = patch_activations(model, clean, corrupt, metric=METRIC, at=["resid_pre", "z"])
    assert_close(patching.effect[:, :, :3], torch.zeros_like(patching.effect[:, :, :3]), 1e-9)
    assert (patching.effect[0, :, 3].abs() > 1e-3).all()
    assert_close(patching.own, patching.corrupt.expand_as(patching.own))


@each(
    ("name", "at", "over"),
    [
        ("gpt2", "resid_pre", ("layer", "pos")),
        ("gptj", "mlp_out", ("layer", "pos")),
        ("llama", "z", ("head", "layer", "pos")),
        ("llama", "k", ("layer", "head")),
        ("gemma2", "pattern", ("layer", "head", "pos")),
        ("opt-post", "attn_out", ("pos",)),
        ("bert", "q", ("layer",)),
        ("attention-pair", "cross_z", ("layer", "head")),
    ],
)
def test_each_cell_is_one_patched_forward(name, at, over):
    model, clean, corrupt = pair_of(name)
    patching = patch_activations(model, clean, corrupt, metric=METRIC, at=at, over=over)
    base, source = (model.check(*(x if isinstance(x, tuple) else (x,))) for x in (corrupt, clean))
    cache = run(model, *source, record="all").cache
    stack = {"stack": "decoder"} if len(model.stacks) > 1 else {}
    count = len(patching.cells["name"])
    values = patching.patched.flatten(0, -2)
    for cell in range(0, count, max(1, count // 5)):
        index = {axis: patching.cells[axis][cell] for axis in patching.axes}
        layers = [index.pop("layer")] if "layer" in index else [0, 1]
        made = [edits.patch(cache, at, layer=layer, **index, **stack) for layer in layers]
        done = run(model, *base, edits=made)
        assert_close(values[cell], METRIC(done.logits, done.batch), 1e-10)


@each(
    ("name", "at", "over", "direction"),
    [
        ("gpt2", "resid_pre", ("layer", "pos"), "denoise"),
        ("llama", "k", ("layer", "head"), "noise"),
        ("gemma2", "z", ("layer", "head", "pos"), "denoise"),
        ("opt-post", "attn_out", ("layer",), "noise"),
        ("gpt2", "pattern", ("layer", "head", "pos"), "denoise"),
        ("attention-pair", "cross_z", ("layer", "head"), "noise"),
    ],
)
def test_an_estimate_is_the_slope_at_the_base_towards_the_other_text(name, at, over, direction):
    """By central differences in ε of m(base + ε (source − base)), cell by cell."""
    model, clean, corrupt = pair_of(name)
    settings = {"metric": METRIC, "at": at, "over": over, "direction": direction}
    estimated = patch_activations(model, clean, corrupt, estimate=True, **settings)
    assert estimated.is_estimate
    texts = (corrupt, clean) if direction == "denoise" else (clean, corrupt)
    base, source = (model.check(*(x if isinstance(x, tuple) else (x,))) for x in texts)
    base_cache, other = (run(model, *batches, record="all").cache for batches in (base, source))
    stack = {"stack": "decoder"} if len(model.stacks) > 1 else {}

    def value(epsilon: float, layer: int = 0, **index: int) -> torch.Tensor:
        name = (at, layer, *stack.values())
        on_the_way = base_cache[name] + epsilon * (other[name] - base_cache[name])
        done = run(model, *base, edits=[edits.replace(name, on_the_way, **index)])
        return METRIC(done.logits, done.batch)

    changes = (estimated.patched - value(0.0)).flatten(0, -2)
    assert changes.abs().max() > 1e-3
    for cell in range(0, len(changes), max(1, len(changes) // 5)):
        index = {axis: estimated.cells[axis][cell] for axis in estimated.axes}
        slope = (value(1e-4, **index) - value(-1e-4, **index)) / 2e-4
        assert_close(changes[cell], slope, 1e-6)
    measured = patch_activations(model, clean, corrupt, **settings)
    assert not torch.allclose(estimated.patched, measured.patched), "the model is not linear"
    assert not measured.is_estimate


def test_prompts_of_several_lengths_are_estimated_as_each_alone():
    rows = [torch.tensor([1, 2, 3, 4]), torch.tensor([5, 6])]
    others = [torch.tensor([7, 2, 3, 4]), torch.tensor([8, 6])]
    settings = {"metric": METRIC, "estimate": True}
    together = patch_activations(
        build("gpt2"), padded(rows, "left"), padded(others, "left"), **settings
    )
    for n, (row, other) in enumerate(zip(rows, others, strict=True)):
        alone = patch_activations(build("gpt2"), row[None], other[None], **settings)
        assert_close(together.patched[0, :, : len(row), n], alone.patched[0, ..., 0])
    assert_close(together.effect[0, :, 2:, 1], torch.zeros_like(together.effect[0, :, 2:, 1]))


def test_the_largest_cells_are_measured_as_all_are():
    """The same numbers as those of the whole sweep, where the estimates are largest."""
    model, clean, corrupt = pair_of("gpt2")
    settings = {"metric": METRIC, "at": ["resid_pre", "attn_out"]}
    whole = patch_activations(model, clean, corrupt, **settings)
    few = patch_activations(model, clean, corrupt, largest=3, **settings)
    is_measured = ~few.patched.isnan().any(-1)
    assert is_measured.sum() == 3
    assert_identical(few.patched[is_measured], whole.patched[is_measured])
    assert_identical(few.together, whole.together)
    sizes = patch_activations(model, clean, corrupt, estimate=True, **settings).effect
    sizes = sizes.abs().mean(-1)
    assert sizes[is_measured].min() >= sizes[~is_measured].max()
    assert few.notes[0].startswith(f"the 3 of {is_measured.numel()} cells")
    assert "the most of 3 cells" in few.summary()
    every = patch_activations(model, clean, corrupt, largest=1000, **settings)
    assert_identical(every.patched, whole.patched)
    assert every.notes == whole.notes


@each(
    ("settings", "message"),
    [
        ({"largest": 0}, "largest"),
        ({"estimate": True, "largest": 2}, "excludes largest="),
        ({"largest": 2, "over": ("pos",)}, "estimated layer by layer"),
    ],
)
def test_estimates_that_exclude_one_another_are_refused(settings, message):
    model, clean, corrupt = pair_of("gpt2")
    with pytest.raises(InvalidInput, match=message):
        patch_activations(model, clean, corrupt, metric=METRIC, **settings)


def test_noising_is_denoising_with_the_texts_exchanged():
    model, clean, corrupt = pair_of("llama")
    noised = patch_activations(model, clean, corrupt, metric=METRIC, direction="noise")
    exchanged = patch_activations(model, corrupt, clean, metric=METRIC, direction="denoise")
    assert_close(noised.effect, exchanged.effect)
    denoised = patch_activations(model, clean, corrupt, metric=METRIC)
    assert not torch.allclose(denoised.effect, noised.effect)


def test_prompts_that_are_too_short_for_a_position_are_left_out_of_it():
    rows = [torch.tensor([1, 2, 3, 4]), torch.tensor([5, 6])] * 3
    others = [torch.tensor([7, 2, 3, 4]), torch.tensor([8, 6])] * 3
    patching = patch_activations(
        build("gpt2"), padded(rows, "left"), padded(others, "left"), metric=METRIC
    )
    counts = patching.to_frame().set_index(["layer", "pos"])["n"]
    assert [counts[0, pos] for pos in range(4)] == [6, 6, 3, 3]
    assert len(patching.to_prompt_frame()) == 2 * (6 + 6 + 3 + 3)
    alone = patch_activations(build("gpt2"), rows[0][None], others[0][None], metric=METRIC)
    assert_close(patching.effect[0, :, :, 0], alone.effect[0, :, :, 0], 1e-9)


@pytest.mark.parametrize("direction", ["denoise", "noise"])
def test_known_circuits_carry_everything_in_their_heads_alone(direction):
    """Outside the circuit nothing has an effect; of one live head, the effect is 1."""
    for name in ("rasp-reverse", "rasp-fraction", "rasp-histogram", "rasp-duplicates"):
        frame = bundled(name, at="z", over=("layer", "head"), direction=direction).to_frame()
        circuit = set(interp.card(name).circuit.heads)
        assert set(frame[frame["size"] > 1e-5]["name"]) <= circuit
        assert set(frame[frame["significant"]]["name"])
    reverse = bundled("rasp-reverse", at="z", over=("layer", "head")).to_frame()
    assert reverse["name"][0] == "L2H0"
    assert reverse["effect"][0] == pytest.approx(1, abs=1e-5)


def test_heads_of_induction_carry_it_in_python_2l():
    frame = bundled("python-2l", at="z", over=("layer", "head")).to_frame()
    assert set(frame[frame["significant"]]["name"][:3]) <= {"L0H5", "L1H0", "L1H5", "L1H2"}


def test_the_summary_states_the_largest_effect_and_the_control():
    patching = bundled("rasp-reverse", at="z", over=("layer", "head"))
    first, difference, *_, control = patching.summary().split("\n")
    assert first == (
        "z by layer × head: L2H0 restores +1.00 of the difference (denoise), the most of 12 cells; "
        "≥ 0.1: 1"
    )
    assert difference == "logit difference 12 logits clean, −12 corrupted, on 36 pairs"
    assert control.endswith("of z together +1.00; the run's own activations 0.00")
    (drawn,) = patching.figure().data
    assert drawn.z[2][0] == pytest.approx(1, abs=1e-5)


def test_positions_bear_the_tokens_that_all_prompts_share():
    model = interp.load("dates")
    clean, corrupt = (["7 June 2030", "9 June 2030"], ["7 March 2030", "9 March 2030"])
    prefix = ["2030-0"] * 2
    patching = patch_activations(
        model,
        (clean, prefix),
        (corrupt, prefix),
        metric=metrics.logit_diff(model.to_single_token("6"), model.to_single_token("3")),
        stack="encoder",
    )
    tokens = dict(zip(patching.cells["pos"], patching.cells["token"], strict=True))
    assert [tokens[pos] for pos in range(5)] == ["", "·", "June/March", "·", "2"]
    assert patching.to_frame()["name"][0].startswith("L0 pos 2 June/March")


def test_a_cancelled_call_is_resumed_and_an_interrupted_one_too():
    model, clean, corrupt = pair_of("gpt2")
    settings = {"metric": METRIC, "memory": 1e5}
    whole = patch_activations(model, clean, corrupt, **settings)
    cells = []
    stop = {"progress": lambda *at: cells.append(at), "cancelled": lambda: bool(cells)}
    part = patch_activations(model, clean, corrupt, **stop, **settings)
    assert part.patched.isnan().any()
    assert "cancelled" in part.summary()
    part.figure()
    again = patch_activations(model, clean, corrupt, resume=part.partial, **settings)
    assert_close(again.patched, whole.patched)
    assert whole.partial is None

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(Interrupted) as error:
        patch_activations(model, clean, corrupt, progress=stop, **settings)
    again = patch_activations(model, clean, corrupt, resume=error.value.result, **settings)
    assert_close(again.patched, whole.patched)


@each(
    ("settings", "error", "message"),
    [
        ({"metric": metrics.loss()}, InvalidInput, "a loss is of each text's own tokens"),
        ({"over": ("layer", "neuron")}, InvalidInput, "over=.* some of layer, head, pos"),
        ({"over": ()}, InvalidInput, "over="),
        ({"over": ("layer", "head")}, InvalidInput, r"resid_pre has the axes .* no head"),
        ({"at": "q_normalized"}, UnknownPlace, "q_normalized"),
        ({"at": "embed"}, InvalidInput, "at='embed' should be the label"),
        ({"at": []}, InvalidInput, "at= names no point"),
        ({"at": ["z", "k"], "over": ("layer", "head")}, InvalidInput, r"\(2, 4\) or \(2, 2\)"),
        ({"direction": "both"}, InvalidInput, "direction='both' is one of denoise, noise"),
    ],
)
def test_what_can_not_be_patched_is_refused(settings, error, message):
    model, clean, corrupt = pair_of("llama")
    with pytest.raises(error, match=message):
        patch_activations(model, clean, corrupt, **{"metric": METRIC, **settings})


def test_a_prompt_without_a_difference_is_named():
    model, clean, corrupt = pair_of("gpt2")
    metric = metrics.logit_diff((3, 5), (5, 5))
    with pytest.raises(InvalidInput, match="Prompt 1: the metric is 0 clean and 0 corrupted"):
        patch_activations(model, clean, corrupt, metric=metric)


def test_the_mean_effect_is_over_the_prompts_that_are_long_enough():
    """Also where some prompts are too short, as the table has it."""
    result = bundled("rasp-reverse")
    assert result.lengths.unique().numel() > 1
    frame = result.to_frame().set_index(["layer", "pos"])["effect"]
    assert result.mean_effect.shape == result.patched.shape[:-1]
    for (layer, pos), effect in frame.items():
        assert float(result.mean_effect[0, layer, pos]) == pytest.approx(
            effect, rel=1e-9, abs=1e-12
        )
    assert all(line in result.summary() for line in result.control_lines)


# ---- declared for the tests of all analyses -------------------------------------------------


def numbers_of_prompts(model, clean, n):
    if isinstance(clean, list) and isinstance(clean[0], str):
        clean = [2 * text for text in clean]  # of which the last token is predicted
    several = isinstance(clean, list | tuple) and not isinstance(clean[0], str)
    pair = clean if several else (clean,)
    done = run(model, *pair)
    metric = metrics.logit(at_position(done.logits, done.batch, None).argmax(-1))
    names = [stack.name for stack in model.stacks]
    other = tuple(other_tokens(model, side, name) for name, side in zip(names, pair, strict=True))
    result = patch_activations(model, clean, other, metric=metric, at=["resid_pre", "z"])
    lengths = result.lengths.tolist()
    return [{"patched": result.patched[..., : lengths[i], i]} for i in range(n)]


def of_case(*at, **settings):
    return lambda case: patch_activations(
        case.model, case.clean, case.corrupt, metric=case.metric, at=at, **settings
    )


DECLARED = Declared(
    analysis=patch_activations,
    made=Made(
        lambda: patch_activations(example.model(), *example.PAIR, metric=example.LOGIT),
        ("effect", "effect"),
    ),
    call=Call(
        small.PAIR,
        small.METRIC,
        {
            "metric": odd.CHOICE,
            "at": (*odd.CHOICE, odd.NOTHING),
            "over": (*odd.CHOICE, odd.NOTHING),
            "direction": odd.CHOICE,
            "stack": odd.CHOICE,
            "estimate": odd.SWITCH,
            "largest": tuple(value for value in odd.COUNT if value is not None),
            "rows": odd.COUNT,
            **odd.SWEPT,
        },
    ),
    command=Command(
        "patch",
        ("--model", "rasp-reverse", "--at", "z", "--over", "layer-head"),
        "patch",
        "L2H0",
        "at=resid_pre over=layer-pos direction=denoise estimate=False largest=None "
        "metric=logit-diff",
    ),
    of_each_prompt=EachPrompt(numbers_of_prompts),
    of_each_pair={"": numbers_of_prompts},
    symmetric=Symmetric(
        {
            "": of_case("resid_pre", "mlp_out", over=("layer", "pos")),
            "heads": of_case("z", "q", over=("layer", "head")),
            "estimated": of_case("z", "q", over=("layer", "head"), estimate=True),
            "key/value heads": of_case("v", over=("layer", "head"), direction="noise"),
        }
    ),
)
