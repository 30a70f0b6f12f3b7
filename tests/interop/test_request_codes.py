"""The page on compatibility has every request code of Apache's 5.5.0 and 4.9.7, and says of each what our servers do."""

import operator
import re
import subprocess
from pathlib import Path

import pytest

import rockmq.client
from rockmq.client import Client
from rockmq.config.key import load
from rockmq.config.namesrv import NamesrvOptions
from rockmq.namesrv.server import NameServer
from rockmq.protocol.codes import RequestCode
from tests.support import jars
from tests.unit.broker.conftest import running

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"
CLIENT = Path(rockmq.client.__file__).parent
TO_BROKERS, TO_CLIENTS, OTHERS = "to a broker", "of a broker to its clients", "of administrators and servers"
OURS = "of our client"
STATES = {"works", "differs", "no", "later"}


def codes_of_apache(version: str = jars.SERVER) -> dict[int, str]:
    """By number, from the constants of the jar."""
    package = "common" if version.startswith("4.") else "remoting"
    name = f"org.apache.rocketmq.{package}.protocol.RequestCode"
    command = [jars.need("javap"), "-constants", "-cp", jars.server_class_path(version), name]
    text = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    found = re.findall(r"static final (?:int|short) (\w+) = (-?\d+);", text)
    return {int(number): name for name, number in found}


def rows(section: str) -> list[tuple[list[int], str, str]]:
    """(codes, names, state) of a table of requests."""
    text = PAGE.read_text(encoding="utf-8").partition(f"## Requests {section}\n")[2].partition("\n## ")[0]
    found = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and cells[0][:1].isdigit():
            found.append((_codes(cells[0]), cells[1], cells[2]))
    return found


def _codes(cell: str) -> list[int]:
    numbers: list[int] = []
    for part in cell.split(","):
        first, _, last = part.partition(" to ")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


@pytest.fixture(scope="module")
def apache() -> dict[int, str]:
    return codes_of_apache()


def test_every_code_is_listed_once(apache: dict[int, str]) -> None:
    assert len(apache) > 150
    listed = [code for section in (TO_BROKERS, TO_CLIENTS, OTHERS) for codes, _, _ in rows(section) for code in codes]
    # What goes through a broker to a client has a row for both.
    twice = {code for code in listed if listed.count(code) > 1}
    assert twice == set()
    known = codes_of_apache("4.9.7") | apache
    assert {code: known[code] for code in known if code not in listed} == {}
    assert set(listed) - set(known) == set()


def test_names_and_numbers_are_apaches(apache: dict[int, str]) -> None:
    assert {code.value: code.name for code in RequestCode} == {code: apache[code] for code in RequestCode}
    for codes, names, _ in rows(TO_BROKERS) + rows(TO_CLIENTS):
        for word in re.findall(r"[A-Z][A-Z0-9_]{3,}", names):
            assert word in {apache[code] for code in codes}, word


async def test_what_is_said_of_a_code_is_what_our_servers_do(tmp_path: Path) -> None:
    names = NameServer(load(NamesrvOptions, {"kvConfigPath": str(tmp_path / "kvConfig.json")}))
    async with running(tmp_path / "store") as broker:
        carried_out = broker.request_codes | names.request_codes
    said = {code: state for section in (TO_BROKERS, OTHERS) for codes, _, state in rows(section) for code in codes}
    assert set(said.values()) <= STATES
    assert {code for code, state in said.items() if state in ("works", "differs")} == carried_out


def test_of_every_code_it_is_said_whether_our_client_sends_it(apache: dict[int, str]) -> None:
    listed = [(code, state, what) for codes, what, state in rows(OURS) for code in codes]
    assert sorted(code for code, _, _ in listed) == sorted(apache)
    # What stands before a namespace's table of names isn't sent by that.
    sources = [file for file in CLIENT.rglob("*.py") if file.name != "namespaces.py"]
    used = {name for file in sources for name in re.findall(r"RequestCode\.([A-Z]\w+)", file.read_text(encoding="utf-8"))}
    assert {code for code, state, _ in listed if state == "works"} == {RequestCode[name] for name in used}
    assert {state for _, state, _ in listed} == {"works", "no"}


def test_calls_that_the_table_names_are_there() -> None:
    text = PAGE.read_text(encoding="utf-8").partition(f"## Requests {OURS}\n")[2].partition("\n## ")[0]
    admin = Client("127.0.0.1:9876").admin
    named = re.findall(r"`admin\.([\w.]+)`", text)
    assert {name.partition(".")[0] for name in named} == set(vars(admin))
    for name in named:
        assert operator.attrgetter(name)(admin), name
