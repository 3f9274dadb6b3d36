"""The parts of the docs that follow from the code, as Markdown. `docs/generate.py` puts them between their markers."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from anabranch.cli import application
from anabranch.process.metrics import Metrics
from anabranch.settings import Settings
from anabranch.settings_loading import environment_name
from api.app import routes_only
from processors import STAGES
from schemas.events import Event, declared
from streams.asyncapi import schema_file
from streams.stage import Stage
from streams.topics import DOCUMENT_TOPICS, RETENTION_MS, partition_counts

OUTCOMES = {"indexed": ("document.indexed",), "superseded": ("document.superseded",), "removed": ("document.removed",)}
OUTCOMES["amended"] = OUTCOMES["indexed"]
OUTCOMES["endings"] = OUTCOMES["indexed"] + OUTCOMES["superseded"]
READ_OUTSIDE = {"outcomes": "producers"}
COUNTS = {
    "door": "once for each `ce_id`",
    "latest": "if later than the document's latest",
    "visible": "unless older than what is visible or withdrawn",
    "always": "always",
}


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def topology() -> str:
    """One row a stage: what its file says it reads, writes and states."""
    return table(
        ("stage", "reads", "an event counts", "writes", "states"),
        [(f"`{stage.name}`", f"`{stage.topic}`", COUNTS[stage.counts], _code(_rows(stage)), _code(_stated(stage))) for stage in STAGES],
    )


def topics() -> str:
    by_topic = {name: [stage.name for stage in STAGES if stage.topic == name] for name in partition_counts(1)}
    return table(
        ("topic", "carries", "partitions", "kept", "read by"),
        [
            (
                f"`{name}`",
                _code(event.event_type() for event in declared() if event.topic == name),
                "`KAFKA__PARTITIONS`" if name in DOCUMENT_TOPICS else "1",
                f"{RETENTION_MS[name] // 86_400_000} days" if name in RETENTION_MS else "for ever",
                _code(readers) or READ_OUTSIDE.get(name, "nobody yet"),
            )
            for name, readers in by_topic.items()
        ],
    )


def settings() -> str:
    return table(("environment", "in `anabranch.toml`", "default", "what it is"), _settings(Settings, ()))


def commands() -> str:
    """Every command with its options, but for those that all of them take."""
    with _as_program("anabranch"):
        text = application().generate_docs(output_format="markdown", heading_level=2, usage_name="anabranch")
    body = text[text.index("\n", text.index("**Commands**")) :]
    kept = [line for line in body.splitlines() if not line.startswith(_SHARED)]
    first = next(number for number, line in enumerate(kept) if line.startswith("#"))
    return "\n".join(_without_empty_parts(kept[first:])).strip().replace("*[default: False]*", "").replace(" *[default: ()]*", "").replace("  \n", "\n")


def endpoints() -> str:
    document = routes_only().openapi()
    return "\n\n".join(_endpoint(path, method, call) for path, calls in document["paths"].items() for method, call in calls.items())


def events() -> str:
    return table(
        ("type", "topic", "what it says", "schema"),
        [(f"`{event.event_type()}`", f"`{event.topic}`", _promise(event), f"[JSON Schema](events/{schema_file(event)})") for event in declared()],
    )


def metrics() -> str:
    families = sorted(Metrics("0").registry.collect(), key=lambda family: family.name)
    suffix = {"counter": "_total", "info": "_info"}
    return table(("metric", "kind", "what it counts"), [(f"`{one.name}{suffix.get(one.type, '')}`", one.type, one.documentation) for one in families])


_SHARED = tuple(f"* `--{name}" for name in ("data ", "config ", "tenant ", "set ", "json`", "quiet", "verbose", "no-color"))


@contextmanager
def _as_program(name: str) -> Iterator[None]:
    """Usage lines are made of how the process was started."""
    given, sys.argv = sys.argv, [name]
    try:
        yield
    finally:
        sys.argv = given


def _without_empty_parts(lines: Sequence[str]) -> Iterator[str]:
    for number, line in enumerate(lines):
        following = [later for later in lines[number + 1 :] if later.strip()][:1]
        if line.startswith("**Parameters**") and not (following and following[0].startswith("* ")):
            continue
        yield line


def _imported(stage: Stage, module: str) -> list[str]:
    """Names that the stage's file imports from a module: what it can write and state is among them."""
    home = sys.modules[_home(stage)]
    tree = ast.parse(inspect.getsource(home))
    return [alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == module for alias in node.names]


