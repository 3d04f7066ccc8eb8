"""Models are loaded once, with the hash of their weights; collections of garbage skip them."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from apps.explorer import offered
from apps.explorer.garbage import freeze_lasting_objects
from apps.explorer.offered import model_of
from interp.execution.provenance import Provenance
from interp.model import hashing


@pytest.fixture(autouse=True)
def _only_here() -> Iterator[None]:
    offered._load.cache_clear()
    yield
    offered._load.cache_clear()


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Objects are frozen, as in a server; afterwards, those that existed before are again."""
    monkeypatch.setattr(offered, "freeze_lasting_objects", freeze_lasting_objects)
    yield
    offered._load.cache_clear()
    freeze_lasting_objects()


def test_collections_do_not_visit_a_model_and_its_tokenizer(frozen):
    model = model_of("induction-by-hand")
    visited = {id(tracked) for tracked in gc.get_objects()}
    assert visited.isdisjoint(map(id, [model, *model.modules(), model.tokenizer]))


@pytest.mark.slow
def test_a_model_that_is_no_longer_kept_is_freed_when_the_next_one_is_loaded(frozen):
    model = weakref.ref(model_of("induction-by-hand"))
    offered._load.cache_clear()
    model_of("rasp-reverse")
    assert model() is None


def test_the_hash_of_the_weights_is_computed_when_a_model_is_loaded(monkeypatch):
    model = model_of("induction-by-hand")
    monkeypatch.setattr(hashing, "_compute_hash", None)
    assert Provenance.of(model).weights
