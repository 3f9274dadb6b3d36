"""The log on Kafka: aiokafka publishes, confluent-kafka reads in bulk and administers, Faust runs consumer groups."""
