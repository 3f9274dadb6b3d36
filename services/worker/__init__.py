"""Run a worker: consumers, engines, maintenance."""
