"""Logging of the libraries underneath: what matters is raised, the rest would drown everything else."""

from __future__ import annotations

import logging

_VERBOSE_LOGGERS = ("faust", "mode", "aiokafka", "streams.kafka.faust_app")
"""Faust's app logs under the name of the module of our subclass."""
_RATE_LIMITED_LOGGERS = (
    "streams.kafka.subscriber",
    "aiokafka",
    "aiokafka.cluster",
    "aiokafka.consumer.fetcher",
    "aiokafka.consumer.group_coordinator",
    "aiokafka.producer.sender",
)
_RATE_LIMIT_S = 30.0
librdkafka_logger = logging.getLogger("librdkafka")
"""For its clients. It writes a line for every refused connection, hundreds a minute; what matters of them is raised."""
librdkafka_logger.setLevel(logging.CRITICAL)


class RateLimitFilter(logging.Filter):
    """Lets each message text pass once in 30 s: while a broker is away, aiokafka says so thirty times a second, and we each second."""

    def __init__(self) -> None:
        super().__init__()
        self._last_logged: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.created - self._last_logged.get(str(record.msg), 0.0) < _RATE_LIMIT_S:
            return False
        self._last_logged[str(record.msg)] = record.created
        return True


def install_log_filters() -> None:
    """For this process, once. A level that somebody has set stays."""
    for name in _VERBOSE_LOGGERS:
        if logging.getLogger(name).level == logging.NOTSET:
            logging.getLogger(name).setLevel(logging.ERROR)
    for name in _RATE_LIMITED_LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(log_filter, RateLimitFilter) for log_filter in logger.filters):
            logger.addFilter(RateLimitFilter())
