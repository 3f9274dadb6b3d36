"""The application shell: settings, composition, command line."""
