"""Read the question, by pure functions without a port."""