def _home(stage: Stage) -> str:
    return f"processors.{stage.name}"


def _rows(stage: Stage) -> list[str]:
    return sorted(name for name in _imported(stage, "schemas.rows") if name.endswith("Row") and name != "Row")


def _stated(stage: Stage) -> list[str]:
    classes = {event.__name__: event for event in declared()}
    own = [classes[name] for name in _imported(stage, "schemas.events") if name in classes]
    facts = [event.event_type() for event in own if event.topic != stage.topic]
    version = {event.name: event.event_type() for event in declared() if event.topic == "outcomes"}
    outcomes = [version[name] for helper in _imported(stage, "processors.outcomes") for name in OUTCOMES[helper]]
    return list(dict.fromkeys([*facts, *outcomes]))


def _settings(model: type[BaseModel], path: tuple[str, ...]) -> Iterator[tuple[str, str, str, str]]:
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _settings(inner, (*path, name))
            continue
        key = ".".join((*path, name))
        yield f"`{environment_name(key)}`", f"`{key}`", _default(field.get_default(call_default_factory=True)), _described(field)


def _default(value: object) -> str:
    if value is None or value is PydanticUndefined or value in ("", (), {}):
        return "unset"
    return f"`{value}`"


def _described(field: Any) -> str:
    bounds = [f"{sign} {getattr(item, attribute)}" for item in field.metadata for attribute, sign in _BOUNDS if getattr(item, attribute, None) is not None]
    choices = [str(choice) for choice in getattr(field.annotation, "__args__", ()) if isinstance(choice, str)]
    parts = [field.description or "", ", ".join(f"`{choice}`" for choice in choices), ", ".join(bounds)]
    return "; ".join(part for part in parts if part)


_BOUNDS = (("gt", ">"), ("ge", "≥"), ("lt", "<"), ("le", "≤"))


def _endpoint(path: str, method: str, call: dict[str, Any]) -> str:
    lines = [f"### `{method.upper()} {path}`", "", call.get("description") or call["operationId"].replace("_", " ").capitalize() + ".", ""]
    for parameter in call.get("parameters", []):
        need = ", required" if parameter.get("required") else ""
        lines.append(f"- `{parameter['name']}` ({parameter['in']}{need}){_about(parameter)}")
    for media_type, content in call.get("requestBody", {}).get("content", {}).items():
        lines.append(f"- body `{media_type}`: {_body(content['schema'])}")
    lines += ["", *_streams(call), ""] if _streams(call) else [""] if lines[-1] else []
    lines += [f"Answers {', '.join(f'`{status}`' for status in call['responses'])}."]
    return "\n".join(lines)


def _streams(call: dict[str, Any]) -> list[str]:
    """What is said of answers that are no JSON."""
    contents = [content for response in call["responses"].values() for content in response.get("content", {}).values()]
    return [
        content["schema"]["description"] for content in contents if content.get("schema", {}).get("type") == "string" and "description" in content["schema"]
    ]


def _about(parameter: dict[str, Any]) -> str:
    text = parameter.get("description") or parameter.get("schema", {}).get("description")
    return f": {text}" if text else ""


def _body(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return f"`{schema['$ref'].rpartition('/')[2]}`"
    return ", ".join(f"`{name}`" for name in schema.get("properties", {}))


def _promise(event: type[Event]) -> str:
    return " ".join((event.__doc__ or "").strip().split("\n\n")[0].split())


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


ROOT = Path(__file__).parents[1]
PARTS = {
    "ARCHITECTURE.md": {"topology": topology, "topics": topics},
    "docs/reference/settings.md": {"settings": settings},
    "docs/reference/command-line.md": {"commands": commands},
    "docs/reference/http.md": {"endpoints": endpoints},
    "docs/reference/events.md": {"events": events},
    "docs/operations.md": {"metrics": metrics},
}
