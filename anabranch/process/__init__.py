"""The API, the worker and their supervisor; data folder, database, ports and shutdown."""
