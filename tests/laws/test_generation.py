"""The KV cache changes only the speed: the text is that of a whole forward for each token."""

from dataclasses import replace

import pytest
import torch
from architectures import (
    D_VOCAB,
    GENERATORS,
    N_CTX,
    PAIRS,
    assert_identical,
    build,
    build_new,
    covering,
    in_turn,
    padded,
    tokens_of,
    with_eos,
)

from interp import PAD, Transformer, edits, run
from interp.edits import Edit
from interp.execution.generate import sample

NEW = 5


def prompts(name: str, batch: int = 2) -> tuple[torch.Tensor, ...]:
    return tokens_of(name, batch=batch, pos=4)


def without_cache(
    model: Transformer,
    tokens: tuple[torch.Tensor, ...],
    changes: tuple[Edit, ...] = (),
    temperature: float = 0.0,
) -> torch.Tensor:
    """Append ``NEW`` tokens, each computed by a whole forward over all tokens before it."""
    *source, ids = tokens
    generator = torch.Generator().manual_seed(0)
    for _ in range(NEW):
        logits = run(model, *source, ids, edits=changes).logits
        new = sample(logits[:, -1], temperature, None, generator)
        ids = torch.cat([ids, new[:, None]], dim=-1)
    return ids


def assert_the_cache_is_only_faster(
    model: Transformer, tokens: tuple[torch.Tensor, ...], *changes: Edit
) -> None:
    """Greedily, and sampled with the same seed, which is sensitive to more than the argmax."""
    for temperature in (0.0, 1.5):
        text = model.generate(*tokens, max_new_tokens=NEW, temperature=temperature, edits=changes)
        assert_identical(text, without_cache(model, tokens, changes, temperature))


def vector(name: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(4)
    return 3 * torch.randn(GENERATORS[name].d_model, generator=generator, dtype=torch.float64)


def halved(tensor: torch.Tensor, hook: object) -> None:
    tensor.mul_(0.5)


def kinds_of_edit(name: str) -> dict[str, Edit]:
    """One of each kind at the last stack's stream or heads, cacheable or not."""
    stack = build(name).stacks[-1].name
    x, z, A = ("resid_pre", 0, stack), ("z", 0, stack), ("pattern", 0, stack)
    return {
        "zero": edits.zero(z, head=1),
        "scale": edits.scale(z, -2.0),
        "add": edits.add(x, vector(name)),
        "add-at-pos": edits.add(x, vector(name), pos=1),
        "add-at-last-pos": edits.add(x, vector(name), pos=-1),
        "add-at-two-pos": edits.add(x, vector(name), pos=[0, -2]),
        "replace": edits.replace(z, vector(name)[:1], head=0),
        "replace-at-pos": edits.replace(x, vector(name), pos=2),
        "mean-of-run": edits.mean(z, head=0),
        "mean": edits.mean(z, vector(name)[:1], head=0),
        "resample-of-run": edits.resample(z, head=0),
        "one-row": edits.add(x, vector(name), batch=1),
        "keys": edits.scale(("k", 0, stack), 0.3),
        "scores": edits.scale(("scores", 0, stack), 0.2, head=0),
        "pattern": edits.scale(A, 0.5),
        "pattern-at-key": edits.zero(A, key=0),
        "pattern-at-last-query": edits.zero(A, pos=-1, key=1),
        "logits": edits.add("logits", -100.0, unit=[0, 1, 2]),
        "apply": edits.apply(x, lambda t, hook: t + t.mean(1, keepdim=True)),
        "apply-in-place": edits.apply(z, halved),
    }


KINDS = list(kinds_of_edit("gpt2"))


@pytest.mark.parametrize("name", covering(GENERATORS))
def test_text_is_that_of_the_loop_without_cache(name):
    model, tokens = build(name), prompts(name)
    assert_the_cache_is_only_faster(model, tokens)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param(name, kind, marks=[] if turn % 3 == order else pytest.mark.slow)
        for order, name in enumerate(["gpt2", "llama", "uneven-pair"])
        for turn, kind in enumerate(KINDS)
    ],
)
def test_edited_text_is_that_of_the_edited_loop_without_cache(name, kind):
    model, tokens, edit = build(name), prompts(name), kinds_of_edit(name)[kind]
    assert_the_cache_is_only_faster(model, tokens, edit)


