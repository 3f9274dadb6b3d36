"""Limits of stage `receive`."""

from __future__ import annotations

from anabranch.config.settings import IngestSettings
from schemas.ports.stage_ports import IngressLimits


def build_limits(ingest: IngestSettings) -> IngressLimits:
    """Build the limits. Without `ingest.sources`, every source may write for the default tenant."""
    sources, takeover, topics = (
        {name: frozenset(values) for name, values in setting.items()}
        for setting in (ingest.sources, ingest.takeover, ingest.topics)
    )
    optional_limits = {"tenants_by_source": sources} if sources else {}
    return IngressLimits(
        ingest.max_bytes,
        ingest.inline_bytes,
        ingest.max_pages,
        takeover_by_source=takeover,
        sources_by_topic=topics,
        **optional_limits,
    )
