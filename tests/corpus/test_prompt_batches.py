"""Prompts in batches by length: each once, alike in length, few in memory; from every format."""

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import interp
from analyses.check_prompts.prompt_batches import prompts_by_length
from interp.errors import InvalidInput, InvalidTokens
from interp.prompts import Prompt, pools_of

LENGTHS = [5, 1, 9, 3, 7, 2, 8, 4, 6, 10]


@pytest.fixture(scope="module")
def model():
    return interp.load("induction-by-hand")


def prompts_of(lengths):
    return [Prompt("a" * n, source=f"here:{n}") for n in lengths]


@pytest.mark.parametrize(("rows", "pool"), [(1, 3), (3, 100), (4, 4), (64, 1)])
def test_each_prompt_is_in_one_row(model, rows, pool):
    batches = list(prompts_by_length(model, prompts_of(LENGTHS), rows=rows, pool=pool))
    assert sorted(len(p.text) for batch in batches for p in batch.prompts) == sorted(LENGTHS)
    for batch in batches:
        assert len(batch.prompts) <= rows
        (encoded,) = batch.batches
        expected = model.batch([prompt.text for prompt in batch.prompts])
        assert torch.equal(encoded.tokens, expected.tokens)


def test_batches_of_a_pool_do_not_overlap_in_length(model):
    batches = list(prompts_by_length(model, prompts_of(LENGTHS), rows=3, pool=100))
    spans = [[len(p.text) for p in batch.prompts] for batch in batches]
    assert [(min(span), max(span)) for span in spans] == [(1, 3), (4, 6), (7, 9), (10, 10)]
    # In the order in which they came, they would be padded more.
    assert spans != [LENGTHS[:3], LENGTHS[3:6], LENGTHS[6:9], LENGTHS[9:]]


def test_no_more_than_a_pool_is_read_ahead(model):
    read = []

    def endless():
        while True:
            read.append(1)
            yield Prompt("ab")

    batches = prompts_by_length(model, endless(), rows=2, pool=6)
    for expected in (6, 6, 6, 12):
        next(batches)
        assert len(read) == expected


def test_the_decoder_reads_the_prefix_else_the_target():
    model = interp.load("dates")
    prompts = [Prompt("7 June 2030", prefix="2030-0"), Prompt("7 June 2030", target="2030-06-07")]
    (batch,) = prompts_by_length(model, prompts)
    expected = model.batch(["2030-0", "2030-06-07"], stack="decoder")
    assert torch.equal(batch.batches[1].tokens, expected.tokens)
    with pytest.raises(InvalidInput, match=r"x:1: the decoder .* reads a 'prefix' or a 'target'"):
        list(prompts_by_length(model, [Prompt("7 June 2030", source="x:1")]))


def test_a_prompt_that_can_not_be_read_is_named(model):
    for text, message in (("a" * 99, "here:3: .*context"), ("é", "here:3: .*can't be encoded")):
        with pytest.raises(InvalidTokens, match=message):
            list(prompts_by_length(model, [Prompt("a"), Prompt(text, source="here:3")]))
    with pytest.raises(InvalidInput, match="rows=0 must be"):
        list(prompts_by_length(model, [Prompt("a")], rows=0))


def test_a_corpus_is_read_from_every_format(model, tmp_path):
    datasets.disable_progress_bars()
    texts = ["abcab", "xyx", "kqkq"]
    table = {"text": texts, "meta": [1, 2, 3]}
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_text("meta,text\n" + "".join(f"1,{text}\n" for text in texts))
    (tmp_path / "a.txt").write_text("\n".join(texts))
    dataset = datasets.Dataset.from_dict(table)
    dataset.save_to_disk(tmp_path / "saved")
    (expected,) = pools_of(model, texts, 9)
    for source in (
        *(tmp_path / name for name in ("a.parquet", "a.csv", "a.txt", "saved")),
        dataset,
    ):
        (pool,) = pools_of(model, source, 9)
        assert torch.equal(pool.batches[0].tokens, expected.batches[0].tokens), source
        assert pool.done == pool.total > 0
    (pool,) = pools_of(model, tmp_path / "a.parquet", 9)
    assert pool.sources[2] == f"{tmp_path / 'a.parquet'}[2]"
    with pytest.raises(InvalidInput, match=r"give the file as Path"):
        list(pools_of(model, str(tmp_path / "a.parquet"), 9))
