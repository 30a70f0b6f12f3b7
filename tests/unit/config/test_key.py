"""Declaring, changing and showing keys."""

from typing import Annotated, ClassVar

import pytest
from msgspec import field

from rockmq.base.errors import ConfigError
from rockmq.config.inert import Foreign, Refusal
from rockmq.config.key import MASK, Key, Options, Role, changed, declare, dump, load
from rockmq.config.namesrv import NamesrvOptions


class Door(Options, frozen=True, kw_only=True):
    password: Annotated[str, Key("Opens it.", secret=True)] = ""
    pin: Annotated[int, Key("Opens it too.", secret=True)] = 0
    open_ms: Annotated[int, Key("How long.", unit="ms", reload=True, ge=1)] = 5
    loud: Annotated[bool, Key("Whether it rings.", reload=True)] = False


class Other(Options, frozen=True, kw_only=True):
    loud: Annotated[bool, Key("Whether the other rings.")] = False


@declare
class House(Role, frozen=True, kw_only=True):
    foreign: ClassVar[Foreign] = Foreign(frozenset({"chimney"}), {"moat": Refusal(frozenset({"dry"}), "no water")})
    door: Door = field(default_factory=Door)


def test_a_key_has_one_owner() -> None:
    class Twins(Role, frozen=True, kw_only=True):
        door: Door = field(default_factory=Door)
        other: Other = field(default_factory=Other)

    with pytest.raises(AssertionError, match="'loud' has two owners"):
        declare(Twins)


def test_an_owned_key_isnt_foreign() -> None:
    class Torn(Role, frozen=True, kw_only=True):
        foreign: ClassVar[Foreign] = Foreign(frozenset({"loud"}), {})
        door: Door = field(default_factory=Door)

    with pytest.raises(AssertionError, match="loud"):
        declare(Torn)


def test_secrets_are_never_shown() -> None:
    options = load(House, {"password": "hunter2", "pin": "77"})
    assert options.door.password == "hunter2"
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
