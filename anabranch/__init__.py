"""Application shell: settings, composition, processes, command line, doctor."""
