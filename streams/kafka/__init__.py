"""The log on Kafka: a local broker, the log itself (aiokafka publishes, confluent-kafka reads in bulk and administers), the worker (Faust)."""
