"""A harvest holds what runs of its texts record, and is read in an exactly shuffled order."""

import numpy as np
import pytest
import torch
from architectures import (
    ARCHITECTURES,
    HALF,
    IMAGES,
    NIGHTLY,
    PAIRS,
    assert_close,
    assert_identical,
    build,
    build_new,
    covering,
    padded,
    tokens_of,
)
from torch.utils.data import DataLoader

import interp
from interp import PAD
from interp.errors import Cancelled, InvalidInput, NotRecorded, OutOfResources, UnknownPlace
from interp.harvests import Harvest, estimate_harvest, harvest, pieces, write

LENGTHS = (4, 1, 6, 2, 5, 3, 6, 2, 7)
NAME = "blocks.1.hook_resid_post"
PLACE = ("resid_post", 1)


def texts_of(model, lengths=LENGTHS):
    """Random texts, and the input of one of them alone."""
    config = model.config
    ids = tokens_of(config, len(lengths), max(lengths))[0]
    rows = [row[:n] for row, n in zip(ids, lengths, strict=True)]
    if len(model.stacks) == 1:
        return padded(rows, "right"), [(row[None],) for row in rows]
    targets = [row.flip(0) % config.d_vocab for row in rows]
    pairs = [(row[None], target[None]) for row, target in zip(rows, targets, strict=True)]
    return (padded(rows, "right"), padded(targets, "right")), pairs


def places_of(model, stack):
    """All places with a row for each token of a stack."""
    names = [s.name_in_places for s in model.stacks]
    first = names[0]
    return [
        place
        for place in model.layout
        if not place.point.is_matrix
        and (first if "source" in place.point.axes else place.stack or names[-1]) == stack
    ]


@pytest.fixture(scope="module")
def model():
    return build("gpt2")


@pytest.fixture(scope="module")
def stored(model, tmp_path_factory):
    """A harvest of 36 rows in shards of 7."""
    folder = tmp_path_factory.mktemp("harvest")
    return harvest(model, texts_of(model)[0], [PLACE, ("z", 0)], folder, shard_rows=7, rows=3)


# ---- what is stored -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", covering(ARCHITECTURES, HALF, NIGHTLY))
def test_rows_are_those_of_a_run_of_each_text(name, tmp_path, monkeypatch):
    """Every place of every stack, in float64; texts in several pieces and shards."""
    monkeypatch.setattr(pieces, "PIECE_TOKENS", 10)
    monkeypatch.setattr(pieces, "POOL", 2)
    model = build(name)
    together, alone = texts_of(model, LENGTHS[:5])
    if name not in PAIRS:
        together = iter([ids[0] for (ids,) in alone])
        alone = [(ids,) for (ids,) in alone]
    for stack in (s.name_in_places for s in model.stacks):
        places = places_of(model, stack)
        read = harvest(model, together, places, tmp_path / str(stack), shard_rows=7, rows=2)
        assert [place.as_place for place in read.places] == places
        for text, tokens in enumerate(alone):
            cache = interp.run(model, *tokens, record=places).cache
            batch = read.rows(read.rows_of_text(text))
            ids = tokens[0 if stack in (None, "encoder") else 1][0]
            assert batch["token"].tolist() == ids.tolist() == read.tokens(text).tolist()
            assert batch["position"].tolist() == list(range(len(ids)))
            assert batch["text"].tolist() == [text] * len(ids)
            for place in read.places:
                assert_close(batch[place.name], cache[place.as_place][0], what=(name, place))


def test_rows_are_bit_identical_at_the_shapes_of_the_run(model, tmp_path):
    tokens = tokens_of("gpt2", 4, 6)[0]
    read = harvest(model, tokens, PLACE, tmp_path)
    run = interp.run(model, tokens, record=PLACE)
    assert_identical(read.rows(range(24))[NAME], run.cache[PLACE].flatten(0, 1))


def test_types_of_tokens_are_kept(tmp_path):
    model = build("bert-types")
    ids = tokens_of("bert-types", 3, 5)[0]
    typed = model.batch(ids, types=ids % 2)
    read, plain = (harvest(model, x, PLACE, tmp_path / str(n)) for n, x in enumerate([typed, ids]))
    run = interp.run(model, typed, record=PLACE)
    assert_identical(read.rows(range(15))[NAME], run.cache[PLACE].flatten(0, 1))
    assert not torch.equal(read.rows(range(15))[NAME], plain.rows(range(15))[NAME])
    assert torch.equal(read.batches(model)[0].types, ids % 2)


