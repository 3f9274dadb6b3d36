"""The log on Kafka: aiokafka publishes, confluent-kafka bulk-reads and administers, Faust consumes."""
