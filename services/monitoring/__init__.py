"""Readiness, consumer lag, gauges and the event feed."""
