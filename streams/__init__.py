"""The event runtime: envelope codec, stages and their runner, partitions, the Kafka worker, publishing, sources."""
