"""Migrations, monitoring, replays, erasure, keys and integrity checks."""
