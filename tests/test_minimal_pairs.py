"""Clean and corrupted prompts are aligned token for token, or refused with the tokens shown."""

import pytest
import torch
from architectures import build, padded, tokens_of
from tables import each

import interp
from analyses.methods.components.minimal_pairs import SHOWN, aligned, aligned_prompts
from interp import PAD, metrics
from interp.errors import InvalidInput
from interp.prompts import Prompt

GPT2, TYPED, PAIR = build("gpt2"), build("bert-types"), build("t5")
ROWS = [torch.tensor([1, 2, 3, 4]), torch.tensor([5, 6])]
OTHERS = [torch.tensor([1, 2, 8, 4]), torch.tensor([7, 6])]


def test_texts_and_ids_and_batches_are_the_same_pair():
    model = interp.load("induction-by-hand")
    texts = ["abcab", "xyx"], ["abdab", "xzx"]
    ids = [model.to_tokens(prompts) for prompts in texts]
    for pair in (texts, ids, [model.batch(rows) for rows in ids]):
        ((clean,), (corrupt,)) = aligned(model, *pair)
        assert clean.tokens.equal(ids[0])
        assert corrupt.tokens.equal(ids[1])


@each(
    ("side", "other"),
    [("left", "left"), ("right", "right"), ("left", "right"), ("right", "left")],
)
def test_a_column_of_one_is_the_counterpart_of_that_column_of_the_other(side, other):
    pair = padded(ROWS, side), padded(OTHERS, other, extra=2)
    ((clean,), (corrupt,)) = aligned(GPT2, *pair)
    assert clean.is_real.equal(corrupt.is_real)
    for batch, rows in ((clean, ROWS), (corrupt, OTHERS)):
        for ids, real, row in zip(batch.ids, batch.is_real, rows, strict=True):
            assert ids[real].equal(row)


def test_padding_that_agrees_stays_where_it_is():
    holes = torch.tensor([[1, PAD, 2, 3]]), torch.tensor([[1, PAD, 4, 3]])
    for ids, batches in zip(holes, aligned(GPT2, *holes), strict=True):
        assert batches[0].tokens.equal(ids)


def test_an_encoder_decoder_has_a_batch_a_stack_and_either_may_differ():
    source, target = tokens_of("t5")
    other = source.flip(0)
    assert not source.equal(other)
    for changed in ((other, target), (source, target.flip(0))):
        clean, corrupt = aligned(PAIR, (source, target), changed)
        assert [part.ids.tolist() for part in clean] == [source.tolist(), target.tolist()]
        assert [part.ids.tolist() for part in corrupt] == [part.tolist() for part in changed]


def test_types_and_images_make_a_pair_too():
    ids = tokens_of("bert-types")[0]
    types = torch.zeros_like(ids), torch.ones_like(ids)
    both = [TYPED.batch(ids, types=row_types) for row_types in types]
    ((clean,), (corrupt,)) = aligned(TYPED, *both)
    assert clean.types is not None
    assert corrupt.types is not None
    assert not clean.types.equal(corrupt.types)
    with pytest.raises(InvalidInput, match="Prompt 0 is the same clean and corrupted"):
        aligned(TYPED, both[0], both[0])


def test_pairs_of_different_length_are_refused_with_their_tokens():
    model = interp.load("python-2l")
    with pytest.raises(InvalidInput) as error:
        aligned(model, ["f(x)", "def f(a):"], ["f(y)", "def f(a, b, d):"])
    assert str(error.value).split("\n") == [
        "Prompt 1 has 6 tokens clean and 10 corrupted; each token needs its counterpart at the "
        "same position:",
        "position  3  4  5   6   7  8   9",
        "clean     (  a  ):  ∅   ∅  ∅   ∅",
        "corrupt   (  a  ,   ·b  ,  ·d  ):",
        "                ^   ^   ^  ^   ^",
        "Reword one of the two so that both have as many tokens.",
    ]


def test_an_alignment_shows_some_tokens_from_the_first_that_differ():
    long = torch.arange(12) % 7
    with pytest.raises(
        InvalidInput, match=r"position  9  10  11\nclean     2  3   4\ncorr"
    ) as error:
        aligned(GPT2, long[None], long[None, :-1])
    assert "∅" in str(error.value)
    with pytest.raises(InvalidInput) as error:
        aligned(GPT2, long[None], 1 + long[None, :-1])
    assert f"  {SHOWN - 1}\n" in str(error.value)
    assert f"  {SHOWN}\n" not in str(error.value)


def test_the_stack_of_an_encoder_decoder_that_differs_in_length_is_named():
    source, target = tokens_of("t5")
    with pytest.raises(InvalidInput, match=r"Prompt 0 \(decoder\) has 5 tokens clean and 4 corr"):
        aligned(PAIR, (source, target[:, :5]), (source.flip(0), target[:, :4]))


def test_pairs_that_are_identical_or_alone_are_refused():
    with pytest.raises(InvalidInput, match="Prompt 1 is the same clean and corrupted"):
        aligned(GPT2, padded(ROWS, "left"), padded([OTHERS[0], ROWS[1]], "right"))
    with pytest.raises(InvalidInput, match="2 clean prompts and 1 corrupted ones"):
        aligned(GPT2, padded(ROWS, "left"), OTHERS[0][None])
    with pytest.raises(InvalidInput, match=r"two inputs: give both as the tuple \(sour"):
        aligned(PAIR, *tokens_of("t5"))


def test_prompt_sets_are_read_by_field():
    model = interp.load("induction-by-hand")
    prompts = [Prompt("abcab", corrupt="abdab"), Prompt("xyx", corrupt="xzx")]
    ((clean,), (corrupt,)) = aligned_prompts(model, prompts)
    assert clean.tokens.equal(model.to_tokens(["abcab", "xyx"]))
    assert corrupt.tokens.equal(model.to_tokens(["abdab", "xzx"]))
    with pytest.raises(InvalidInput, match=r"here:3: a minimal pair needs a 'corrupt'"):
        aligned_prompts(model, [Prompt("ab", source="here:3")])


def test_the_decoder_of_a_pair_reads_the_prefix():
    model = interp.load("dates")
    prompt = Prompt("7 June 2030", corrupt="7 July 2030", prefix="2030-0")
    clean, corrupt = aligned_prompts(model, [prompt])
    assert clean[1].ids.equal(model.batch("2030-0", stack="decoder").ids)
    assert clean[1].ids.equal(corrupt[1].ids)
    with pytest.raises(InvalidInput, match="a minimal pair needs a 'prefix'"):
        aligned_prompts(model, [Prompt("7 June 2030", corrupt="7 July 2030")])


def test_a_sweep_takes_the_batches_of_either_kind_of_model():
    source, target = tokens_of("t5")
    ids = padded(ROWS, "left")
    for model, batches, inputs, stack in (
        (GPT2, (GPT2.batch(ids),), ids, {}),
        (PAIR, tuple(PAIR.check(source, target)), (source, target), {"stack": "decoder"}),
    ):
        edit = interp.edits.zero("z", layer=0, head=0, **stack)
        from_batches, from_inputs = (
            interp.sweep(model, prompts, [edit], metrics.logit(3)) for prompts in (batches, inputs)
        )
        assert from_batches.values.equal(from_inputs.values)
