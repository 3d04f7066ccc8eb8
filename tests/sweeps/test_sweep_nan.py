"""An edit under which the metric is no number costs its own cells, and no others."""

import pytest
import torch
from architectures import assert_close, assert_identical, build, padded, tokens_of
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from interp import Sweep, edits, metrics, sweep
from interp.edits import EditSite
from interp.errors import InvalidInput
from interp.model.context import Context
from interp.points import Place, Point
from interp.sweeps.batched import BatchedForward, PerCaseEdit

MODEL = build("gpt2")
TOKENS = tokens_of("gpt2", batch=3, pos=5)[0]
RAGGED = padded([TOKENS[0], TOKENS[1][:2], TOKENS[2][:3]], "left")
METRIC = metrics.logit_diff(1, 2)
HEADS = [edits.zero("z", layer=layer, head=head) for layer in range(2) for head in range(3)]
INFINITE = edits.scale("resid_pre", float("inf"), layer=1)
ONE_AT_A_TIME = 30_000


def no_number_of_one_prompt(z: Tensor, hook: object) -> Tensor:
    return z * torch.tensor([1.0, torch.nan, 1.0], dtype=z.dtype)[:, None, None, None]


def swept(*args: object, **more: object) -> Sweep:
    with pytest.warns(RuntimeWarning, match="NaN in"):
        return sweep(*args, **more)


@pytest.mark.parametrize("tokens", [TOKENS, RAGGED])
@pytest.mark.parametrize("metric", [METRIC, metrics.prob(1), metrics.loss()])
@pytest.mark.parametrize("broken", [INFINITE, edits.apply("z", no_number_of_one_prompt, layer=0)])
def test_a_metric_that_is_nan_under_an_edit_is_nan_in_its_cells(tokens, metric, broken):
    table = swept(MODEL, tokens, [HEADS[0], broken, *HEADS[1:]], metric)
    expected = torch.zeros(7, 3, dtype=torch.bool)
    expected[1, slice(None) if broken is INFINITE else 1] = True
    assert_identical(table.values.isnan(), expected)
    assert table.complete
    assert_close(table.values[[0, 2, 3, 4, 5, 6]], sweep(MODEL, tokens, HEADS, metric).values)


def test_the_notes_name_the_edits_and_prompts():
    broken = edits.apply("z", no_number_of_one_prompt, layer=0)
    table = swept(MODEL, TOKENS, [HEADS[0], broken, INFINITE], METRIC)
    (note,) = table.notes
    assert "NaN in 4 cells" in note
    assert 'Edit 1 (apply at ("z", 0)) on prompt 1;' in note
    assert 'Edit 2 (scale at ("resid_pre", 1)) on prompt 0, 1, 2' in note


def test_the_note_of_many_edits_has_a_bounded_length():
    many = [
        edits.scale("z", float("inf"), layer=0, head=h, unit=u) for h in range(3) for u in range(4)
    ]
    (note,) = swept(MODEL, TOKENS, [[edit, INFINITE] for edit in many], METRIC).notes
    assert "and 8 more edits" in note
    assert len(note) < 600


def test_what_is_nan_is_not_run_again():
    made = [INFINITE, *HEADS]
    part = swept(
        MODEL,
        TOKENS,
        made,
        METRIC,
        memory=ONE_AT_A_TIME,
        cancelled=iter([False] * 5 + [True]).__next__,
    )
    assert part.values[0].isnan().all()
    assert part.done[0].all()
    assert not part.complete
    computed: list[int] = []

    def noting(jobs, work):
        for job in jobs:
            for outcome in work(job):
                computed.extend(outcome.cases)
                yield outcome

    whole = swept(MODEL, TOKENS, made, METRIC, resume=part, executor=noting)
    assert 0 not in computed
    assert whole.complete
    assert whole.notes == swept(MODEL, TOKENS, made, METRIC).notes


def test_a_result_of_the_wrong_kind_still_ends_the_sweep():
    """The converse: that is a mistake in the metric, and no finding."""
    calls: list[None] = []

    def scalar_later(logits: Tensor) -> Tensor:
        calls.append(None)
        return logits[:, -1, 0] if len(calls) == 1 else logits[:, -1]

    with pytest.raises(InvalidInput, match=r'Edit 0 \(zero at \("z", 0\)\): .*one number'):
        sweep(MODEL, TOKENS, HEADS, scalar_later)


class Counted(TorchDispatchMode):
    """Counts the elements that are copied, and the numbers that Python reads."""

    def __init__(self) -> None:
        super().__init__()
        self.copied, self.read = 0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name in ("clone", "copy_", "index_put_", "index_put"):
            self.copied += made.numel()
        self.read += name == "_local_scalar_dense"
        return made


@pytest.mark.parametrize("metric", [METRIC, metrics.prob(1), lambda logits: logits[:, -1, 0]])
def test_a_forward_waits_for_its_device_as_often_with_many_edits_as_with_one(monkeypatch, metric):
    """A number that Python reads is waited for: none is read of each edit's own result."""
    counted, values = Counted(), BatchedForward.values

    def inside(forward: BatchedForward) -> Tensor:
        with counted:
            return values(forward)

    monkeypatch.setattr(BatchedForward, "values", inside)
    reads: list[int] = []
    for made in (HEADS[:1], HEADS[:3]):
        counted.read = 0
        sweep(MODEL, TOKENS, made, metric)
        reads.append(counted.read)
    assert reads[0] == reads[1]


def test_of_a_batched_forward_only_what_is_edited_is_copied_for_each_edit():
    copies, prompts, width, heads, d_head = 3, 2, 5, 3, 4
    x = torch.randn(copies * prompts, width, heads, d_head, dtype=torch.float64)
    made = tuple(enumerate(edits.zero("z", layer=0, head=head) for head in range(3)))
    site = EditSite(Place(Point.Z, 0), Context.plain(x[..., 0, :]))
    with Counted() as counted:
        changed = PerCaseEdit(made, copies)(x, site)
    assert counted.copied == x.numel() + x.numel() // heads
    for copy in range(copies):
        expected = x.unflatten(0, (copies, -1))[copy].clone()
        expected[:, :, copy] = 0
        assert_identical(changed.unflatten(0, (copies, -1))[copy], expected)
