"""The option --columns id=paper,label=topic."""

from __future__ import annotations


def column_names(text: str) -> dict[str, str]:
    """Roles and the names of the columns that have them."""
    found = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        role, mark, name = part.partition("=")
        if not mark or not name.strip():
            raise ValueError(f"--columns must look like id=paper,label=topic; got {part!r}")
        found[role.strip()] = name.strip()
    return found
