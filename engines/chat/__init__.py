"""Chat models that answer in a given structure."""
