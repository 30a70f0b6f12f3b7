"""What the name server answers (DefaultRequestProcessor.java, ClientRequestProcessor.java; protocol spec, 3.1)."""

import logging
import zlib
from pathlib import Path

from msgspec import UNSET

from rockmq.base import files, logs
from rockmq.base.clock import Clock
from rockmq.base.errors import ConfigError
from rockmq.config import properties
from rockmq.config.key import changed, dump, masked
from rockmq.config.namesrv import NamesrvOptions
from rockmq.namesrv import registration, shapes
from rockmq.namesrv.kv import ORDER_TOPIC_CONFIG, KVConfig, KVError
from rockmq.namesrv.route_table import RegistrationRefused, RouteTable, within_zone
from rockmq.protocol import json
from rockmq.protocol.bodies.common import DataVersion, KVTable
from rockmq.protocol.bodies.route import BrokerMemberGroupBody, TopicList, TopicRouteData
from rockmq.protocol.codec import Command, reply
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.header import Header
from rockmq.protocol.headers import registration as registering
from rockmq.protocol.headers import route as routes
from rockmq.remoting.connection import Connection
from rockmq.remoting.dispatch import Handler, Refusal, about

log = logging.getLogger(__name__)

ALWAYS_BLACK_LISTED = frozenset({"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"})
FAQ = "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
ZONE_NAME = "__ZONE_NAME"
ZONE_MODE = "__ZONE_MODE"
UNIT_FLAG = 1
UNIT_SUB_FLAG = 2


