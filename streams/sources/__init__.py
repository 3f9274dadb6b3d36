"""Sources of documents: tables that change, folders, addresses."""
