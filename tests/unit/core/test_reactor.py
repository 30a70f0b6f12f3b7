"""The reactor over real sockets, polled by hand: what is written when, and how each kind of end is told."""

import contextlib
import select
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rockmq import _core
from tests.support import model
from tests.support.model import Header
from tests.unit.core import stores

PEER = bytes([127, 0, 0, 1, 0, 0, 1, 0])
NOW = 1_700_000_000_000


@dataclass
class Ours:
    """One end at the reactor, the other in our hands."""

    reactor: _core.Reactor
    transport: _core.Transport
    other: socket.socket
    fed: "list[_core.Fed]" = field(default_factory=list)
    ended: list[str] = field(default_factory=list)

    def poll(self, seconds: float = 5) -> None:
        """Serve until Python was told of something."""
        while select.select([self.reactor.fileno()], [], [], seconds)[0]:
            told = self.reactor.poll(NOW)
            for connection, fed, ended in told or []:
                assert connection is self
                if fed is not None:
                    self.fed.append(fed)
                if ended is not None:
                    self.ended.append(ended)
            if told:
                return

    def until_ended(self) -> str:
        while not self.ended:
            self.poll()
        assert self.ended == [self.ended[0]]
        return self.ended[0]


def pair(reactor: _core.Reactor) -> Ours:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        other = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
    ours = Ours.__new__(Ours)
    transport = reactor.add(accepted.detach(), PEER, ours)
    ours.__init__(reactor, transport, other)  # type: ignore[misc]
    return ours


@pytest.fixture
def ours() -> Iterator[Ours]:
    made = pair(_core.Reactor(None, 1 << 24, True))
    yield made
    made.other.close()


def received(ours: Ours, size: int) -> bytes:
    """What arrives at the other end, up to `size`, while the reactor is served."""
    data = bytearray()
    while len(data) < size:
        ready = select.select([ours.other, ours.reactor.fileno()], [], [], 5)[0]
        assert ready, f"{len(data)} bytes came, not {size}"
        if ours.reactor.fileno() in ready:
            ours.poll(0)
        if ours.other in ready:
            chunk = ours.other.recv(1 << 20)
            if not chunk:
                break
            data += chunk
    return bytes(data)


FRAME = model.encode(Header(code=5, opaque=9), b"body")


def test_frames_are_told_whole_however_they_come(ours: Ours) -> None:
    for byte in FRAME[:-1]:
        ours.other.sendall(bytes([byte]))
        ours.poll(0.01)
    assert ours.fed == []
    ours.other.sendall(FRAME[-1:] + FRAME)
    ours.poll()
    assert [command[3] for fed in ours.fed for command in fed[2]] == [9, 9]
    assert ours.transport.traffic >= 2


def test_nothing_ready_is_told_apart_from_nothing_to_tell(ours: Ours) -> None:
    assert ours.reactor.poll(NOW) is None
    ours.other.sendall(FRAME[:3])
    select.select([ours.reactor.fileno()], [], [], 5)
    assert ours.reactor.poll(NOW) == []


def test_what_the_kernel_does_not_take_waits_and_arrives_in_order(ours: Ours) -> None:
    pieces = [bytes([number]) * 300_000 for number in range(100)]
    ours.transport.write(pieces[0])
    ours.transport.writelines(pieces[1:])
    ours.transport.write(b"")
    waiting = ours.transport.get_write_buffer_size()
    assert 0 < waiting < 30_000_000
    assert received(ours, 30_000_000) == b"".join(pieces)
    assert ours.transport.get_write_buffer_size() == 0


def test_close_writes_what_waits_first(ours: Ours) -> None:
    ours.transport.write(bytes(20_000_000))
    assert ours.transport.get_write_buffer_size()
    ours.transport.close()
    assert ours.transport.is_closing()
    ours.transport.write(b"dropped")
    assert received(ours, 20_000_000) == bytes(20_000_000)
    assert ours.until_ended() == ""
    assert ours.other.recv(1) == b""


def test_abort_drops_what_waits(ours: Ours) -> None:
    ours.transport.write(bytes(20_000_000))
    ours.transport.abort()
    assert ours.transport.get_write_buffer_size() == 0
    assert ours.until_ended() == ""
    ours.transport.close()
    ours.transport.abort()
    ours.transport.write(b"nothing")
    assert ours.reactor.poll(NOW) is None


def test_peer_that_closes_still_gets_what_waits(ours: Ours) -> None:
    ours.transport.write(bytes(20_000_000))
    ours.other.shutdown(socket.SHUT_WR)
    select.select([ours.reactor.fileno()], [], [], 5)
    ours.reactor.poll(NOW)
    assert ours.transport.is_closing()
    assert received(ours, 20_000_000) == bytes(20_000_000)
    assert ours.until_ended() == ""


@pytest.mark.parametrize("reading", [True, False])
def test_reset_is_told_with_its_reason(ours: Ours, reading: bool) -> None:
    if not reading:
        ours.transport.pause_reading()
    ours.other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    ours.other.close()
    assert "reset" in ours.until_ended()