class Handlers:
    """One method per request code; all answer at once."""

    def __init__(self, options: NamesrvOptions, clock: Clock, table: RouteTable, kv: KVConfig) -> None:
        self._options = options
        self._clock = clock
        self._started = clock.monotonic()
        self._table = table
        self._kv = kv
        self._carriers: set[Connection] = set()

    def by_code(self) -> dict[int, Handler]:
        return {
            RequestCode.PUT_KV_CONFIG: self.put_kv,
            RequestCode.GET_KV_CONFIG: self.get_kv,
            RequestCode.DELETE_KV_CONFIG: self.delete_kv,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self.list_kv,
            RequestCode.REGISTER_BROKER: self.register_broker,
            RequestCode.UNREGISTER_BROKER: self.unregister_broker,
            RequestCode.BROKER_HEARTBEAT: self.broker_heartbeat,
            RequestCode.QUERY_DATA_VERSION: self.query_data_version,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self.get_route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self.get_cluster_info,
            RequestCode.GET_BROKER_MEMBER_GROUP: self.get_member_group,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self.wipe_write_permission,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self.add_write_permission,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: self.register_topic,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self.delete_topic,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.list_all_topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: self.list_topics_of_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self.list_system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self.list_unit_topics,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self.list_unit_sub_topics,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self.list_unit_sub_without_unit_topics,
            RequestCode.UPDATE_NAMESRV_CONFIG: self.update_config,
            RequestCode.GET_NAMESRV_CONFIG: self.get_config,
        }

    # Key-value configuration

    def put_kv(self, header: routes.PutKV, request: Command, _: Connection) -> Command:
        try:
            self._kv.put(header.namespace, header.key, header.value)
        except KVError as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, str(error)) from None
        return reply(request)

    def get_kv(self, header: routes.GetKV, request: Command, _: Connection) -> Command:
        value = self._kv.get(header.namespace, header.key)
        if value is None:
            remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
            raise Refusal(ResponseCode.QUERY_NOT_FOUND, remark)
        return reply(request, header=routes.ValueResponse(value))

    def delete_kv(self, header: routes.DeleteKV, request: Command, _: Connection) -> Command:
        try:
            self._kv.delete(header.namespace, header.key)
        except KVError as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, str(error)) from None
        return reply(request)

    def list_kv(self, header: routes.GetKVList, request: Command, _: Connection) -> Command:
        values = self._kv.namespace(header.namespace)
        if values is None:
            raise Refusal(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {header.namespace}")
        return reply(request, body=json.encode(KVTable(table=values)))

    # Brokers

    def register_broker(self, header: registering.RegisterBroker, request: Command, connection: Connection) -> Command:
        if header.body_crc32 and zlib.crc32(request.body) & 0x7FFF_FFFF != header.body_crc32:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "crc32 not match: the registration was damaged on its way")
        it = registration.decode(header, request.body, request.version, request.fields.get(ZONE_NAME))
        drop_missing = self._options.routes.delete_topic_with_broker_registration
        try:
            master = self._table.register(it, connection, drop_missing=drop_missing)
        except RegistrationRefused as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, str(error)) from None
        self._watch(connection)
        orders = self._kv.namespace(ORDER_TOPIC_CONFIG)
        told = orders is not None and self._options.routes.return_order_topic_config_to_broker
        return reply(
            request,
            header=registering.RegisterResponse(master.ha_address, master.address),
            body=json.encode(KVTable(table=orders)) if told and orders is not None else b"",
        )

    def _watch(self, connection: Connection) -> None:
        """Have the brokers of a connection forgotten when it is lost."""
        if connection not in self._carriers:
            self._carriers.add(connection)
            connection.on_close.append(self._carriers.discard)
            connection.on_close.append(self._table.connection_lost)

    def unregister_broker(self, header: registering.UnregisterBroker, request: Command, connection: Connection) -> Command:
        found = {"broker": header.broker_name, "address": header.broker_addr}
        log.info("a broker leaves", extra={**found, **about(request, connection)})
        self._table.unregister(header.cluster_name, header.broker_addr)
        return reply(request)

    def broker_heartbeat(self, header: registering.BrokerHeartbeat, request: Command, _: Connection) -> Command:
        self._table.heartbeat(header.cluster_name, header.broker_addr)
        return reply(request)

    def query_data_version(self, header: registering.QueryDataVersion, request: Command, _: Connection) -> Command:
        self._table.heartbeat(header.cluster_name, header.broker_addr)
        known = self._table.version(header.cluster_name, header.broker_addr)
        asked = json.decode(request.body, DataVersion, "dataVersion") if request.body else None
        return reply(
            request,
            header=registering.DataVersionResponse(known is None or known != asked),
            body=json.encode_sorted(known) if known is not None else b"",
        )

    def get_member_group(self, header: registering.GetBrokerMemberGroup, request: Command, _: Connection) -> Command:
        body = BrokerMemberGroupBody(broker_member_group=self._table.member_group(header.cluster_name, header.broker_name))
        return reply(request, body=shapes.member_group(body, standard=shapes.reads_standard(request.version)))

    def wipe_write_permission(self, header: routes.WipeWritePerm, request: Command, connection: Connection) -> Command:
        count = self._table.wipe_write_permission(header.broker_name)
        by = {"broker": header.broker_name, **about(request, connection)}
        log.info("%d topics of a broker lost their write permission", count, extra=by)
        return reply(request, header=routes.WipeResponse(count))

    def add_write_permission(self, header: routes.AddWritePerm, request: Command, connection: Connection) -> Command:
        count = self._table.add_write_permission(header.broker_name)
        by = {"broker": header.broker_name, **about(request, connection)}
        log.info("%d topics of a broker got back their write permission", count, extra=by)
        return reply(request, header=routes.AddResponse(count))

    # Routes

    def get_route(self, header: routes.GetRouteInfo, request: Command, _: Connection) -> Command:
        self._check_ready()
        data = self._table.route(header.topic)
        if data is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, self._no_route(header.topic))
        if self._options.routes.order_message_enable:
            order = self._kv.get(ORDER_TOPIC_CONFIG, header.topic)
            data.order_topic_conf = UNSET if order is None else order
        zone = request.fields.get(ZONE_NAME, "").strip()
        if zone and request.fields.get(ZONE_MODE, "").lower() == "true":
            data = within_zone(data, zone)
        standard = shapes.reads_standard(request.version, header.accept_standard_json_only)
        return reply(request, body=shapes.route(data, standard=standard))

    def _check_ready(self) -> None:
        wait = self._options.routes.wait_seconds_for_service
        age = self._clock.monotonic() - self._started
        if self._options.routes.need_wait_for_service and age < wait:
            remark = f"name server not ready: it waits for brokers, {wait - age:.0f} s to go"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)

    def _no_route(self, topic: str) -> str:
        brokers = self._table.broker_names()
        if not brokers:
            why = "No broker is registered here: start one, or see its namesrvAddr and its log."
        else:
            shown = ", ".join(brokers[:5]) + (", …" if len(brokers) > 5 else "")
            why = (
                f"Registered brokers: {shown}; none has the topic. Create it, or let a producer's first send create it "
                "(autoCreateTopicEnable=true on a broker)."
            )
        return f"No topic route info in name server for the topic: {topic}\n{why}\n{FAQ}"

    def get_cluster_info(self, _header: Header, request: Command, _: Connection) -> Command:
        standard = shapes.reads_standard(request.version)
        return reply(request, body=shapes.cluster_info(self._table.cluster_info(), standard=standard))

    def register_topic(self, header: routes.RegisterTopic, request: Command, _: Connection) -> Command:
        data = json.decode(request.body, TopicRouteData, "route") if request.body else TopicRouteData()
        try:
            self._table.register_topic(header.topic, data.queue_datas)
        except RegistrationRefused as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, str(error)) from None
        return reply(request)

    def delete_topic(self, header: routes.DeleteTopicInNamesrv, request: Command, connection: Connection) -> Command:
        of = {"topic": header.topic, "cluster": header.cluster_name or "all"}
        log.info("a topic is deleted", extra={**of, **about(request, connection)})
        self._table.delete_topic(header.topic, header.cluster_name or None)
        return reply(request)

    # Lists of topics

    def list_all_topics(self, _header: Header, request: Command, _: Connection) -> Command:
        self._check_enabled(self._options.routes.enable_all_topic_list, "enableAllTopicList")
        return _topic_list(request, self._table.topics())

    def list_topics_of_cluster(self, header: routes.GetTopicsByCluster, request: Command, _: Connection) -> Command:
        self._check_enabled(self._options.routes.enable_topic_list, "enableTopicList")
        return _topic_list(request, self._table.topics_of_cluster(header.cluster))

    def list_system_topics(self, _header: Header, request: Command, _: Connection) -> Command:
        return _topic_list(request, self._table.system_topics(), self._table.any_address())

    def list_unit_topics(self, _header: Header, request: Command, _: Connection) -> Command:
        self._check_enabled(self._options.routes.enable_topic_list, "enableTopicList")
        return _topic_list(request, self._table.topics_with_flags(lambda flags: bool(flags & UNIT_FLAG)))

    def list_unit_sub_topics(self, _header: Header, request: Command, _: Connection) -> Command:
        self._check_enabled(self._options.routes.enable_topic_list, "enableTopicList")
        return _topic_list(request, self._table.topics_with_flags(lambda flags: bool(flags & UNIT_SUB_FLAG)))

    def list_unit_sub_without_unit_topics(self, _header: Header, request: Command, _: Connection) -> Command:
        self._check_enabled(self._options.routes.enable_topic_list, "enableTopicList")
        both = UNIT_FLAG | UNIT_SUB_FLAG
        return _topic_list(request, self._table.topics_with_flags(lambda flags: flags & both == UNIT_SUB_FLAG))

    @staticmethod
    def _check_enabled(enabled: bool, key: str) -> None:
        if not enabled:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"disable: {key} is false on this name server")

    # The name server's own configuration

    def get_config(self, _header: Header, request: Command, _: Connection) -> Command:
        return reply(request, body=properties.write(dump(self._options)).encode())

    def update_config(self, _header: Header, request: Command, connection: Connection) -> Command:
        try:
            changes = properties.read_changes(request.body)
            black = ALWAYS_BLACK_LISTED.union(self._options.files.config_black_list.split(";")) & changes.keys()
            if black:
                names = ", ".join(sorted(black))
                raise Refusal(ResponseCode.NO_PERMISSION, f"Can not update config in black list: {names}")
            options = changed(self._options, changes)
            self._save_config(changes)
        except ConfigError as error:
            raise Refusal(ResponseCode.INVALID_PARAMETER, str(error)) from None
        if options.logs != self._options.logs:
            logs.set_level(options.logs.log_level)
        self._options = options
        log.info("the configuration was changed: %s", masked(NamesrvOptions, changes), extra=about(request, connection))
        return reply(request)

    def _save_config(self, changes: dict[str, str]) -> None:
        if self._options.files.config_store_path is None or not changes:
            return
        path = Path(self._options.files.config_store_path).resolve()  # of a symbolic link what it names is replaced
        saved = properties.read_file(path) if path.exists() else {}
        try:
            files.save(path, properties.write(saved | changes))
        except OSError as error:
            remark = f"nothing was changed: can't save {path}: {error.strerror or error}"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark) from None


def _topic_list(request: Command, topics: list[str], address: str | None = None) -> Command:
    body = TopicList(topic_list=topics, broker_addr=UNSET if address is None else address)
    return reply(request, body=json.encode(body))
