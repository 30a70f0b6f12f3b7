"""What administrators do to topics, groups and consumers, by single requests."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from rockmq.protocol.codes import RequestCode
from tests.support import apache, frames, wire
from tests.support.cluster import wait_for_route


def ask(server: str, code: RequestCode, fields: dict[str, str], body: bytes = b"") -> frames.Frame:
    """The answer, which has to be a good one."""
    answer = apache.invoke(server, code, fields, body)
    assert answer.code == 0, answer
    return answer


def make_topic(
    namesrv: str, broker: str, topic: str, queues: int, bodies: Sequence[str] = (), *, attributes: str = ""
) -> list[str]:
    """Make a topic with these messages in its first queue: their ids."""
    number = str(queues)
    fields = {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": number, "writeQueueNums": number, "perm": "6",
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false", "attributes": attributes,
    }  # fmt: skip
    ask(broker, RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
    wait_for_route(namesrv, topic)
    sending = {key: str(value) for key, value in wire.send_fields(topic, i="").items()}
    answers = [apache.invoke(broker, RequestCode.SEND_MESSAGE_V2, sending, body.encode()) for body in bodies]
    return [answer.fields["msgId"] for answer in answers]


def clone_offset(broker: str, topic: str, group: str, offset: int) -> None:
    """Let a group have the offset that another one has in a topic's first queue."""
    source = f"{group}-source"
    ask(
        broker,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        {"consumerGroup": source, "topic": topic, "queueId": "0", "commitOffset": str(offset)},
    )
    clone = {"srcGroup": source, "destGroup": group, "topic": topic, "offline": "true"}
    ask(broker, RequestCode.CLONE_GROUP_OFFSET, clone)


def reset(broker: str, topic: str, group: str) -> None:
    """Let a group begin again."""
    fields = {"topic": topic, "group": group, "timestamp": "0", "isForce": "true"}
    ask(broker, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)


@dataclass(frozen=True)
class Told:
    """What the only consumer of a group has answered through its broker, as text: not all of it is standard JSON."""

    running: str
    status: str
    directly: dict[str, object]


def asked(broker: str, topic: str, group: str, message_id: str) -> Told:
    """Ask a consumer what it holds, how far it is, and to work on a message at once."""
    members = ask(broker, RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
    [client_id] = json.loads(members.body)["consumerIdList"]
    of = {"consumerGroup": group, "clientId": client_id}
    return Told(
        ask(broker, RequestCode.GET_CONSUMER_RUNNING_INFO, of).body.decode(),
        ask(broker, RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, {"topic": topic, "group": group}).body.decode(),
        json.loads(ask(broker, RequestCode.CONSUME_MESSAGE_DIRECTLY, of | {"msgId": message_id, "topic": topic}).body),
    )
