"""What operators do: migrate, monitor, replay, erase, check."""
