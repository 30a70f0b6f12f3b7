"""Name servers: their key-value store and settings, and brokers that are to get no more sends."""

from collections.abc import Iterable, Mapping

from rockmq.base.errors import ResponseError
from rockmq.client.admin.cluster import Cluster
from rockmq.client.admin.topics import BrokerAddresses, TopicQueues, addresses
from rockmq.config import properties
from rockmq.protocol import json
from rockmq.protocol.bodies.common import KVTable
from rockmq.protocol.bodies.route import BrokerMemberGroupBody, QueueData, TopicRouteData
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.header import decode
from rockmq.protocol.headers.registration import GetBrokerMemberGroup
from rockmq.protocol.headers.route import (
    AddResponse,
    AddWritePerm,
    DeleteKV,
    GetKV,
    GetKVList,
    GetNamesrvConfig,
    PutKV,
    RegisterTopic,
    UpdateNamesrvConfig,
    ValueResponse,
    WipeResponse,
    WipeWritePerm,
)


class NameServerAdmin:
    """What is changed is changed at every name server; what is asked is asked of one."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def put_kv(self, namespace: str, key: str, value: str) -> None:
        header = PutKV(namespace=namespace, key=key, value=value)
        await self._cluster.tell_name_servers(RequestCode.PUT_KV_CONFIG, header)

    async def get_kv(self, namespace: str, key: str) -> str | None:
        try:
            answer = await self._cluster.ask_name_server(RequestCode.GET_KV_CONFIG, GetKV(namespace=namespace, key=key))
        except ResponseError as error:
            if error.code != ResponseCode.QUERY_NOT_FOUND:
                raise
            return None
        return decode(ValueResponse, answer.fields).value

    async def delete_kv(self, namespace: str, key: str) -> None:
        """Nothing happens where there is no such key."""
        header = DeleteKV(namespace=namespace, key=key)
        await self._cluster.tell_name_servers(RequestCode.DELETE_KV_CONFIG, header)

    async def list_kv(self, namespace: str) -> dict[str, str]:
        """All keys of a namespace; none when there is no such namespace."""
        try:
            answer = await self._cluster.ask_name_server(RequestCode.GET_KVLIST_BY_NAMESPACE, GetKVList(namespace=namespace))
        except ResponseError as error:
            if error.code != ResponseCode.QUERY_NOT_FOUND:
                raise
            return {}
        return json.decode(answer.body, KVTable, "keys of a namespace").table

    async def config(self) -> dict[str, dict[str, str]]:
        """The configuration of each name server, by address."""
        answers = await self._cluster.tell_name_servers(RequestCode.GET_NAMESRV_CONFIG, GetNamesrvConfig())
        return {address: properties.read_bytes(answer.body) for address, answer in answers.items()}

    async def update_config(self, changes: Mapping[str, str]) -> None:
        """Change the configuration of each. Raises ResponseError for keys that can't be changed."""
        body = properties.write(changes).encode()
        await self._cluster.tell_name_servers(RequestCode.UPDATE_NAMESRV_CONFIG, UpdateNamesrvConfig(), body)

    async def broker_members(self, cluster: str, broker_name: str) -> BrokerAddresses:
        """The brokers of a name; none when the name server doesn't know it."""
        header = GetBrokerMemberGroup(cluster_name=cluster, broker_name=broker_name)
        answer = await self._cluster.ask_name_server(RequestCode.GET_BROKER_MEMBER_GROUP, header)
        return addresses(json.decode(answer.body, BrokerMemberGroupBody, "brokers of a name").broker_member_group)

    async def register_topic(self, topic: str, queues: Iterable[TopicQueues]) -> None:
        """Have name servers know a topic of brokers before these register it themselves."""
        queue_datas = [
            QueueData(
                broker_name=each.broker_name,
                perm=int(each.permission),
                read_queue_nums=each.read_queues,
                write_queue_nums=each.write_queues,
            )
            for each in queues
        ]
        body = json.encode(TopicRouteData(queue_datas=queue_datas))
        await self._cluster.tell_name_servers(RequestCode.REGISTER_TOPIC_IN_NAMESRV, RegisterTopic(topic=topic), body)

    async def wipe_write_permission(self, broker_name: str) -> int:
        """Have producers send nothing more to a broker, until it registers anew; how many topics that concerns."""
        header = WipeWritePerm(broker_name=broker_name)
        answers = await self._cluster.tell_name_servers(RequestCode.WIPE_WRITE_PERM_OF_BROKER, header)
        return max(decode(WipeResponse, answer.fields).wipe_topic_count for answer in answers.values())

    async def add_write_permission(self, broker_name: str) -> int:
        """Let producers send to a broker again; how many topics that concerns."""
        header = AddWritePerm(broker_name=broker_name)
        answers = await self._cluster.tell_name_servers(RequestCode.ADD_WRITE_PERM_OF_BROKER, header)
        return max(decode(AddResponse, answer.fields).add_topic_count for answer in answers.values())
