"""What is sent for views: long arrays and fields apart, so that each is sent once."""

import json
from typing import Any

from apps.explorer.canvas import LONGEST_FIELD, fields_apart

ARRAY = {"dtype": "float32", "shape": [4000], "data": "A" * 16_000}
VIEWS: list[dict[str, Any]] = [
    {"kind": "heads", "id": "heads", "scores": [{"values": ARRAY}], "ids": [*range(1000)]},
    {"kind": "tokens", "id": "tokens", "tokens": ["a", "b"], "values": ARRAY},
]


def whole(value: Any, parts: dict[str, Any]) -> Any:
    """What the browser makes of it: every part in its place."""
    if isinstance(value, dict):
        if isinstance(value.get("part"), str):
            return whole(parts[value["part"]], parts)
        return {name: whole(each, parts) for name, each in value.items()}
    return [whole(each, parts) for each in value] if isinstance(value, list) else value


def test_what_is_sent_apart_makes_up_the_views():
    small, parts = fields_apart(VIEWS)
    assert whole(small, parts) == VIEWS
    assert all(len(json.dumps(each)) <= LONGEST_FIELD for view in small for each in view.values())
    assert small[1]["tokens"] == ["a", "b"], "what is short stays where it is"
    assert len(parts) == 2, "the array of both views is one part"


def test_a_field_that_changes_changes_its_own_part_alone():
    """So that a browser that has the others gets no more than it."""
    before, after = (fields_apart(views) for views in (VIEWS, [VIEWS[0] | {"ids": [*range(1001)]}]))
    assert {*after[1]} - {*before[1]} == {after[0][0]["ids"]["part"]}
    assert after[0][0]["scores"] == before[0][0]["scores"]
