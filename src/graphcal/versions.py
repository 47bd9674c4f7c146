"""What a result was computed with."""

from __future__ import annotations

import platform
from functools import lru_cache
from importlib import metadata

from graphcal import __version__

PACKAGES = ("torch", "torch_geometric", "numpy", "scipy", "scikit-learn")


@lru_cache(maxsize=1)
def installed_versions() -> dict[str, str]:
    """Versions of graphcal, of Python and of the packages that numbers depend on."""
    found = {name: metadata.version(name) for name in PACKAGES}
    return {"graphcal": __version__, "python": platform.python_version(), **found}
