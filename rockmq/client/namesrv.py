"""Which name server is asked: one at a time, kept while it answers, the next one after a loss (NettyRemotingClient.java)."""

import asyncio
import logging
import os
import random
from collections.abc import Sequence

from rockmq.base import address
from rockmq.base.errors import ConfigError, ConnectError, RemotingError, RequestTimeout
from rockmq.protocol.codec import Command
from rockmq.remoting.client import RemotingClient

log = logging.getLogger(__name__)

DEFAULT_PORT = 9876
ENVIRONMENT = "NAMESRV_ADDR"
SCHEME = "mq://"


def parse(addresses: str | Sequence[str] | None) -> list[str]:
    """The addresses in `host:port;host:port`, `mq://host;host`, or a list of such; None takes those of NAMESRV_ADDR.

    A host without a port gets 9876. Raises ConfigError.
    """
    if addresses is None:
        addresses = os.environ.get(ENVIRONMENT, "")
        if not addresses:
            raise ConfigError(f"no name server: give its address, or set {ENVIRONMENT}")
    texts = [addresses] if isinstance(addresses, str) else addresses
    found = [_with_port(part) for text in texts for part in address.split_list(text.removeprefix(SCHEME).rstrip("/"))]
    if not found:
        raise ConfigError(f"{addresses!r} names no name server: expected host:port")
    return list(dict.fromkeys(found))


def _with_port(text: str) -> str:
    if text.endswith("]") or (":" not in text):
        text = f"{text}:{DEFAULT_PORT}"
    return address.join(*address.split(text))


class NameServers:
    """Asks the current name server, and the others only when that one is lost."""

    def __init__(self, addresses: Sequence[str], remoting: RemotingClient) -> None:
        assert addresses
        self.addresses = list(addresses)
        self._remoting = remoting
        # Clients that start together spread over the servers.
        self._index = random.randrange(len(self.addresses))

    @property
    def current(self) -> str:
        return self.addresses[self._index]

    async def ask(self, request: Command, timeout: float) -> Command:
        """The answer of one name server. Raises ResponseError for its refusal, and ConnectError that tells what each one
        said when none answers."""
        deadline = asyncio.get_running_loop().time() + timeout
        failures = []
        for _ in self.addresses:
            chosen = self.current
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                break
            try:
                return await self._remoting.ask(chosen, request, left)
            except RemotingError as error:
                failures.append(f"{chosen}: {error}")
                if isinstance(error, RequestTimeout):
                    self._remoting.disconnect(chosen)
                self._move_on(chosen)
        raise ConnectError(f"no name server answers ({'; '.join(failures) or 'no time left'})")

    def _move_on(self, lost: str) -> None:
        if self.current == lost and len(self.addresses) > 1:
            self._index = (self._index + 1) % len(self.addresses)
            log.warning("name server %s is lost, going on with %s", lost, self.current)
