"""Checks of this machine and what it connects to: read only, each with its fix."""
