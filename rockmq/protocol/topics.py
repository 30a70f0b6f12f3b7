"""Names of topics and groups: what is legal, what is the system's (TopicValidator.java, MixAll.java; spec 7.7)."""

import re

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
LIGHT_PREFIX = "%LMQ%"
SYSTEM_PREFIX = "rmq_sys_"
TEMPLATE = "TBW102"
SCHEDULE = "SCHEDULE_TOPIC_XXXX"
TIMER = "rmq_sys_wheel_timer"
REVIVE_PREFIX = "rmq_sys_REVIVE_LOG_"
"""Before the name of the cluster: where Apache's broker notes what was popped (PopAckConstants.java)."""
TRANSACTION_HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANSACTION_OP = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANSACTION_CHECK_MAX = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST = "SELF_TEST_TOPIC"
BENCHMARK = "BenchmarkTest"
OFFSET_MOVED = "OFFSET_MOVED_EVENT"

SYSTEM = frozenset(
    {
        TEMPLATE,
        SCHEDULE,
        BENCHMARK,
        TRANSACTION_HALF,
        TRANSACTION_OP,
        TRANSACTION_CHECK_MAX,
        TRACE,
        SELF_TEST,
        OFFSET_MOVED,
        "CHECKPOINT_TOPIC",
    }
)
SEND_FORBIDDEN = frozenset(
    {SCHEDULE, TIMER, TRANSACTION_HALF, TRANSACTION_OP, TRANSACTION_CHECK_MAX, SELF_TEST, OFFSET_MOVED}
)
SYSTEM_GROUPS = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
)
TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
TOPIC_SIZE_MAX = 127
RETRY_TOPIC_SIZE_MAX = 255
GROUP_SIZE_MAX = 120
_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+")


def is_system(topic: str) -> bool:
    return topic in SYSTEM or topic.startswith(SYSTEM_PREFIX)


def is_retry(topic: str) -> bool:
    return topic.startswith(RETRY_PREFIX)


def is_retry_or_dlq(topic: str) -> bool:
    return topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


def is_light(name: str) -> bool:
    """Whether a topic is a light queue, or a group one of light queues (MixAll.isLmq)."""
    return name.startswith(LIGHT_PREFIX)


def light_fault(name: str) -> str | None:
    """Why a light queue, or a group of such, can't have this name, or None. Unlike others it may hold any character."""
    if "/" in name or "\0" in name:
        return f"{name[:RETRY_TOPIC_SIZE_MAX]!r} has a character that no file name has"
    size = len(name.encode())
    return None if size <= RETRY_TOPIC_SIZE_MAX else f"the name has {size} bytes, the bound is {RETRY_TOPIC_SIZE_MAX}"


def light_queue_fault(queue: str) -> str | None:
    """Why no message can be in a light queue of this name, with its prefix, or None."""
    if "," in queue or queue == LIGHT_PREFIX:
        return f"{queue[:RETRY_TOPIC_SIZE_MAX]!r} has a comma, or nothing behind {LIGHT_PREFIX}"
    return light_fault(queue)


def light_queue(name: str) -> str:
    """The topic by which a light queue is read, of its name with or without the prefix."""
    return name if is_light(name) else LIGHT_PREFIX + name


def allows_light_queues(topic: str) -> bool:
    """Whether a topic's messages may be in light queues too (MixAll.topicAllowsLMQ)."""
    return not is_retry_or_dlq(topic) and not topic.startswith(SYSTEM_PREFIX) and topic != SCHEDULE


def reply_topic(cluster: str) -> str:
    """Where replies to requests go (MixAll.getReplyTopic)."""
    return f"{cluster}_REPLY_TOPIC"


def retry_topic(group: str) -> str:
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    return DLQ_PREFIX + group


def topic_fault(topic: str) -> str | None:
    """Why this can't be a topic's name, or None."""
    return _fault("topic", topic, RETRY_TOPIC_SIZE_MAX if is_retry_or_dlq(topic) else TOPIC_SIZE_MAX)


def group_fault(group: str) -> str | None:
    """Why this can't be a group's name, or None."""
    return _fault("group", group, GROUP_SIZE_MAX)


def _fault(what: str, name: str, size_max: int) -> str | None:
    if not name:
        return f"the {what} is empty"
    if len(name) > size_max:
        return f"the {what} has {len(name)} characters, the bound is {size_max}"
    if _LEGAL.fullmatch(name) is None:
        return f"the {what} {name!r} has characters other than % | a-z A-Z 0-9 _ -"
    return None
