"""Tables that users list: documents, collections, sources, facts, profiles, runs and exams."""
