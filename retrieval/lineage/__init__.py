"""Where an answer and a document came from, verified at every hop."""
