"""What brokers tell a name server (spec 3.3; RegisterBrokerRequestHeader.java and its neighbours)."""

from rockmq.protocol.codes import RequestCode
from rockmq.protocol.header import Cluster, Header, Int, Long, request


class RegisterResponse(Header):
    ha_server_addr: str | None = None
    master_addr: str | None = None


@request(RequestCode.REGISTER_BROKER, RegisterResponse)
class RegisterBroker(Header, kw_only=True):
    """`body_crc32` is CRC-32 & 0x7FFFFFFF of the body as sent; 0 leaves it unchecked."""

    broker_name: str
    broker_addr: str
    cluster_name: Cluster
    ha_server_addr: str
    broker_id: Long
    heartbeat_timeout_millis: Long | None = None
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: Int = 0


@request(RequestCode.UNREGISTER_BROKER)
class UnregisterBroker(Header, kw_only=True):
    broker_name: str
    broker_addr: str
    cluster_name: Cluster
    broker_id: Long


class DataVersionResponse(Header):
    changed: bool


@request(RequestCode.QUERY_DATA_VERSION, DataVersionResponse)
class QueryDataVersion(Header, kw_only=True):
    broker_name: str
    broker_addr: str
    cluster_name: Cluster
    broker_id: Long


@request(RequestCode.BROKER_HEARTBEAT)
class BrokerHeartbeat(Header, kw_only=True):
    cluster_name: Cluster
    broker_addr: str
    broker_name: str
    broker_id: Long | None = None
    epoch: Int | None = None
    max_offset: Long | None = None
    confirm_offset: Long | None = None
    heartbeat_timeout_mills: Long | None = None
    election_priority: Int | None = None


@request(RequestCode.GET_BROKER_MEMBER_GROUP)
class GetBrokerMemberGroup(Header, kw_only=True):
    cluster_name: Cluster
    broker_name: str
