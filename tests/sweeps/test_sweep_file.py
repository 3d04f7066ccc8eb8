"""A saved sweep is read back unchanged, and can be resumed; no file does harm."""

import json
import random

import pytest
import torch
from architectures import assert_identical, build, padded, tokens_of
from safetensors import safe_open
from safetensors.torch import save_file
from tables import each

from interp import InterpError, Sweep, edits, metrics, sweep
from interp.errors import InvalidInput, OutOfResources

MODEL = build("gpt2")
TOKENS = tokens_of("gpt2", batch=3, pos=5)[0]
DONOR = torch.randn(3, 5, 3, 4, generator=torch.Generator().manual_seed(0)).double()
MADE = [
    *(edits.zero("z", layer=layer, head=head) for layer in (0, 1) for head in (0, 1, 2)),
    edits.resample("z", DONOR, layer=0, pos=-1),
    [edits.replace("z", DONOR, layer=0, head=(1, 2)), edits.scale(("scale", 1, "ln2"), 0.5)],
    edits.mean("z", layer=1),
    edits.resample("mlp_out", layer=1, seed=3),
    edits.add("resid_pre", -0.1, layer=-1, batch=1, unit=(0, 3)),
]
METRICS = [
    metrics.logit_diff((1, 2, 3), 0),
    metrics.loss(),
    metrics.prob(4, pos=1),
    metrics.kl(MODEL(TOKENS).detach().flip(0)),
    metrics.kl(MODEL(TOKENS).detach().flip(0), pos=-1),
    metrics.kl(),
]


def stopped(metric: metrics.Metric) -> Sweep:
    return sweep(MODEL, TOKENS, MADE, metric, memory=60_000, cancelled=iter([False, True]).__next__)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.kind)
def test_a_sweep_is_read_back_and_resumed(tmp_path, metric):
    part = stopped(metric)
    assert not part.complete
    part.save(tmp_path / "sweep.safetensors")
    again = Sweep.load(tmp_path / "sweep.safetensors")
    for name in ("values", "baseline", "done"):
        assert_identical(getattr(again, name), getattr(part, name))
    for name in ("placed", "edits", "measured", "metric", "unit", "provenance", "notes"):
        assert getattr(again, name) == getattr(part, name), name
    assert list(again.rows()) == list(part.rows())
    whole = sweep(MODEL, TOKENS, MADE, metric, resume=again)
    assert whole.complete
    assert_identical(whole.values[part.done], part.values[part.done])


def test_notes_are_saved(tmp_path):
    broken = edits.scale("resid_pre", float("inf"), layer=1)
    with pytest.warns(RuntimeWarning, match="NaN"):
        table = sweep(MODEL, padded([TOKENS[0], TOKENS[1][:3]], "left"), broken, metrics.loss())
    table.remarks["one more"] = None
    table.save(tmp_path / "s")
    assert Sweep.load(tmp_path / "s").notes == table.notes
    assert len(table.notes) == 2


def test_a_tensor_that_several_edits_hold_is_stored_once(tmp_path):
    made = [
        edits.replace("z", DONOR, layer=layer, head=head) for layer in (0, 1) for head in (0, 1)
    ]
    sweep(MODEL, TOKENS, made, metrics.logit(1)).save(tmp_path / "s")
    assert (tmp_path / "s").stat().st_size < DONOR.nbytes + 8_000


FUNCTION = edits.apply("z", lambda z, hook: z, layer=0)


@each(
    ("made", "metric", "message"),
    [
        (FUNCTION, METRICS[0], r'Edit 0 \(apply at \("z", 0\)\)'),
        (MADE[0], lambda logits: logits[:, -1, 0], "metric of this sweep"),
    ],
)
def test_a_function_is_not_saved(tmp_path, made, metric, message):
    table = sweep(MODEL, TOKENS, made, metric)
    with pytest.raises(InvalidInput, match=rf"{message}.*Python function.*to_frame"):
        table.save(tmp_path / "s")
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_complete_or_absent(tmp_path, monkeypatch):
    table = stopped(METRICS[0])
    table.save(tmp_path / "s")
    before = (tmp_path / "s").read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("interp.saved.sweep_file.save_tensors", full)
    with pytest.raises(OutOfResources, match="No space"):
        table.save(tmp_path / "s")
    assert (tmp_path / "s").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


