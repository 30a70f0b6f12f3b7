"""Which name server is asked: one at a time, kept while it answers, the next one after a loss (NettyRemotingClient.java,
DefaultTopAddressing.java; clients' spec, 1.2)."""

import asyncio
import logging
import os
import random
import re
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.parse import quote

from rockmq.base import address
from rockmq.base.errors import ConfigError, ConnectError, RemotingError, RequestTimeout
from rockmq.base.tasks import Tasks
from rockmq.protocol.codec import Command
from rockmq.remoting.client import RemotingClient

log = logging.getLogger(__name__)

_ADDRESS = re.compile(r"(\[[\w.:%-]+\]|[\w.:%-]+):\d+")

DEFAULT_PORT = 9876
ENVIRONMENT = "NAMESRV_ADDR"
SCHEME = "mq://"
LOOKUP_SECONDS = 120.0
LOOKUP_TIMEOUT = 3.0
LOOKUP_BYTES_MAX = 64 * 1024
SHARE_SECONDS = 1.0
"""What each of several name servers gets at least of the time for a question, while there is some."""


def parse(addresses: str | Sequence[str] | None) -> list[str]:
    """The addresses in `host:port;host:port`, `mq://host;host`, or a list of such; None takes those of NAMESRV_ADDR.

    A host without a port gets 9876. A single URL, `http://host:port/path`, names a page whose first line has the addresses;
    without a path it is Apache's other spelling of `host:port`. Raises ConfigError.
    """
    if addresses is None:
        addresses = os.environ.get(ENVIRONMENT, "")
        if not addresses:
            raise ConfigError(f"no name server: give its address, or set {ENVIRONMENT}")
    texts = [addresses] if isinstance(addresses, str) else addresses
    if len(texts) == 1 and is_url(texts[0]):
        return [texts[0]]
    found = [_with_port(part) for text in texts for part in address.split_list(_bare(text))]
    if not found:
        raise ConfigError(f"{addresses!r} names no name server: expected host:port")
    return list(dict.fromkeys(found))


def is_url(text: str) -> bool:
    """Whether this is the URL of a page with addresses, not an address."""
    scheme, found, rest = text.partition("://")
    return bool(found) and scheme in ("http", "https") and rest.partition("/")[2] != ""


def _bare(text: str) -> str:
    return text.removeprefix(SCHEME).removeprefix("http://").rstrip("/")


def _with_port(text: str) -> str:
    if text.endswith("]") or (":" not in text):
        text = f"{text}:{DEFAULT_PORT}"
    if _ADDRESS.fullmatch(text) is None:
        raise ConfigError(f"{text[:100]!r} is not an address: expected host:port")
    return address.join(*address.split(text))


class NameServers:
    """Asks the current name server, and the others only when that one is lost.

    `addresses` are as `parse` gives them. Where that is a URL, the list behind it is read at the first question and every
    two minutes; while it can't be read the list stays as it is. Clients of a unit have a list of their own.
    """

    def __init__(self, addresses: Sequence[str], remoting: RemotingClient, unit_name: str | None = None) -> None:
        assert addresses
        self._url = _of_unit(addresses[0], unit_name) if is_url(addresses[0]) else None
        self.addresses = [] if self._url else list(addresses)
        self._remoting = remoting
        self._reading = asyncio.Lock()
        # Clients that start together spread over the servers.
        self._index = random.randrange(len(self.addresses) or 1)

    def start(self, tasks: Tasks) -> None:
        if self._url is not None:
            tasks.every(LOOKUP_SECONDS, self._read_again, "list of name servers")

    @property
    def current(self) -> str:
        return self.addresses[self._index]

    async def ask(self, request: Command, timeout: float) -> Command:
        """The answer of one name server. Raises ResponseError for its refusal, and ConnectError that tells what each one
        said when none answers."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        if not self.addresses:
            await self._first_list(timeout)
        failures = []
        for remaining in range(len(self.addresses), 0, -1):
            chosen = self.current
            left = deadline - loop.time()
            if left <= 0:
                break
            try:
                return await self._remoting.ask(chosen, request, min(left, max(left / remaining, SHARE_SECONDS)))
            except RemotingError as error:
                failures.append(f"{chosen}: {error}")
                if isinstance(error, RequestTimeout):
                    self._remoting.disconnect(chosen)
                self._move_on(chosen)
        raise ConnectError(f"no name server answers ({'; '.join(failures) or 'no time left'})")

    def _move_on(self, lost: str) -> None:
        if self.addresses and self.current == lost and len(self.addresses) > 1:
            self._index = (self._index + 1) % len(self.addresses)
            log.warning("name server %s is lost, going on with %s", lost, self.current)

    # The list behind a URL

    async def _first_list(self, timeout: float) -> None:
        try:
            async with asyncio.timeout(timeout), self._reading:
                if not self.addresses:
                    await self.read()
        except TimeoutError:
            raise ConnectError(f"no name server is known: {self._url} doesn't answer") from None
        except (OSError, ValueError, ConfigError) as error:
            raise ConnectError(f"no name server is known: {self._url} gives no list of them: {error}") from None

    async def _read_again(self) -> None:
        try:
            await self.read()
        except (OSError, ValueError, ConfigError) as error:
            log.warning("the list of name servers stays as it is, %s can't be read: %s", self._url, error)

    async def read(self) -> None:
        """Read the list and go over to it if it differs. Raises OSError, ValueError, ConfigError."""
        assert self._url is not None
        found = parse(await asyncio.to_thread(_first_line, self._url))
        if is_url(found[0]):
            raise ConfigError(f"expected addresses, not another page: {found[0]}")
        if set(found) == set(self.addresses):
            return
        log.info("name servers, as %s says: %s", self._url, ", ".join(found))
        before = self.current if self.addresses else None
        random.shuffle(found)
        self.addresses, self._index = found, 0
        if before in found:
            self._index = found.index(before)
        elif before is not None:
            self._remoting.retire(before)


def _of_unit(url: str, unit_name: str | None) -> str:
    """Where the list of a unit's name servers is (DefaultTopAddressing.fetchNSAddr)."""
    if not unit_name:
        return url
    page, _, parameters = url.partition("?")
    return f"{page}-{quote(unit_name)}?nofix=1" + (f"&{parameters}" if parameters else "")


def _first_line(url: str) -> str:
    # As Java's, this asks the server itself whatever proxy the environment names.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=LOOKUP_TIMEOUT) as page:
            text: str = page.read(LOOKUP_BYTES_MAX).decode()
    except HTTPError as error:
        error.close()
        raise
    except HTTPException as error:
        raise ValueError(f"it speaks no HTTP: {error!r}") from None
    line = text.strip().partition("\n")[0].strip()
    if not line:
        raise ValueError("the page is empty")
    return line
