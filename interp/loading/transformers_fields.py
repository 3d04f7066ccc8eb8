"""Which fields of a ``config.json`` ``transformers`` reads, for each type of model.

The table is generated from its sources by ``python -m tools.transformers_fields``. It errs to
one side: a name that ``transformers`` may read is in it.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_name("transformers_fields.json")


@cache
def read_fields(model_type: object) -> frozenset[str] | None:
    """The fields of a configuration, and of objects in it, that ``transformers`` may read.

    Args:
        model_type: the type of the model.

    Returns:
        Their names; ``None`` if ``transformers`` has no models of this type.
    """
    table: dict[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))
    names = table["by_type"].get(model_type)
    return None if names is None else frozenset(f"{table['every_type']} {names}".split())
