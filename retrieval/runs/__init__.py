"""What records, reruns, compares and traces answered questions."""
