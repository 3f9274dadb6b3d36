"""Find and rank passages."""
