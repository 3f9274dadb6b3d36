"""Answer queries: retrievers, admission, events, feedback, past runs."""
