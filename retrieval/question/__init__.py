"""What reads the question: pure functions without a port."""
