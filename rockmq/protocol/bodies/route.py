"""Routes and registrations (spec 3.2, 3.3; TopicRouteData.java, ClusterInfo.java, RegisterBrokerBody.java)."""

from typing import Any

from msgspec import UNSET, UnsetType, field

from rockmq.protocol.bodies.common import Body, DataVersion, TopicConfig


class QueueData(Body, kw_only=True):
    broker_name: str
    perm: int
    read_queue_nums: int
    topic_sys_flag: int = 0
    write_queue_nums: int


class BrokerData(Body, kw_only=True):
    """`broker_addrs` maps a broker id, as text, to an address; id 0 is the master."""

    broker_addrs: dict[str, str] = field(default_factory=dict)
    broker_name: str
    cluster: str = ""
    enable_acting_master: bool = False
    zone_name: str | UnsetType = UNSET


class TopicRouteData(Body, kw_only=True):
    broker_datas: list[BrokerData] = field(default_factory=list)
    filter_server_table: dict[str, list[str]] = field(default_factory=dict)
    order_topic_conf: str | UnsetType | None = UNSET
    queue_datas: list[QueueData] = field(default_factory=list)
    topic_queue_mapping_by_broker: Any = UNSET


class ClusterInfo(Body, kw_only=True):
    broker_addr_table: dict[str, BrokerData] = field(default_factory=dict)
    cluster_addr_table: dict[str, list[str]] = field(default_factory=dict)


class TopicList(Body, kw_only=True):
    broker_addr: str | UnsetType | None = UNSET
    topic_list: list[str] = field(default_factory=list)


class TopicTable(Body, kw_only=True):
    """TopicConfigSerializeWrapper.java: every topic of a broker, and the version of that table."""

    topic_config_table: dict[str, TopicConfig] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)
    mapping_data_version: DataVersion | UnsetType = UNSET
    topic_queue_mapping_detail_map: dict[str, Any] | UnsetType = UNSET
    topic_queue_mapping_info_map: dict[str, Any] | UnsetType = UNSET


class RegisterBody(Body, kw_only=True):
    topic_config_serialize_wrapper: TopicTable = field(default_factory=TopicTable)
    filter_server_list: list[str] = field(default_factory=list)


class BrokerMemberGroup(Body, kw_only=True):
    broker_addrs: dict[str, str] = field(default_factory=dict)
    broker_name: str = ""
    cluster: str = ""


class BrokerMemberGroupBody(Body, kw_only=True):
    broker_member_group: BrokerMemberGroup
