"""Processes: what each runs, the folder and the database they share, how they are supervised, watched and stopped."""
