"""What a client tells of its connections."""

from dataclasses import dataclass
from enum import Enum
from typing import Literal


class State(Enum):
    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    RECONNECTED = "reconnected"
    """Connected again after a loss; groups and subscriptions have been told anew."""


@dataclass(frozen=True, slots=True)
class StateChange:
    """A connection that was made or lost; `address` is `host:port` as routes, or the list of name servers, have it."""

    role: Literal["broker", "name server"]
    address: str
    state: State
