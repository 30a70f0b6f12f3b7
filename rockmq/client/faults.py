"""Which brokers better get no messages for now (MQFaultStrategy.java, LatencyFaultToleranceImpl.java; clients' spec, 2.2).

A broker that was slow, or failed, isn't available for a time that grows with the latency; one that failed isn't reachable
either, until it answers a send or the detector's probe. Queues of brokers that are neither slow nor lost come first, then
those of reachable ones, then any.
"""

from bisect import bisect_right

from rockmq.base.clock import Clock
from rockmq.base.errors import RockMQError
from rockmq.base.tasks import Tasks
from rockmq.client.instance import Instance
from rockmq.client.routes import Target
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.headers.offset import GetMaxOffset

LATENCIES = (0.05, 0.1, 0.55, 1.8, 3.0, 5.0, 15.0)
"""Latencies (s) from which a broker isn't available for as many seconds as stand in ISOLATIONS."""
ISOLATIONS = (0.0, 0.0, 2.0, 5.0, 6.0, 10.0, 30.0)
FAILED_LATENCY = 10.0
"""What a send that failed counts as."""
DETECT_SECONDS = 3.0
DETECT_TIMEOUT = 0.2


class _Fault:
    """What is known of a broker. `topic` is one that it was sent messages of; times are the clock's."""

    __slots__ = ("available_from", "reachable", "topic")

    def __init__(self) -> None:
        self.available_from = 0.0
        self.reachable = True
        self.topic = ""


class Faults:
    """The brokers of one producer that were slow or failed, by name, and the detector that asks the lost ones."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._clock: Clock = instance.clock
        self._known: dict[str, _Fault] = {}
        self._tasks = Tasks()

    def start(self) -> None:
        self._tasks.every(DETECT_SECONDS, self.detect, "broker detector")

    async def close(self) -> None:
        await self._tasks.close()

    def answered(self, target: Target, seconds: float) -> None:
        """A send to the broker was stored after so many seconds."""
        self._update(target, isolation(seconds), reachable=True)

    def failed(self, target: Target) -> None:
        """A send to the broker got no answer, or one that says that the broker can't."""
        self._update(target, isolation(FAILED_LATENCY), reachable=False)

    def _update(self, target: Target, seconds: float, *, reachable: bool) -> None:
        name = target.broker_name
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = _Fault()
        known.topic = target.queue.topic
        known.reachable = reachable
        if seconds > 0:
            known.available_from = max(known.available_from, self._clock.monotonic() + seconds)

    def is_available(self, name: str) -> bool:
        known = self._known.get(name)
        return known is None or self._clock.monotonic() >= known.available_from

    def is_reachable(self, name: str) -> bool:
        known = self._known.get(name)
        return known is None or known.reachable

    async def detect(self) -> None:
        """Ask every lost broker for an offset: one that answers is reachable, one that stands in no route is forgotten."""
        for name, known in list(self._known.items()):
            route = self._instance.routes.for_sending(known.topic)
            address = route.master(name) if route is not None else None
            if address is None:
                del self._known[name]
            elif not known.reachable:
                known.reachable = await self._answers(address, known.topic)

    async def _answers(self, address: str, topic: str) -> bool:
        try:
            probe = GetMaxOffset(topic=topic, queue_id=0)
            await self._instance.ask(address, RequestCode.GET_MAX_OFFSET, probe, timeout=DETECT_TIMEOUT)
        except RockMQError:
            return False
        return True


def isolation(latency: float) -> float:
    """For how many seconds a broker with that latency (s) isn't available."""
    step = bisect_right(LATENCIES, latency)
    return ISOLATIONS[step - 1] if step else 0.0
