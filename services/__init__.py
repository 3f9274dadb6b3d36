"""Use cases: one class or function each, called by the API, the CLI and the workers."""
