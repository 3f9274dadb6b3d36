"""Read the files of test sets."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from schemas.errors import InvalidRequest, format_invalid_fields

T = TypeVar("T")


def read_lines(path: Path, parse: Callable[[Any], T], remedy: str) -> list[T]:
    """Parse the JSON of each line. Raises InvalidRequest with the file and the line."""
    entries = []
    # JSON may hold other line separators.
    for number, line in enumerate(read_text(path, remedy).split("\n"), 1):
        if not line.strip():
            continue
        location = f"{path.name} line {number}"
        try:
            entries.append(parse(json.loads(line)))
        except json.JSONDecodeError as error:
            raise make_set_error(f"{location} is not valid JSON: {error.msg}.", remedy) from error
        except KeyError as error:
            raise make_set_error(f"{location} has no field {error}.", remedy) from error
        except ValidationError as error:
            reason = format_invalid_fields(error.errors(include_input=False)[:5])
            raise make_set_error(f"{location}: {reason}.", remedy) from error
    return entries


def read_text(path: Path, remedy: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise make_set_error(f"Cannot read {path}: {error.strerror}.", remedy) from error
    except UnicodeDecodeError as error:
        raise make_set_error(f"Cannot read {path}: {error}.", remedy) from error


def make_set_error(detail: str, remedy: str) -> InvalidRequest:
    return InvalidRequest(detail, code="NOT_A_TEST_SET", remedy=remedy)
