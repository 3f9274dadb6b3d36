"""Contracts: events, values, rows, ports, errors and ids. Imports no other package of ours."""
