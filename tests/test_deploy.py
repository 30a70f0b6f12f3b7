"""What Dockerfile, compose.yaml and the units of systemd name is there. No image is built here."""

import configparser
import re
import shlex
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest
import typer.main
import yaml
from typer.core import TyperGroup

from rockmq.cli.main import app
from rockmq.config import properties
from rockmq.config.broker import BrokerOptions
from rockmq.config.key import load
from rockmq.config.namesrv import NamesrvOptions
from rockmq.embedded import Server

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
STATE = "/var/lib/rockmq"
UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))


def instructions() -> Iterator[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE).replace("\\\n", " ")
    for line in filter(None, text.split("\n")):
        word, _, rest = line.strip().partition(" ")
        yield word, rest.strip()


def parsed(words: list[str]) -> dict[str, object]:
    """The options that a command line of ours gives, without running it."""
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    return group.commands[words[0]].make_context(words[0], list(words[1:])).params


def check(words: list[str]) -> None:
    """Raise whatever the command would raise before it serves."""
    given = parsed(words)
    settings = properties.arguments(given["set_"] or [])
    if words[0] == "serve":
        assert str(given["data"]).startswith(STATE)
        Server(given["data"], host=given["host"], properties=settings)
    else:
        role = {"broker": BrokerOptions, "namesrv": NamesrvOptions}[words[0]]
        load(role, settings)


def test_what_is_copied_into_the_image_is_there() -> None:
    ignored = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    allowed = {line[1:] for line in ignored if line.startswith("!")}
    copied = [rest.split()[:-1] for word, rest in instructions() if word == "COPY" and "--from" not in rest]
    names = [name for each in copied for name in each]
    assert set(names) == allowed
    for name in names:
        assert (ROOT / name).exists()
    # Nothing that was built here gets in.
    assert any(fnmatch("rockmq/_core.abi3.so", line.replace("**", "*")) for line in ignored)
    assert "native/target" in ignored


def test_the_wheel_is_built_from_what_is_copied() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    maturin, about = project["tool"]["maturin"], project["project"]
    needed = {maturin["manifest-path"].split("/")[0], *maturin["python-packages"], about["readme"], *about["license-files"]}
    copied = {name for word, rest in instructions() if word == "COPY" and "--from" not in rest for name in rest.split()[:-1]}
    assert copied == needed | {"pyproject.toml"}
    extras = re.findall(r"rockmq-\*\.whl\)\[([\w,]+)\]", DOCKERFILE)[0].split(",")
    assert set(extras) <= project["project"]["optional-dependencies"].keys()
    assert set(extras) == {"speed", "auth", "otlp"}, "what servers can be told to use"
    rust = tuple(map(int, re.findall(r"^ARG RUST=(\d+)\.(\d+)", DOCKERFILE, re.MULTILINE)[0]))
    least = re.findall(r'^rust-version = "(\d+)\.(\d+)', (ROOT / "native" / "Cargo.toml").read_text(), re.MULTILINE)[0]
    assert rust >= tuple(map(int, least))


def test_the_image_serves_as_nobody_in_particular() -> None:
    last = {word: rest for word, rest in instructions() if word not in ("COPY", "RUN", "ARG", "ENV", "FROM")}
    assert int(last["USER"]) > 0
    assert last["STOPSIGNAL"] == "SIGTERM"
    assert last["VOLUME"] == STATE
    assert last["ENTRYPOINT"] == '["rockmq"]'
    check(yaml.safe_load(last["CMD"]))
    broker, namesrv = BrokerOptions().network.listen_port, NamesrvOptions().network.listen_port
    assert last["EXPOSE"].split() == [str(port) for port in (namesrv, broker - 2, broker)]
    *_, code = yaml.safe_load(last["HEALTHCHECK"].partition("CMD ")[2])
    compile(code, "HEALTHCHECK", "exec")


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_a_service_starts_and_keeps_what_it_has(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    service = COMPOSE["services"][name]
    words = [re.sub(r"\$\{\w+:-(.*?)\}", r"\1", str(word)) for word in service["command"]]
    check(words)
    assert service["volumes"] == [f"{name}:{STATE}"]
    assert name in COMPOSE["volumes"]
    assert (service["mem_limit"], service["read_only"]) == ("1g", True)
    published = {port.partition(":")[2] for port in service["ports"]}
    exposed = dict(instructions())["EXPOSE"].split()
    assert published == set({"rockmq": exposed, "namesrv": exposed[:1], "broker": exposed[1:]}[name])
    for other in service.get("depends_on", ()):
        assert other in COMPOSE["services"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_a_unit_runs_a_command_of_ours(unit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    read = configparser.ConfigParser(interpolation=None)
    read.optionxform = str  # type: ignore[method-assign]
    read.read_string(unit.read_text(encoding="utf-8"))
    service = read["Service"]
    for key in ("ExecStart", "ExecStartPre"):
        if key in service:
            program, *words = shlex.split(service[key])
            assert program == "/opt/rockmq/bin/rockmq"
            check(words)
            if "--config" in words:  # which updateBrokerConfig replaces
                assert service["ReadWritePaths"] == f"-{Path(words[words.index('--config') + 1]).parent}"
    assert service["WorkingDirectory"] == f"/var/lib/{service['StateDirectory']}"
    assert service["User"] != "root"


def test_there_are_units_for_both_servers() -> None:
    assert [unit.name for unit in UNITS] == ["rockmq-broker.service", "rockmq-namesrv.service"]
