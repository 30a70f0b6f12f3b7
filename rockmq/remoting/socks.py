"""SOCKS5, the client's side: a connection that a proxy makes for us (RFC 1928; user and password, RFC 1929).

    greeting     05, number of methods, methods (00 none, 02 password)    answer  05, the method, FF for none of them
    credentials  01, length, user, length, password                       answer  01, 00 if they are good
    connect      05 01 00, address, port (16 bits)                        answer  05, 00 or an error, 00, address, port

An address is 01 and 4 bytes, 04 and 16 bytes, or 03, a length and a name, which the proxy resolves.
"""

import asyncio
import ipaddress
import os
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from rockmq.base import address
from rockmq.base.errors import ConfigError

EVERYTHING = "0.0.0.0/0"
"""The network that stands for all hosts: names and IPv6 addresses, too."""
TEXT_MAX = 255
"""Bytes of a user's name, a password or a host name."""

_VERSION, _CREDENTIALS_VERSION = 5, 1
_NO_CREDENTIALS, _CREDENTIALS, _NO_METHOD = 0, 2, 0xFF
_CONNECT = b"\x05\x01\x00"
_IPV4, _NAME, _IPV6 = 1, 3, 4
_REFUSALS = {
    1: "a failure of its own",
    2: "its rules don't allow that",
    3: "that network isn't reachable",
    4: "that host isn't reachable",
    5: "connection refused",
    6: "the way is too long (TTL expired)",
    7: "it doesn't make connections",
    8: "it doesn't know that kind of address",
}


@dataclass(frozen=True)
class SocksProxy:
    """A SOCKS5 proxy, `host:port`, with a user's name and password if it asks for them (SocksProxyConfig.java)."""

    address: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        address.split(self.address)
        if (self.username is None) != (self.password is None):
            raise ConfigError(f"SOCKS proxy {self.address}: a user's name and a password go together")
        for name, text in (("username", self.username), ("password", self.password)):
            if text is not None and not 0 < len(text.encode()) <= TEXT_MAX:
                raise ConfigError(f"{name} for SOCKS proxy {self.address}: expected 1 … {TEXT_MAX} bytes")


class SocksProxies:
    """Which proxy a host is reached by: that of the smallest network it is in."""

    def __init__(self, networks: Mapping[str, SocksProxy]) -> None:
        """Raises ConfigError for what is no network."""
        self._everything = networks.get(EVERYTHING)
        parsed = [(_network(text), proxy) for text, proxy in networks.items() if text != EVERYTHING]
        self._networks = sorted(parsed, key=lambda each: each[0].prefixlen, reverse=True)

    def of(self, host: str) -> SocksProxy | None:
        """The proxy for a host, None for one that is reached without. A name is in no network but `EVERYTHING`."""
        try:
            ip = ipaddress.ip_address(host)
        except ValueError:
            return self._everything
        return next((proxy for network, proxy in self._networks if ip in network), self._everything)


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ConfigError(f"{text!r} is no network: expected one such as '10.0.0.0/8', or {EVERYTHING!r}") from None


class SocksError(OSError):
    """A proxy makes no connection; the text says which one, and why."""


async def connect(proxy: SocksProxy, host: str, port: int) -> socket.socket:
    """A socket that the proxy has connected to `host`, an IP or a name. Raises SocksError."""
    made = await _reach(proxy)
    try:
        await _Handshake(proxy, made).connect(host, port)
    except BaseException:
        made.close()
        raise
    return made


async def _reach(proxy: SocksProxy) -> socket.socket:
    host, port = address.split(proxy.address)
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise SocksError(f"the name of SOCKS proxy {proxy.address} doesn't resolve: {error.strerror or error}") from None
    refused: OSError | None = None
    for family, kind, protocol, _, to in found:
        made = socket.socket(family, kind, protocol)
        try:
            made.setblocking(False)
            await asyncio.get_running_loop().sock_connect(made, to)
        except OSError as error:
            made.close()
            refused = error
        except BaseException:
            made.close()
            raise
        else:
            return made
    assert refused is not None, "a name that resolves has an address"
    reason = os.strerror(refused.errno) if refused.errno else refused  # asyncio's own text has the address instead
    raise SocksError(f"SOCKS proxy {proxy.address} can't be reached: {reason}")


class _Handshake:
    """What is said before the bytes are the connection's. No more is read than belongs to it."""

    def __init__(self, proxy: SocksProxy, connected: socket.socket) -> None:
        self._proxy = proxy
        self._socket = connected
        self._loop = asyncio.get_running_loop()

    async def connect(self, host: str, port: int) -> None:
        await self._authenticate()
        await self._send(_CONNECT + _address(host) + struct.pack(">H", port))
        version, answer, _, kind = await self._read(4)
        self._check(version, _VERSION)
        if answer != 0:
            raise self._error(f"answers {_REFUSALS.get(answer, f'with error {answer}')}")
        if kind == _NAME:
            (size,) = await self._read(1)
        elif kind in (_IPV4, _IPV6):
            size = 4 if kind == _IPV4 else 16
        else:
            raise self._error(f"answers with an address of unknown kind {kind}")
        await self._read(size + 2)

    async def _authenticate(self) -> None:
        user, password = self._proxy.username, self._proxy.password
        methods = [_NO_CREDENTIALS] if user is None else [_NO_CREDENTIALS, _CREDENTIALS]
        await self._send(bytes([_VERSION, len(methods), *methods]))
        version, method = await self._read(2)
        self._check(version, _VERSION)
        if method == _NO_CREDENTIALS:
            return
        if method != _CREDENTIALS or user is None or password is None:
            wanted = (
                "a user's name and a password" if user is None else "other credentials than a user's name and a password"
            )
            raise self._error(f"wants {wanted}")
        parts = [text.encode() for text in (user, password)]
        await self._send(bytes([_CREDENTIALS_VERSION]) + b"".join(bytes([len(part)]) + part for part in parts))
        version, answer = await self._read(2)
        self._check(version, _CREDENTIALS_VERSION)
        if answer != 0:
            raise self._error(f"doesn't take the password of user {user!r}")

    def _check(self, version: int, wanted: int) -> None:
        if version != wanted:
            raise self._error(f"answers with version {version}: is it a SOCKS5 proxy?")

    def _error(self, text: str) -> SocksError:
        return SocksError(f"SOCKS proxy {self._proxy.address} {text}")

    async def _send(self, data: bytes) -> None:
        try:
            await self._loop.sock_sendall(self._socket, data)
        except OSError as error:
            raise self._error(f"ended the connection: {error.strerror or error}") from None

    async def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            try:
                more = await self._loop.sock_recv(self._socket, size - len(data))
            except OSError as error:
                raise self._error(f"ended the connection: {error.strerror or error}") from None
            if not more:
                raise self._error("ended the connection before its answer was whole")
            data += more
        return data


def _address(host: str) -> bytes:
    try:
        ip = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        name = host.encode("idna")
        if len(name) > TEXT_MAX:
            raise SocksError(f"{host!r} is too long a name for a SOCKS proxy: {TEXT_MAX} bytes at most") from None
        return bytes([_NAME, len(name)]) + name
    return bytes([_IPV4 if ip.version == 4 else _IPV6]) + ip.packed
