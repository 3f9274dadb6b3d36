"""Conversion of Debezium's column values to readable JSON: dates as ISO 8601, decimals as digits.

Encodings: Debezium's manual, "Data type mappings" (semantic types `io.debezium.*`, Kafka Connect's
logical types).
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from schemas.errors import MalformedEvent
from schemas.sources import ColumnEncoding

PLACEHOLDER: Final = "__debezium_unavailable_value"
_PLACEHOLDER_BYTES: Final = base64.b64encode(PLACEHOLDER.encode()).decode()
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def is_unavailable(value: Any) -> bool:
    """Return whether the value is Debezium's placeholder for an unchanged column (text, bytes,
    array or map).
    """
    match value:
        case str():
            # Debezium encodes its placeholder like a value of the column's type.
            return value in (PLACEHOLDER, _PLACEHOLDER_BYTES)
        case [element]:
            return is_unavailable(element)
        case [*numbers]:
            return numbers == list(PLACEHOLDER.encode())
        case Mapping() if len(value) == 1:
            return is_unavailable(next(iter(value)))
    return False


def to_json_value(
    value: Any, field: Mapping[str, Any] | None, encoding: ColumnEncoding | None
) -> Any:
    """Convert a column value to a JSON value. Raises MalformedEvent.

    `field` is the column's part of the record's schema. `encoding`, if configured, takes
    precedence.
    """
    if value is None:
        return None
    if encoding is not None:
        field = {"type": encoding.type, "parameters": {"scale": encoding.scale}}
    field = field or {}
    kind = str(field.get("name") or field.get("type") or "")
    parameters = field.get("parameters") or {}
    try:
        return _CONVERSIONS[kind](value, parameters) if kind in _CONVERSIONS else value
    except (TypeError, ValueError, OverflowError, KeyError, binascii.Error) as error:
        raise MalformedEvent(
            f"Invalid value of type {kind}: {error}.", code="MALFORMED_CHANGE"
        ) from error


def _format_timestamp(microseconds: int) -> str:
    return (_EPOCH + timedelta(microseconds=microseconds)).replace(tzinfo=None).isoformat()


def _format_time(microseconds: int) -> str:
    return (_EPOCH + timedelta(microseconds=microseconds)).time().isoformat()


def _make_scaled_converter(
    per_microsecond: tuple[int, int], format_value: Callable[[int], str]
) -> Callable[[Any, Mapping[str, Any]], str]:
    multiplier, divisor = per_microsecond
    # Whole numbers: a float of nanoseconds since the epoch would lose digits.
    return lambda value, _: format_value(int(value) * multiplier // divisor)


def _convert_decimal(value: Any, parameters: Mapping[str, Any]) -> str:
    """Format a decimal (base64 of a big-endian two's complement integer, `scale` digits after the
    point).
    """
    # Connectors may write decimals as numbers (`decimal.handling.mode=double`).
    if isinstance(value, int | float):
        return str(value)
    return _format_digits(value, int(parameters.get("scale", 0)))


def _format_digits(encoded: str, scale: int) -> str:
    unscaled = int.from_bytes(base64.b64decode(encoded, validate=True), "big", signed=True)
    return format(Decimal(unscaled).scaleb(-scale), "f")


def _convert_bytes(value: Any, _: Mapping[str, Any]) -> dict[str, str]:
    base64.b64decode(value, validate=True)
    return {"base64": value}


_CONVERSIONS: Final[Mapping[str, Callable[[Any, Mapping[str, Any]], Any]]] = {
    **dict.fromkeys(
        ("io.debezium.time.Date", "org.apache.kafka.connect.data.Date", "date"),
        lambda value, _: (_EPOCH + timedelta(days=int(value))).date().isoformat(),
    ),
    **dict.fromkeys(
        ("io.debezium.time.Timestamp", "org.apache.kafka.connect.data.Timestamp", "timestamp_ms"),
        _make_scaled_converter((1000, 1), _format_timestamp),
    ),
    **dict.fromkeys(
        ("io.debezium.time.MicroTimestamp", "timestamp_us"),
        _make_scaled_converter((1, 1), _format_timestamp),
    ),
    **dict.fromkeys(
        ("io.debezium.time.NanoTimestamp", "timestamp_ns"),
        _make_scaled_converter((1, 1000), _format_timestamp),
    ),
    **dict.fromkeys(
        ("io.debezium.time.Time", "org.apache.kafka.connect.data.Time", "time_ms"),
        _make_scaled_converter((1000, 1), _format_time),
    ),
    **dict.fromkeys(
        ("io.debezium.time.MicroTime", "time_us"), _make_scaled_converter((1, 1), _format_time)
    ),
    **dict.fromkeys(
        ("io.debezium.time.NanoTime", "time_ns"), _make_scaled_converter((1, 1000), _format_time)
    ),
    **dict.fromkeys(("org.apache.kafka.connect.data.Decimal", "decimal"), _convert_decimal),
    "io.debezium.data.VariableScaleDecimal": (
        lambda value, _: _format_digits(value["value"], int(value["scale"]))
    ),
    **dict.fromkeys(
        ("io.debezium.data.Json", "json"),
        lambda value, _: json.loads(value) if isinstance(value, str) else value,
    ),
    "bytes": _convert_bytes,
}
"""Conversion by semantic type, plain type or encoding name. All other types are readable as they
are.
"""


def replace_surrogates(value: Any) -> Any:
    """Replace lone surrogates: JSON may escape them and Python reads them, but UTF-8 cannot encode
    them.
    """
    match value:
        case str():
            return value.encode(errors="replace").decode()
        case list():
            return [replace_surrogates(item) for item in value]
        case Mapping():
            return {
                replace_surrogates(name): replace_surrogates(item) for name, item in value.items()
            }
    return value


def format_as_text(value: Any) -> str:
    """Format a JSON value as text of a document's body."""
    match value:
        case None:
            return ""
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
