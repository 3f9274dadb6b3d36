"""Parsing of channel names."""

from __future__ import annotations

from schemas.errors import ConfigurationError
from schemas.questions import CHANNELS, Channel


def parse_channels(text: str) -> list[Channel]:
    """Parse comma-separated names. Raises ConfigurationError for an unknown one."""
    requested = [name.strip() for name in text.split(",")]
    unknown = [name for name in requested if name not in CHANNELS]
    if unknown:
        raise ConfigurationError(
            f"Unknown channel {', '.join(map(repr, unknown))}.",
            code="UNKNOWN_CHANNEL",
            remedy=f"Available channels: {', '.join(CHANNELS)}.",
        )
    return [channel for channel in CHANNELS if channel in requested]
