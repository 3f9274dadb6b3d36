"""Channels by their names."""

from __future__ import annotations

from schemas.errors import ConfigurationError
from schemas.questions import CHANNELS, Channel


def parse_channels(text: str) -> list[Channel]:
    """Names separated by commas. Raises ConfigurationError for one that is none."""
    requested = [name.strip() for name in text.split(",")]
    unknown = [name for name in requested if name not in CHANNELS]
    if unknown:
        raise ConfigurationError(f"no channel {', '.join(map(repr, unknown))}", code="UNKNOWN_CHANNEL", remedy=f"The channels are {', '.join(CHANNELS)}.")
    return [channel for channel in CHANNELS if channel in requested]
