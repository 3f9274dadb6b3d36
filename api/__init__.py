"""FastAPI routes. No logic."""
