"""What a broker says is this client's share of a topic (QueryAssignmentProcessor.java; protocol spec, 4.7)."""

import logging
from collections.abc import Iterable

from rockmq.base.errors import RemotingError, RockMQError
from rockmq.client.instance import Instance
from rockmq.protocol import json, topics
from rockmq.protocol.bodies.pop import Assignment, Assignments, QueryAssignmentBody
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.headers.pop import QueryAssignment

log = logging.getLogger(__name__)


async def assignments(instance: Instance, group: str, topic: str) -> list[Assignment] | None:
    """The queues of the topic that are this client's, and whether they are to be pulled or popped; None when the broker
    doesn't know now. Raises RouteNotFound, ResponseError, RemotingError."""
    route = await instance.routes.get(topic)
    masters = sorted(route.masters())
    if not masters:
        raise RemotingError(f"no broker of {topic} has a master")
    body = QueryAssignmentBody(topic=topic, consumer_group=group, client_id=instance.client_id)
    answer = await instance.ask(masters[0], RequestCode.QUERY_ASSIGNMENT, QueryAssignment(), json.encode(body))
    found = json.decode(answer.body, Assignments, "assignments").message_queue_assignments
    return found if isinstance(found, list) else None


async def warn_if_popping(instance: Instance, group: str, subscribed: Iterable[str]) -> None:
    """Say so when an administrator has made it the group's mode to pop, and this member pulls all the same.

    Java's push consumer goes by the mode only with `clientRebalance=false`, else it pulls as ours does.
    """
    for topic in subscribed:
        if topics.is_retry(topic):
            continue  # always pulled
        try:
            found = await assignments(instance, group, topic)
        except RockMQError as error:
            log.debug("the request mode of %s isn't known: %s", topic, error)  # no broker before 5.0 has one
            continue
        if any(each.mode == "POP" for each in found or ()):
            log.warning(
                "group %s is to pop %s (SET_MESSAGE_REQUEST_MODE), but this consumer pulls: where others of the group pop, "
                "messages come twice. Use Client.pop_consumer, or have an administrator set the mode to PULL", group, topic,
            )  # fmt: skip
