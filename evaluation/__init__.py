"""Is it good? Test sets, metrics, reports. Takes `ingest` and `ask` as callables."""
