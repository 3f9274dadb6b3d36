"""The log on Kafka: aiokafka publishes, Faust consumes, confluent-kafka reads and administers."""
