"""What a dispatcher's requests were, and how long they took, as samples."""

from collections.abc import Iterator

from rockmq.metrics import names
from rockmq.metrics.samples import Sample, yes
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.remoting.dispatch import UNSUPPORTED, Dispatcher

_NOTHING_THERE = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
        ResponseCode.QUERY_NOT_FOUND,
        ResponseCode.NO_MESSAGE,
        ResponseCode.POLLING_TIMEOUT,
    }
)
_SENDS = frozenset({RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE})
_STORED = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    }
)
# Clients look for the topics that they wait for every 30 s.
_NO_ROUTE = (RequestCode.GET_ROUTEINFO_BY_TOPIC, ResponseCode.TOPIC_NOT_EXIST)


def requests(dispatch: Dispatcher) -> Iterator[Sample]:
    refusals: dict[int, int] = {}
    for (asked, code, is_parked, is_oneway), histogram in list(dispatch.latencies.items()):
        request = "unsupported" if asked == UNSUPPORTED else _name(RequestCode, asked)
        labels = (yes(is_parked), "remoting", request, _name(ResponseCode, code))
        yield names.REQUESTS, (*labels, "oneway" if is_oneway else "success"), histogram.ranges
        if code not in _NOTHING_THERE and (asked, code) != _NO_ROUTE:
            refusals[code] = refusals.get(code, 0) + sum(histogram.ranges.counts)
    for code, count in refusals.items():
        yield names.REFUSALS, (_name(ResponseCode, code),), count


def refused_sends(dispatch: Dispatcher) -> int:
    """Requests to send that were answered with an error; the core answers none so."""
    return sum(
        sum(histogram.ranges.counts)
        for (asked, code, _, _), histogram in dispatch.latencies.items()
        if asked in _SENDS and code not in _STORED
    )


def _name(kind: type[RequestCode] | type[ResponseCode], code: int) -> str:
    try:
        return kind(code).name.lower()
    except ValueError:
        return str(code)