def test_a_text_longer_than_the_context_is_cut_into_several(tmp_path):
    model = interp.load("python-2l")
    code = "x = 1\n" * 40
    read = harvest(model, [code, "y = 2"], PLACE, tmp_path, max_length=50)
    assert [read.document(text) for text in range(read.n_texts)] == [0, 0, 0, 0, 1]
    assert {int(read.tokens(text)[0]) for text in range(5)} == {model.config.tokens.bos}
    assert int(read.lengths().max()) == 50


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", torch.float64])
def test_activations_are_rounded_once(model, tmp_path, dtype):
    texts = texts_of(model)[0]
    read = harvest(model, texts, PLACE, tmp_path, dtype=dtype)
    exact = harvest(model, texts, PLACE, tmp_path / "exact").rows(slice(None))[NAME]
    assert_identical(read.rows(slice(None))[NAME], exact.to(read.dtype))
    size = sum(path.stat().st_size for path in tmp_path.glob("shard-*"))
    assert size <= read.n_rows * (read.index.row_bytes + 16) + 1000


def test_an_activation_too_large_for_float16_is_an_error(tmp_path):
    model = build_new("gpt2")
    model.decoder.blocks[1].mlp.b_out.data += 1e5
    message = r'beyond the largest of float16, 6.55e.04. Give dtype="b'
    with pytest.raises(InvalidInput, match=message):
        harvest(model, texts_of(model)[0], PLACE, tmp_path / "half", dtype="float16")
    assert harvest(model, texts_of(model)[0], PLACE, tmp_path / "b", dtype="bfloat16").n_rows == 36


# ---- the order of rows --------------------------------------------------------------------------


def rows_read(batches):
    """The activations of some batches, one after another."""
    return torch.cat([batch[NAME] for batch in batches])


@pytest.mark.parametrize("block", [1, 10, 1000])
def test_the_order_is_that_of_numpy_with_any_block(stored, block):
    read = Harvest(stored.folder, batch=5, block=block, places=NAME)
    read.set_epoch(3)
    order = np.arange(36, dtype=np.uint32)
    np.random.default_rng([0, 3]).shuffle(order)
    everything = stored.rows(slice(None))
    assert_identical(rows_read(read), everything[NAME][order.astype(int)])
    batches = list(read)
    for name in ("token", "text", "position"):
        assert_identical(torch.cat([b[name] for b in batches]), everything[name][order.astype(int)])
    assert "blocks.0.attn.hook_z" not in batches[0]


def test_another_epoch_or_seed_has_another_order(stored):
    everything = stored.rows(slice(None))[NAME]
    first, other = (Harvest(stored.folder, batch=36, seed=seed) for seed in (0, 1))
    orders = [rows_read(first), rows_read(other)]
    first.set_epoch(1)
    orders.append(rows_read(first))
    for order in orders:
        assert_identical(order.sort(0).values, everything.sort(0).values)
        assert not torch.equal(order, everything)
    assert not torch.equal(orders[0], orders[1])
    assert not torch.equal(orders[0], orders[2])
    assert_identical(rows_read(Harvest(stored.folder, batch=5, shuffle=False)), everything)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_is_resumed_at_any_batch(stored, workers):
    """A loader without its own states counts batches; one without workers asks the reader."""
    whole = list(Harvest(stored.folder, batch=5))
    assert len(whole) == len(Harvest(stored.folder, batch=5)) == 8
    for count in (0, 3, 8) if workers == 0 else (3,):
        state = {"epoch": 0, "batch": count}
        if workers == 0:
            read = Harvest(stored.folder, batch=5)
            begun = iter(read)
            for _ in range(count):
                next(begun)
            assert read.state_dict() == state
        resumed = Harvest(stored.folder, batch=5)
        resumed.load_state_dict(state)
        rest = list(DataLoader(resumed, batch_size=None, num_workers=workers))
        assert len(rest) == 8 - count
        for actual, expected in zip(rest, whole[count:], strict=True):
            assert_identical(actual[NAME], expected[NAME])
            assert_identical(actual["token"], expected["token"])


