"""What a worker does beside its stages: builds, replays, erasures, upkeep; and what it tells of itself."""
