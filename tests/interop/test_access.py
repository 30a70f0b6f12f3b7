"""Java clients 4.9.8 and 5.5.0 with their hooks that sign, and commands of mqadmin about users, at our broker."""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import apache, jars, server
from tests.support.events import events, wait_for_keys
from tests.support.messages import content
from tests.support.process import eventually

ROOT = '{"username":"rockmq","password":"12345678"}'
USERS = {"authenticationEnabled": "true", "authorizationEnabled": "true", "initAuthenticationUser": ROOT}
PLAIN = """\
accounts:
- {accessKey: java-key, secretKey: 12345678, topicPerms: [plain=PUB|SUB]}
"""


def signed_libraries(client: str) -> str:
    """In 4.9 the hook is a library of its own, which comes with the server's."""
    if client != "4.9.8":
        return jars.client_class_path(client)
    return os.pathsep.join((jars.client_class_path(client), jars.server_class_path("4.9.7")))


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[server.Server]:
    settings = [word for key, value in USERS.items() for word in ("--set", f"{key}={value}")]
    with server.serve(tmp_path_factory.mktemp("users"), *settings) as started:
        yield started


@pytest.fixture(scope="module")
def mqadmin(users: server.Server, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    directory = tmp_path_factory.mktemp("mqadmin")
    (directory / "conf").mkdir()
    (directory / "conf" / "tools.yml").write_text("accessKey: rockmq\nsecretKey: 12345678\n")

    def run(words: str, command: str, *arguments: str) -> str:
        """What a command prints, once it prints such words; on a slow machine it gives up before the answer comes."""

        def printed() -> str | None:
            done = apache.mqadmin(command, *arguments, namesrv=users.namesrv, directory=directory)
            text = done.stdout + done.stderr
            return text if re.search(words, text) else None

        return eventually(printed, 120, f"{words} of mqadmin {command}")

    return run


@pytest.fixture(scope="module")
def clerk(users: server.Server, mqadmin: Callable[..., str]) -> str:
    """A user that mqadmin made."""
    where = "-b", users.broker
    mqadmin(r"create user to .* success|The user is existed", "createUser", *where, "-u", "clerk", "-p", "of-clerk")
    rule = "-s", "User:clerk", "-r", "Topic:orders,Group:java*", "-a", "Pub,Sub", "-d", "Allow"
    mqadmin(r"create acl to .* success", "createAcl", *where, *rule)
    return "clerk"


def test_mqadmin_shows_users_and_rules(users: server.Server, mqadmin: Callable[..., str], clerk: str) -> None:
    shown = mqadmin("clerk", "getUser", "-b", users.broker, "-u", clerk).split()
    assert {"clerk", "of-clerk", "Normal", "enable"} <= set(shown)
    shown = mqadmin("User:clerk", "getAcl", "-b", users.broker, "-s", "User:clerk").split()
    assert {"User:clerk", "Custom", "Topic:orders", "Group:java*", "Allow"} <= set(shown)


@pytest.mark.parametrize("client", apache.CLIENTS)
def test_java_clients_that_sign(users: server.Server, clerk: str, client: str, tmp_path: Path) -> None:
    where = f"namesrv={users.namesrv}", f"accessKey={clerk}"
    libraries = signed_libraries(client)
    prefix = f"signed-{client}"
    run = {"directory": tmp_path, "libraries": libraries}
    arguments = "topic=orders", f"prefix={prefix}", "modes=sync,batch,large", "count=3"
    with apache.program(client, "Producer", *where, "secretKey=of-clerk", *arguments, **run) as producer:  # type: ignore[arg-type]
        assert producer.wait(60) == 0, producer.tail()
        assert events(producer, "failed") == []
    keys = {content(f"{prefix}-{mode}", i).key for mode in ("sync", "batch", "large") for i in range(3)}
    group = f"group=java-{client.replace('.', '-')}"
    with apache.program(client, "PushConsumer", *where, "secretKey=of-clerk", "topic=orders", group, **run) as consumer:  # type: ignore[arg-type]
        wait_for_keys(consumer, keys)


def test_a_java_client_that_may_not(users: server.Server, clerk: str, tmp_path: Path) -> None:
    arguments = f"namesrv={users.namesrv}", f"accessKey={clerk}", "secretKey=of-clerk", "topic=others", "count=1"
    with apache.program("5.5.0", "Producer", *arguments, directory=tmp_path) as producer:
        assert producer.wait(60) == 0, producer.tail()
        (failed,) = events(producer, "failed")
    assert "CODE: 16" in failed["cause"]
    assert "User:clerk has no permission to access Topic:others" in failed["cause"]


def test_accounts_in_a_file(tmp_path: Path) -> None:
    """ACL 1.0, with the client of its time."""
    (tmp_path / "home" / "conf").mkdir(parents=True)
    (tmp_path / "home" / "conf" / "plain_acl.yml").write_text(PLAIN)
    settings = "--set", "aclEnable=true", "--set", f"rocketmqHome={tmp_path / 'home'}"
    run = {"directory": tmp_path, "libraries": signed_libraries("4.9.8")}
    with server.serve(tmp_path, *settings) as started:
        where = f"namesrv={started.namesrv}", "accessKey=java-key", "secretKey=12345678"
        for topic, failures in (("plain", 0), ("others", 2)):
            arguments = f"topic={topic}", "prefix=plain", "count=2"
            with apache.program("4.9.8", "Producer", *where, *arguments, name=topic, **run) as producer:  # type: ignore[arg-type]
                assert producer.wait(60) == 0, producer.tail()
                failed = events(producer, "failed")
            assert len(failed) == failures
            assert all("AclException: No default permission for topic:others" in each["cause"] for each in failed)
