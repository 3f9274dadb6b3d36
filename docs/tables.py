"""Render the generated sections of the docs as Markdown; `docs/generate.py` puts them between their
markers.
"""

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

from anabranch.cli import build_app
from anabranch.config.loader import to_environment_name
from anabranch.config.settings import Settings
from api.app import create_routes
from docs.sizes import ROOT, count
from engines.parse import archive, embedded, image
from engines.parse.formats import FORMATS
from processors import EVENT_CLASSES, STAGES, TOPICS
from schemas.events import EventData
from schemas.models import get_description
from schemas.rows import EventRow
from services.instrumentation.metrics import Metrics
from streams.asyncapi import get_schema_file_name
from streams.stage import Stage, project_itself

LIMIT_SETTINGS = {
    "ingest.max_bytes",
    "ingest.max_pages",
    "ingest.max_characters",
    "ingest.fetch_timeout_s",
    "worker.parse_memory",
}


def format_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines
    )


def format_topology() -> str:
    """List the topic, ordering policy, rows and events of each stage."""
    return format_table(
        ("stage", "reads", "applies an event", "writes", "emits"),
        [
            (
                f"`{stage.name}`",
                f"`{stage.topic}`",
                stage.ordering_policy.description,
                _format_code(_list_row_types(stage)),
                _format_code(event.event_type() for event in stage.emits),
            )
            for stage in STAGES
        ],
    )


def format_topics() -> str:
    by_topic = {name: [stage.name for stage in STAGES if stage.topic == name] for name in TOPICS}
    return format_table(
        ("topic", "carries", "partitions", "retention", "read by"),
        [
            (
                f"`{name}`",
                _format_code(event.event_type() for event in EVENT_CLASSES if event.topic == name),
                "`KAFKA__PARTITIONS`" if name.per_document else "1",
                f"{name.retention.days} days" if name.retention else "forever",
                _format_code(readers) or ("producers" if name.read_by_producers else "none"),
            )
            for name, readers in by_topic.items()
        ],
    )


def format_settings() -> str:
    return format_table(
        ("environment", "in `anabranch.toml`", "default", "what it is"),
        _iterate_settings(Settings, ()),
    )


def format_formats() -> str:
    return format_table(
        ("media type", "files", "text recognition"),
        [
            (
                f"`{one.media_type}`",
                _format_code(one.extensions),
                "pages without text" if one.is_paged else "",
            )
            for one in FORMATS
        ],
    )


def format_limits() -> str:
    """List the limits of a document: first those with a setting."""
    settings = [
        (description, default, name)
        for name, key, default, description in _iterate_settings(Settings, ())
        if key.strip("`") in LIMIT_SETTINGS
    ]
    constants = [
        ("size of one file inside a document", f"{embedded.MAX_FILE_BYTES // 2**20} MiB"),
        ("size of all files inside a document", f"{embedded.MAX_TOTAL_BYTES // 2**20} MiB"),
        ("files inside a document", f"{embedded.MAX_FILES:,}"),
        ("depth of files inside files", f"{embedded.MAX_DEPTH}"),
        ("entries of an archive", f"{archive.MAX_ENTRIES:,}"),
        ("size of an unpacked archive", f"{archive.MAX_UNPACKED_BYTES // 2**20:,} MiB"),
        ("size of an unpacked archive, by its packed size", f"{archive.MAX_COMPRESSION_RATIO}"),
        ("pixels of an image", f"{image.MAX_PIXELS:,}"),
    ]
    return format_table(
        ("limit", "value", "setting"), [*settings, *((*row, "") for row in constants)]
    )


def format_commands() -> str:
    """List every command with its options, except those that all commands share."""
    with _override_program_name("anabranch"):
        text = build_app().generate_docs(
            output_format="markdown", heading_level=2, usage_name="anabranch"
        )
    body = text[text.index("\n", text.index("**Commands**")) :]
    lines = [line for line in body.splitlines() if not line.startswith(_COMMON_OPTIONS)]
    first = next(number for number, line in enumerate(lines) if line.startswith("#"))
    return (
        "\n".join(_drop_empty_sections(lines[first:]))
        # A description wraps where its docstring does.
        .replace("\n    ", " ")
        .strip()
        .replace("*[default: False]*", "")
        .replace(" *[default: ()]*", "")
        .replace("  \n", "\n")
    )


