"""Validation of the settings of ingress, and selection of stages by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from anabranch.config.settings import Settings
from anabranch.process.database import resolve_embedded_root
from processors import STAGES
from schemas.errors import ConfigurationError
from streams.stage import Stage

SOURCES_VARIABLE = "ANABRANCH_INGEST__SOURCES"


def check_ingress_settings(settings: Settings) -> None:
    """Raise ConfigurationError if other programs can write to `raw` without an allowlist, or
    topics cannot be bound to producers.
    """
    topics, sources = settings.ingest.topics, settings.ingest.sources
    if topics and settings.log_kind != "kafka":
        raise ConfigurationError(
            f"Producer topics {', '.join(topics)} in ingest.topics need Kafka, but the log is a "
            "Postgres table.",
            code="NEEDS_KAFKA",
            remedy="Set ANABRANCH_KAFKA__BOOTSTRAP_SERVERS, or remove ANABRANCH_INGEST__TOPICS.",
        )
    unlisted_sources = sorted(
        {source for source_names in topics.values() for source in source_names} - sources.keys()
    )
    if unlisted_sources and "*" not in sources:
        raise ConfigurationError(
            f"Sources in ingest.topics have no tenant: {', '.join(unlisted_sources)}.",
            code="BAD_SETTING",
            remedy=f"Add each to {SOURCES_VARIABLE}.",
        )
    # Only the owner of the data folder can write to an embedded log.
    is_embedded = settings.log_kind == "postgres" and (
        settings.mode == "embedded" or resolve_embedded_root(settings).exists()
    )
    if not sources and not is_embedded:
        raise ConfigurationError(
            f"{SOURCES_VARIABLE} is not set, but other programs can write to topic `raw` of this "
            "log or database.",
            code="SOURCES_REQUIRED",
            remedy=(
                f"Map each producer to its tenants: {SOURCES_VARIABLE}="
                """'{"https://crm.example": ["default"]}'. """
                """'{"*": ["default"]}' admits any source for tenant default; """
                """'{"*": []}' only the API and declared sources."""
            ),
        )


def select_stages(names: Iterable[str], stages: Sequence[Stage] = STAGES) -> list[Stage]:
    """Return the named stages; `all` selects every stage.

    Raises ConfigurationError for an unknown name.
    """
    requested = list(names)
    stages_by_name = {stage.name: stage for stage in stages}
    unknown = [name for name in requested if name not in stages_by_name and name != "all"]
    if unknown:
        raise ConfigurationError(
            f"Unknown stage {', '.join(map(repr, unknown))}.",
            code="UNKNOWN_STAGE",
            remedy=f"Available stages: all, {', '.join(stages_by_name)}.",
        )
    return (
        list(stages)
        if "all" in requested
        else [stages_by_name[name] for name in dict.fromkeys(requested)]
    )
