"""OCR of page images: a local engine, and vision models on OpenAI-compatible servers."""
