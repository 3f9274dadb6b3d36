"""Data files in installed packages whose code is not imported."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from schemas.errors import ConfigurationError

REINSTALL_REMEDY = "Install the locked requirements again: `make install`."


def locate_package_file(package: str, name: str) -> Path:
    """Return the path of a package's file. Raises ConfigurationError if it is missing."""
    # importlib.resources would import the package.
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (path := Path(folder) / name).is_file():
            return path
    raise ConfigurationError(
        f"{name} of the package {package} is not installed.", remedy=REINSTALL_REMEDY
    )
