"""Build the objects of each process by hand, from the settings."""
