"""Read the date that a document states about itself, in the forms that formats store it in."""

from __future__ import annotations

import re
from datetime import date, datetime
from email.utils import parsedate_to_datetime

# ISO 8601 with and without separators, and PDF's `D:20260301…`; what follows is a time.
_NUMERIC_DATE = re.compile(r"(?:D:)?(\d{4})([-/.]?)(\d{2})\2(\d{2})(?=$|[T\s]|\d{2})", re.ASCII)
MAX_DATE_CHARACTERS = 100
"""`email.utils` takes quadratic time on long texts."""


def parse_document_date(value: str | date | None) -> date | None:
    """Return the day of a date as it is written there, in its own time zone.

    Reads ISO 8601, PDF dates and RFC 5322 dates. None for all others, such as a year alone.
    """
    if isinstance(value, datetime):
        return value.date()
    if not isinstance(value, str):
        return value
    text = value.strip()[:MAX_DATE_CHARACTERS]
    try:
        if match := _NUMERIC_DATE.match(text):
            year, _, month, day = match.groups()
            return date(int(year), int(month), int(day))
        return parsedate_to_datetime(text).date()
    # An overflow: `email.utils` reads any number of digits as a year.
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
