"""OCR of page images: a local engine, and vision models on OpenAI-compatible servers."""

DETECTION_SIDE_PX = 1280
"""Pixels of the longer side for line detection; lines are read at full size."""