@each("path", ["missing/s", "a\0b"])
def test_where_no_file_can_be_written_is_refused(tmp_path, path):
    with pytest.raises(InvalidInput):
        stopped(METRICS[0]).save(tmp_path / path)


def rewritten(path, **changes: object) -> None:
    """The file with other fields in its header."""
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        header = json.loads(file.metadata()["interp_sweep"])
    save_file(tensors, path, {"interp_sweep": json.dumps(header | changes)})


NESTED = json.loads("[" * 900 + "]" * 900)


@each(
    ("name", "value", "message"),
    [
        ("version", 2, "format 2"),
        ("version", None, "format None"),
        ("metric", {"kind": "prob", "pos": True, "target": 1}, "pos=True"),
        ("metric", {"kind": "prob", "pos": -1}, "fields"),
        ("metric", {"kind": ["prob"]}, "kind"),
        ("metric", {"kind": "kl", "pos": None, "reference": {"tensor": "none"}}, "none"),
        ("metric", {"kind": "kl", "pos": None, "reference": 3}, "damaged"),
        ("metric", NESTED, "damaged"),
        ("edits", [], "table"),
        ("edits", 3, "damaged"),
        ("edits", [[["z"]]] * len(MADE), "damaged"),
        ("edits", [[[["z", 0, None, None], {"kind": "zero"}]]] * len(MADE), "where"),
        ("edits", [[[["zz", 0, None, None], MADE[0].to_dict()]]] * len(MADE), "not a place"),
        ("edits", [[[["z", True, None, None], MADE[0].to_dict()]]] * len(MADE), "not a place"),
        ("provenance", {}, "provenance"),
        ("provenance", {"model": 3}, "provenance.model"),
        ("notes", [3], "note"),
        ("notes", None, "damaged"),
    ],
)
def test_a_file_with_other_fields_is_refused(tmp_path, name, value, message):
    stopped(METRICS[3]).save(tmp_path / "s")
    rewritten(tmp_path / "s", **{name: value})
    with pytest.raises(InvalidInput, match=message) as caught:
        Sweep.load(tmp_path / "s")
    assert len(str(caught.value)) < 600 + len(str(tmp_path))


@each(
    "header",
    ["", "[]", "{", "[" * 100_000, '{"version": 1}', '{"version": ' + "1" * 5000 + "}", "null"],
)
def test_a_header_that_is_no_header_is_refused(tmp_path, header):
    save_file({"values": torch.zeros(1)}, tmp_path / "s", {"interp_sweep": header})
    with pytest.raises(InvalidInput):
        Sweep.load(tmp_path / "s")


@each("content", [b"", b"x", b"\xff" * 100, (10**15).to_bytes(8, "little") + b"{}"])
def test_what_is_no_sweep_is_refused(tmp_path, content):
    (tmp_path / "s").write_bytes(content)
    for path in (tmp_path / "s", tmp_path, tmp_path / "none", tmp_path / "a\0b"):
        with pytest.raises(InvalidInput):
            Sweep.load(path)


def test_a_file_with_any_byte_changed_raises_no_foreign_exception(tmp_path):
    stopped(METRICS[3]).save(tmp_path / "s")
    whole, draw = (tmp_path / "s").read_bytes(), random.Random(0)
    outcomes = set()
    for _ in range(300):
        content = bytearray(whole)
        for _ in range(draw.randint(1, 3)):
            content[draw.randrange(min(len(content), 6000))] = draw.randrange(256)
        if draw.random() < 0.2:
            del content[draw.randrange(len(content)) :]
        (tmp_path / "s").write_bytes(content)
        try:
            Sweep.load(tmp_path / "s")
        except InterpError as error:
            outcomes.add(type(error))
    assert outcomes == {InvalidInput}
