"""TLS of servers over real sockets: who is let in and who isn't, what a peer may cost, and certificates that change."""

import asyncio
import logging
import os
import re
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from rockmq import _core
from rockmq.base.clock import SystemClock
from rockmq.base.errors import ConfigError
from rockmq.config import tls as tls_options
from rockmq.config.key import load
from rockmq.config.namesrv import NamesrvOptions
from rockmq.protocol import codec, headers  # noqa: F401 - declares the codes used here
from rockmq.protocol.codec import FRAME_SIZE_MAX, Command
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.header import Header
from rockmq.remoting import server as serving
from rockmq.remoting import tls as tls_files
from rockmq.remoting.connection import Connection
from rockmq.remoting.dispatch import Answer, Dispatcher, Handler
from rockmq.remoting.server import RemotingServer
from rockmq.remoting.tls import Certificates
from tests.support.certificates import PAST, revoking
from tests.support.wire import RawClient, request

CODE = RequestCode.GET_BROKER_RUNTIME_INFO
LATE = RequestCode.GET_BROKER_CLUSTER_INFO
AUTHORITY = trustme.CA()
REFUSING = re.compile(r"127\.0\.0\.1:\d+ refusing a connection: ")


def echo(header: Header, command: Command, connection: Connection) -> Command:
    return codec.reply(command, body=command.body)


async def later(header: Header, command: Command, connection: Connection) -> Answer:
    await asyncio.sleep(0.05)
    return codec.reply(command, body=command.body)


class Files:
    """The files of a server, and the keys that name them."""

    def __init__(self, directory: Path) -> None:
        self.certificate, self.key = directory / "cert.pem", directory / "key.pem"
        self.trust, self.revoked = directory / "ca.pem", directory / "crl.pem"
        AUTHORITY.cert_pem.write_to_path(str(self.trust))
        self.issue()

    def issue(self, name: str = "127.0.0.1", authority: trustme.CA = AUTHORITY) -> None:
        issued = authority.issue_cert(name)
        self.key.write_bytes(issued.private_key_pem.bytes())
        self.certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))

    def keys(self, mode: str = "enforcing", *, mutual: bool = False) -> dict[str, str]:
        keys = {
            "tls.server.mode": mode,
            "tls.test.mode.enable": "false",
            "tls.server.certPath": str(self.certificate),
            "tls.server.keyPath": str(self.key),
        }
        clients = {
            "tls.server.need.client.auth": "require",
            "tls.server.authClient": "true",
            "tls.server.trustCertPath": str(self.trust),
        }
        return keys | (clients if mutual else {})


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def certificates(keys: dict[str, str]) -> Certificates:
    return Certificates(load(NamesrvOptions, keys).tls)


@asynccontextmanager
async def served(
    keys: dict[str, str], handlers: dict[int, Handler] | None = None, **more: int
) -> AsyncIterator[RemotingServer]:
    dispatcher = Dispatcher(handlers or {CODE: echo, LATE: later})
    clock = SystemClock()
    made = RemotingServer(
        "127.0.0.1", [0], lambda: Connection(dispatcher, clock), clock, certificates=certificates(keys), **more
    )
    await made.start()
    try:
        yield made
    finally:
        dispatcher.close()
        await made.close()


def context(authority: trustme.CA | None = AUTHORITY, shown: trustme.LeafCert | None = None) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if authority is None:
        made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    else:
        authority.configure_trust(made)
    if shown is not None:
        shown.configure_cert(made)
    return made


async def opened(server: RemotingServer, tls: ssl.SSLContext | None) -> RawClient:
    name = "127.0.0.1" if tls else None
    return RawClient(*await asyncio.open_connection("127.0.0.1", server.port, ssl=tls, server_hostname=name, limit=1 << 25))


async def exchanged(server: RemotingServer, tls: ssl.SSLContext | None, body: bytes = b"x") -> bytes:
    client = await opened(server, tls)
    try:
        await client.send(request(CODE, {}, body))
        _, answer = await client.response()
        return answer
    finally:
        client.close()


