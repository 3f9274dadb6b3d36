"""Render the binary documents of the sample corpus from the texts in `source/`. Not part of the
product.
"""
