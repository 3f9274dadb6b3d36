"""Log levels and rate limits for the Kafka libraries: their errors are raised, their log lines are
noise.
"""

from __future__ import annotations

import logging

# mode names a service's logger after the module of its class, hence our own for `FaustApp`.
_VERBOSE_LOGGERS = ("faust", "mode", "aiokafka", "streams.kafka.faust_app")
_RATE_LIMITED_LOGGERS = (
    "streams.kafka.subscriber",
    "aiokafka",
    "aiokafka.cluster",
    "aiokafka.consumer.fetcher",
    "aiokafka.consumer.group_coordinator",
    "aiokafka.producer.sender",
)
_RATE_LIMIT_S = 30.0
# librdkafka logs every refused connection, hundreds a minute.
librdkafka_logger = logging.getLogger("librdkafka")
librdkafka_logger.setLevel(logging.CRITICAL)


class RateLimitFilter(logging.Filter):
    """Pass each message text once in 30 s: aiokafka logs an unreachable broker thirty times a
    second.
    """

    def __init__(self) -> None:
        super().__init__()
        self._last_logged: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        # structlog passes its event dictionary as the message.
        text = str(record.msg.get("event") if isinstance(record.msg, dict) else record.msg)
        if record.created - self._last_logged.get(text, 0.0) < _RATE_LIMIT_S:
            return False
        self._last_logged[text] = record.created
        return True


def install_log_filters() -> None:
    """Install levels and filters once per process. Levels that are set already stay."""
    for name in _VERBOSE_LOGGERS:
        if logging.getLogger(name).level == logging.NOTSET:
            logging.getLogger(name).setLevel(logging.ERROR)
    for name in _RATE_LIMITED_LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(log_filter, RateLimitFilter) for log_filter in logger.filters):
            logger.addFilter(RateLimitFilter())
