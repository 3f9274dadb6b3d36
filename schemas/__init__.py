"""Contracts: events, values, rows, ports, errors and ids. Everything else is built on this room; it builds on nothing of ours."""
