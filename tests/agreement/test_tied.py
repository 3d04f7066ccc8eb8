"""Tied matrices: whatever tables a file has, ours reads what theirs does, or refuses the file."""

from collections import Counter
from itertools import product
from pathlib import Path

import pytest
import torch
from agreement.comparing import BOUND, beside, called, inputs_of, off
from agreement.disk import WEIGHTS
from agreement.exact import exact, randomised
from agreement.families import bart, marian, t5
from agreement.small import Case
from safetensors.torch import save_file
from torch import Tensor, nn

import interp
from interp import InterpError

pytestmark = pytest.mark.agreement

TABLES = ("shared", "encoder.embed_tokens", "decoder.embed_tokens", "lm_head")
STORED = ("missing", "the same", "another")
FILES = [stored for stored in product(STORED, repeat=4) if set(stored) != {"missing"}]
"""What a file has under each of these names: nothing, the shared table, or a table of its own."""
AGREED, OURS = "agreed", "refused by ours"


def case_of(room, name: str) -> Case:
    return next(family.cases[name] for family in room.FAMILIES if name in family.cases)


CASES = {
    "BART": case_of(bart, "plain"),
    "BART untied": case_of(bart, "untied"),
    "Marian": case_of(marian, "plain"),
    "T5": case_of(t5, "plain"),
    "T5 unscaled": case_of(t5, "gated-tied-unscaled"),
}
ONE_EACH = ("BART", "T5")
"""One that scales its embeddings or logits, and one that does not."""


def tables(theirs: nn.Module, stored: tuple[str, ...]) -> dict[str, Tensor]:
    """The weights of a model, with these tables."""
    weights = {name: weight.clone() for name, weight in theirs.state_dict().items()}
    prefix = "model." if "model.shared.weight" in weights else ""
    same = weights[f"{prefix}shared.weight"]
    for name, kind in zip(TABLES, stored, strict=True):
        key = f"{name}.weight" if name == "lm_head" else f"{prefix}{name}.weight"
        weights.pop(key, None)
        different = torch.randn_like(same)
        weights |= (
            {} if kind == "missing" else {key: same.clone() if kind == "the same" else different}
        )
    return weights


def outcome(theirs: nn.Module, stored: tuple[str, ...], folder: Path) -> str:
    """Whether ours refuses a file with these tables, or how far it is off."""
    theirs.config.save_pretrained(folder)
    config = theirs.config.to_dict() | {"architectures": [type(theirs).__name__]}
    (folder / "config.json").write_text(type(theirs.config)(**config).to_json_string())
    save_file(tables(theirs, stored), folder / WEIGHTS, {"format": "pt"})
    try:
        with exact():
            ours = interp.load(folder)
    except InterpError:
        return OURS
    with exact():
        again = (
            type(theirs)
            .from_pretrained(folder, attn_implementation="eager", dtype=torch.float64)
            .eval()
        )
    inputs = inputs_of(ours)
    with torch.no_grad():
        error = off(*beside(called(again, inputs), ours, inputs))
    return AGREED if error <= BOUND else f"off by {error:.2g}"


@pytest.mark.parametrize(
    ("name", "every"),
    [
        *(
            pytest.param(name, 2 if name in ONE_EACH else 4, id=name, marks=pytest.mark.slow)
            for name in CASES
        ),
        *(pytest.param(name, 1, id=f"{name}, all", marks=pytest.mark.nightly) for name in ONE_EACH),
        *(pytest.param(name, 10, id=f"{name}, some") for name in ONE_EACH),
    ],
)
def test_tables_are_tied_as_theirs(name, every, tmp_path):
    with exact(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        theirs = randomised(CASES[name]())
        outcomes = {stored: outcome(theirs, stored, tmp_path) for stored in FILES[::every]}
    faults = {stored: end for stored, end in outcomes.items() if end not in (AGREED, OURS)}
    assert not faults, Counter(outcomes.values())
    assert AGREED in outcomes.values()