@pytest.mark.parametrize("name", ["gpt2", "llama", "uneven-pair"])
def test_edits_do_change_the_text(name):
    """The converse: otherwise the test above would show nothing."""
    model, tokens = build(name), prompts(name, batch=8)
    drawn = {"max_new_tokens": NEW, "temperature": 1.5}
    plain = model.generate(*tokens, **drawn)
    for kind in ("add", "add-at-pos", "scale", "pattern", "logits"):
        edit = kinds_of_edit(name)[kind]
        assert not torch.equal(model.generate(*tokens, edits=[edit], **drawn), plain)


@pytest.mark.parametrize("where", ["resid_post", "z", "cross_k", "cross_v", "cross_pattern"])
@pytest.mark.parametrize("name", covering(PAIRS, ["uneven-pair"]))
def test_edits_of_what_the_source_gave_are_the_same_in_both(name, where):
    model, tokens = build(name), prompts(name)
    stack = "decoder" if where.startswith("cross") else "encoder"
    for edit in (edits.scale((where, 0, stack), -1.5), edits.zero((where, 0, stack), unit=0)):
        if where == "cross_pattern" and edit.select.unit is not None:
            continue
        assert_the_cache_is_only_faster(model, tokens, edit)


@pytest.mark.parametrize(("name", "side"), in_turn(GENERATORS, ["left", "right"], GENERATORS))
def test_prompts_of_unequal_length_are_continued_as_each_alone(name, side):
    model = build(name)
    *source, ids = prompts(name, batch=3)
    rows = [ids[0], ids[1][:2], ids[2][:1]]
    sources = [[s[0], s[1][:3], s[2][:2]] for s in source]
    padded_sources = [padded(rows, "right") for rows in sources]
    text = model.generate(*padded_sources, padded(rows, side), max_new_tokens=NEW)
    for row, prompt in enumerate(rows):
        alone = model.generate(*(s[row] for s in sources), prompt, max_new_tokens=NEW)
        assert_identical(text[row][text[row] != PAD], alone[0])
        assert_identical(text[row, -NEW:], alone[0, -NEW:])


@pytest.mark.parametrize("kind", ["add", "add-at-pos", "add-at-last-pos", "keys", "pattern-at-key"])
def test_edited_prompts_of_unequal_length_are_continued_as_each_alone(kind):
    """Positions count among a row's own tokens, padded or not."""
    model, edit = build("llama"), kinds_of_edit("llama")[kind]
    (ids,) = prompts("llama")
    rows = [ids[0], ids[1][:3]]
    if kind == "add-at-pos":
        edit = replace(edit, select=replace(edit.select, pos=2))
    text = model.generate(padded(rows, "right"), max_new_tokens=NEW, edits=[edit])
    for row, prompt in enumerate(rows):
        alone = model.generate(prompt, max_new_tokens=NEW, edits=[edit])
        assert_identical(text[row][text[row] != PAD], alone[0])


@pytest.mark.parametrize("name", PAIRS)
def test_a_paired_decoder_starts_from_its_start_token(name):
    model, (source, _) = build(name), prompts(name)
    start = torch.full((2, 1), model.config.tokens.decoder_start)
    expected = model.generate(source, start, max_new_tokens=NEW)
    assert_identical(model.generate(source, max_new_tokens=NEW), expected)


# Where it ends.


@pytest.mark.parametrize("name", ["gpt2", "llama", "marian"])
def test_a_row_ends_at_its_end_token_and_is_padded_after_it(name):
    *source, ids = prompts(name, batch=4)
    free = build(name).generate(*source, ids, max_new_tokens=NEW)
    eos = int(free[0, ids.shape[1] + 1])  # the second new token of the first row
    model = build_new(with_eos(GENERATORS[name], eos))
    text = model.generate(*source, ids, max_new_tokens=NEW)
    width = text.shape[1]
    for row in range(4):
        new = free[row, ids.shape[1] :].tolist()
        ended = new.index(eos) + 1 if eos in new else NEW
        expected = new[:ended] + [PAD] * (NEW - ended)
        assert text[row, ids.shape[1] :].tolist() == expected[: width - ids.shape[1]]


