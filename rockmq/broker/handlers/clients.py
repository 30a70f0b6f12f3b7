"""Heartbeats, members of groups, locks (ClientManageProcessor.java, ConsumerManageProcessor.java; protocol spec, 4.4)."""

from rockmq.auth.signature import ACCESS_KEY
from rockmq.base.errors import FilterError
from rockmq.broker.clients import ClientTables, ConsumerGroup
from rockmq.broker.consumer_filters import ConsumerFilters, no_filtering
from rockmq.broker.groups import GroupTable
from rockmq.broker.queue_locks import QueueLocks
from rockmq.broker.topics import TopicTable
from rockmq.filter import is_tag
from rockmq.protocol import codec, json, topics
from rockmq.protocol.bodies.client import (
    CheckClientBody,
    ConsumerConnections,
    ConsumerList,
    HeartbeatData,
    LockBatchBody,
    LockedQueues,
    ProducerConnections,
)
from rockmq.protocol.bodies.common import Connection as ConnectionBody
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.headers.admin import GetConsumerConnections, GetProducerConnections
from rockmq.protocol.headers.client import (
    CheckClientConfig,
    GetConsumerList,
    HeartBeat,
    LockBatch,
    NotifyConsumerIdsChanged,
    UnlockBatch,
    UnregisterClient,
)
from rockmq.remoting.connection import Connection
from rockmq.remoting.dispatch import Refusal


def notify_members(group: ConsumerGroup) -> None:
    """Tell every member that the group has changed; each works out its share anew. Broadcasting groups share nothing."""
    if group.message_model == "BROADCASTING":
        return
    for connection in group.members:
        header = NotifyConsumerIdsChanged(consumer_group=group.name)
        connection.send_oneway(codec.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header))


class ClientHandlers:
    def __init__(
        self,
        clients: ClientTables,
        filters: ConsumerFilters | None,
        topic_table: TopicTable,
        groups: GroupTable,
        locks: QueueLocks,
    ) -> None:
        """Without `filters` nobody filters but by tags (`enablePropertyFilter`)."""
        self._clients = clients
        self._filters = filters
        self._topics = topic_table
        self._groups = groups
        self._locks = locks

    def heartbeat(self, header: HeartBeat, request: Command, connection: Connection) -> Command:
        data = json.decode(request.body, HeartbeatData, "heartbeat")
        names = [each.group_name for each in data.producer_data_set] + [each.group_name for each in data.consumer_data_set]
        fault = next(filter(None, map(topics.group_fault, names)), None) or self._clients.fault(connection, data)
        if fault is not None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, fault)
        differs = False
        for consumer in data.consumer_data_set:
            group = self._groups.find(consumer.group_name)
            if group is None:
                remark = f"the group {consumer.group_name} doesn't exist and autoCreateSubscriptionGroup is off"
                raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
            if group.retry_queue_nums > 0:
                self._topics.ensure_retry(consumer.group_name, group.retry_queue_nums)
            if self._filters is not None and not data.without_sub:
                self._filters.register(consumer.group_name, consumer.subscription_data_set)
            differs |= self._clients.beat_consumer(
                consumer,
                data.client_id,
                connection,
                request.language,
                request.version,
                fingerprint=data.heartbeat_fingerprint,
                without_subscriptions=data.without_sub,
            )
        for producer in data.producer_data_set:
            self._clients.beat_producer(
                producer.group_name,
                data.client_id,
                connection,
                request.language,
                request.version,
                access_key=request.fields.get(ACCESS_KEY),
            )
        extra = {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true" if differs else "false"}
        return codec.reply(request, extra=extra)

    def unregister(self, header: UnregisterClient, request: Command, connection: Connection) -> Command:
        if header.producer_group:
            self._clients.unregister_producer(header.producer_group, connection)
        if header.consumer_group:
            self._clients.unregister_consumer(header.consumer_group, connection)
        return codec.reply(request)

    def consumer_list(self, header: GetConsumerList, request: Command, connection: Connection) -> Command:
        group = self._clients.consumers.get(header.consumer_group)
        if group is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {header.consumer_group}")
        return codec.reply(request, body=json.encode(ConsumerList(consumer_id_list=group.client_ids())))

    def check_config(self, header: CheckClientConfig, request: Command, connection: Connection) -> Command:
        checked = json.decode(request.body, CheckClientBody, "client check").subscription_data
        if not is_tag(checked.expression_type):
            if self._filters is None:
                raise Refusal(ResponseCode.SYSTEM_ERROR, no_filtering(checked.expression_type))
            try:
                self._filters.compiled(checked.expression_type, checked.sub_string)
            except FilterError as error:
                raise Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None
        return codec.reply(request)

    def lock(self, header: LockBatch, request: Command, connection: Connection) -> Command:
        body = json.decode(request.body, LockBatchBody, "lock request")
        fault = self._locks.fault(body.consumer_group, body.mq_set)
        if fault is not None:
            raise Refusal(ResponseCode.FLOW_CONTROL, fault)
        granted = self._locks.lock(body.consumer_group, body.client_id, body.mq_set)
        return codec.reply(request, body=json.encode(LockedQueues(queues=granted)))

    def unlock(self, header: UnlockBatch, request: Command, connection: Connection) -> Command:
        body = json.decode(request.body, LockBatchBody, "unlock request")
        self._locks.unlock(body.consumer_group, body.client_id, body.mq_set)
        return codec.reply(request)

    def consumer_connections(self, header: GetConsumerConnections, request: Command, connection: Connection) -> Command:
        group = self._clients.consumers.get(header.consumer_group)
        if group is None:
            remark = f"the consumer group[{header.consumer_group}] not online"
            raise Refusal(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        body = ConsumerConnections(
            connection_set=[
                ConnectionBody(client_id=c.client_id, client_addr=c.connection.peer, language=c.language, version=c.version)
                for c in group.members.values()
            ],
            subscription_table=group.subscriptions,
            consume_type=group.consume_type,
            message_model=group.message_model,
            consume_from_where=group.consume_from_where,
        )
        return codec.reply(request, body=json.encode(body))

    def producer_connections(self, header: GetProducerConnections, request: Command, connection: Connection) -> Command:
        members = self._clients.producers.get(header.producer_group)
        if not members:
            remark = f"the producer group[{header.producer_group}] not exist"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        found = [
            ConnectionBody(client_id=c.client_id, client_addr=c.connection.peer, language=c.language, version=c.version)
            for c in members.values()
        ]
        return codec.reply(request, body=json.encode(ProducerConnections(connection_set=found)))
