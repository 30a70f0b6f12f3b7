"""Messages by key and by id (spec 4.5)."""

from msgspec import field

from rockmq.protocol.codes import RequestCode
from rockmq.protocol.header import Header, Int, Long, Topic, TopicHeader, request


class QueryMessageResponse(Header):
    """How far the index goes: store time and position of the last message in it; 0 when nothing was found."""

    index_last_update_timestamp: Long
    index_last_update_phyoffset: Long


@request(RequestCode.QUERY_MESSAGE, QueryMessageResponse)
class QueryMessage(TopicHeader, kw_only=True):
    topic: Topic
    key: str
    max_num: Int
    begin_timestamp: Long
    end_timestamp: Long
    # 5.5: K keys, U unique keys, T tags; the key a page of a RocksDB index ended with, which index files don't know.
    index_type: str | None = None
    last_key: str | None = None
    # In no Java header, but clients since 4.2 send it beside the declared fields.
    unique_key_query: str | None = field(default=None, name="_UNIQUE_KEY_QUERY")


@request(RequestCode.VIEW_MESSAGE_BY_ID)
class ViewMessage(TopicHeader, kw_only=True):
    topic: Topic | None = None
    offset: Long
