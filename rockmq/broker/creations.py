"""How long requests take that create topics and groups, or change them."""

from collections.abc import Awaitable, Iterator
from time import monotonic

from rockmq.metrics import names
from rockmq.metrics.histogram import Histogram
from rockmq.metrics.samples import Sample, yes
from rockmq.protocol import topics
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.headers.admin import CreateTopic
from rockmq.remoting.connection import Connection
from rockmq.remoting.dispatch import Answer, Handler

_GROUPS = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP


class Creations:
    def __init__(self) -> None:
        self._topics: dict[tuple[str, str], Histogram] = {}
        self._groups: dict[tuple[str], Histogram] = {}

    def watch(self, handlers: dict[int, Handler]) -> dict[int, Handler]:
        """The handlers, of which those that create are timed."""
        timed = {code: self._timed(handlers[code]) for code in (RequestCode.UPDATE_AND_CREATE_TOPIC, _GROUPS)}
        return handlers | timed

    def _timed(self, handler: Handler) -> Handler:
        async def call(header: object, request: Command, connection: Connection) -> Answer:
            began, succeeded = monotonic(), False
            try:
                answer = handler(header, request, connection)
                told = await answer if isinstance(answer, Awaitable) else answer
                succeeded = isinstance(told, Command) and told.code == ResponseCode.SUCCESS
                return told
            finally:
                self._note(header, "success" if succeeded else "failure", (monotonic() - began) * 1000)

        return call

    def _note(self, header: object, status: str, ms: float) -> None:
        if isinstance(header, CreateTopic):
            key = (status, yes(topics.is_system(header.topic)))
            self._topics.setdefault(key, Histogram(names.CREATE_MS)).note(ms)
        else:
            self._groups.setdefault((status,), Histogram(names.CREATE_MS)).note(ms)

    def samples(self) -> Iterator[Sample]:
        for topic_labels, histogram in self._topics.items():
            yield names.CREATE_TOPIC, topic_labels, histogram.ranges
        for group_labels, histogram in self._groups.items():
            yield names.CREATE_GROUP, group_labels, histogram.ranges
