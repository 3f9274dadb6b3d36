"""Assign stages to generations; build, compare, switch and remove generations."""
