"""Declaring, changing and showing keys."""

from enum import StrEnum
from typing import Annotated, ClassVar

import pytest
from msgspec import field

from rockmq.base.errors import ConfigError
from rockmq.config.inert import Foreign, Refusal
from rockmq.config.key import MASK, Key, Options, Role, changed, declare, dump, keys, load, masked, values
from rockmq.config.namesrv import NamesrvOptions


class Lamp(StrEnum):
    ON = "ON"
    OFF = "OFF"


class Door(Options, frozen=True, kw_only=True):
    password: Annotated[str, Key("Opens it.", secret=True)] = ""
    pin: Annotated[int, Key("Opens it too.", secret=True)] = 0
    open_ms: Annotated[int, Key("How long.", unit="ms", reload=True, ge=1)] = 5
    loud: Annotated[bool, Key("Whether it rings.", reload=True)] = False
    lamp: Annotated[Lamp, Key("Whether there is light.")] | None = None
    floor: Annotated[int, Key("Where it is.", ge=-1, le=3)] | None = None
    cellar: Annotated[str | None, Key("What is below.", path=True)] = None


class Other(Options, frozen=True, kw_only=True):
    loud: Annotated[bool, Key("Whether the other rings.")] = False


@declare
class House(Role, frozen=True, kw_only=True):
    foreign: ClassVar[Foreign] = Foreign({"chimney": "no fire"}, {"moat": Refusal(frozenset({"dry"}), "no water")})
    door: Door = field(default_factory=Door)


def test_a_key_has_one_owner() -> None:
    class Twins(Role, frozen=True, kw_only=True):
        door: Door = field(default_factory=Door)
        other: Other = field(default_factory=Other)

    with pytest.raises(AssertionError, match="'loud' has two owners"):
        declare(Twins)


def test_an_owned_key_isnt_foreign() -> None:
    class Torn(Role, frozen=True, kw_only=True):
        foreign: ClassVar[Foreign] = Foreign({"loud": "no ears"}, {})
        door: Door = field(default_factory=Door)

    with pytest.raises(AssertionError, match="loud"):
        declare(Torn)


def test_what_has_no_effect_is_said_once_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    load(House, {"chimney": "high", "com.rocketmq.sndbuf.size": "true", "moat": "DRY"})
    assert caplog.messages == [
        "these keys have no effect in RockMQ: com.rocketmq.sndbuf.size (a system property of Java's); chimney (no fire)"
    ]


def test_values_in_words() -> None:
    said = {each.wire: values(each) for each in keys(House).values()}
    assert said == {
        "password": "text",
        "pin": "a whole number",
        "openMs": "1 or more ms",
        "loud": "true or false",
        "lamp": "one of ON, OFF",
        "floor": "-1 to 3",
        "cellar": "a path",
    }


def test_secrets_are_never_shown() -> None:
    options = load(House, {"password": "hunter2", "pin": "77"})
    assert options.door.password == "hunter2"
    assert masked(House, {"password": "hunter2", "openMs": "7", "chimney": "x"}) == {
        "password": MASK,
        "openMs": "7",
        "chimney": "x",
    }
    assert dump(options) == {"password": MASK, "pin": MASK, "openMs": "5", "loud": "false"}
    with pytest.raises(ConfigError) as refused:
        load(House, {"pin": "hunter2"})
    assert "hunter2" not in str(refused.value)


def test_only_reloadable_keys_change_while_running() -> None:
    options = load(House, {"password": "x"})
    later = changed(options, {"openMs": "9", "loud": "true"})
    assert (later.door.open_ms, later.door.loud, later.door.password) == (9, True, "x")
    assert options.door.open_ms == 5
    for changes, words in (
        ({"password": "y"}, "password can't change while running"),
        ({"openMs": "0"}, "openMs=0: expected a whole number >= 1"),
        ({"opnMs": "3"}, "did you mean 'openMs'"),
        ({"moat": "wet"}, "moat=wet: no water"),
    ):
        with pytest.raises(ConfigError, match=words):
            changed(options, changes)


def test_name_server_options() -> None:
    options = load(NamesrvOptions, {"listenPort": "0", "rocketmqHome": "/opt/mq", "kvConfigPath": "~/kv.json"})
    assert options.network.listen_port == 0
    assert not options.files.kv_config_path.startswith("~")
    assert options.routes.scan_not_active_broker_interval == 10_000
    assert options.routes.return_order_topic_config_to_broker
    with pytest.raises(ConfigError, match="acting masters"):
        load(NamesrvOptions, {"supportActingMaster": "true"})
