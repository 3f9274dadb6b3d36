"""The channels that the default profile searches."""

from schemas.channels import CHANNEL_DECLARATIONS

DEFAULT_CHANNELS = [channel.name for channel in CHANNEL_DECLARATIONS if channel.weight]
