"""What people name and list: documents, collections, sources, facts, profiles, runs, exams."""
