"""Compare JSON Schemas (draft 2020-12, as Pydantic writes them) for compatibility."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Schema = Mapping[str, Any]
LOWER_BOUNDS = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
UPPER_BOUNDS = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
EXACT_CONSTRAINTS = ("pattern", "format", "const")
CHOICES = ("anyOf", "oneOf")


def find_incompatibilities(old: Schema, new: Schema) -> list[str]:
    """List values that `old` accepts and `new` rejects.

    These are new required fields, narrower types and tighter bounds.
    """
    return list(_SchemaPair(old, new).find_incompatibilities(old, new, "$", ()))


def find_removed_fields(old: Schema, new: Schema) -> list[str]:
    """List fields that `new` lacks: their values are accepted and ignored."""
    return sorted(set(_list_fields(old, old)) - set(_list_fields(new, new)))


def _list_fields(
    schema: Schema, root: Schema, path: str = "$", visited: tuple[str, ...] = ()
) -> Iterator[str]:
    """Yield the path of every field.

    Class names are not part of a path, so that a class may be renamed.
    """
    reference = schema.get("$ref")
    if reference in visited:
        return
    visited = (*visited, reference) if reference else visited
    schema = _resolve_reference(schema, root)
    for name, subschema in schema.get("properties", {}).items():
        yield f"{path}.{name}"
        yield from _list_fields(subschema, root, f"{path}.{name}", visited)
    elements = [
        schema[name]
        for name in ("items", "additionalProperties")
        if isinstance(schema.get(name), Mapping)
    ]
    for element in elements:
        yield from _list_fields(element, root, f"{path}[]", visited)
    for alternative in (alternative for name in CHOICES for alternative in schema.get(name, [])):
        yield from _list_fields(alternative, root, path, visited)


@dataclass(frozen=True)
class _SchemaPair:
    old_root: Schema
    new_root: Schema

    def find_incompatibilities(
        self, old: Schema, new: Schema, path: str, visited: tuple[tuple[Any, Any], ...]
    ) -> Iterator[str]:
        if (pair := (old.get("$ref"), new.get("$ref"))) in visited and all(pair):
            return
        visited = (*visited, pair) if all(pair) else visited
        # With its reference, by which a type that contains itself is recognized.
        unresolved_old = old
        old, new = _resolve_reference(old, self.old_root), _resolve_reference(new, self.new_root)
        if _list_alternatives(old):
            for alternative in _list_alternatives(old):
                yield from self.find_incompatibilities(alternative, new, path, visited)
        elif len(_list_alternatives(new)) > 1:
            if all(
                any(self.find_incompatibilities(unresolved_old, alternative, path, visited))
                for alternative in _list_alternatives(new)
            ):
                yield f"{path}: none of the alternatives takes {_format_types(old)}"
        else:
            yield from self._compare_constraints(
                old,
                {**new, **(_list_alternatives(new)[0] if _list_alternatives(new) else {})},
                path,
                visited,
            )

    def _compare_constraints(
        self, old: Schema, new: Schema, path: str, visited: tuple[tuple[Any, Any], ...]
    ) -> Iterator[str]:
        if not _list_types(old) <= _widen_types(_list_types(new)):
            yield f"{path}: took {_format_types(old)}, takes {_format_types(new)}"
            return
        if "enum" in new and not set(
            old.get("enum", [old.get("const", _format_types(old))])
        ) <= set(new["enum"]):
            yield f"{path}: takes {new['enum']} only"
        yield from (
            f"{path}: {name} is {new[name]!r}"
            for name in EXACT_CONSTRAINTS
            if name in new and new[name] != old.get(name)
        )
        yield from (
            f"{path}: {name} is {new[name]}"
            for name in LOWER_BOUNDS
            if name in new and (name not in old or new[name] > old[name])
        )
        yield from (
            f"{path}: {name} is {new[name]}"
            for name in UPPER_BOUNDS
            if name in new and (name not in old or new[name] < old[name])
        )
        yield from (
            f"{path}.{name} is required"
            for name in new.get("required", [])
            if name not in old.get("required", [])
        )
        yield from self._compare_children(old, new, path, visited)

    def _compare_children(
        self, old: Schema, new: Schema, path: str, visited: tuple[tuple[Any, Any], ...]
    ) -> Iterator[str]:
        old_properties, new_properties = old.get("properties", {}), new.get("properties", {})
        for name, subschema in old_properties.items():
            if name in new_properties:
                yield from self.find_incompatibilities(
                    subschema, new_properties[name], f"{path}.{name}", visited
                )
            elif new.get("additionalProperties") is False:
                yield f"{path}.{name} is not taken"
        if (
            new.get("additionalProperties") is False
            and old.get("additionalProperties", True) is not False
        ):
            yield f"{path}: other fields are not taken"
        for name in ("items", "additionalProperties"):
            if isinstance(new.get(name), Mapping):
                subschema = old.get(name, {})
                yield from self.find_incompatibilities(
                    subschema if isinstance(subschema, Mapping) else {},
                    new[name],
                    f"{path}[]",
                    visited,
                )


def _resolve_reference(schema: Schema, root: Schema) -> Schema:
    """Replace the reference by its target, and drop keywords that constrain no value."""
    while "$ref" in schema:
        target = root
        for step in str(schema["$ref"]).removeprefix("#/").split("/"):
            target = target[step]
        schema = {**target, **{name: value for name, value in schema.items() if name != "$ref"}}
    return schema


def _list_alternatives(schema: Schema) -> list[Schema]:
    """Return the alternatives, except those that only state which fields occur together."""
    found = next((schema[name] for name in CHOICES if name in schema), [])
    return [each for each in found if "required" not in each or "type" in each or "$ref" in each]


def _list_types(schema: Schema) -> set[str]:
    """Return the accepted JSON types; empty when any type is accepted."""
    given = schema.get("type")
    if given is None:
        return (
            set()
            if not {"const", "enum"} & set(schema)
            else {get_json_type(value) for value in schema.get("enum", [schema.get("const")])}
        )
    return {given} if isinstance(given, str) else set(given)


def get_json_type(value: Any) -> str:
    return {str: "string", bool: "boolean", int: "integer", float: "number"}.get(
        type(value), "null"
    )


def _widen_types(types: set[str]) -> set[str]:
    everything = {"string", "boolean", "integer", "number", "null", "array", "object"}
    return (types | ({"integer"} if "number" in types else set())) or everything


def _format_types(schema: Schema) -> str:
    return " or ".join(sorted(_list_types(schema))) or "anything"
