"""What the Java programs print: one JSON object a line, of which "event" tells the kind."""

import json
from collections.abc import Callable
from typing import Any

from tests.support.process import Process

Event = dict[str, Any]


def events(process: Process, kind: str) -> list[Event]:
    """All events of that kind so far; lines that are no JSON (a library's chatter) don't count."""
    found: list[Event] = []
    for line in process.lines():
        if line.startswith('{"event":'):
            event: Event = json.loads(line)
            if event["event"] == kind:
                found.append(event)
    return found


def wait_for(process: Process, kind: str, count: int = 1, timeout_s: float = 60) -> list[Event]:
    """The events of that kind as soon as there are `count` of them."""

    def arrived() -> list[Event] | None:
        found = events(process, kind)
        return found if len(found) >= count else None

    return process.wait_until(arrived, timeout_s, f"{count} x {kind!r}")


def wait_for_keys(process: Process, keys: set[str], timeout_s: float = 60) -> list[Event]:
    """The messages of a consumer as soon as those with `keys` are among them and all are consumed for the client too.

    The latter matters to who ends the consumer then: a message it is still about to finish would come again.
    """

    def arrived() -> list[Event] | None:
        found = events(process, "message")
        idle = events(process, "idle")
        consumed = bool(idle) and idle[-1]["messages"] >= len(found)
        return found if consumed and keys <= {message.get("keys") for message in found} else None

    try:
        return process.wait_until(arrived, timeout_s, f"{len(keys)} different messages")
    except Exception as error:
        missing = sorted(keys - {message.get("keys") for message in events(process, "message")})
        error.add_note(f"missing {len(missing)} of {len(keys)}: {missing[:10]}")
        raise


def last_queues(process: Process) -> set[str]:
    """The queues a consumer has now, each as topic@broker:id."""
    changes = events(process, "queues")
    return set(changes[-1]["queues"]) if changes else set()


def queues_are(process: Process, judge: Callable[[set[str]], bool], timeout_s: float = 60) -> set[str]:
    """Wait until a consumer's queues satisfy `judge`; those queues."""

    def settled() -> set[str] | None:
        queues = last_queues(process)
        return queues if judge(queues) and queues else None

    return process.wait_until(settled, timeout_s, "having the expected queues")
