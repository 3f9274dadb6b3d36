"""Erase documents and issue receipts."""