@pytest.mark.parametrize("name", ["gpt2", "marian"])
@pytest.mark.parametrize("origin", ["config", "argument", "both"])
def test_a_row_ends_at_the_first_of_several_end_tokens(name, origin):
    *source, ids = prompts(name, batch=4)
    sampling = {"max_new_tokens": NEW, "temperature": 9.0}
    free = build(name).generate(*source, ids, **sampling)
    first, *others = ends = free[:, ids.shape[1] :].unique().tolist()[:3]
    assert others
    config = with_eos(GENERATORS[name], first)
    stop = tuple(ends if origin == "argument" else others)
    if origin != "argument":
        config = replace(config, tokens=replace(config.tokens, stop=stop))
    model = build_new(GENERATORS[name] if origin == "argument" else config)
    argument = {"config": {}, "argument": {"stop": stop}, "both": {"stop": stop[:1]}}[origin]
    text = model.generate(*source, ids, **sampling, **argument)
    for generated, row in zip(text, free, strict=True):
        new = row[ids.shape[1] :].tolist()
        ended = next((n + 1 for n, token in enumerate(new) if token in ends), NEW)
        expected = new[:ended] + [PAD] * (NEW - ended)
        assert generated[ids.shape[1] :].tolist() == expected[: text.shape[1] - ids.shape[1]]


def test_generation_stops_when_every_row_has_ended():
    (ids,) = prompts("gpt2", batch=1)
    eos = int(build("gpt2").generate(ids, max_new_tokens=1)[0, -1])
    text = build_new(with_eos(GENERATORS["gpt2"], eos)).generate(ids, max_new_tokens=NEW)
    assert text.shape == (1, ids.shape[1] + 1)


def test_an_end_token_in_the_prompt_ends_nothing():
    (ids,) = prompts("gpt2", batch=1)
    free = build("gpt2").generate(ids, max_new_tokens=NEW)
    eos = next(t for t in range(D_VOCAB) if t not in free[0, ids.shape[1] :].tolist())
    begun = torch.cat([torch.tensor([[eos]]), ids], dim=-1)
    expected = build("gpt2").generate(begun, max_new_tokens=1)
    text = build_new(with_eos(GENERATORS["gpt2"], eos)).generate(begun, max_new_tokens=1)
    assert_identical(text, expected)


# Sampling.


def test_the_same_seed_gives_the_same_text():
    model, tokens = build("gpt2"), prompts("gpt2", batch=8)
    sampling = {"max_new_tokens": NEW, "temperature": 1.0}
    text = model.generate(*tokens, seed=1, **sampling)
    torch.manual_seed(99)
    assert_identical(model.generate(*tokens, seed=1, **sampling), text)
    assert not torch.equal(model.generate(*tokens, seed=2, **sampling), text)


def test_sampling_leaves_the_global_generator_alone():
    state = torch.get_rng_state()
    build("gpt2").generate(*prompts("gpt2"), max_new_tokens=2, temperature=1.0)
    assert_identical(torch.get_rng_state(), state)


@pytest.mark.parametrize("name", ["gpt2", "uneven-pair"])
def test_the_likeliest_alone_or_no_temperature_is_greedy(name):
    """top_k=1 at any temperature, and any top_k at temperature 0."""
    model, tokens = build(name), prompts(name)
    greedy = model.generate(*tokens, max_new_tokens=NEW)
    for setting in ({"temperature": 5.0, "top_k": 1}, {"temperature": 0.0, "top_k": 3}):
        assert_identical(model.generate(*tokens, max_new_tokens=NEW, **setting), greedy)


def test_only_the_k_likeliest_are_drawn():
    model, (ids,) = build("gpt2"), prompts("gpt2", batch=1)
    with torch.no_grad():
        likeliest = set(model(ids)[0, -1].topk(3).indices.tolist())
    drawn = {
        int(model.generate(ids, max_new_tokens=1, temperature=9.0, top_k=3, seed=s)[0, -1])
        for s in range(40)
    }
    assert drawn == likeliest


def test_tokens_are_drawn_by_their_probability():
    """Frequencies over many rows approximate softmax(logits / T)."""
    model, (ids,) = build("gpt2"), prompts("gpt2", batch=1)
    many = ids.expand(4000, -1)
    drawn = model.generate(many, max_new_tokens=1, temperature=2.0)[:, -1]
    with torch.no_grad():
        expected = (model(ids)[0, -1] / 2.0).softmax(-1)
    frequency = torch.bincount(drawn, minlength=D_VOCAB).double() / len(many)
    assert float((frequency - expected).abs().max()) < 0.04


def test_the_context_can_be_filled_to_its_end():
    model, (ids,) = build("gpt2"), prompts("gpt2")
    assert model.generate(ids, max_new_tokens=N_CTX - 4).shape == (2, N_CTX)
