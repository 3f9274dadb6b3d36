"""Pictures of pages to text: a local engine and vision models on OpenAI-compatible servers, behind one small port."""

from engines.ocr.port import OcrEngine

__all__ = ["OcrEngine"]
