"""The read side: one step a file, and the pipeline that reads as a straight line."""
