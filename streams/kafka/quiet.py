"""Logging of the libraries underneath: what matters is raised, the rest would drown everything else."""

from __future__ import annotations

import logging

_TALKATIVE = ("faust", "mode", "aiokafka", "streams.kafka.app")
"""Faust's app logs under the name of the module of our subclass."""
_REPEATING = (
    "streams.kafka.worker",
    "aiokafka",
    "aiokafka.cluster",
    "aiokafka.consumer.fetcher",
    "aiokafka.consumer.group_coordinator",
    "aiokafka.producer.sender",
)
_EVERY_S = 30.0
librdkafka = logging.getLogger("librdkafka")
"""For its clients. It writes a line for every refused connection, hundreds a minute; what matters of them is raised."""
librdkafka.setLevel(logging.CRITICAL)


class OnceInAWhile(logging.Filter):
    """Lets each message text pass once in 30 s: while a broker is away, aiokafka says so thirty times a second, and we each second."""

    def __init__(self) -> None:
        super().__init__()
        self._passed: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.created - self._passed.get(str(record.msg), 0.0) < _EVERY_S:
            return False
        self._passed[str(record.msg)] = record.created
        return True


def quiet() -> None:
    """For this process, once. A level that somebody has set stays."""
    for name in _TALKATIVE:
        if logging.getLogger(name).level == logging.NOTSET:
            logging.getLogger(name).setLevel(logging.ERROR)
    for name in _REPEATING:
        logger = logging.getLogger(name)
        if not any(isinstance(each, OnceInAWhile) for each in logger.filters):
            logger.addFilter(OnceInAWhile())