def test_ranks_read_different_batches_and_equally_many(stored):
    whole = [batch[NAME] for batch in Harvest(stored.folder, batch=5, drop_last=True)]
    readers = [Harvest(stored.folder, batch=5, rank=r, ranks=3, drop_last=True) for r in range(3)]
    for rank, read in enumerate(readers):
        batches = [batch[NAME] for batch in read]
        assert len(batches) == len(read) == 2
        for actual, expected in zip(batches, whole[rank:6:3], strict=True):
            assert_identical(actual, expected)


# ---- estimates ----------------------------------------------------------------------------------


def test_bytes_and_time_are_estimated_from_the_first_texts(model, tmp_path):
    texts = texts_of(model)[0]
    estimate = estimate_harvest(model, texts, [PLACE, ("z", 0)], dtype="float32")
    assert estimate.n_rows == 36
    assert estimate.row_bytes == 2 * 12 * 4
    assert estimate.nbytes == 36 * (96 + 16)
    assert estimate.seconds > 0
    endless = estimate_harvest(model, (row[row != PAD] for row in texts), PLACE)
    assert np.isnan(endless.nbytes)
    assert "96 bytes a token" in str(endless)


# ---- what is refused ----------------------------------------------------------------------------


def refused(kind, message, model, folder, texts=None, record=PLACE, **settings):
    """A harvest that is refused, and leaves the folder unchanged."""
    before = content(folder)
    texts = texts_of(model)[0] if texts is None else texts
    with pytest.raises(kind, match=message):
        harvest(model, texts, record, folder, **settings)
    assert content(folder) == before


def content(folder):
    """All files below a folder, hidden ones too."""
    return {path.name: path.read_bytes() for path in folder.glob("*") if path.is_file()}


def test_another_harvest_in_the_folder_is_named(model, tmp_path):
    texts = texts_of(model)[0]
    harvest(model, texts, PLACE, tmp_path, shard_rows=7)
    other = build_new("gpt2", seed=1)
    refused(InvalidInput, "whose weights differ", other, tmp_path, shard_rows=7)
    llama = build("llama")
    refused(InvalidInput, "whose architecture differs", llama, tmp_path, shard_rows=7)
    refused(InvalidInput, "with places blocks.1", model, tmp_path, record="z", shard_rows=7)
    refused(InvalidInput, "with dtype 'float64'", model, tmp_path, dtype="float16", shard_rows=7)
    refused(InvalidInput, "shard_rows 7; this one has 8", model, tmp_path, shard_rows=8)
    refused(InvalidInput, "9 other texts; these are 8", model, tmp_path, texts[1:], shard_rows=7)
    refused(InvalidInput, "with seed 0", model, tmp_path, seed=1, shard_rows=7)
    assert harvest(model, None, PLACE, tmp_path, shard_rows=7).n_rows == 36


@pytest.mark.parametrize(
    ("kind", "message", "settings"),
    [
        (UnknownPlace, "Nearest", {"record": ("resid_pots", 1)}),
        (InvalidInput, r"axes \[batch head query key\].*Record q", {"record": ("pattern", 0)}),
        (InvalidInput, "names no place", {"record": []}),
        (InvalidInput, "holds no text", {"texts": iter([])}),
        (InvalidInput, "must be one of float16", {"dtype": "int8"}),
        (InvalidInput, "shard_rows=0", {"shard_rows": 0}),
        (InvalidInput, "has no harvest yet", {"texts": False}),
    ],
)
def test_what_can_not_be_stored_is_refused(model, tmp_path, kind, message, settings):
    if settings.get("texts") is False:
        with pytest.raises(kind, match=message):
            harvest(model, None, PLACE, tmp_path)
        return
    refused(kind, message, model, tmp_path, **settings)


def test_places_of_two_stacks_and_images_are_refused(tmp_path):
    pair = build("t5")
    record = [("resid_post", 1, "encoder"), ("resid_post", 1, "decoder")]
    refused(InvalidInput, "different stacks", pair, tmp_path, record=record)
    with pytest.raises(InvalidInput, match="reads texts or token ids"):
        harvest(build(IMAGES), torch.zeros(1, 2, 4, 6), PLACE, tmp_path)


def test_a_folder_with_other_files_is_left_alone(model, tmp_path):
    (tmp_path / "texts.jsonl").write_text("mine")
    refused(InvalidInput, "texts.jsonl", model, tmp_path)
    with pytest.raises(InvalidInput, match=r"has no index.json"):
        Harvest(tmp_path)


