"""Names, relations and claims in chunks: by rules, by a chat model, or none."""
