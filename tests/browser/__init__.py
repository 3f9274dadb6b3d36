"""The web UI in Chromium, against a real server with real documents."""
