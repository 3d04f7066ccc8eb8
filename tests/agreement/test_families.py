"""Every family computes what Hugging Face's does, to 1e-9 in float64.

Each case is a small random model of ``transformers``; ours is loaded from it. The tests compare
logits, every activation that both have, rows padded on either side, gradients, and generated text.
"""

from importlib import import_module
from inspect import signature
from pathlib import Path

import pytest
import torch
from agreement.comparing import BOUND, Family, both, compared, inputs_of, noted, off, pair_of
from agreement.disk import as_written
from agreement.exact import exact

import interp
from interp.errors import InvalidInput

pytestmark = pytest.mark.agreement

ROOMS = sorted(path.stem for path in (Path(__file__).parent / "families").glob("[a-z]*.py"))
FAMILIES: list[Family] = [
    family for room in ROOMS for family in import_module(f"agreement.families.{room}").FAMILIES
]
ONE_OF_A_KIND = {
    *("GPT-2", "Llama", "GPT-J", "BLOOM", "Mixtral", "BERT", "T5", "ViT"),
    *("ModernBERT", "GPT-OSS", "SigLIP (image)", "BEiT"),
}
"""Families whose first case is tested before each commit, one per kind of part; others are slow."""


def marks_of(family: Family, case: str) -> list[pytest.MarkDecorator]:
    is_quick = family.name in ONE_OF_A_KIND and case == next(iter(family.cases))
    return [] if is_quick else [pytest.mark.slow]


CASES = [
    pytest.param(family, case, id=f"{family.name}-{case}", marks=marks_of(family, case))
    for family in FAMILIES
    for case in family.cases
]


FIRST = list({case.values[0].name: case for case in reversed(CASES)}.values())
"""One case per family."""
STEPS = ("fold_norms", "center_writing", "center_unembed", "fold_value_biases")


@pytest.mark.parametrize(("family", "case"), CASES)
def test_logits_and_every_shared_activation_agree(family, case):
    theirs, ours = pair_of(family, case)
    for what, error in compared(family, theirs, ours, inputs_of(ours)).items():
        noted(family, what, error)
    for what, check in {"disk": as_written, **family.checks}.items():
        noted(family, what, check(theirs, ours))


@pytest.mark.parametrize(
    ("family", "case", "side"),
    [
        pytest.param(*case.values, side, id=f"{case.id}-{side}", marks=case.marks)
        for case in CASES
        for side in case.values[0].pads
    ],
)
def test_padded_rows_agree(family, case, side):
    """Compared only at real tokens: outputs at padding are arbitrary."""
    theirs, ours = pair_of(family, case)
    inputs = inputs_of(ours)
    columns = slice(4, None) if side == "left" else slice(0, 7)
    mask = torch.zeros_like(inputs[0])
    mask[0], mask[1, columns] = 1, 1
    more: dict[str, object] = {}
    if "position_ids" in signature(theirs.forward).parameters:
        more["position_ids"] = family.places((mask.cumsum(-1) - 1).clamp(min=0))
    with torch.no_grad():
        output, expected = both((theirs, ours), inputs, mask, **more)
    if len(inputs) == 1 and expected.shape[:2] == mask.shape:
        output, expected = output[mask.bool()], expected[mask.bool()]
    noted(family, "padding", off(output, expected))


@pytest.mark.parametrize(("family", "case"), CASES)
def test_gradients_by_the_embedding_agree(family, case):
    """Gradients of a randomly weighted sum of outputs, with respect to the (first) embedding."""
    theirs, ours = pair_of(family, case)
    output, expected = both((theirs, ours), inputs_of(ours))
    generator = torch.Generator().manual_seed(3)
    weights = torch.randn(expected.shape, generator=generator, dtype=torch.float64)
    (wanted,) = torch.autograd.grad((expected * weights).sum(), family.embedding(theirs))
    (grad,) = torch.autograd.grad((output * weights).sum(), family.own_embedding(ours))
    noted(family, "gradient", off(grad, wanted.reshape(grad.shape)))


@pytest.mark.parametrize(("family", "case"), CASES)
def test_the_check_at_loading_is_kept(family, case):
    """The difference measured at loading is part of the provenance."""
    theirs, _ = pair_of(family, case)
    with exact():
        loaded = interp.load(theirs)
    assert loaded.agreement is not None
    assert loaded.agreement <= BOUND


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(("family", "case"), FIRST)
def test_weight_views_give_out_the_same_or_are_refused_by_name(family, case, step):
    """Other weights, the same outputs (the same log-probabilities if they are centred)."""
    _, ours = pair_of(family, case)
    inputs = inputs_of(ours)
    try:
        view = ours.processed(**{other: other == step for other in STEPS})
    except InvalidInput as error:
        refused = str(error)
    else:
        refused = ""
        output, expected = (output_of(model, inputs) for model in (view, ours))
        if step == "center_unembed":
            output, expected = output.log_softmax(-1), expected.log_softmax(-1)
        assert off(output, expected) <= BOUND
    assert refused == "" or refused.startswith(f"{step}=True would change")


@torch.no_grad()
def output_of(model, inputs):
    return model(*inputs)
