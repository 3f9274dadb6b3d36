"""Storage in Postgres: the log table, the inbox of the stages, the index, the catalog, operations
and the embedded server.

Only this package imports asyncpg.
"""
