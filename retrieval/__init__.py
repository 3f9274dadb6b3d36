"""The read side, one step per file; `retrieval.pipeline` runs the steps in order."""
