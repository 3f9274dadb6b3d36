"""Trace answers and documents back to the uploaded bytes, verifying every hop."""
