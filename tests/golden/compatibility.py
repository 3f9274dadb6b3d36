"""Whether one JSON Schema (draft 2020-12, as pydantic writes it) still takes all that another one took."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Schema = Mapping[str, Any]
LEAST = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
MOST = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
EXACT = ("pattern", "format", "const")
CHOICES = ("anyOf", "oneOf")


def refusals(then: Schema, now: Schema) -> list[str]:
    """What was taken and is not any more: a new required field, a type that is narrower, a tighter bound."""
    return list(_Pair(then, now).refusals(then, now, "$", ()))


def lost(then: Schema, now: Schema) -> list[str]:
    """Fields that are gone: what is said in them is taken, and means nothing."""
    return sorted(set(_fields(then)) - set(_fields(now)))


def _fields(schema: Schema) -> Iterator[str]:
    named = {"": schema, **schema.get("$defs", {})}
    return (f"{name}.{field}" for name, part in named.items() for field in part.get("properties", {}))


@dataclass(frozen=True)
class _Pair:
    then_root: Schema
    now_root: Schema

    def refusals(self, then: Schema, now: Schema, place: str, seen: tuple[tuple[Any, Any], ...]) -> Iterator[str]:
        if (pair := (then.get("$ref"), now.get("$ref"))) in seen and all(pair):
            return
        seen = (*seen, pair) if all(pair) else seen
        then, now = _resolved(then, self.then_root), _resolved(now, self.now_root)
        if _any_of(then):
            for each in _any_of(then):
                yield from self.refusals(each, now, place, seen)
        elif len(_any_of(now)) > 1:
            if all(any(self.refusals(then, each, place, seen)) for each in _any_of(now)):
                yield f"{place}: none of the alternatives takes {_told(then)}"
        else:
            yield from self._plain(then, {**now, **(_any_of(now)[0] if _any_of(now) else {})}, place, seen)

    def _plain(self, then: Schema, now: Schema, place: str, seen: tuple[tuple[Any, Any], ...]) -> Iterator[str]:
        if not _types(then) <= _wider(_types(now)):
            yield f"{place}: took {_told(then)}, takes {_told(now)}"
            return
        if "enum" in now and not set(then.get("enum", [then.get("const", _told(then))])) <= set(now["enum"]):
            yield f"{place}: takes {now['enum']} only"
        yield from (f"{place}: {name} is {now[name]!r}" for name in EXACT if name in now and now[name] != then.get(name))
        yield from (f"{place}: {name} is {now[name]}" for name in LEAST if name in now and (name not in then or now[name] > then[name]))
        yield from (f"{place}: {name} is {now[name]}" for name in MOST if name in now and (name not in then or now[name] < then[name]))
        yield from (f"{place}.{name} is required" for name in now.get("required", []) if name not in then.get("required", []))
        yield from self._inside(then, now, place, seen)

    def _inside(self, then: Schema, now: Schema, place: str, seen: tuple[tuple[Any, Any], ...]) -> Iterator[str]:
        before, after = then.get("properties", {}), now.get("properties", {})
        for name, given in before.items():
            if name in after:
                yield from self.refusals(given, after[name], f"{place}.{name}", seen)
            elif now.get("additionalProperties") is False:
                yield f"{place}.{name} is not taken"
        if now.get("additionalProperties") is False and then.get("additionalProperties", True) is not False:
            yield f"{place}: other fields are not taken"
        for name in ("items", "additionalProperties"):
            if isinstance(now.get(name), Mapping):
                given = then.get(name, {})
                yield from self.refusals(given if isinstance(given, Mapping) else {}, now[name], f"{place}[]", seen)


def _resolved(schema: Schema, root: Schema) -> Schema:
    """With what it refers to, and without what says nothing of values."""
    while "$ref" in schema:
        target = root
        for step in str(schema["$ref"]).removeprefix("#/").split("/"):
            target = target[step]
        schema = {**target, **{name: value for name, value in schema.items() if name != "$ref"}}
    return schema


def _any_of(schema: Schema) -> list[Schema]:
    """Alternatives of values; those that only say which fields come together are left to the event's class."""
    found = next((schema[name] for name in CHOICES if name in schema), [])
    return [each for each in found if "required" not in each or "type" in each or "$ref" in each]


def _types(schema: Schema) -> set[str]:
    """Empty where anything goes."""
    given = schema.get("type")
    if given is None:
        return set() if not {"const", "enum"} & set(schema) else {type_of(value) for value in schema.get("enum", [schema.get("const")])}
    return {given} if isinstance(given, str) else set(given)


def type_of(value: Any) -> str:
    return {str: "string", bool: "boolean", int: "integer", float: "number"}.get(type(value), "null")


def _wider(types: set[str]) -> set[str]:
    everything = {"string", "boolean", "integer", "number", "null", "array", "object"}
    return (types | ({"integer"} if "number" in types else set())) or everything


def _told(schema: Schema) -> str:
    return " or ".join(sorted(_types(schema))) or "anything"
