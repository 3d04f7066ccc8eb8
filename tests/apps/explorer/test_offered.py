"""What stays in memory is not visited when Streamlit collects garbage."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from apps.explorer import offered
from apps.explorer.offered import model_of


@pytest.fixture(autouse=True)
def _only_here() -> Iterator[None]:
    offered._load.cache_clear()
    yield
    offered._load.cache_clear()
    gc.unfreeze()
    gc.collect()


def test_collections_do_not_visit_a_model_and_its_tokenizer():
    model = model_of("induction-by-hand")
    visited = {id(own) for own in gc.get_objects()}
    assert visited.isdisjoint(map(id, [model, *model.modules(), model.tokenizer]))


def test_a_model_that_is_no_longer_kept_is_freed_when_the_next_one_is_loaded():
    model = weakref.ref(model_of("induction-by-hand"))
    offered._load.cache_clear()
    model_of("rasp-reverse")
    assert model() is None
