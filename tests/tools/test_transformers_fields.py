"""The table of the fields that transformers reads is that of its installed version."""

import pytest

from interp.loading.transformers_fields import TABLE, read_fields
from tools.transformers_fields import to_json


@pytest.mark.slow
def test_the_table_is_generated_from_the_installed_version():
    """If not, ``python -m tools.transformers_fields`` writes it anew."""
    assert TABLE.read_text(encoding="utf-8") == to_json()


def test_names_of_tensors_and_of_arguments_are_fields_only_where_a_config_has_them():
    """A parameter ``bias``, a quantised tensor's ``scale``, a kernel's argument ``window_size``."""
    for name in ("bias", "scale", "window_size"):
        assert not {name} & read_fields("gpt2"), name
    assert {"window_size", "initializer_range"} <= read_fields("gpt_neo")
