"""Chat models with structured output."""
