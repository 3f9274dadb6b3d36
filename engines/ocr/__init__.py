"""OCR of page images: a local engine, and vision models on OpenAI-compatible servers."""

from engines.ocr.port import OcrEngine

__all__ = ["OcrEngine"]
