"""The HTTP API: FastAPI routes and middleware around the service layer."""
