"""Offsets of queues and of consumer groups (spec 4.5)."""

from rockmq.protocol.codes import RequestCode
from rockmq.protocol.header import Group, Header, Int, Long, Topic, TopicHeader, request


class OffsetResponse(Header):
    offset: Long


class TimestampResponse(Header):
    timestamp: Long


@request(RequestCode.QUERY_CONSUMER_OFFSET, OffsetResponse)
class QueryConsumerOffset(TopicHeader, kw_only=True):
    consumer_group: Group
    topic: Topic
    queue_id: Int
    set_zero_if_not_found: bool | None = None


@request(RequestCode.UPDATE_CONSUMER_OFFSET)
class UpdateConsumerOffset(TopicHeader, kw_only=True):
    consumer_group: Group
    topic: Topic
    queue_id: Int
    commit_offset: Long


@request(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, OffsetResponse)
class SearchOffset(TopicHeader, kw_only=True):
    topic: Topic
    queue_id: Int
    timestamp: Long
    boundary_type: str | None = None


@request(RequestCode.GET_MAX_OFFSET, OffsetResponse)
class GetMaxOffset(TopicHeader, kw_only=True):
    topic: Topic
    queue_id: Int
    committed: bool | None = None


@request(RequestCode.GET_MIN_OFFSET, OffsetResponse)
class GetMinOffset(TopicHeader, kw_only=True):
    topic: Topic
    queue_id: Int


@request(RequestCode.GET_EARLIEST_MSG_STORETIME, TimestampResponse)
class GetEarliestStoreTime(TopicHeader, kw_only=True):
    topic: Topic
    queue_id: Int
