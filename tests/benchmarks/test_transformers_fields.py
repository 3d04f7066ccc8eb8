"""The table of the fields that transformers reads is that of its installed version."""

import pytest

from benchmarks.transformers_fields import to_json
from interp.loading.transformers_fields import TABLE


@pytest.mark.slow
def test_the_table_is_generated_from_the_installed_version():
    """If not, ``python -m benchmarks.transformers_fields`` writes it anew."""
    assert TABLE.read_text(encoding="utf-8") == to_json()
