"""What a table of ours remembers in the metadata of its schema: its classes, which a list of scores cannot say, and the names of
columns of your own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pyarrow as pa

REMEMBERED = b"graphcal.table"  # key in the metadata of a schema
KEPT_ROLES = ("id", "label", "class", "source", "target")


def remembering(
    schema: pa.Schema, classes: Sequence[str], roles: Mapping[str, str], numbered: bool = False
) -> pa.Schema:
    """The schema with the classes and the columns of these roles; ``numbered``: labels may be numbers in this order."""
    columns = {role: name for role, name in roles.items() if role in KEPT_ROLES and name in schema.names}
    about = json.dumps({"classes": list(classes), "columns": columns} | ({"numbered": True} if numbered else {}))
    return schema.with_metadata({**(schema.metadata or {}), REMEMBERED: about.encode()})


def remembered(schema: pa.Schema) -> tuple[tuple[str, ...] | None, bool, dict[str, str]]:
    """The classes, whether labels may be numbers in their order, and the columns that a table of ours remembers."""
    try:
        about = json.loads((schema.metadata or {}).get(REMEMBERED, b"{}"))
        classes = tuple(map(str, about.get("classes", ()))) or None
        numbered = about.get("numbered") is True
        return (
            classes,
            numbered,
            {role: name for role, name in about.get("columns", {}).items() if name in schema.names},
        )
    except (ValueError, AttributeError, TypeError):
        return None, False, {}
