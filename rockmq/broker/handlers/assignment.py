"""Shares of clients that leave sharing out to the broker, and whether they pull or pop (QueryAssignmentProcessor.java;
protocol spec, 4.7)."""

from collections import OrderedDict

from rockmq.base.address import split_list
from rockmq.base.clock import Clock
from rockmq.base.errors import ProtocolError, RemotingError
from rockmq.broker.clients import ClientTables
from rockmq.broker.groups import GroupTable
from rockmq.broker.request_modes import RequestModes
from rockmq.broker.topics import TopicTable
from rockmq.config.broker import BrokerOptions
from rockmq.protocol import allocate, codec, json, topics
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.protocol.bodies.pop import Assignment, Assignments, QueryAssignmentBody, RequestMode
from rockmq.protocol.bodies.route import TopicRouteData
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.flags import Permission
from rockmq.protocol.headers.pop import GetAllRequestModes, QueryAssignment, SetRequestMode
from rockmq.protocol.headers.route import GetRouteInfo
from rockmq.remoting.client import RemotingClient
from rockmq.remoting.connection import Connection
from rockmq.remoting.dispatch import Answer, Refusal

ROUTE_SECONDS = 10.0
"""How long a route is taken for true; each client asks for its share every 20 s."""
ROUTES_MAX = 10_000
ROUTE_TIMEOUT = 3.0
_STRATEGIES = {"AVG": allocate.averagely, "AVG_BY_CIRCLE": allocate.in_a_circle}


class AssignmentHandlers:
    def __init__(
        self,
        options: BrokerOptions,
        topic_table: TopicTable,
        groups: GroupTable,
        clients: ClientTables,
        modes: RequestModes,
        remoting: RemotingClient,
        clock: Clock,
    ) -> None:
        self._broker_name = options.identity.broker_name
        self._name_servers = split_list(options.identity.namesrv_addr)
        self._shares_out = options.pop.server_load_balancer_enable
        self._topics = topic_table
        self._groups = groups
        self._clients = clients
        self._modes = modes
        self._remoting = remoting
        self._clock = clock
        self._routes: OrderedDict[str, tuple[float, list[MessageQueue]]] = OrderedDict()

    async def query(self, header: QueryAssignment, request: Command, connection: Connection) -> Answer:
        asked = json.decode(request.body, QueryAssignmentBody, "assignment query")
        mode = self._modes.get(asked.topic, asked.consumer_group)
        queues = await self._queues(asked.topic)
        share = self._share(asked, mode, queues) if queues else None
        if share is None:
            return codec.reply(request, body=json.encode(Assignments()))
        found = [Assignment(message_queue=queue, mode=mode.mode) for queue in dict.fromkeys(share)]
        return codec.reply(request, body=json.encode(Assignments(message_queue_assignments=found)))

    def _share(self, asked: QueryAssignmentBody, mode: RequestMode, queues: list[MessageQueue]) -> list[MessageQueue] | None:
        """None when it isn't known now, and the client should keep what it has."""
        if asked.message_model == "BROADCASTING" or not self._shares_out:
            return queues
        group = self._clients.consumers.get(asked.consumer_group)
        strategy = _STRATEGIES.get(asked.strategy_name)
        if group is None or strategy is None:
            return None
        clients = allocate.sort_clients(group.client_ids())
        if mode.mode == "PULL":
            return strategy(queues, clients, asked.client_id)
        neighbours = mode.pop_share_queue_num
        if not 0 < neighbours < len(clients) - 1:
            return [MessageQueue(asked.topic, broker, -1) for broker in dict.fromkeys(each.broker_name for each in queues)]
        if asked.client_id not in clients:
            return []
        index = clients.index(asked.client_id)
        if len(clients) > len(queues):
            return [queues[index % len(queues)]]
        sharing = [clients[(index + number) % len(clients)] for number in range(neighbours + 1)]
        return [queue for client in sharing for queue in strategy(queues, clients, client)]

    async def _queues(self, topic: str) -> list[MessageQueue]:
        """All queues of a topic that may be read, of all brokers, in order."""
        if topics.is_light(topic):
            return [MessageQueue(topic, self._broker_name, 0)]
        held = self._routes.get(topic)
        now = self._clock.monotonic()
        if held is not None and now - held[0] < ROUTE_SECONDS:
            return held[1]
        found = await self._route(topic)
        if found is None:  # no name server, or none that answers: what is known, or at least our own
            found = held[1] if held is not None else self._own(topic)
        self._routes[topic] = (now, found)
        self._routes.move_to_end(topic)
        if len(self._routes) > ROUTES_MAX:
            self._routes.popitem(last=False)
        return found

    async def _route(self, topic: str) -> list[MessageQueue] | None:
        header = GetRouteInfo(topic=topic, accept_standard_json_only=True)
        for address in self._name_servers:
            try:
                asked = codec.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
                answer = await self._remoting.invoke(address, asked, ROUTE_TIMEOUT)
                if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                    return []
                if answer.code == ResponseCode.SUCCESS:
                    route = json.decode(answer.body, TopicRouteData, "route")
                    return sorted(
                        MessageQueue(topic, data.broker_name, queue_id)
                        for data in route.queue_datas
                        if data.perm & Permission.READ
                        for queue_id in range(data.read_queue_nums)
                    )
            except (RemotingError, ProtocolError):
                continue
        return None

    def _own(self, topic: str) -> list[MessageQueue]:
        config = self._topics.get(topic)
        if config is None or not config.perm & Permission.READ:
            return []
        return [MessageQueue(topic, self._broker_name, queue_id) for queue_id in range(config.read_queue_nums)]

    async def set_mode(self, header: SetRequestMode, request: Command, connection: Connection) -> Answer:
        mode = json.decode(request.body, RequestMode, "request mode")
        if topics.is_retry(mode.topic):
            raise Refusal(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if self._topics.get(mode.topic) is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{mode.topic}] not exist")
        if self._groups.find(mode.consumer_group) is None:
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"the group {mode.consumer_group} does not exist")
        await self._modes.put(mode)
        return codec.reply(request)

    def all_modes(self, header: GetAllRequestModes, request: Command, connection: Connection) -> Command:
        return codec.reply(request, body=self._modes.text())
