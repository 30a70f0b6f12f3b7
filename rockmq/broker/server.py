"""The broker, put together: the one place that knows all its parts (BrokerController.java).

Start: open the store and recover, listen, then register, so that no client finds a broker that can't serve it.
Stop: the other way round. No request is read any more before the tables are saved, so that nobody is told of an offset or
topic that then isn't; the store is closed last.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from rockmq.auth import plain
from rockmq.base import address, logs
from rockmq.base.clock import Clock, SystemClock
from rockmq.base.errors import ConfigError
from rockmq.base.tasks import Tasks
from rockmq.broker import access as access_control
from rockmq.broker import durability
from rockmq.broker.clients import ClientTables, ConsumerGroup
from rockmq.broker.configuration import Configuration
from rockmq.broker.consumer_filters import CLEAN_SECONDS, ConsumerFilters
from rockmq.broker.creations import Creations
from rockmq.broker.delays import Delays
from rockmq.broker.drafts import DraftWriter
from rockmq.broker.durability import DurabilityGate
from rockmq.broker.groups import GroupTable
from rockmq.broker.handlers.access import AccessHandlers
from rockmq.broker.handlers.admin_broker import BrokerAdminHandlers
from rockmq.broker.handlers.admin_groups import GroupAdminHandlers
from rockmq.broker.handlers.admin_progress import ProgressHandlers
from rockmq.broker.handlers.admin_topics import TopicAdminHandlers
from rockmq.broker.handlers.assignment import AssignmentHandlers
from rockmq.broker.handlers.clients import ClientHandlers, notify_members
from rockmq.broker.handlers.offsets import OffsetHandlers
from rockmq.broker.handlers.pop import PopHandlers
from rockmq.broker.handlers.pull import PullHandler
from rockmq.broker.handlers.query import QueryHandlers
from rockmq.broker.handlers.recall import RecallHandler
from rockmq.broker.handlers.relay import RelayHandlers
from rockmq.broker.handlers.reply import ReplyHandler
from rockmq.broker.handlers.send import SendHandler
from rockmq.broker.handlers.send_back import SendBackHandler
from rockmq.broker.handlers.transactions import TransactionHandler
from rockmq.broker.hooks import Hooks
from rockmq.broker.lag import ConsumerLag
from rockmq.broker.long_polling import SWEEP_SECONDS, LongPolling
from rockmq.broker.metrics import BrokerMetrics
from rockmq.broker.offsets import ConsumerOffsets
from rockmq.broker.ordered_pops import CLEAN_SECONDS as ORDERED_CLEAN_SECONDS
from rockmq.broker.ordered_pops import OrderedPops
from rockmq.broker.pop import SWEEP_SECONDS as POP_SWEEP_SECONDS
from rockmq.broker.pop import Pops
from rockmq.broker.pop_revive import LOOK_SECONDS as REVIVE_LOOK_SECONDS
from rockmq.broker.pop_revive import PopRevive
from rockmq.broker.queue_locks import QueueLocks
from rockmq.broker.quotas import LOOK_SECONDS as QUOTA_LOOK_SECONDS
from rockmq.broker.quotas import Quotas
from rockmq.broker.registration import Registration
from rockmq.broker.request_modes import RequestModes
from rockmq.broker.routes import routes
from rockmq.broker.runtime_info import RuntimeInfo
from rockmq.broker.slow_groups import LOOK_SECONDS as SLOW_LOOK_SECONDS
from rockmq.broker.slow_groups import SlowGroups
from rockmq.broker.stats import SAMPLE_SECONDS, BrokerStats
from rockmq.broker.timers import TimerDelivery, TimerHook
from rockmq.broker.topics import TopicTable
from rockmq.broker.traffic import EXPIRY_SECONDS, Traffic
from rockmq.broker.transactions import Transactions
from rockmq.config.broker import BrokerOptions, BrokerRole
from rockmq.config.inert import REPLICATION
from rockmq.config.metrics import Exporter
from rockmq.metrics import names
from rockmq.metrics.site import Site
from rockmq.remoting.client import RemotingClient
from rockmq.remoting.connection import Connection
from rockmq.remoting.dispatch import Dispatcher
from rockmq.remoting.figures import refused_sends
from rockmq.remoting.server import RemotingServer
from rockmq.remoting.tls import Certificates, towards_others
from rockmq.store.message_store import MessageStore
from rockmq.store.timers import TimerStore

log = logging.getLogger(__name__)

FAST_PORT_BELOW = 2
METRICS_PORT = 5557
FINISH_SECONDS = 5.0
"""How long a stop waits for answers under way beyond `syncFlushTimeout`, when those that wait for the disk are given."""
CLIENT_SWEEP_SECONDS = 10.0


class Broker:
    """A master broker, from `start` to `close`.

    `on_failure` is called once if the store fails: nothing is acknowledged from then on, and the process should end.
    `config_file` is where the options came from, to which changes are written while it runs; those of the keys `overridden`,
    which were given beside it, don't outlast the broker all the same.
    """

    def __init__(
        self,
        options: BrokerOptions,
        clock: Clock | None = None,
        on_failure: Callable[[BaseException], None] | None = None,
        *,
        config_file: Path | None = None,
        overridden: Collection[str] = (),
    ) -> None:
        self._options = options
        self._config_file = config_file
        self._overridden = overridden
        self._clock = clock or SystemClock()
        self._on_failure = on_failure or (lambda error: None)
        self._store_failed = asyncio.Event()
        self._closing = AsyncExitStack()
        self.address = ""
        """Where clients are told to come, `host:port`; known after `start`."""
        self.timers: TimerStore | None = None
        """What waits for its time, after `start`; None without the wheel."""
        self.metrics_address = ""
        """Where metrics are, `host:port`; known after `start`, and empty if there are none."""

    @property
    def request_codes(self) -> frozenset[int]:
        """The requests it answers; known after `start`."""
        return self._dispatch.codes

    async def start(self) -> None:
        """Serve. Raises ConfigError when the store can't be opened or a port is taken; nothing is left running then."""
        try:
            await self._start()
        except BaseException:
            await self.close()
            raise

    async def _start(self) -> None:
        options, clock = self._options, self._clock
        network = options.network
        host = options.identity.broker_ip1 or _reachable(network.bind_address)
        if options.logs.log_level is not None:
            logs.set_level(options.logs.log_level)
        if options.identity.broker_role is BrokerRole.SYNC_MASTER:
            log.warning(
                "brokerRole=SYNC_MASTER: no slave has a copy of what is acknowledged (inSyncReplicas=%d); %s",
                options.identity.in_sync_replicas,
                REPLICATION,
            )

        site = self._site = _site(options, clock)
        if site is not None:
            site.faults = self._faults
            self._closing.push_async_callback(site.close)
            await site.start()
            self.metrics_address = site.address

        hooks = Hooks(options.hooks)
        towards_name_servers = towards_others(options.tls)
        # The sockets come first: the port is part of every message's id, and it may be the system that chooses it.
        server = RemotingServer(
            network.bind_address,
            _ports(network.listen_port),
            lambda: Connection(self._dispatch, clock, appended=self._gate.appended),
            clock,
            idle_seconds=network.server_channel_max_idle_time_seconds,
            connections_max=network.connections_max,
            backlog=network.server_socket_backlog,
            certificates=Certificates(options.tls),
        )
        await server.bind()
        self._closing.push_async_callback(server.close)
        port = network.advertised_port or server.port
        self.address = address.join(host, port)

        store = MessageStore(
            options.store,
            retention=options.retention,
            store_host=_store_host(host, port, network.bind_address),
            region=options.identity.region_id,
            trace_on=options.identity.trace_on,
            cluster=options.identity.broker_cluster_name,
            clock=clock,
            flushed=lambda position: gate.advance(position),
            failed=self._failed,
        )
        self._tell_hindrances(lambda: ["it is recovering its store: {} of {} bytes read".format(*store.recovered)])
        await store.start()
        self._closing.push_async_callback(store.close)
        long_polling = LongPolling(clock, options.consumers.suspended_pulls_max, store.watch)
        gate = DurabilityGate(
            clock,
            immediate=not store.is_sync,
            timeout_seconds=options.store.sync_flush_timeout / 1000,
            request_flush=store.request_flush,
            wake=long_polling.wake,
            release=server.release,
            overdue=server.overdue,
        )
        gate.advance(store.core.flushed_position)  # the flusher only tells what is new

        access = await access_control.opened(options, store.config_directory, server.revoke)
        topics = TopicTable(store.config_directory, options, clock)
        self._closing.push_async_callback(topics.close)
        groups = GroupTable(
            store.config_directory,
            auto_create=options.topics.auto_create_subscription_group,
            light=options.store.light_queues,
            clock=clock,
        )
        self._closing.push_async_callback(groups.close)
        offsets = ConsumerOffsets(store.config_directory, clock, light=options.store.light_queues)
        self._closing.push_async_callback(offsets.close)
        store.hold_for_groups(offsets.by_group)
        filters = None
        if options.filters.enable_property_filter:
            filters = ConsumerFilters(store.config_directory, options.filters, clock)
            self._closing.push_async_callback(filters.close)
        clients = ClientTables(clock, options.consumers.channel_expired_timeout / 1000, self._consumers_changed)
        locks = QueueLocks(clock)
        stats = BrokerStats(clock, store, options.identity.broker_cluster_name)
        runtime = RuntimeInfo(clock, store, long_polling, stats)
        topics.create_system_topics()
        topics.attach(store)

        traffic = Traffic(topics, groups)

        slow = None
        if options.consumers.disable_consume_if_consumer_read_slowly:
            slow = SlowGroups(groups, options.consumers.consumer_fallbehind_threshold)

        delays = Delays(options.store, store, gate, long_polling, clock)
        self._closing.push_async_callback(delays.close)
        timers = None
        if options.timers.timer_wheel_enable:
            timers = TimerStore(store, options.timers, options.retention.file_reserved_time, clock)
            await timers.open()
            self._closing.push_async_callback(timers.close)
            self.timers = runtime.timers = timers
        writer = DraftWriter(store, gate, [delays.park, TimerHook(options, timers, clock)])
        transactions = Transactions(options, topics, store, writer, gate, offsets, clients.producers, access.guard, clock)
        await transactions.load()
        self._closing.push_async_callback(transactions.finished.close)
        runtime.tellers += [delays.figures, clients.figures, transactions.figures, hooks.figures]
        quotas = Quotas(topics, store, lambda: server.connections, options.network.client_send_quota, clock)
        ordered = OrderedPops(store.config_directory, offsets, clock)
        self._closing.push_async_callback(ordered.close)
        pops = Pops(
            clock,
            topics,
            offsets,
            ordered,
            store,
            gate,
            writer,
            long_polling.wake,
            slow,
            in_flight_max=options.pop.pop_inflight_message_threshold,
        )
        revive = PopRevive(
            clock,
            topics,
            groups,
            offsets,
            store,
            gate,
            writer,
            timers,
            pops,
            cluster=options.identity.broker_cluster_name,
        )
        modes = RequestModes(store.config_directory, options.pop)
        self._closing.push_async_callback(modes.close)
        remoting = RemotingClient(clock=clock, tls=towards_name_servers)
        self._closing.push_async_callback(remoting.close)

        pulls = PullHandler(
            options,
            clock,
            topics,
            groups,
            clients,
            filters,
            offsets,
            store,
            gate,
            long_polling,
            slow,
            stats,
            traffic,
            hooks,
        )
        self._closing.callback(pulls.close)

        configuration = Configuration(options, self._config_file, self._overridden)

        self._gate = gate
        self._groups = groups
        self._filters = filters
        creations = Creations()
        handlers = creations.watch(
            routes(
                hooks.sends(SendHandler(options, topics, groups, store, gate, writer, quotas, locks, transactions, traffic)),
                hooks.give_backs(SendBackHandler(options, topics, groups, store, gate, writer, stats, traffic)),
                RecallHandler(options, topics, store, gate, writer, clock),
                TransactionHandler(options, topics, transactions, store, gate, access.guard, clock),
                pulls,
                PopHandlers(
                    options,
                    clock,
                    topics,
                    groups,
                    filters,
                    store,
                    gate,
                    long_polling,
                    pops,
                    revive,
                    stats,
                    traffic,
                    hooks,
                ),
                AssignmentHandlers(options, topics, groups, clients, modes, remoting, clock),
                OffsetHandlers(options, offsets, topics, groups, clients, store, long_polling),
                QueryHandlers(options, store),
                ClientHandlers(clients, filters, topics, groups, locks),
                hooks.sends(ReplyHandler(options, clock, topics, clients, store, gate, writer)),
                RelayHandlers(options, clients, topics, groups, store),
                BrokerAdminHandlers(configuration, runtime, stats, clients, filters, store, delays, timers),
                TopicAdminHandlers(options.identity, topics, offsets, clients, store, long_polling, pops, stats, traffic),
                GroupAdminHandlers(self.address, groups, clients, offsets, pops, stats, traffic, clock),
                ProgressHandlers(
                    options.identity.broker_name, self.address, topics, groups, clients, offsets, store, stats, clock
                ),
                AccessHandlers(access.accounts),
            )
        )
        self._dispatch = dispatch = Dispatcher(handlers, access.admit if access.guard is not None else None)
        runtime.tellers.append(lambda: {"putMessageFailedTimes": refused_sends(dispatch)})
        tasks = Tasks()
        self._closing.push_async_callback(tasks.close)
        tasks.every(durability.SWEEP_SECONDS, gate.sweep, "durability timeouts")
        tasks.every(SWEEP_SECONDS, long_polling.sweep, "long polling deadlines")
        tasks.every(QUOTA_LOOK_SECONDS, quotas.look, "quotas")
        if slow is not None:
            tasks.every(SLOW_LOOK_SECONDS, slow.look, "groups that are far behind")
        tasks.every(POP_SWEEP_SECONDS, pops.sweep, "messages popped and not acknowledged", clock=clock)
        tasks.every(REVIVE_LOOK_SECONDS, revive.look, "messages that Apache's broker popped")
        tasks.every(CLIENT_SWEEP_SECONDS, clients.expire, "client expiry")
        tasks.every(CLIENT_SWEEP_SECONDS, locks.expire, "queue lock expiry")
        if access.plain is not None:
            tasks.every(plain.LOOK_SECONDS, access.plain.look, "accounts in files")
        if filters is not None:
            tasks.every(CLEAN_SECONDS, filters.clean, "expiry of filters")
        tasks.every(SAMPLE_SECONDS, runtime.sample, "rates")
        tasks.every(SAMPLE_SECONDS, stats.sample, "statistics")
        tasks.every(EXPIRY_SECONDS, traffic.expire, "expiry of metrics")
        if timers is not None:
            tasks.start(TimerDelivery(options, timers, store, writer, clock).run(), "timers")
            tasks.every(options.timers.timer_flush_interval_ms / 1000, timers.save, "timer checkpoint")
        tasks.every(options.consumers.flush_consumer_offset_interval / 1000, offsets.flush, "consumer offsets")
        tasks.every(options.consumers.flush_consumer_offset_interval / 1000, ordered.flush, "messages popped in order")
        tasks.every(ORDERED_CLEAN_SECONDS, ordered.clean, "expiry of messages popped in order")
        tasks.every(
            options.transactions.transaction_check_interval / 1000, transactions.check, "transaction checks", clock=clock
        )
        tasks.every(options.transactions.transaction_op_batch_interval / 1000, transactions.finished.flush, "op messages")

        delays.start()

        # What the core appends no hook is told of: with one each request comes here first.
        core = None if hooks.of_sends else store.core
        await server.start(core, replies_at_once=not store.is_sync, is_guarded=access.guard is not None)
        self._closing.push_async_callback(partial(self._stop_serving, server, long_polling, store, gate))
        registration = Registration(options, self.address, topics, remoting)
        self._closing.push_async_callback(registration.close)
        self._react(configuration, topics, groups, registration)
        await registration.start()
        if site is not None:
            site.samples = BrokerMetrics(
                options=options,
                clock=clock,
                store=store,
                topics=topics,
                groups=groups,
                clients=clients,
                traffic=traffic,
                lag=ConsumerLag(clock, topics, groups, clients, offsets, pops, store, traffic, options.topics),
                transactions=transactions,
                timers=timers,
                pops=pops,
                gate=gate,
                long_polling=long_polling,
                server=server,
                dispatch=self._dispatch,
                creations=creations,
            ).samples
        self._tell_hindrances(lambda: _hindrances(store, registration))
        log.info("broker %s serves at %s", options.identity.broker_name, self.address)

    def _react(
        self, configuration: Configuration, topics: TopicTable, groups: GroupTable, registration: Registration
    ) -> None:
        """Say what is to be done when keys change that somebody has read already."""

        async def permission() -> None:
            await topics.permission_changed()
            registration.anew()

        async def creates_topics() -> None:
            topics.create_system_topics()
            registration.anew()

        async def log_level() -> None:
            logs.set_level(configuration.options.logs.log_level)

        async def creates_groups() -> None:
            groups.auto_create = configuration.options.topics.auto_create_subscription_group

        configuration.on_change |= {
            "brokerPermission": permission,
            "autoCreateTopicEnable": creates_topics,
            "autoCreateSubscriptionGroup": creates_groups,
            "logLevel": log_level,
        }

    async def _stop_serving(
        self, server: RemotingServer, long_polling: LongPolling, store: MessageStore, gate: DurabilityGate
    ) -> None:
        self._tell_hindrances(lambda: ["it is stopping"])
        if self._site is not None:
            self._site.samples = None  # what they are read from is going to be closed
        server.stop()
        long_polling.answer_all()
        async with Tasks() as tasks:
            answered = tasks.start(self._answered(store, gate), "last answers")
            # Nothing is forced then: who waits for that learns from the end of its connection that nothing is sure.
            failed = tasks.start(self._store_failed.wait(), "failure of the store")
            await asyncio.wait([answered, failed], return_when=asyncio.FIRST_COMPLETED)
        self._dispatch.close()
        await server.close()

    async def _answered(self, store: MessageStore, gate: DurabilityGate) -> None:
        """Wait until what was asked is answered."""
        await self._dispatch.finish(FINISH_SECONDS + self._options.store.sync_flush_timeout / 1000)
        # The core holds replies too; it lets go of them before whoever waits for a later position hears of it.
        told = asyncio.Event()
        gate.when_durable(store.core.max_position, lambda durable: told.set())
        await told.wait()

    def _tell_hindrances(self, hindrances: Callable[[], list[str]]) -> None:
        if self._site is not None:
            self._site.hindrances = hindrances

    def _faults(self) -> list[str]:
        return ["the store has failed; see the broker's log"] if self._store_failed.is_set() else []

    def _failed(self, error: BaseException) -> None:
        self._store_failed.set()
        self._on_failure(error)

    def _consumers_changed(self, group: ConsumerGroup) -> None:
        if self._filters is not None and not group.members:
            self._filters.unregister(group.name)
        config = self._groups.find(group.name)
        if self._options.consumers.notify_consumer_ids_changed_enable and (
            config is None or config.notify_consumer_ids_changed_enable
        ):
            notify_members(group)

    async def close(self) -> None:
        """Leave the name servers, finish what was begun, and close the store. Idempotent."""
        closing, self._closing = self._closing, AsyncExitStack()
        await closing.aclose()


