"""Channels by their names."""

from __future__ import annotations

from schemas.errors import ConfigurationError
from schemas.questions import CHANNELS, Channel


def channels_named(text: str) -> list[Channel]:
    """Names separated by commas. Raises ConfigurationError for one that is none."""
    wanted = [name.strip() for name in text.split(",")]
    unknown = [name for name in wanted if name not in CHANNELS]
    if unknown:
        raise ConfigurationError(f"no channel {', '.join(map(repr, unknown))}", code="UNKNOWN_CHANNEL", remedy=f"The channels are {', '.join(CHANNELS)}.")
    return [channel for channel in CHANNELS if channel in wanted]
