"""Settings of ingress that keep a worker from starting."""

from __future__ import annotations

from anabranch.config.settings import Settings
from anabranch.process.database import resolve_embedded_root
from schemas.errors import ConfigurationError

SOURCES_VARIABLE = "ANABRANCH_INGEST__SOURCES"


def check_ingress_settings(settings: Settings) -> None:
    """Raises ConfigurationError where others can write on `raw` and nothing says who may, or where topics of producers cannot be bound to them."""
    topics, sources = settings.ingest.topics, settings.ingest.sources
    if topics and settings.log_kind != "kafka":
        raise ConfigurationError(
            f"ingest.topics names {', '.join(topics)}, and the log is a Postgres table, which no broker guards",
            code="NEEDS_KAFKA",
            remedy="Set ANABRANCH_KAFKA__BOOTSTRAP_SERVERS, or take ANABRANCH_INGEST__TOPICS out.",
        )
    unlisted_sources = sorted({source for source_names in topics.values() for source in source_names} - sources.keys())
    if unlisted_sources and "*" not in sources:
        raise ConfigurationError(
            f"ingest.topics names sources that may write for no tenant: {', '.join(unlisted_sources)}",
            code="BAD_SETTING",
            remedy=f"Name each in {SOURCES_VARIABLE} too.",
        )
    is_embedded = settings.log_kind == "postgres" and (settings.mode == "embedded" or resolve_embedded_root(settings).exists())
    if not sources and not is_embedded:
        raise ConfigurationError(
            f"{SOURCES_VARIABLE} is not set, and other programs can write on topic `raw` of this log or database",
            code="SOURCES_REQUIRED",
            remedy=f"""Name each producer and its tenants, such as {SOURCES_VARIABLE}='{{"https://crm.example": ["default"]}}'; '{{"*": ["default"]}}' admits any """
            """source for tenant default, '{"*": []}' none but the API and declared sources.""",
        )
