"""Reader of JSON and JSON Lines: each record is a section with its fields as `path: value`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from engines.parse import text
from engines.parsed_blocks import ParsedBlock, ParsedPart
from schemas.values import Notice

_NAME_FIELDS = ("name", "title", "id", "key", "code", "sku", "label", "subject")
_MAX_DEPTH = 60
_MAX_RECORDS = 100_000
_MAX_LABEL_CHARS = 80
_MIN_RECORDS = 2
"""A list of fewer objects is not a list of records."""


def is_json_start(sample: str) -> bool:
    """Return whether a text, which may be cut, begins with a JSON value that is no citation."""
    sample = sample.lstrip()
    first_line = sample.partition("\n")[0]
    try:
        value, end = json.JSONDecoder().raw_decode(sample)
        # `[1] Smith, 2020` is a citation.
        rest_of_line = sample[end:].partition("\n")[0]
        return isinstance(value, dict | list) and not rest_of_line.strip()
    except (ValueError, RecursionError):
        # Cut, or the first line is not complete: objects begin with a key.
        return re.match(r"[\[{]\s*(?:[\[{]\s*)?\"[^\"]*\"\s*:|[\[{]\s*$", first_line) is not None


def read(data: bytes) -> ParsedPart:
    """Read records; text that is not JSON is read as plain text, with a warning."""
    decoded = text.decode_text(data)
    notices = list(decoded.notices)
    try:
        values, is_lines = [_parse(decoded.text)], False
    except (ValueError, RecursionError) as error:
        values, is_lines = _parse_lines(decoded.text, notices), True
        if not values:
            plain = text.read(data)
            detail = f"The file is not valid JSON ({str(error)[:80]}); it was read as plain text."
            return ParsedPart(
                plain.blocks, notices=[*notices, Notice(code="INVALID_JSON", detail=detail)]
            )
    blocks = list(_iter_records(values, "") if is_lines else _iter_blocks(values[0], "", 0))
    return ParsedPart(blocks, notices=notices)


def _parse(source: str) -> Any:
    # Numbers stay as they are written: 1.10 is a version, and 1e400 no infinity.
    return json.loads(source, parse_float=str, parse_int=str, object_pairs_hook=_merge_pairs)


def _merge_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Keep the values of a repeated key, of which JSON parsers keep the last only."""
    merged: dict[str, Any] = {}
    for key, value in pairs:
        name, n = key, 2
        while name in merged and n < 100:
            name, n = f"{key} ({n})", n + 1
        merged[name] = value
    return merged


def _parse_lines(source: str, notices: list[Notice]) -> list[Any]:
    values, bad_lines = [], []
    for number, line in enumerate(source.split("\n"), 1):
        if not line.strip():
            continue
        try:
            values.append(_parse(line))
        except (ValueError, RecursionError):
            bad_lines.append(number)
    if len(bad_lines) >= max(1, len(values)):
        return []
    if bad_lines:
        shown = ", ".join(map(str, bad_lines[:10]))
        detail = f"{len(bad_lines)} lines are not valid JSON and were left out: {shown}"
        notices.append(Notice(code="INVALID_JSON", detail=detail))
    return values


def _iter_blocks(value: Any, path: str, depth: int) -> Iterator[ParsedBlock]:
    """Yield an object's own fields, then its lists of records, each below the list's name."""
    if _is_record_list(value):
        yield from _iter_records(value, path)
        return
    if not isinstance(value, dict) or depth > _MAX_DEPTH:
        yield from _make_list(_iter_fields(value, path, depth))
        return
    inner = {key: part for key, part in value.items() if _holds_records(part, 0)}
    own = {key: part for key, part in value.items() if key not in inner}
    yield from _make_list(_iter_fields(own, path, depth))
    for key, part in inner.items():
        yield from _iter_blocks(part, f"{path}.{key}" if path else key, depth + 1)


def _is_record_list(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) >= _MIN_RECORDS
        and all(isinstance(part, dict) for part in value)
    )


def _holds_records(value: Any, depth: int) -> bool:
    return _is_record_list(value) or (
        isinstance(value, dict)
        and depth < 3
        and any(_holds_records(part, depth + 1) for part in value.values())
    )


def _iter_records(records: list[Any], path: str) -> Iterator[ParsedBlock]:
    for number, record in enumerate(records[:_MAX_RECORDS], 1):
        label = _find_label(record)
        name = f"{path} {number}" if path else f"Record {number}"
        yield ParsedBlock("heading", f"{name}: {label}" if label else name, level=2)
        yield from _make_list(_iter_fields(record, "", 0))
    if len(records) > _MAX_RECORDS:
        yield ParsedBlock("paragraph", f"… {len(records) - _MAX_RECORDS:,} more records")


def _find_label(record: Any) -> str | None:
    if not isinstance(record, dict):
        return None
    by_name = {key.lower(): value for key, value in record.items() if isinstance(value, str)}
    value = next((by_name[name] for name in _NAME_FIELDS if by_name.get(name)), None)
    return " ".join(value.split())[:_MAX_LABEL_CHARS] if value else None


def _make_list(fields: Iterator[tuple[str, str]]) -> Iterator[ParsedBlock]:
    lines = [f"- {name}: {value}" if name else f"- {value}" for name, value in fields]
    if lines:
        yield ParsedBlock("list", "\n".join(lines))


def _iter_fields(value: Any, path: str, depth: int) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each scalar; a list of scalars is one text."""
    if depth > _MAX_DEPTH:
        yield path, json.dumps(value, ensure_ascii=False)
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from _iter_fields(part, f"{path}.{key}" if path else key, depth + 1)
    elif isinstance(value, list):
        if not any(isinstance(part, dict | list) for part in value):
            if value:
                yield path, ", ".join(map(_format_scalar, value))
            return
        for number, part in enumerate(value, 1):
            yield from _iter_fields(part, f"{path}[{number}]", depth + 1)
    else:
        yield path, _format_scalar(value)


def _format_scalar(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return " ".join(str(value).split())
