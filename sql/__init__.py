"""Storage in Postgres: migrations, queries, the log table, the ledger, search and the embedded
server.

Only this package imports asyncpg.
"""
