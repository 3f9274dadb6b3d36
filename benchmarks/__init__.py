"""Benchmarks that report ratios against a bound measured in the same run.

Each prints JSON. The results are in docs/measurements.md.
"""
