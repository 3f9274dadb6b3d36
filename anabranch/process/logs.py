"""Structured logs on stderr: console lines on a terminal, JSON elsewhere. Texts of documents and questions never enter them."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog

from anabranch.settings import LoggingSettings

QUIETER = {
    "faust": logging.WARNING,
    "mode": logging.WARNING,
    "aiokafka": logging.ERROR,
    "httpx": logging.WARNING,
    "httpx2": logging.WARNING,
    "uvicorn": logging.WARNING,
}


def configure_logs(settings: LoggingSettings) -> None:
    """For this process; libraries that log the standard way end in the same lines."""
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=_renderers(settings)))
    logging.basicConfig(handlers=[handler], level=level, force=True)
    for name, floor in QUIETER.items():
        logging.getLogger(name).setLevel(max(level, floor))


def _renderers(settings: LoggingSettings) -> list[Any]:
    remove = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    if settings.format == "console" or (settings.format == "auto" and sys.stderr.isatty()):
        return [remove, structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback)]
    return [remove, structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
