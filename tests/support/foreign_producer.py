"""Somebody else's program: pushes what it is told to topic `raw` and reports what topic `outcomes`
says of it. It knows Kafka and JSON, nothing more.

    python foreign_producer.py BOOTSTRAP PREFIX < orders.json > outcomes.json

Orders: {"events": [{"attributes": {...}, "data": ..., "mode": "binary" or "structured", "key": ...,
"partitioner": ...} or {"headers": {...}, "value": ...}], "answers": how many outcomes to wait for}.
An event's attributes go without the prefix `ce_`.
"""

import json
import sys
import time

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)

TIMEOUT_S = 100
LEADER_UNAVAILABLE = (KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION)


def encode_binary(attributes, data):
    headers = {f"ce_{name}": value for name, value in attributes.items()}
    return {**headers, "content-type": "application/json"}, json.dumps(data)


def encode_structured(attributes, data):
    return {"content-type": "application/cloudevents+json; charset=utf-8"}, json.dumps(
        {**attributes, "datacontenttype": "application/json", "data": data}
    )


def encode_event(order):
    if "headers" in order:
        return order["headers"], order["value"]
    form = encode_structured if order.get("mode") == "structured" else encode_binary
    return form({"specversion": "1.0", **order["attributes"]}, order["data"])


def push_events(servers, topic, orders):
    """By one producer for each partitioner, one after the other where it changes, so that the order
    of the orders is the order in the log.
    """
    producers = {}
    last = None
    for order in orders:
        name = order.get("partitioner", "consistent_random")
        if last and last != name:
            producers[last].flush()
        if name not in producers:
            producers[name] = Producer(
                {
                    "bootstrap.servers": servers,
                    "partitioner": name,
                    "enable.idempotence": True,
                    "message.max.bytes": 9_000_000,
                }
            )
        headers, value = encode_event(order)
        producers[name].produce(topic, value, key=order.get("key"), headers=headers)
        last = name
    for producer in producers.values():
        if producer.flush(30):
            raise SystemExit("Kafka did not take everything")


def open_consumer_at_end(servers, topic):
    """Open a consumer at the end of the topic, before anything is pushed."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "somebody-else", "enable.auto.commit": False}
    )
    places = [
        TopicPartition(topic, number)
        for number in consumer.list_topics(topic, timeout=60).topics[topic].partitions
    ]
    consumer.assign(
        [
            TopicPartition(
                topic, place.partition, fetch_end_offset(consumer, place) or OFFSET_BEGINNING
            )
            for place in places
        ]
    )
    return consumer


def fetch_end_offset(consumer, place):
    """Retry while the broker elects a leader of a topic made a moment ago: librdkafka does not
    retry this request.
    """
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return consumer.get_watermark_offsets(place, timeout=60)[1]
        except KafkaException as error:
            if error.args[0].code() not in LEADER_UNAVAILABLE or time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def collect_answers(consumer, count):
    answers, deadline = [], time.monotonic() + TIMEOUT_S
    while len(answers) < count and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            answers.append(parse_answer(message))
    return answers


def parse_answer(message):
    headers = {name: value.decode() for name, value in message.headers()}
    return {
        "key": message.key().decode(),
        "type": headers["ce_type"],
        "headers": headers,
        "data": json.loads(message.value()),
    }


def main():
    servers, prefix = sys.argv[1:]
    orders = json.load(sys.stdin)
    consumer = open_consumer_at_end(servers, prefix + "outcomes")
    push_events(servers, prefix + "raw", orders["events"])
    json.dump(collect_answers(consumer, orders["answers"]), sys.stdout)
    consumer.close()


if __name__ == "__main__":
    main()
