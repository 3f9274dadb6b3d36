"""The embedded Postgres server and the processes that watch it."""
