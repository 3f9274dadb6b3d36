"""The write side: one stage a file, each `project` and `react`."""