async def refused(server: RemotingServer, tls: ssl.SSLContext | None) -> str:
    """Nobody is answered; what the client is told."""
    try:
        client = await opened(server, tls)
    except OSError as error:
        return str(error)
    try:
        await client.send(request(CODE))
        await client.response()
    except (asyncio.IncompleteReadError, OSError) as error:
        return str(error)
    finally:
        client.close()
    raise AssertionError("it was answered")


async def logged(caplog: pytest.LogCaptureFixture, words: str) -> str:
    async with asyncio.timeout(10):
        while True:
            for record in caplog.records:
                # A peer is a field of its own.
                line = f"{getattr(record, 'peer', '')} {record.getMessage()}"
                if words in line:
                    return line
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_permissive_takes_both(files: Files, version: ssl.TLSVersion) -> None:
    tls = context()
    tls.minimum_version = tls.maximum_version = version
    async with served(files.keys("permissive")) as server:
        assert await exchanged(server, tls) == b"x"
        assert await exchanged(server, None) == b"x"


async def test_unasked_a_server_takes_both_with_a_certificate_of_its_own() -> None:
    async with served({}) as server:
        assert await exchanged(server, context(None)) == b"x"
        assert await exchanged(server, None) == b"x"
        assert "self-signed" in await refused(server, context())


