"""Conversion of Debezium's column values to readable JSON: dates as ISO 8601, decimals as digits.

Encodings: Debezium's manual, "Data type mappings" (semantic types `io.debezium.*`, Kafka Connect's
logical types).
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, Final

from schemas.errors import MalformedEvent
from schemas.sources import ColumnEncoding

PLACEHOLDER: Final = "__debezium_unavailable_value"
_PLACEHOLDER_BYTES: Final = base64.b64encode(PLACEHOLDER.encode()).decode()
_MILLI, _MICRO, _NANO = 10**3, 10**6, 10**9
_DAY_S: Final = 86_400
_CYCLE_START: Final = date(2000, 1, 1)
_CYCLE_START_DAY: Final = (_CYCLE_START - date(1970, 1, 1)).days
_CYCLE_DAYS: Final = 146_097
_BEFORE_CHRIST: Final = " BC"
_INFINITIES: Final = {
    # Limits of Postgres's JDBC driver, and of the types that the connector writes.
    **dict.fromkeys((9223372036825200000, 2**63 - 1, 2**31 - 1), "infinity"),
    **dict.fromkeys((-9223372036832400000, -(2**63), -(2**31)), "-infinity"),
}
_MAX_PADDED_BITS: Final = 4096
_ISO_INTERVAL: Final = re.compile(
    r"P(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)D)?"
    r"(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?\d+(?:\.\d+)?)S)?)?",
    re.ASCII,
)
Parameters = Mapping[str, Any]


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
    if kind == "array" and isinstance(value, list):
        items = field.get("items")
        return [to_json_value(element, items, None) for element in value]
    try:
        return _CONVERSIONS[kind](value, parameters) if kind in _CONVERSIONS else value
    except (TypeError, ValueError, OverflowError, KeyError, binascii.Error) as error:
        raise MalformedEvent(
            f"Invalid value of type {kind}: {error}.", code="MALFORMED_CHANGE"
        ) from error


def _format_date(days: int) -> str:
    """Format days since 1970 as Postgres does, which knows years after 9999 and before 1."""
    if (name := _INFINITIES.get(days)) is not None:
        return name
    # `date` ends with year 9999; the calendar repeats after 400 years.
    cycles, days_in_cycle = divmod(days - _CYCLE_START_DAY, _CYCLE_DAYS)
    day = _CYCLE_START + timedelta(days=days_in_cycle)
    year = day.year + 400 * cycles
    if year > 0:
        return f"{year:04d}-{day:%m-%d}"
    return f"{1 - year:04d}-{day:%m-%d}{_BEFORE_CHRIST}"


def _format_timestamp(units: int, units_per_s: int) -> str:
    if (name := _INFINITIES.get(units)) is not None:
        return name
    days, rest = divmod(units, _DAY_S * units_per_s)
    date_text = _format_date(days)
    era = _BEFORE_CHRIST if date_text.endswith(_BEFORE_CHRIST) else ""
    return f"{date_text.removesuffix(era)}T{_format_time(rest, units_per_s)}{era}"


def _format_time(units: int, units_per_s: int) -> str:
    """Format a time or duration in hours; not of a day alone: Postgres has 24:00, MySQL 838:59."""
    seconds, fraction = divmod(abs(units), units_per_s)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    digits = f"{fraction:0{len(str(units_per_s)) - 1}d}".rstrip("0")
    sign = "-" if units < 0 else ""
    return f"{sign}{hour:02d}:{minute:02d}:{second:02d}{'.' if digits else ''}{digits}"


def _format_duration(units: int, units_per_s: int) -> str:
    """Format days and time: the connector has turned months into days (mode `numeric`)."""
    days, rest = divmod(abs(units), _DAY_S * units_per_s)
    hours, rest = divmod(rest, 3600 * units_per_s)
    minutes, rest = divmod(rest, 60 * units_per_s)
    sign = -1 if units < 0 else 1
    numbers = (0, 0, days, hours, minutes, Decimal(rest) / units_per_s)
    return _join_interval([Decimal(sign * number) for number in numbers])


def _format_iso_interval(value: str, _: Parameters) -> str:
    match = _ISO_INTERVAL.fullmatch(value)
    return _join_interval([Decimal(text or 0) for text in match.groups()]) if match else value


def _join_interval(numbers: Sequence[Decimal]) -> str:
    """Format years to seconds as Postgres does in ISO 8601: without the parts that are zero."""
    parts = [
        f"{number.normalize():f}{unit}" if number else ""
        for number, unit in zip(numbers, "YMDHMS", strict=True)
    ]
    time_text = "".join(parts[3:])
    return f"P{''.join(parts[:3])}{'T' + time_text if time_text else ''}" if any(parts) else "PT0S"


def _format_bits(value: str, parameters: Parameters) -> str:
    """Format a bit string, which Debezium writes as little-endian bytes."""
    data = base64.b64decode(value, validate=True)
    length = int(parameters.get("length") or 0)
    # A varying bit string without a limit has a length of 2³¹.
    width = length if length <= _MAX_PADDED_BITS else 0
    return f"{int.from_bytes(data, 'little'):0{width}b}"


def _convert_decimal(value: Any, parameters: Parameters) -> str:
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


def _convert_units(
    format_value: Callable[[int, int], str], units_per_s: int
) -> Callable[[Any, Parameters], str]:
    return lambda value, _: format_value(int(value), units_per_s)


_CONVERSIONS: Final[Mapping[str, Callable[[Any, Parameters], Any]]] = {
    **dict.fromkeys(
        ("io.debezium.time.Date", "org.apache.kafka.connect.data.Date", "date"),
        lambda value, _: _format_date(int(value)),
    ),
    **dict.fromkeys(
        ("io.debezium.time.Timestamp", "org.apache.kafka.connect.data.Timestamp", "timestamp_ms"),
        _convert_units(_format_timestamp, _MILLI),
    ),
    **dict.fromkeys(
        ("io.debezium.time.MicroTimestamp", "timestamp_us"),
        _convert_units(_format_timestamp, _MICRO),
    ),
    **dict.fromkeys(
        ("io.debezium.time.NanoTimestamp", "timestamp_ns"),
        _convert_units(_format_timestamp, _NANO),
    ),
    **dict.fromkeys(
        ("io.debezium.time.Time", "org.apache.kafka.connect.data.Time", "time_ms"),
        _convert_units(_format_time, _MILLI),
    ),
    **dict.fromkeys(
        ("io.debezium.time.MicroTime", "time_us"), _convert_units(_format_time, _MICRO)
    ),
    **dict.fromkeys(("io.debezium.time.NanoTime", "time_ns"), _convert_units(_format_time, _NANO)),
    "io.debezium.time.MicroDuration": _convert_units(_format_duration, _MICRO),
    "io.debezium.time.NanoDuration": _convert_units(_format_duration, _NANO),
    "io.debezium.time.Interval": _format_iso_interval,
    "io.debezium.data.Bits": _format_bits,
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
