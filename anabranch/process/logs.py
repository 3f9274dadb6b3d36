"""Structured logs on stderr: console lines on a terminal, JSON elsewhere.

They never contain texts of documents or queries.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from io import StringIO
from typing import Any, TextIO

import structlog
from structlog.typing import ExcInfo

from anabranch.config.settings import LoggingSettings
from anabranch.process.terminal import escape_controls, get_unescaped
from schemas.errors import ConfigurationError

LIBRARY_LEVELS = {
    "faust": logging.WARNING,
    "mode": logging.WARNING,
    # It warns of each timer that fires late, which on a busy machine they all do.
    "mode.timers": logging.ERROR,
    "aiokafka": logging.ERROR,
    "httpx": logging.WARNING,
    "httpx2": logging.WARNING,
    "mcp": logging.WARNING,
    "uvicorn": logging.WARNING,
}

_JSON_RENDERERS: list[Any] = [
    structlog.processors.format_exc_info,
    structlog.processors.JSONRenderer(),
]
MULTILINE_FIELDS = frozenset({"exception", "stack"})


def configure_logs(settings: LoggingSettings) -> None:
    """Configure this process, including libraries that use standard logging.

    Raises ConfigurationError if the file cannot be written.
    """
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        # A logger that was used before would keep the earlier configuration.
        cache_logger_on_first_use=False,
    )
    is_console = settings.format == "console" or (settings.format == "auto" and sys.stderr.isatty())
    renderers: list[Any] = (
        [
            _escape_fields,
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=_format_traceback
            ),
        ]
        if is_console
        else _JSON_RENDERERS
    )
    # The renderers escape foreign texts themselves, and their colors must pass.
    handler = logging.StreamHandler(get_unescaped(sys.stderr))
    handler.setFormatter(_make_formatter(shared, renderers))
    handlers: list[logging.Handler] = [handler]
    if settings.file is not None:
        try:
            file = logging.FileHandler(settings.file, encoding="utf-8")
        except OSError as error:
            raise ConfigurationError(
                f"Cannot write {settings.file}: {error.strerror}.", remedy="Change logging.file."
            ) from error
        # Not the line of each document and question, so that it stays small.
        file.setLevel(logging.WARNING)
        file.setFormatter(_make_formatter(shared, _JSON_RENDERERS))
        handlers.append(file)
    # Replaces the handlers that libraries have installed.
    logging.basicConfig(handlers=handlers, level=level, force=True)
    for name, floor in LIBRARY_LEVELS.items():
        logging.getLogger(name).setLevel(max(level, floor))


def _make_formatter(shared: list[Any], renderers: list[Any]) -> logging.Formatter:
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers],
    )


def _escape_fields(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Escape control characters in strings: a line break would forge a log line.

    Other values are shown by `repr`, which escapes.
    """
    for name, value in event.items():
        if isinstance(value, str):
            event[name] = (
                escape_controls(value)
                if name in MULTILINE_FIELDS
                else escape_controls(value).replace("\n", "\\n")
            )
    return event


def _format_traceback(out: TextIO, exc_info: ExcInfo) -> None:
    traceback_text = StringIO()
    structlog.dev.plain_traceback(traceback_text, exc_info)
    out.write(escape_controls(traceback_text.getvalue()))
