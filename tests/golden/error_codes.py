"""List every error code that the source contains."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from docs.tables import PACKAGES

ROOT = Path(__file__).parents[2]
CODE = re.compile(r"^[A-Z][A-Z0-9]*(_[A-Z0-9]+)*$")


@cache
def collect_codes() -> set[str]:
    return {
        code
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        for code in _find_codes(ast.parse(path.read_text(encoding="utf-8")))
    }


def _find_codes(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.keyword(arg="code", value=value):
                yield from _find_constants(value)
            case ast.ClassDef():
                for statement in node.body:
                    match statement:
                        case ast.Assign(targets=[ast.Name(id="code")], value=value):
                            yield from _find_constants(value)
            case ast.Call(func=ast.Name(id="build_problem"), args=[_, _, code, *_]):
                yield from _find_constants(code)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Dict(values=values)) if (
                name.startswith("CODE_BY")
            ):
                yield from (code for value in values for code in _find_constants(value))
            case ast.Dict(keys=keys, values=values):
                fields = {
                    key.value: value
                    for key, value in zip(keys, values, strict=True)
                    if isinstance(key, ast.Constant)
                }
                if {"code", "detail"} <= fields.keys():
                    yield from _find_constants(fields["code"])


def _find_constants(value: ast.AST) -> Iterator[str]:
    """Yield the codes that an expression evaluates to; arguments of calls are ignored."""
    match value:
        case ast.Constant(value=str(text)) if CODE.match(text):
            yield text
        case ast.IfExp(body=first, orelse=second):
            yield from _find_constants(first)
            yield from _find_constants(second)
        case ast.BoolOp(values=values):
            for one in values:
                yield from _find_constants(one)