def test_paused_reading_leaves_bytes_with_the_kernel(ours: Ours) -> None:
    ours.transport.pause_reading()
    ours.other.sendall(FRAME)
    ours.poll(0.05)
    assert ours.fed == []
    ours.transport.resume_reading()
    ours.poll()
    assert len(ours.fed) == 1


def test_fault_is_told_and_the_socket_left_to_be_closed(ours: Ours) -> None:
    ours.other.sendall(b"\xff" * 8)
    ours.poll()
    assert ours.fed[0][4] is not None
    ours.transport.close()
    assert ours.until_ended() == ""


def test_place_of_an_ended_socket_is_used_again() -> None:
    reactor = _core.Reactor(None, 1 << 24, True)
    kept = pair(reactor)
    for _ in range(5):
        gone = pair(reactor)
        gone.other.close()
        gone.until_ended()
    kept.other.sendall(FRAME)
    kept.poll()
    assert len(kept.fed) == 1
    kept.other.close()


def send(one_way: bool = False, properties: str = "") -> bytes:
    fields = {"a": "g", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0", "i": properties, "j": "0"}
    return model.encode(Header(code=310, opaque=3, flag=2 if one_way else 0, fields=fields), b"body")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[_core.Store]:
    store = stores.fresh(tmp_path)
    store.set_ordinary("T", 4, False)
    yield store
    store.close()


def codes(data: bytes) -> list[int]:
    return [header.code for header, _, _ in model.decode(data)]


def nothing_came(ours: Ours) -> bool:
    return not select.select([ours.other], [], [], 0)[0]


def serve(ours: Ours, data: bytes) -> None:
    """Send, and have the reactor serve it without a word to Python."""
    ours.other.sendall(data)
    select.select([ours.reactor.fileno()], [], [], 5)
    assert ours.reactor.poll(NOW) == []


def test_replies_of_ordinary_sends_leave_at_once(store: _core.Store) -> None:
    ours = pair(_core.Reactor(store, 1 << 24, True))
    serve(ours, send() * 3)
    assert store.appended[0] == 3
    assert codes(ours.other.recv(1 << 20)) == [0, 0, 0]
    ours.other.close()


def test_replies_are_held_until_their_messages_are_durable(store: _core.Store) -> None:
    """And a flush is asked for, even if nobody waits for a reply (store spec, 5.1) or says so by WAIT=false (2.4)."""
    reactor = _core.Reactor(store, 1 << 24, False)
    flusher = _core.Flusher(store, None)
    first, second = pair(reactor), pair(reactor)
    serve(first, send(properties="WAIT\x01false\x02") * 3)
    one = store.max_position
    serve(second, send() + send(one_way=True))
    assert nothing_came(first)
    reactor.release(one)
    assert codes(first.other.recv(1 << 20)) == [0, 0, 0]
    assert nothing_came(second)
    while flusher.take() < store.max_position:
        assert select.select([flusher.fileno()], [], [], 5)[0]
    reactor.release(flusher.take())
    assert codes(second.other.recv(1 << 20)) == [0]
    flusher.close()
    for ours in (first, second):
        ours.other.close()


def test_replies_held_too_long_are_handed_over_once(store: _core.Store) -> None:
    reactor = _core.Reactor(store, 1 << 24, False)
    kept, gone = pair(reactor), pair(reactor)
    assert reactor.overdue(2) == []
    for ours in (gone, kept):
        serve(ours, send())
    gone.other.close()
    gone.until_ended()
    assert reactor.overdue(2) == []
    assert reactor.overdue(2) == []
    [(connection, replies)] = reactor.overdue(2)
    assert connection is kept
    assert codes(replies) == [0]
    reactor.release(store.max_position)
    assert nothing_came(kept)
    kept.other.close()


def test_with_too_much_held_a_socket_is_not_read(store: _core.Store) -> None:
    reactor = _core.Reactor(store, 1 << 24, False)
    ours = pair(reactor)
    ours.other.setblocking(False)
    stored, rest = -1, memoryview(send() * 50_000)
    while store.appended[0] > stored:
        stored = store.appended[0]
        with contextlib.suppress(BlockingIOError):
            rest = rest[ours.other.send(rest) :]
        select.select([reactor.fileno()], [], [], 0.2)
        reactor.poll(NOW)
    reactor.release(store.max_position)
    received = bytearray()
    while len(received) < 1 << 20:
        select.select([ours.other], [], [], 5)
        received += ours.other.recv(1 << 20)
        reactor.poll(NOW)
    assert len(received) < 4 << 20, "what was held is bounded"
    assert store.appended[0] > stored, "it is read again"
    ours.other.close()


def test_bad_arguments_are_refused(ours: Ours) -> None:
    with pytest.raises(OSError, match="-1"):
        ours.reactor.add(-1, PEER, None)
    with pytest.raises(ValueError, match="contiguous"):
        ours.transport.write(memoryview(b"abcd")[::2])
    with pytest.raises(TypeError):
        ours.transport.write("text")  # type: ignore[arg-type]
