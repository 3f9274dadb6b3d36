"""Record, rerun, compare and trace answered questions."""
