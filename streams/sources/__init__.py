"""Sources of documents: database tables, change topics, folders, addresses."""
