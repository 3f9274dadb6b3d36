"""Programs that index a folder with one system each. They run in that system's environment."""
