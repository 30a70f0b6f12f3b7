"""What administrators do with groups (AdminBrokerProcessor.java; protocol spec, 5)."""

from rockmq.base.clock import Clock
from rockmq.broker.clients import Client, ClientTables
from rockmq.broker.groups import GroupTable
from rockmq.broker.handlers.admin_topics import page_of
from rockmq.broker.offsets import ConsumerOffsets
from rockmq.broker.pop import Pops
from rockmq.broker.stats import BrokerStats
from rockmq.broker.topics import QUEUES_MAX
from rockmq.broker.traffic import Traffic
from rockmq.protocol import codec, json, topics
from rockmq.protocol.bodies.admin import (
    GroupConfigs,
    GroupForbidden,
    GroupSubscription,
    GroupTableBody,
    ProducerInfo,
    ProducerTable,
)
from rockmq.protocol.bodies.common import GroupConfig
from rockmq.protocol.bodies.route import TopicList
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import ResponseCode
from rockmq.protocol.headers.admin import (
    AllGroupConfigResponse,
    DeleteGroup,
    GetAllGroups,
    GetAllProducers,
    GetGroup,
    GetSubscription,
    GetTopicsOfGroup,
    UpdateForbidden,
    UpdateGroup,
    UpdateGroups,
)
from rockmq.remoting.connection import Connection
from rockmq.remoting.dispatch import Answer, Refusal


class GroupAdminHandlers:
    def __init__(
        self,
        address: str,
        groups: GroupTable,
        clients: ClientTables,
        offsets: ConsumerOffsets,
        pops: Pops,
        stats: BrokerStats,
        traffic: Traffic,
        clock: Clock,
    ) -> None:
        self._address = address
        self._groups = groups
        self._clients = clients
        self._offsets = offsets
        self._pops = pops
        self._stats = stats
        self._traffic = traffic
        self._clock = clock

    async def update_group(self, header: UpdateGroup, request: Command, connection: Connection) -> Answer:
        config = json.decode(request.body, GroupConfig, "settings of a group")
        await self._groups.put(self._checked(config))
        return codec.reply(request)

    async def update_groups(self, header: UpdateGroups, request: Command, connection: Connection) -> Answer:
        """All of them, or none if one can't be."""
        configs = json.decode(request.body, GroupConfigs, "settings of groups").group_config_list
        checked = [self._checked(each) for each in configs]
        if checked:
            await self._groups.put_many(checked)
        return codec.reply(request)

    def _checked(self, config: GroupConfig) -> GroupConfig:
        """Raises Refusal."""
        fault = topics.group_fault(config.group_name)
        if fault is not None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, fault)
        if not 0 <= config.retry_queue_nums <= QUEUES_MAX:
            remark = f"retryQueueNums is {config.retry_queue_nums}, the bounds are 0 and {QUEUES_MAX}"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        if config.attributes:
            raise Refusal(ResponseCode.INVALID_PARAMETER, "attributes of groups aren't built")
        held = self._groups.all().get(config.group_name)
        if held is not None:
            config.attributes = held.attributes
        return config

    async def delete_group(self, header: DeleteGroup, request: Command, connection: Connection) -> Answer:
        name = header.group_name
        saved = self._groups.delete(name)
        self._stats.forget_group(name, self._offsets.by_group(name))
        self._traffic.forget_group(name)
        if header.clean_offset or header.remove_offset:
            self._offsets.delete_group(name)
            self._pops.forget_group(name)
        if saved is not None:
            await saved
        return codec.reply(request)

    def all_groups(self, header: GetAllGroups, request: Command, connection: Connection) -> Command:
        table, version = self._groups.all(), self._groups.version
        page = page_of(table, version, header.group_seq, header.data_version, header.max_group_num)
        body = GroupTableBody(
            subscription_group_table=page, forbidden_table=self._groups.forbidden(page), data_version=version
        )
        return codec.reply(request, header=AllGroupConfigResponse(len(table)), body=json.encode(body))

    def group(self, header: GetGroup, request: Command, connection: Connection) -> Command:
        config = self._groups.find(header.group)
        if config is None:
            remark = f"there is no group {header.group} at this broker"
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        return codec.reply(request, body=json.encode(config))

    async def forbidden(self, header: UpdateForbidden, request: Command, connection: Connection) -> Answer:
        """Say whether a group may read a topic, after changing that if it is asked for."""
        group, topic = header.group, header.topic
        if header.readable is not None:
            fault = topics.group_fault(group) or topics.topic_fault(topic)
            if fault is not None:
                raise Refusal(ResponseCode.INVALID_PARAMETER, fault)
            await self._groups.forbid(group, topic, not header.readable)
        body = GroupForbidden(group=group, topic=topic, readable=not self._groups.is_forbidden(group, topic))
        return codec.reply(request, body=json.encode(body))

    def topics_of_group(self, header: GetTopicsOfGroup, request: Command, connection: Connection) -> Command:
        """Those that it has offsets in."""
        names = sorted(self._offsets.by_group(header.group))
        return codec.reply(request, body=json.encode(TopicList(topic_list=names, broker_addr=self._address)))

    def subscription(self, header: GetSubscription, request: Command, connection: Connection) -> Command:
        group = self._clients.consumers.get(header.group)
        data = group.subscriptions.get(header.topic) if group is not None and header.topic else None
        body = GroupSubscription(group=header.group, topic=header.topic, subscription_data=data)
        return codec.reply(request, body=json.encode(body))

    def all_producers(self, header: GetAllProducers, request: Command, connection: Connection) -> Command:
        table = {
            group: [self._producer(each) for each in members.values()] for group, members in self._clients.producers.items()
        }
        return codec.reply(request, body=json.encode(ProducerTable(data=table)))

    def _producer(self, client: Client) -> ProducerInfo:
        age = self._clock.monotonic() - client.seen
        return ProducerInfo(
            client_id=client.client_id,
            remote_ip=f"/{client.connection.peer}",  # as Java writes an address
            language=client.language,
            version=client.version,
            last_update_timestamp=self._clock.now_ms() - int(age * 1000),
        )
