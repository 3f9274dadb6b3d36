"""Access rules (ACLs) of a Kafka cluster."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from streams.kafka.client import KafkaClientSettings

TIMEOUT_S = 10.0
ANY_NAME = "*"


@dataclass(frozen=True, slots=True)
class Grant:
    """Operations that a principal may perform on a resource.

    `resource` is topic, group or cluster, `pattern` is literal or prefixed, and names include the
    topic prefix.
    """

    principal: str
    resource: str
    name: str
    pattern: str
    operations: tuple[str, ...]

    def covers(self, topic: str) -> bool:
        if self.resource != "topic":
            return False
        return (
            topic.startswith(self.name)
            if self.pattern == "prefixed"
            else self.name in (topic, ANY_NAME)
        )

    @property
    def can_write(self) -> bool:
        return not {"Write", "All"}.isdisjoint(self.operations)


async def fetch_grants(client: AdminClient) -> list[Grant] | None:
    """Return all grants, or None if the cluster has no authorizer. Raises KafkaException."""
    # The type hints of confluent-kafka require a principal and a host; None matches all of them.
    any_binding = AclBindingFilter(
        ResourceType.ANY,
        None,  # type: ignore[arg-type]
        ResourcePatternType.ANY,
        None,  # type: ignore[arg-type]
        None,  # type: ignore[arg-type]
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    bindings = await asyncio.wrap_future(
        client.describe_acls(any_binding, request_timeout=TIMEOUT_S)
    )
    # librdkafka 2.16 returns an empty list both for a refusal and for a cluster without an
    # authorizer.
    # Without one, everybody may alter the cluster.
    if not bindings:
        cluster = await asyncio.wrap_future(
            client.describe_cluster(include_authorized_operations=True, request_timeout=TIMEOUT_S)
        )
        if AclOperation.ALTER not in (cluster.authorized_operations or ()):
            raise KafkaException(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED))
        return None
    return [
        _parse_grant(binding)
        for binding in bindings
        # Denials only narrow what others grant: ignoring them reports too much access, never too
        # little.
        if binding.permission_type == AclPermissionType.ALLOW
    ]


def _parse_grant(binding: AclBinding) -> Grant:
    resource = ResourceType(binding.restype)
    operation = "".join(
        part.capitalize() for part in AclOperation(binding.operation).name.split("_")
    )
    pattern = ResourcePatternType(binding.resource_pattern_type).name.lower()
    return Grant(
        binding.principal,
        "cluster" if resource == ResourceType.BROKER else resource.name.lower(),
        binding.name,
        pattern,
        (operation,),
    )


def get_principal(settings: KafkaClientSettings) -> str:
    """Return the principal of a client with these settings that does not authenticate by
    certificate.
    """
    return f"User:{settings.sasl_username}" if settings.uses_sasl else "User:ANONYMOUS"
