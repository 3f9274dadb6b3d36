"""Ports: the Protocols between packages.

`tests/contract` checks the behavior that their docstrings promise.
"""