def format_endpoints() -> str:
    document = create_routes().openapi()
    return "\n\n".join(
        _format_endpoint(path, method, call)
        for path, calls in document["paths"].items()
        for method, call in calls.items()
    )


def format_events() -> str:
    return format_table(
        ("type", "topic", "what it says", "schema"),
        [
            (
                f"`{event.event_type()}`",
                f"`{event.topic}`",
                " ".join((event.__doc__ or "").strip().split("\n\n")[0].split()),
                _link_schemas(event),
            )
            for event in EVENT_CLASSES
        ],
    )


def _link_schemas(event: type[EventData]) -> str:
    name, kind = get_schema_file_name(event), event.event_type()
    older = [f"{event.name}.v{number}" for number in range(1, event.version)]
    labels = {kind: "JSON Schema"} | {one: one.removeprefix(f"{event.name}.") for one in older}
    return ", ".join(
        f"[{label}](events/{name.replace(kind, one)})" for one, label in labels.items()
    )


def format_metrics() -> str:
    families = sorted(Metrics("0").registry.collect(), key=lambda family: family.name)
    suffix = {"counter": "_total", "info": "_info"}
    return format_table(
        ("metric", "kind", "what it counts"),
        [
            (f"`{one.name}{suffix.get(one.type, '')}`", one.type, one.documentation)
            for one in families
        ],
    )


_COMMON_OPTIONS = tuple(
    f"* `--{name}"
    for name in ("data ", "config ", "tenant ", "set ", "json`", "quiet", "verbose", "no-color")
)


@contextmanager
def _override_program_name(name: str) -> Iterator[None]:
    """Usage lines contain the program name from `sys.argv`."""
    arguments, sys.argv = sys.argv, [name]
    try:
        yield
    finally:
        sys.argv = arguments


def _drop_empty_sections(lines: Sequence[str]) -> Iterator[str]:
    for number, line in enumerate(lines):
        following = [later for later in lines[number + 1 :] if later.strip()][:1]
        if line.startswith("**Parameters**") and not (following and following[0].startswith("* ")):
            continue
        yield line


def _list_imports(stage: Stage, module: str) -> list[str]:
    """List the names that the stage's file imports from a module: a superset of the rows and events
    it creates.
    """
    # By its functions: the file need not have the stage's name, and two stages may share one.
    functions: list[Any] = [stage.project if stage.projects else None, stage.react]
    sources = {function.__module__ for function in functions if function is not None}
    return [
        alias.name
        for source in sorted(sources)
        for tree in [ast.parse(inspect.getsource(sys.modules[source]))]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == module
        for alias in node.names
    ]


def _list_row_types(stage: Stage) -> list[str]:
    if stage.project is project_itself:
        return [EventRow.__name__]
    return sorted(
        name
        for name in _list_imports(stage, "schemas.rows")
        if name.endswith("Row") and name != "Row"
    )


def _iterate_settings(
    model: type[BaseModel], path: tuple[str, ...]
) -> Iterator[tuple[str, str, str, str]]:
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _iterate_settings(inner, (*path, name))
            continue
        key = ".".join((*path, name))
        yield (
            f"`{to_environment_name(key)}`",
            f"`{key}`",
            _format_default(field.get_default(call_default_factory=True)),
            _format_description(model, name),
        )


def _format_default(value: object) -> str:
    if value is None or value is PydanticUndefined or value in ("", (), {}):
        return "unset"
    return f"`{value}`"


def _format_description(model: type[BaseModel], name: str) -> str:
    field = model.model_fields[name]
    bounds = [
        f"{sign} {getattr(item, attribute)}"
        for item in field.metadata
        for attribute, sign in _BOUND_SIGNS
        if getattr(item, attribute, None) is not None
    ]
    choices = [
        str(choice)
        for choice in getattr(field.annotation, "__args__", ())
        if isinstance(choice, str)
    ]
    parts = [
        get_description(model, name) or "",
        ", ".join(f"`{choice}`" for choice in choices),
        ", ".join(bounds),
    ]
    return "; ".join(part for part in parts if part)


_BOUND_SIGNS = (("gt", ">"), ("ge", "≥"), ("lt", "<"), ("le", "≤"))


