"""The event runtime: codec, stages and their runner, partition sinks, logs (Kafka, in memory), publishing, sources."""