def test_a_damaged_shard_and_one_of_another_harvest_are_named(model, stored, tmp_path):
    texts = texts_of(model)[0]
    read = harvest(model, texts, [PLACE, ("z", 0)], tmp_path, shard_rows=7, rows=4)
    path = tmp_path / "shard-00002.safetensors"
    whole = path.read_bytes()
    for damaged, message in {
        whole[:-8] + b"12345678": "its SHA-256",
        whole[:-8]: "truncated",
        (stored.folder / path.name).read_bytes(): "belongs to another harvest",
        (tmp_path / "shard-00001.safetensors").read_bytes(): "it is shard 1",
        whole.replace(b'"sha256"', b'"sha255"'): "it has no checksum",
        b"": "header of",
    }.items():
        path.write_bytes(damaged)
        with pytest.raises(
            InvalidInput, match=f"shard 2 of this harvest: .*{message}.*Move it away"
        ):
            Harvest(tmp_path).verify()
    path.unlink()
    with pytest.raises(InvalidInput, match="has 5 of 6 shards"):
        Harvest(tmp_path)
    harvest(model, texts, [PLACE, ("z", 0)], tmp_path, shard_rows=7, rows=4)
    assert path.read_bytes() == whole
    read.verify()
    (tmp_path / "texts-00000.safetensors").write_bytes(whole)
    with pytest.raises(InvalidInput, match=r"texts-00000.safetensors is missing or damaged"):
        Harvest(tmp_path).verify()


def test_places_rows_and_states_that_do_not_exist(stored):
    with pytest.raises(NotRecorded, match=r"is not stored; this harvest has blocks.0.attn.hook_z"):
        Harvest(stored.folder, places=("mlp_out", 0))
    with pytest.raises(InvalidInput, match=r"places=\[\] names no place"):
        Harvest(stored.folder, places=[])
    assert Harvest(stored.folder, places=[("z", 0), "resid_post"]).n_rows == 36
    for rows in ([36], [-37], [0.5], "ab"):
        with pytest.raises(InvalidInput, match=r"outside 0..35|indices of rows"):
            stored.rows(rows)
    for state in ({"epoch": 0}, {"epoch": 0, "batch": 99}, None):
        with pytest.raises(InvalidInput, match=r"state_dict|from 0 to"):
            Harvest(stored.folder, batch=5).load_state_dict(state)


def test_a_full_disk_is_refused_before_the_first_forward(model, tmp_path, monkeypatch):
    usage = write.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(write.shutil, "disk_usage", lambda _: replace_free(usage, 1000))
    message = r"needs 3.9 KiB for 36 rows at 1 places; 1.0 KiB are free. Free some space"
    with pytest.raises(OutOfResources, match=message):
        harvest(model, texts_of(model)[0], PLACE, tmp_path)
    assert not list(tmp_path.glob("shard-*"))


def replace_free(usage, nbytes):
    return type(usage)(usage.total, usage.used, nbytes)


def test_a_cancelled_harvest_keeps_whole_shards(model, tmp_path):
    calls = iter(range(100))
    texts = texts_of(model)[0]
    reported = []
    with pytest.raises(Cancelled, match="the same call computes the others"):
        harvest(
            model,
            texts,
            PLACE,
            tmp_path,
            shard_rows=7,
            progress=lambda *done: reported.append(done),
            cancelled=lambda: next(calls) > 4,
        )
    n_whole = len(list(tmp_path.glob("shard-*")))
    assert 0 < n_whole < 6
    assert reported == sorted(reported)
    harvest(
        model, None, PLACE, tmp_path, shard_rows=7, progress=lambda *done: reported.append(done)
    ).verify()
    assert reported == sorted(reported)
    assert reported[-1] == (36, 36)


def test_ctrl_c_says_what_remains(model, tmp_path):
    def interrupt(done, total):
        if done > 20:
            raise KeyboardInterrupt

    texts = texts_of(model)[0]
    with pytest.raises(KeyboardInterrupt, match="same call computes the others"):
        harvest(model, texts, PLACE, tmp_path, shard_rows=7, progress=interrupt)
    assert 0 < len(list(tmp_path.glob("shard-*"))) < 6
    assert not list(tmp_path.glob(".*"))
    harvest(model, texts, PLACE, tmp_path, shard_rows=7).verify()
