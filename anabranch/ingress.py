"""Settings of ingress that keep a worker from starting."""

from __future__ import annotations

from anabranch.process.database import embedded_root
from anabranch.settings import Settings
from schemas.errors import ConfigurationError

SOURCES = "ANABRANCH_INGEST__SOURCES"


def check_ingress(settings: Settings) -> None:
    """Raises ConfigurationError where others can write on `raw` and nothing says who may, or where topics of producers cannot be bound to them."""
    topics, sources = settings.ingest.topics, settings.ingest.sources
    if topics and settings.log_kind != "kafka":
        raise ConfigurationError(
            f"ingest.topics names {', '.join(topics)}, and the log is a Postgres table, which no broker guards",
            code="NEEDS_KAFKA",
            remedy="Set ANABRANCH_KAFKA__BOOTSTRAP_SERVERS, or take ANABRANCH_INGEST__TOPICS out.",
        )
    unnamed = sorted({source for named in topics.values() for source in named} - sources.keys())
    if unnamed and "*" not in sources:
        raise ConfigurationError(
            f"ingest.topics names sources that may write for no tenant: {', '.join(unnamed)}", code="BAD_SETTING", remedy=f"Name each in {SOURCES} too."
        )
    embedded = settings.log_kind == "postgres" and (settings.mode == "embedded" or embedded_root(settings).exists())
    if not sources and not embedded:
        raise ConfigurationError(
            f"{SOURCES} is not set, and other programs can write on topic `raw` of this log or database",
            code="SOURCES_REQUIRED",
            remedy=f"""Name each producer and its tenants, such as {SOURCES}='{{"https://crm.example": ["default"]}}'; '{{"*": ["default"]}}' admits any """
            """source for tenant default, '{"*": []}' none but the API and declared sources.""",
        )
