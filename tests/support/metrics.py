"""Reads what servers tell at `/metrics`, by the rules of Prometheus' text format 0.0.4 and of OpenMetrics."""

import asyncio
import re
from dataclasses import dataclass, field

_SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (\S+)')
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')

Labels = frozenset[tuple[str, str]]


@dataclass
class Family:
    kind: str
    samples: dict[tuple[str, Labels], float] = field(default_factory=dict)
    """By the sample's name, which differs from the family's for histograms, and its labels."""


def read(text: str) -> dict[str, Family]:
    """Families by their names. Raises AssertionError for what isn't in the format."""
    families: dict[str, Family] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ", 3)
            assert name not in families, f"{name} comes twice"
            families[name] = Family(kind)
        elif line and not line.startswith("#"):
            match = _SAMPLE.fullmatch(line)
            assert match, line
            assert match[1].startswith(name), f"{line} stands under {name}"
            labels = frozenset(_LABEL.findall(match[2] or ""))
            key = match[1], labels
            assert key not in families[name].samples, f"{line} comes twice"
            families[name].samples[key] = float(match[3])
    return families


async def get(address: str, path: str, *, method: str = "GET", accept: str = "*/*") -> tuple[int, dict[str, str], str]:
    """(status, fields, body)."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: {address}\r\nAccept: {accept}\r\nConnection: close\r\n\r\n".encode())
    data = await reader.read()
    writer.close()
    await writer.wait_closed()
    head, _, body = data.decode().partition("\r\n\r\n")
    status, *lines = head.split("\r\n")
    return int(status.split(" ")[1]), dict(line.split(": ", 1) for line in lines), body


async def scrape(address: str) -> dict[str, Family]:
    status, _, body = await get(address, "/metrics")
    assert status == 200, body
    return read(body)


def value(families: dict[str, Family], name: str, **labels: str) -> float:
    """Of the one sample that has these labels."""
    samples = [each for family in families.values() for each in family.samples.items() if each[0][0] == name]
    found = [number for (_, has), number in samples if labels.items() <= dict(has).items()]
    assert len(found) == 1, (name, labels, samples)
    return found[0]