def _format_endpoint(path: str, method: str, call: dict[str, Any]) -> str:
    lines = [
        f"### `{method.upper()} {path}`",
        "",
        call.get("description") or call["operationId"].replace("_", " ").capitalize() + ".",
        "",
    ]
    for parameter in call.get("parameters", []):
        need = ", required" if parameter.get("required") else ""
        text = parameter.get("description") or parameter.get("schema", {}).get("description")
        description = f": {text}" if text else ""
        lines.append(f"- `{parameter['name']}` ({parameter['in']}{need}){description}")
    for media_type, content in call.get("requestBody", {}).get("content", {}).items():
        lines.append(f"- body `{media_type}`: {_format_body(content['schema'])}")
    lines += (
        ["", *_list_stream_descriptions(call), ""]
        if _list_stream_descriptions(call)
        else [""]
        if lines[-1]
        else []
    )
    lines += [f"Answers {', '.join(f'`{status}`' for status in call['responses'])}."]
    return "\n".join(lines)


def _list_stream_descriptions(call: dict[str, Any]) -> list[str]:
    """List the descriptions of responses that are not JSON."""
    contents = [
        content
        for response in call["responses"].values()
        for content in response.get("content", {}).values()
    ]
    return [
        content["schema"]["description"]
        for content in contents
        if content.get("schema", {}).get("type") == "string" and "description" in content["schema"]
    ]


def _format_body(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return f"`{schema['$ref'].rpartition('/')[2]}`"
    return ", ".join(f"`{name}`" for name in schema.get("properties", {}))


def _format_code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


PACKAGES = (
    "schemas",
    "sql",
    "streams",
    "engines",
    "processors",
    "retrieval",
    "evaluation",
    "services",
    "api",
    "anabranch",
    "integrations",
)


def format_imports() -> str:
    """List the packages that each package, and each sub-package of `services` and `anabranch`,
    imports directly.
    """
    imports: dict[str, set[str]] = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            owner = _get_import_owner(".".join(path.relative_to(ROOT).with_suffix("").parts))
            targets = {_get_import_owner(module) for module in _list_imported_modules(path)}
            imports.setdefault(owner, set()).update(targets - {owner})
    order = sorted(imports, key=lambda name: (PACKAGES.index(name.partition(".")[0]), name))
    lines = ["| package | imports |", "| --- | --- |"]
    for owner in order:
        names = _format_code(name for name in order if name in imports[owner])
        lines.append(f"| `{owner}` | {names or 'none'} |")
    return "\n".join(lines)


def _get_import_owner(module: str) -> str:
    package, _, rest = module.partition(".")
    is_grouped = (
        package in ("services", "anabranch") and (ROOT / package / rest.partition(".")[0]).is_dir()
    )
    return f"{package}.{rest.partition('.')[0]}" if is_grouped and rest else package


def _list_imported_modules(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if (
            isinstance(node, ast.ImportFrom)
            and node.module
            and node.module.partition(".")[0] in PACKAGES
        ):
            yield node.module


def format_sizes() -> str:
    """Files and lines of each package, and numbers of declarations. Lines are rounded to 100."""
    sizes = count()
    queries = [path.read_text(encoding="utf-8") for path in (ROOT / "sql/queries").glob("*.sql")]
    migrations = list((ROOT / "sql/migrations").glob("*.sql"))
    calls = [call for path in create_routes().openapi()["paths"].values() for call in path]
    rows = [
        *((f"`{name}`", sizes.files[name], size) for name, size in sizes.lines.items()),
        ("product", sizes.total_files, sizes.total),
    ]
    return (
        format_table(
            ("package", "files", "lines"),
            [(name, str(files), f"{round(size, -2):,}") for name, files, size in rows],
        )
        + f"\n\nThe product has {len(calls)} HTTP operations, {len(STAGES)} stages, {len(TOPICS)} "
        f"topics, {len(EVENT_CLASSES)} types of events, and "
        f"{sum(text.count('-- name: ') for text in queries)} SQL queries in {len(queries)} files; "
        f"{len(migrations)} migrations lead to its tables. The tests have {sizes.test_share:.2f} "
        "lines for each line of the product."
    )


GENERATED_SECTIONS = {
    "ARCHITECTURE.md": {
        "imports": format_imports,
        "topology": format_topology,
        "topics": format_topics,
    },
    "docs/reference/settings.md": {"settings": format_settings},
    "docs/reference/command-line.md": {"commands": format_commands},
    "docs/reference/http.md": {"endpoints": format_endpoints},
    "docs/reference/events.md": {"events": format_events},
    "docs/reference/formats.md": {"formats": format_formats, "limits": format_limits},
    "docs/operations.md": {"metrics": format_metrics},
    "docs/development.md": {"sizes": format_sizes},
}
