"""Declare, supervise and open document sources."""
