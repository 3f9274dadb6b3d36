"""Calendar data (RFC 5545) as lines: what, when and where."""

from __future__ import annotations

import re
from collections.abc import Iterator

from engines.parse import text
from engines.parsed_blocks import ParsedBlock, ParsedPart

_LABELS = {
    "SUMMARY": "Event",
    "DTSTART": "Start",
    "DTEND": "End",
    "DUE": "Due",
    "LOCATION": "Place",
    "ORGANIZER": "Organizer",
    "ATTENDEE": "Attendee",
    "RRULE": "Repeats",
    "STATUS": "Status",
    "DESCRIPTION": "Description",
}
_LINE = re.compile(r"([A-Z-]+)((?:;(?:[^:\";]|\"[^\"]*\")*)*):(.*)", re.I)
_TIME = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)(\d\d)?(Z?))?")
_ESCAPE = re.compile(r"\\([\\;,nN])")


def read(data: bytes) -> ParsedPart:
    decoded = text.decode_text(data)
    return ParsedPart(read_events(decoded.text), notices=list(decoded.notices))


def read_events(source: str) -> list[ParsedBlock]:
    """Return one list per event or task; alarms and time zones are left out."""
    blocks: list[ParsedBlock] = []
    lines: list[str] = []
    component: list[str] = []
    for name, parameters, value in _iter_properties(source):
        if name == "BEGIN":
            component.append(value.upper())
        elif name == "END" and component:
            if component.pop() in ("VEVENT", "VTODO") and lines:
                blocks.append(ParsedBlock("list", "\n".join(lines)))
                lines = []
        elif component and component[-1] in ("VEVENT", "VTODO") and name in _LABELS:
            lines.append(f"- {_LABELS[name]}: {_format_value(name, parameters, value)}")
    return blocks


def _iter_properties(source: str) -> Iterator[tuple[str, str, str]]:
    # A line that begins with a space continues the line before.
    for line in re.sub(r"\r?\n[ \t]", "", source).splitlines():
        if ":" in line and (match := _LINE.fullmatch(line[:10_000])):
            yield match[1].upper(), match[2], match[3].strip()


def _format_value(name: str, parameters: str, value: str) -> str:
    if match := _TIME.fullmatch(value):
        year, month, day, hour, minute, _, zone = match.groups()
        named_zone = re.search(r"TZID=\"?([^;:\"]+)", parameters)
        suffix = " UTC" if zone else f" {named_zone[1]}" if named_zone else ""
        return f"{year}-{month}-{day}" + (f" {hour}:{minute}{suffix}" if hour else "")
    if name in ("ORGANIZER", "ATTENDEE"):
        common_name = re.search(r"CN=\"?([^;:\"]+)", parameters)
        address = re.sub(r"^mailto:", "", value, flags=re.I)
        return f"{common_name[1]} <{address}>" if common_name else address
    words = _ESCAPE.sub(lambda match: "\n" if match[1] in "nN" else match[1], value)
    return " ".join(words.split())
