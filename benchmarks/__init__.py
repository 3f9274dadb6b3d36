"""Measurements as ratios against a bound of the same run. Each prints JSON; what they gave is in docs/measurements.md."""
