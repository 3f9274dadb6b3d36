"""The log as a table, its readers, and positions in other logs."""
