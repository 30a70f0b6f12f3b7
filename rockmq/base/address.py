"""Addresses as text (`host:port`, `[v6]:port`) and as the protocol's host bytes."""

import asyncio
import ipaddress
import socket
import struct

from rockmq.base.errors import ConfigError

PORT_DIGITS_MAX = 5


def split(address: str) -> tuple[str, int]:
    """(host, port) of `host:port`; an IPv6 host may stand in brackets or bare. Raises ConfigError."""
    host, colon, port = address.rpartition(":")
    is_number = port.isascii() and port.isdigit() and len(port) <= PORT_DIGITS_MAX
    if not colon or not host or not is_number or int(port) > 65535:
        raise ConfigError(f"{address!r} is not an address: expected host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def join(host: str, port: int) -> str:
    """`host:port`, with brackets around an IPv6 host so that the port stays readable."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_list(addresses: str) -> list[str]:
    """The addresses of a `;`- or `,`-separated list, blanks left out."""
    return [part.strip() for part in addresses.replace(",", ";").split(";") if part.strip()]


def to_bytes(host: str, port: int) -> bytes:
    """4 or 16 bytes of IP and a 32-bit port: `bornHost` and `storeHost` on the wire. A host name is resolved.

    IPv4 mapped into IPv6 is written as 4 bytes: old clients can't read 16-byte hosts (protocol spec, pitfall 27).
    """
    return _ip(host).packed + struct.pack(">i", port)


def from_bytes(host: bytes) -> tuple[str, int]:
    """(ip, port) of 8 or 20 host bytes."""
    (port,) = struct.unpack(">i", host[-4:])
    return str(ipaddress.ip_address(host[:-4])), port


def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    # A scope ("fe80::1%eth0") is local to this machine and has no place in a stored address.
    bare = host.partition("%")[0]
    try:
        address = ipaddress.ip_address(bare)
    except ValueError:
        address = ipaddress.ip_address(resolve(host))
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def resolve(host: str) -> str:
    """An IP of a host name, IPv4 preferred (old clients split addresses at the first colon). Raises ConfigError."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise ConfigError(f"host name {host!r} doesn't resolve: {error.strerror}") from None
    addresses = sorted({str(entry[4][0]) for entry in found}, key=lambda text: (":" in text, text))
    return addresses[0]


async def ips(host: str) -> list[str]:
    """The IPs of a host name in the order to try them, asked for anew at each call; an IP is its own. Raises OSError."""
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
        return list(dict.fromkeys(str(entry[4][0]) for entry in found))
    return [host]


def local_ip() -> str:
    """This machine's address as others see it: the one a datagram to the outside would leave from, else loopback."""
    # Addresses of documentation's networks; connecting a datagram socket sends nothing.
    for family, outside in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((outside, 9))
                return str(probe.getsockname()[0])
        except OSError:
            continue
    return "127.0.0.1"
