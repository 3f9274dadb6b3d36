"""Helpers are in modules of their own: no test file depends on another."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
MODULES = sorted(TESTS.rglob("*.py"))


def list_imported_test_modules(source: str) -> list[str]:
    """List the test files and conftests that the source imports from."""
    imported = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            imported += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            imported += [alias.name for alias in node.names]
    return [
        name
        for name in imported
        if name.startswith("tests.")
        and any(part == "conftest" or part.startswith("test_") for part in name.split(".")[:-1])
    ]


def test_no_module_imports_from_a_test_file() -> None:
    offenders = {
        str(module.relative_to(TESTS)): found
        for module in MODULES
        if (found := list_imported_test_modules(module.read_text(encoding="utf-8")))
    }
    assert offenders == {}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from tests.unit.test_api import make", ["tests.unit.test_api.make"]),
        ("from tests.journey.conftest import run", ["tests.journey.conftest.run"]),
        ("from tests.support.pipeline import run", []),
    ],
)
def test_import_from_a_test_file_is_found(source: str, found: list[str]) -> None:
    assert list_imported_test_modules(source) == found
