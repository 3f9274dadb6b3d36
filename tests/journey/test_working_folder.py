"""Nothing in the working folder is run: it may hold downloaded files."""

from __future__ import annotations

import os
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from engines.sandbox import Sandbox
from tests.support.server_process import make_environment, run_program

OWN_PACKAGES = (
    "anabranch", "api", "engines", "evaluation", "processors", "retrieval", "schemas",
    "services", "sql", "streams",
)  # fmt: skip
EARLY_NAMES = ("sitecustomize", "usercustomize", "_distutils_hack")
OPTIONAL_NAMES = (
    "sitecustomize", "usercustomize", "brotli", "brotlicffi", "cchardet", "chardet", "orjson",
    "simplejson", "socksio", "tests", "ujson", "winloop", "zstandard",
)  # fmt: skip
"""Modules that libraries import where they are installed."""


def plant_modules(folder: Path) -> Path:
    """Write a module for every name that may be imported; each leaves its name in a file."""
    marker = folder / "marker"
    names = {*sys.stdlib_module_names, *packages_distributions(), *sys.modules}
    names = {name.partition(".")[0] for name in names} | {*OWN_PACKAGES, *OPTIONAL_NAMES}
    code = f"with open({str(marker)!r}, 'a') as file:\n    print(__name__, file=file)\n"
    for name in names:
        if name.isidentifier() and name != "__main__":
            (folder / f"{name}.py").write_text(code)
    return marker


@pytest.mark.parametrize(
    "python_path",
    [
        "",
        pytest.param(None, marks=pytest.mark.long),
        pytest.param(f"{os.pathsep}/nonexistent", marks=pytest.mark.long),
    ],
)
def test_ingest_runs_no_module_of_the_working_folder(
    folder: Path, tmp_path: Path, python_path: str | None
) -> None:
    downloads = tmp_path / "downloads"
    downloads.mkdir()
    marker = plant_modules(downloads)
    (downloads / "note.txt").write_text("The bridge at Orsk opened in 1931.\n")
    if python_path:
        # The interpreter imports from there before our first line: planted names that it needs
        # itself are out of our reach.
        for name in {*sys.stdlib_module_names, *EARLY_NAMES, "anabranch"}:
            (downloads / f"{name}.py").unlink(missing_ok=True)
    environment = make_environment() | ({"PYTHONPATH": python_path} if python_path else {})
    done = run_program(
        Path(sys.executable).with_name("anabranch"),
        *("ingest", "note.txt", "--wait", "--data", str(folder)),
        folder=downloads,
        environment=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not marker.exists(), marker.read_text()


async def test_sandbox_runs_no_module_of_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = plant_modules(tmp_path)
    monkeypatch.chdir(tmp_path)
    sandbox = Sandbox(modules=("engines.parse.sandbox_jobs",))
    try:
        await sandbox.warm()
    finally:
        await sandbox.aclose()
    assert not marker.exists(), marker.read_text()


@pytest.mark.parametrize(("module", "message"), [("helper", ""), ("schemas", "Rename it")])
def test_program_that_uses_the_client_keeps_its_folder(
    tmp_path: Path, module: str, message: str
) -> None:
    (tmp_path / module).mkdir()
    (tmp_path / module / "__init__.py").touch()
    (tmp_path / "use.py").write_text("import anabranch.client, helper")
    environment = make_environment()
    done = run_program(Path(sys.executable), "use.py", folder=tmp_path, environment=environment)
    assert message in done.stderr and bool(message) == bool(done.returncode), done.stderr
