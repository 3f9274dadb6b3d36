"""Base classes of pydantic models."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema


class Described(BaseModel):
    """A model whose fields may be described by a string below them, as attributes are elsewhere.

    It is the description in JSON Schemas, and read from the source only for one. With pydantic's
    own `use_attribute_docstrings`, each import would parse every class: a command would start much
    later.
    """

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler, /
    ) -> JsonSchemaValue:
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, text in read_descriptions(cls).items():
            if name in properties:
                properties[name]["description"] = text
        return schema


class Request(Described):
    """The body of a request."""

    model_config = ConfigDict(extra="forbid")


def read_descriptions(model: type[BaseModel]) -> dict[str, str]:
    """Return the strings below the fields of a model and of its bases, by field."""
    texts: dict[str, str | None] = {}
    # A field that is declared again has only the description of its last declaration.
    for base in reversed(model.__mro__):
        texts |= _read_module(base.__module__).get(base.__name__, {})
    return {name: text for name, text in texts.items() if text is not None}


def get_description(model: type[BaseModel], field: str) -> str | None:
    """Return the description of a field, from below it or from its `Field`."""
    return read_descriptions(model).get(field, model.model_fields[field].description)


@cache
def _read_module(name: str) -> Mapping[str, Mapping[str, str | None]]:
    """Return the fields of the module's classes, each with its description or None."""
    try:
        source = inspect.getsource(sys.modules[name])
    except (OSError, TypeError):  # a module without source, such as `builtins`
        return {}
    classes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef))
    return {node.name: dict(_iter_fields(node)) for node in classes}


def _iter_fields(node: ast.ClassDef) -> Iterator[tuple[str, str | None]]:
    for statement, following in pairwise([*node.body, ast.Pass()]):
        match statement, following:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(ast.Constant(str(text))):
                yield name, " ".join(text.split())
            case ast.AnnAssign(target=ast.Name(id=name)), _:
                yield name, None
