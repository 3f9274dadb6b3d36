"""The event runtime: codec, stages, runner, partition sinks, logs (Kafka, in memory), publishing,
sources.
"""
