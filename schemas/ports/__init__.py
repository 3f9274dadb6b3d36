"""Ports: what rooms ask of each other. A port is a Protocol; its promises are in its docstrings and in the suites of `tests/contract`."""