async def test_enforcing_refuses_plain_clients(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    async with served(files.keys("enforcing")) as server:
        assert await exchanged(server, context()) == b"x"
        await refused(server, None)
        assert REFUSING.match(await logged(caplog, "it doesn't speak TLS"))


async def test_disabled_refuses_tls(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    async with served(files.keys("disabled")) as server:
        assert await exchanged(server, None) == b"x"
        await refused(server, context())
        assert REFUSING.match(await logged(caplog, "TLS, which is off here"))


async def test_a_client_refuses_a_server_of_another_name(files: Files) -> None:
    files.issue("elsewhere.example")
    async with served(files.keys()) as server:
        assert "IP address mismatch" in await refused(server, context())


# Certificates of clients


def revoke(files: Files, *shown: trustme.LeafCert) -> None:
    files.revoked.write_bytes(revoking(AUTHORITY, *shown))


def expired() -> trustme.LeafCert:
    return AUTHORITY.issue_cert("clerk@example", not_after=PAST)


def foreign() -> trustme.LeafCert:
    return trustme.CA().issue_cert("clerk@example", common_name="clerk")


async def test_a_client_with_its_certificate_is_let_in(files: Files) -> None:
    shown = AUTHORITY.issue_cert("clerk@example")
    async with served(files.keys(mutual=True)) as server:
        assert await exchanged(server, context(shown=shown)) == b"x"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize(
    ("shown", "why"),
    [(None, "peer sent no certificates"), (expired, "certificate expired"), (foreign, ', CN="clerk")')],
    ids=["none", "expired", "unknown authority"],
)
async def test_who_may_not_enter_is_told_and_logged(
    files: Files,
    caplog: pytest.LogCaptureFixture,
    shown: Callable[[], trustme.LeafCert] | None,
    why: str,
    version: ssl.TLSVersion,
) -> None:
    tls = context(shown=shown() if shown else None)
    tls.minimum_version = tls.maximum_version = version
    async with served(files.keys(mutual=True)) as server:
        await refused(server, tls)
        line = await logged(caplog, why)
        assert REFUSING.match(line)
        assert shown is not foreign or "UnknownIssuer" in line
        assert shown is None or "serial number " in line
        assert await exchanged(server, context(shown=AUTHORITY.issue_cert("clerk@example"))) == b"x"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_revoked_certificate_is_refused_at_once(
    files: Files, caplog: pytest.LogCaptureFixture, version: ssl.TLSVersion
) -> None:
    shown, other = AUTHORITY.issue_cert("clerk@example", common_name="clerk"), AUTHORITY.issue_cert("other@example")
    revoke(files)
    keys = files.keys(mutual=True) | {"tls.server.crlPath": str(files.revoked)}
    tls = context(shown=shown)
    tls.minimum_version = tls.maximum_version = version
    async with served(keys) as server:
        assert await exchanged(server, tls) == b"x"
        caplog.set_level(logging.INFO)
        revoke(files, shown)
        await logged(caplog, "certificates are read again")
        await refused(server, tls)
        assert 'CN="clerk"' in await logged(caplog, "Revoked")
        assert await exchanged(server, context(shown=other)) == b"x"
    async with served(keys) as server:  # and by a server that finds the list when it starts
        await refused(server, tls)
        assert await exchanged(server, context(shown=other)) == b"x"


@pytest.mark.parametrize(("auth", "needs"), [("OPTIONAL", False), ("require", True)])
async def test_without_authorities_certificates_are_believed(files: Files, auth: str, needs: bool) -> None:
    """As Apache's: `tls.server.authClient` is what has them checked."""
    async with served(files.keys() | {"tls.server.need.client.auth": auth}) as server:
        assert await exchanged(server, context(shown=foreign())) == b"x"
        if needs:
            await refused(server, context())
        else:
            assert await exchanged(server, context()) == b"x"


# What Apache's guide makes is X.509 v1


def old(directory: Path, name: str) -> tuple[Path, Path]:
    """A certificate as `openssl x509 -req` makes them, which the tests' authority has signed, and its key."""
    issued = AUTHORITY.issue_cert(name, common_name=name)
    made = x509.load_pem_x509_certificate(issued.cert_chain_pems[0].bytes())
    version, *rest, _extensions = parts(made.tbs_certificate_bytes)
    assert version == bytes.fromhex("a003020102")
    signed = sequence(*rest)
    authority = load_pem_private_key(AUTHORITY.private_key_pem.bytes(), None)
    assert isinstance(authority, ec.EllipticCurvePrivateKey)
    signature = b"\x00" + authority.sign(signed, ec.ECDSA(hashes.SHA256()))
    _, algorithm, _ = parts(made.public_bytes(serialization.Encoding.DER))
    whole = x509.load_der_x509_certificate(sequence(signed, algorithm, bytes([3, len(signature)]) + signature))
    assert whole.version is x509.Version.v1
    certificate, key = directory / f"{name}.pem", directory / f"{name}.key"
    certificate.write_bytes(whole.public_bytes(serialization.Encoding.PEM))
    key.write_bytes(issued.private_key_pem.bytes())
    return certificate, key


def parts(der: bytes) -> list[bytes]:
    """What a sequence of DER consists of."""
    found, (at, end) = [], content(der, 0)
    while at < end:
        found.append(der[at : (at := content(der, at)[1])])
    return found


def content(der: bytes, at: int) -> tuple[int, int]:
    """Where the content of what is there begins and ends."""
    digits = max(0, der[at + 1] - 0x80)
    begin = at + 2 + digits
    return begin, begin + (int.from_bytes(der[at + 2 : begin]) if digits else der[at + 1])


def sequence(*parts: bytes) -> bytes:
    whole = b"".join(parts)
    return b"\x30\x82" + len(whole).to_bytes(2) + whole


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_server_shows_an_old_certificate(files: Files, tmp_path: Path, version: ssl.TLSVersion) -> None:
    certificate, key = old(tmp_path, "server")
    keys = files.keys() | {"tls.server.certPath": str(certificate), "tls.server.keyPath": str(key)}
    tls = context()
    tls.minimum_version = tls.maximum_version = version
    tls.check_hostname = False  # as Apache's clients
    async with served(keys) as server:
        assert await exchanged(server, tls) == b"x"
    with pytest.raises(ConfigError, match="KeyMismatch"):
        certificates(keys | {"tls.server.keyPath": str(files.key)}).load()


@pytest.mark.parametrize("checked", ["true", "false"])
async def test_an_old_certificate_of_a_client_is_refused_with_what_to_do(
    files: Files, tmp_path: Path, caplog: pytest.LogCaptureFixture, checked: str
) -> None:
    tls = context()
    tls.load_cert_chain(*old(tmp_path, "clerk"))
    async with served(files.keys(mutual=True) | {"tls.server.authClient": checked}) as server:
        await refused(server, tls)
        line = await logged(caplog, "it is X.509 v1: issue it again with -extfile, as v3")
        assert checked == "false" or 'CN="clerk")' in line


async def test_an_authority_that_comes_as_a_client_is_refused_with_what_to_do(
    files: Files, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As `openssl req -x509` makes them."""
    tls, own = context(), trustme.CA()
    own.private_key_pem.write_to_path(str(tmp_path / "own.key"))
    own.cert_pem.write_to_path(str(files.trust))
    tls.load_cert_chain(files.trust, tmp_path / "own.key")
    async with served(files.keys(mutual=True)) as server:
        await refused(server, tls)
        await logged(caplog, "it says CA:TRUE, as those of authorities: issue it again with CA:FALSE")


async def test_refusals_are_told_one_by_one_only_at_first(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    async with served(files.keys()) as server:
        for _ in range(serving.REFUSALS_LOGGED + 5):
            await refused(server, None)
        async with asyncio.timeout(10):
            while server.connections:
                await asyncio.sleep(0.01)
        assert sum("refusing" in record.getMessage() for record in caplog.records) == serving.REFUSALS_LOGGED
        server.sweep()
        await logged(caplog, "refused 5 more connections")


# What is sent


async def test_large_frames_pass_both_ways(files: Files) -> None:
    body = os.urandom(FRAME_SIZE_MAX - 1000)
    async with served(files.keys()) as server:
        assert await exchanged(server, context(), body) == body


async def test_one_way_and_late_answers_and_many_at_once(files: Files) -> None:
    async with served(files.keys()) as server:
        client = await opened(server, context())
        await client.send(request(CODE, {}, b"never", opaque=1, flag=codec.ONEWAY_FLAG))
        await client.send(request(LATE, {}, b"late", opaque=2) + request(CODE, {}, b"soon", opaque=3))
        answers = [await client.response() for _ in range(2)]
        assert [(header["opaque"], body) for header, body in answers] == [(3, b"soon"), (2, b"late")]
        await client.send(b"".join(request(CODE, {}, b"%d" % number, opaque=number) for number in range(1000)))
        assert [(await client.response())[1] for _ in range(1000)] == [b"%d" % number for number in range(1000)]
        client.close()


async def test_a_client_that_ends_its_half_gets_what_it_asked_for(files: Files) -> None:
    """Its last request and its goodbye come together."""
    async with served(files.keys()) as server:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        session = context().wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        while True:
            try:
                session.do_handshake()
                break
            except ssl.SSLWantReadError:
                writer.write(outgoing.read())
                incoming.write(await reader.read(1 << 16))
        session.write(request(CODE, {}, b"last"))
        with pytest.raises(ssl.SSLWantReadError):
            session.unwrap()
        writer.write(outgoing.read())
        async with asyncio.timeout(10):
            incoming.write(await reader.read(-1))
        assert session.read(1 << 16).endswith(b"last")
        with pytest.raises(ssl.SSLZeroReturnError):
            session.read(1)
        writer.close()


async def test_what_is_not_read_waits_and_arrives_whole(files: Files) -> None:
    async with served(files.keys()) as server:
        client = await opened(server, context())
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        body = os.urandom(1 << 20)
        for number in range(16):
            client.writer.write(request(CODE, {}, body, opaque=number))
        async with asyncio.timeout(10):
            while not any(connection.transport.get_write_buffer_size() for connection in server.connections):
                await asyncio.sleep(0.01)
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        for number in range(16):
            header, answer = await client.response()
            assert (header["opaque"], answer == body) == (number, True)
        client.close()


@pytest.mark.parametrize("at", ["in the hello", "behind the handshake"])
async def test_what_is_no_tls_ends_the_connection(files: Files, caplog: pytest.LogCaptureFixture, at: str) -> None:
    async with served(files.keys()) as server:
        client = await opened(server, None if at == "in the hello" else context())
        if at == "in the hello":
            client.writer.write(b"\x16" + bytes(100))
        else:
            client.writer.transport._ssl_protocol._transport.write(b"\x17\x03\x03\x00\x20" + bytes(32))  # type: ignore[attr-defined]
        assert REFUSING.match(await logged(caplog, "refusing a connection: TLS: "))
        assert await exchanged(server, context()) == b"x"
        client.close()


# What a peer may cost


async def test_a_handshake_byte_by_byte_is_cut_off(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    async with served(files.keys()) as server:
        slow, good = await opened(server, None), await opened(server, context())
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        with pytest.raises(ssl.SSLWantReadError):
            context().wrap_bio(incoming, outgoing, server_hostname="127.0.0.1").do_handshake()
        for byte in outgoing.read()[:3]:
            slow.writer.write(bytes([byte]))
            await good.ask(request(CODE))
            server.sweep()
        assert await slow.closed()
        await logged(caplog, "its TLS handshake takes longer than 10 s")
        assert (await good.ask(request(CODE)))["code"] == 0
        for each in (slow, good):
            each.close()


@pytest.mark.parametrize("tls", [False, True])
async def test_a_frame_byte_by_byte_is_closed(files: Files, tls: bool) -> None:
    async with served(files.keys("permissive"), idle_seconds=10) as server:
        slow, good = await opened(server, context() if tls else None), await opened(server, None)
        await slow.ask(request(CODE))
        for byte in request(CODE, {}, b"x" * 100)[:4]:
            slow.writer.write(bytes([byte]))
            await good.ask(request(CODE))
            server.sweep()
        assert await slow.closed()
        assert len(server.connections) == 1
        for each in (slow, good):
            each.close()


@pytest.mark.parametrize("begins", [b"", b"\x16\x03\x01"], ids=["silent", "in a handshake"])
async def test_who_opens_thousands_of_connections_harms_no_other(
    files: Files, caplog: pytest.LogCaptureFixture, begins: bytes
) -> None:
    """The bound is 1,000 here, in place of 50,000."""
    async with served(files.keys(), connections_max=1_000) as server:
        good = await opened(server, context())
        with ExitStack() as stack:
            for _ in range(15):
                for _ in range(100):
                    each = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
                    with suppress(ConnectionResetError, BrokenPipeError):
                        each.sendall(begins)
                assert (await good.ask(request(CODE)))["code"] == 0
            await logged(caplog, "1000 connections are open, the bound (connectionsMax)")
            for _ in range(4):
                server.sweep()
            if begins:
                await logged(caplog, "its TLS handshake takes longer")
        async with asyncio.timeout(10):
            while len(server.connections) > 1:
                await asyncio.sleep(0.01)
        assert (await good.ask(request(CODE)))["code"] == 0
        assert await exchanged(server, context()) == b"x"
        good.close()


# Certificates that change


async def test_a_new_certificate_is_shown_without_a_restart(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    other = trustme.CA()
    async with served(files.keys()) as server:
        before = await opened(server, context())
        files.issue(authority=other)
        await logged(caplog, "certificates are read again")
        assert await exchanged(server, context(other)) == b"x"
        assert (await before.ask(request(CODE)))["code"] == 0
        before.close()


@pytest.mark.parametrize("broken", ["cut", "no PEM", "gone", "of another key"])
async def test_a_broken_certificate_changes_nothing(files: Files, caplog: pytest.LogCaptureFixture, broken: str) -> None:
    async with served(files.keys()) as server:
        if broken == "gone":
            files.certificate.unlink()
        elif broken == "of another key":
            files.certificate.write_bytes(AUTHORITY.issue_cert("127.0.0.1").cert_chain_pems[0].bytes())
        else:
            files.certificate.write_bytes(files.certificate.read_bytes()[:200] if broken == "cut" else b"x")
        assert str(files.certificate) in await logged(caplog, "certificates stay as they were")
        assert await exchanged(server, context()) == b"x"
        files.issue()
        caplog.set_level(logging.INFO)
        await logged(caplog, "certificates are read again")
        assert await exchanged(server, context()) == b"x"


@pytest.mark.parametrize("change", ["emptied", "gone", "another mode", "no list"])
async def test_a_reload_lets_nobody_in_who_was_not_before(
    files: Files, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    revoke(files)
    path = tmp_path / "tls.properties"
    keys = files.keys(mutual=True) | {"tls.server.crlPath": str(files.revoked)}
    mode = keys.pop("tls.server.mode")
    write(path, keys)
    given = {"tls.server.mode": mode, "tls.config.file": str(path)}
    if change == "gone":
        del given["tls.config.file"]
        for module in (tls_files, tls_options):
            monkeypatch.setattr(module, "DEFAULT_FILE", str(path))
    shown = AUTHORITY.issue_cert("clerk@example")
    async with served(given) as server:
        if change == "emptied":
            path.write_text("")
        elif change == "gone":
            path.unlink()
        elif change == "another mode":
            write(path, keys | {"tls.server.need.client.auth": "optional"})
        else:
            write(path, keys | {"tls.server.crlPath": ""})
        why = await logged(caplog, "certificates stay as they were")
        assert ("No such file" if change == "gone" else "not as at the start, which needs a restart") in why
        await refused(server, context())
        assert await exchanged(server, context(shown=shown)) == b"x"
        files.issue()
        write(path, keys)
        caplog.set_level(logging.INFO)
        await logged(caplog, "certificates are read again")
        await refused(server, context())
        assert await exchanged(server, context(shown=shown)) == b"x"


def write(path: Path, keys: dict[str, str]) -> None:
    path.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))


# Keys


@pytest.mark.parametrize("form", ["PKCS8", "TraditionalOpenSSL"])
async def test_a_key_with_a_password(files: Files, form: str) -> None:
    key = load_pem_private_key(files.key.read_bytes(), None)
    encrypted = serialization.BestAvailableEncryption(b"1234")
    files.key.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, getattr(serialization.PrivateFormat, form), encrypted)
    )
    async with served(files.keys() | {"tls.server.keyPassword": "1234"}) as server:
        assert await exchanged(server, context()) == b"x"
    with pytest.raises(ConfigError, match=r"key\.pem: tls\.server\.keyPassword doesn't open it"):
        certificates(files.keys() | {"tls.server.keyPassword": "4321"}).load()
    with pytest.raises(ConfigError, match=r"key\.pem: the key is encrypted, and there is no tls\.server\.keyPassword"):
        certificates(files.keys()).load()


async def test_apaches_file_works_as_it_is(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "tls.properties"
    keys = files.keys(mutual=True)
    mode = keys.pop("tls.server.mode")
    unused = {"tls.client.authServer": "false", "tls.client.keyPath": "/nowhere/client.key"}
    path.write_text("# TLS\n" + "".join(f"{key}={value}\n" for key, value in (keys | unused).items()))
    given = {"tls.server.mode": mode, "tls.config.file": str(path), "tls.server.certPath": "/nowhere"}
    async with served(given) as server:
        assert await exchanged(server, context(shown=AUTHORITY.issue_cert("clerk@example"))) == b"x"
        await refused(server, context())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tls.server.certPath": ""}, r"expected tls\.server\.certPath and tls\.server\.keyPath"),
        ({"tls.server.keyPath": "/nowhere/key.pem"}, "/nowhere/key.pem: No such file"),
        (
            {"tls.server.need.client.auth": "require", "tls.server.authClient": "true"},
            r"expected tls\.server\.trustCertPath",
        ),
        ({"tls.server.crlPath": "/nowhere/crl.pem"}, "nobody's certificate is checked"),
        ({"tls.config.file": "/nowhere/tls.properties"}, "/nowhere/tls.properties: No such file"),
        ({"tls.server.keyPath": "{certificate}"}, "private key: "),
        ({"tls.server.certPath": "{key}"}, "certificate: no PEM section CERTIFICATE"),
    ],
)
def test_what_cant_be_used_is_said(files: Files, change: dict[str, str], words: str) -> None:
    named = {key: value.format(certificate=files.certificate, key=files.key) for key, value in change.items()}
    with pytest.raises(ConfigError, match=words):
        certificates(files.keys() | named).load()


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"tls.server.authClient": "true"}, "authClient=true with tls.server.need.client.auth=none"),
        (
            {"tls.server.need.client.auth": "require", "tls.server.authClient": "true", "tls.test.mode.enable": "true"},
            "need.client.auth=require and tls.server.authClient=true with tls.test.mode.enable=true",
        ),
        ({"tls.server.need.client.auth": "require", "tls.server.authClient": "true"}, ""),
    ],
)
def test_keys_without_effect_are_named(
    files: Files, caplog: pytest.LogCaptureFixture, keys: dict[str, str], words: str
) -> None:
    certificates(files.keys() | {"tls.server.trustCertPath": str(files.trust)} | keys).load()
    said = [record.getMessage() for record in caplog.records if "no effect of" in record.getMessage()]
    assert [words in line for line in said] == ([True] if words else [])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tls.server.mode=enforcing", r"tls\.properties: tls\.server\.mode has no effect here"),
        ("tls.server.certpath=x", r"tls\.properties: unknown key 'tls\.server\.certpath'; did you mean"),
        ("tls.server.need.client.auth=perhaps", "expected one of none, optional, require"),
    ],
)
def test_what_is_wrong_in_a_file_is_said(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "tls.properties"
    path.write_text(text)
    with pytest.raises(ConfigError, match=words):
        certificates({"tls.config.file": str(path)}).load()


def test_unfinished_frames_have_a_bound_together() -> None:
    """Of each frame all but the last byte has come. The longest goes, be it somebody else's who sent last."""
    reactor = _core.Reactor(None, FRAME_SIZE_MAX, True)
    long = memoryview(request(CODE, {}, bytes(FRAME_SIZE_MAX - 1000))[:-1])
    with ExitStack() as stack:
        kept: list[_core.Transport] = []
        fitting = (256 << 20) // len(long)
        honest = memoryview(request(CODE, {}, bytes(4 << 20)))
        for frame in [long] * fitting + [honest]:
            transport, other = connected(reactor)
            kept.append(transport)
            stack.enter_context(other)
            rest = frame
            while transport.refusal is None and transport.traffic < len(frame):
                with suppress(BlockingIOError):
                    rest = rest[other.send(rest) :]
                reactor.poll(0)
        assert (kept[-1].refusal, kept.pop().progress) == (None, 1)
        refusals = [transport.refusal for transport in kept if transport.refusal is not None]
        assert len(refusals) == 1
        assert "the unfinished frames of all peers hold" in refusals[0]
        assert "its own is the longest" in refusals[0]
        # What is small passes nevertheless.
        transport, other = connected(reactor)
        stack.enter_context(other)
        other.sendall(request(CODE))
        while transport.progress == 0:
            reactor.poll(0)


def connected(reactor: _core.Reactor) -> tuple[_core.Transport, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        other = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
    other.setblocking(False)
    return reactor.add(accepted.detach(), bytes([127, 0, 0, 1, 0, 0, 1, 0]), object()), other
