"""Storage: migrations, queries, the log table, the ledger, search and the embedded Postgres. The only room that imports asyncpg."""
