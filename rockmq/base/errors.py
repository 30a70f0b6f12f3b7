"""The error tree. Every error a user can meet is one of these.

    RockMQError
    ├── ConfigError             a key or value in a configuration that can't be used
    ├── ProtocolError           bytes or fields that don't follow the protocol
    │   ├── HeaderError         a header's field is missing or has a bad value
    │   └── FilterError         a filter's expression can't be used
    ├── AccessDenied            who asks isn't known, or may not do that
    ├── StoreUnavailable        the store takes no messages now; the text says why
    ├── RemotingError           the other side could not be reached, or didn't answer
    │   ├── ConnectError
    │   ├── ConnectionLost
    │   └── RequestTimeout
    ├── ResponseError           the other side answered with an error code
    └── ClientError             a client was used in a way that can't work, or found no way to do it
        ├── RouteNotFound       no name server knows the topic
        ├── InvalidMessage      a message that no broker would take
        ├── TooManyInFlight     more waits for an answer than the bound allows
        ├── BatchIncomplete     a part of a batch was stored and another part was not
        ├── ClientClosed        the client, producer or consumer was closed
        └── NotSupported        this release of the client can't do it

An error says whether trying again can help (`retriable`).
"""


class RockMQError(Exception):
    """Base of all errors raised by RockMQ."""

    retriable: bool = False


class ConfigError(RockMQError):
    """A configuration key or value that can't be used; the text names it and what would be right."""


class ProtocolError(RockMQError):
    """Bytes or fields that don't follow the protocol."""


class HeaderError(ProtocolError):
    """A header field that is missing or has a bad value; the text names field and bound."""


class FilterError(ProtocolError):
    """A filter's expression that can't be used; the text says what is wrong and where."""


class AccessDenied(RockMQError):
    """Who asks isn't known, or may not do that; answered with `code`, and the text goes to them."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.code = code


class StoreUnavailable(RockMQError):
    """The store takes no messages now: its disk is full or has failed."""

    retriable = True


class RemotingError(RockMQError):
    """The other side could not be reached or did not answer."""

    retriable = True


class ConnectError(RemotingError):
    """No connection to an address could be made."""


class ConnectionLost(RemotingError):
    """The connection closed before the answer came."""


class RequestTimeout(RemotingError):
    """No answer came in time. A request that changes something may have been carried out."""


class ResponseError(RockMQError):
    """An answer with an error code.

    `code` is the response code, `remark` the server's words, `address` who said it.
    """

    def __init__(self, code: int, remark: str | None, address: str = "", *, retriable: bool = False) -> None:
        self.code = code
        self.remark = remark or ""
        self.address = address
        self.retriable = retriable
        by = f" by {address}" if address else ""
        super().__init__(f"refused{by} with code {code}: {self.remark or 'no reason given'}")


class ClientError(RockMQError):
    """A client was used in a way that can't work, or found no way to do what was asked."""


class RouteNotFound(ClientError):
    """No name server has a route for the topic; the text says who was asked and what each answered."""

    retriable = True


class InvalidMessage(ClientError):
    """A message that no broker would take; the text names the fault. Nothing was sent."""


class TooManyInFlight(ClientError):
    """More is waiting for an answer than the client's bound allows; the text names the bound."""

    retriable = True


class BatchIncomplete(ClientError):
    """A batch was too large for one request, and not all of its requests succeeded.

    `stored` is how many messages, from the first on, are stored for certain; the cause is the error of the next request.
    """

    def __init__(self, stored: int, total: int, cause: RockMQError) -> None:
        self.stored = stored
        self.retriable = cause.retriable
        super().__init__(f"the first {stored} of {total} messages are stored, then: {cause}")


class ClientClosed(ClientError):
    """The client, producer or consumer was closed before or while it was asked."""


class NotSupported(ClientError):
    """This release of the client can't do it; the text says what and why."""