def _site(options: BrokerOptions, clock: Clock) -> Site | None:
    metrics = options.metrics
    if metrics.metrics_exporter_type is Exporter.DISABLE:
        return None
    identity = options.identity
    own = {"cluster": identity.broker_cluster_name, "node_id": identity.broker_name, "node_type": "broker"}
    port = metrics.metrics_prom_exporter_port
    return Site(names.BROKER, metrics, port=port, default_port=METRICS_PORT, own=own, clock=clock)


def _hindrances(store: MessageStore, registration: Registration) -> list[str]:
    """Why a broker that serves shouldn't be sent requests."""
    found = [] if store.refusal is None else [f"it takes no messages: {store.refusal}"]
    if not registration.is_known:
        found.append("no name server knows it: " + ", ".join(registration.missing))
    return found


def _ports(listen_port: int) -> list[int]:
    """The port and the fast port below it; when the system is to choose a port there is no fast one."""
    return [listen_port, listen_port - FAST_PORT_BELOW] if listen_port > FAST_PORT_BELOW else [listen_port]


def _store_host(host: str, port: int, bind_address: str) -> bytes:
    """The advertised address as records hold it. That is an IP; a name that only outsiders can resolve has none here."""
    try:
        return address.to_bytes(host, port)
    except ConfigError as error:
        own = _reachable(bind_address)
        log.warning("%s; message ids will name %s, so clients outside can't look messages up by id", error, own)
        return address.to_bytes(own, port)


def _reachable(bind_address: str) -> str:
    """The address to advertise when none is configured: the one bound, or this machine's when all were."""
    return address.local_ip() if bind_address in ("0.0.0.0", "::", "") else bind_address
