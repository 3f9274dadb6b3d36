"""Read-only checks of this machine and its connections, each with a fix."""
