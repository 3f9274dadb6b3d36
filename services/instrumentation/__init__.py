"""Metrics, latency and event log decorators; imports no other sub-package."""
