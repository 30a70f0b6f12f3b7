"""Nothing reads a file that isn't damaged by a test: what is new has to be put here."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.fuzz import test_files, test_operators

SOURCES = Path(__file__).parents[2] / "rockmq"
ELSEWHERE = ("cli/demo", "pipeline", "spark")
"""What has directories of its own, which no server reads."""
DOCUMENTS = "rockmq.broker.documents"
READS = {"candidates", "load_cert_chain", "load_verify_locations", "read_bytes", "read_file", "read_text"}
"""Functions and methods that read a file, besides `open` for reading and the `load` of `broker/documents.py`."""
READING, WRITING = re.compile("'r[bt+]*'"), re.compile("O_WRONLY|'[wax][bt+]*'")

READ_BY = {
    "auth/accounts.py Accounts.load": test_operators.test_users_are_read_or_refused,
    "auth/accounts.py Cipher._key": test_operators.test_users_are_read_or_refused,
    "auth/plain.py _read": test_operators.test_accounts_in_files_are_read_or_refused,
    "broker/configuration.py _rewrite": test_operators.test_configuration_files_are_read_or_refused,
    "broker/consumer_filters.py ConsumerFilters._load": test_files.test_filters_of_consumers_are_read_or_refused,
    "broker/delays.py Delays.__init__": test_files.test_delivered_delays_are_read_or_refused,
    "broker/documents.py load": test_files.test_topics_are_read_or_refused,
    "broker/groups.py GroupTable.__init__": test_files.test_groups_are_read_or_refused,
    "broker/offsets.py _newer": test_files.test_offsets_are_read_or_refused,
    "broker/ordered_pops.py OrderedPops.__init__": test_files.test_pops_in_order_are_read_or_refused,
    "broker/request_modes.py RequestModes.__init__": test_files.test_request_modes_are_read_or_refused,
    "broker/topics.py TopicTable.__init__": test_files.test_topics_are_read_or_refused,
    "cli/serve.py _from_file": test_operators.test_keys_are_taken_or_refused,
    "cli/store_timers.py run": test_operators.test_keys_are_taken_or_refused,
    "cli/store_verify.py layout_of": test_operators.test_keys_are_taken_or_refused,
    "client/local_offsets.py LocalOffsets._load": test_files.test_offsets_of_broadcasts_are_read_or_refused,
    "config/properties.py read_file": test_operators.test_configuration_files_are_read_or_refused,
    "config/tls.py effective": test_operators.test_a_file_of_tls_is_taken_or_refused,
    "namesrv/handlers.py Handlers._save_config": test_operators.test_configuration_files_are_read_or_refused,
    "namesrv/kv.py KVConfig.load": test_files.test_key_value_configurations_are_read_or_put_aside,
    "remoting/tls.py _bytes": test_operators.test_certificates_are_read_or_refused,
    "store/batch_topics.py _document": test_files.test_topics_are_read_or_refused,
    "store/checkpoint.py Checkpoint.load": test_files.test_a_checkpoint_is_read_whatever_it_says,
    "store/dump.py _entries": test_files.test_files_of_a_store_are_dumped_as_far_as_they_make_sense,
    "store/dump.py _units": test_files.test_files_of_a_store_are_dumped_as_far_as_they_make_sense,
    "store/dump.py index_headers": test_files.test_files_of_a_store_are_dumped_as_far_as_they_make_sense,
    "store/journal.py JournalFiles._whole_lines": test_files.test_changes_of_topics_are_read_or_passed_over,
    "store/log_places.py LogPlaces.__init__": test_files.test_places_of_the_log_are_read_or_refused,
    "store/scrub.py Scrub._load": test_files.test_the_place_of_the_scrub_is_read_or_forgotten,
    "store/store_reader.py StoreReader._configured": test_files.test_topics_are_read_or_refused,
    "store/timers.py Checkpoint.load": test_files.test_a_checkpoint_of_timers_is_read_whatever_it_says,
    "store/timers.py Metrics.load": test_files.test_counts_of_timers_are_read_or_forgotten,
    "store/verify.py _check_documents": test_files.test_documents_are_verified_or_told,
}
"""What reads a file, and the test that damages it."""

WITHOUT = {
    "base/files.py candidates": "gives the bytes to those above",
    "base/files.py overwrite": "is written, and nothing is read of it",
    "base/files.py save_parts": "is written, and nothing is read of it",
    "base/files.py sync_directory": "is forced, and nothing is read of it",
    "client/local_offsets.py LocalOffsets._take_lock": "is locked, and nothing is read of it",
    "remoting/tls.py towards_others": "is OpenSSL",
    "client/environment.py context": "is OpenSSL",
    "store/files.py StoreLock.__init__": "is locked, and nothing is read of it",
    "store/files.py is_locked": "is locked, and nothing is read of it",
    "store/memory.py _groups": "is the kernel's",
    "store/memory.py _limits": "is the kernel's",
    "store/repair.py _cut": "is cut, and nothing is read of it",
    "store/repair.py _vouch": "is forced, and nothing is read of it",
}
"""What opens a file that is no document, and why that is so."""


def test_what_reads_a_file_is_damaged() -> None:
    found = {f"{name(path)} {reader}" for path in sources() for reader in readers_in(path.read_text(encoding="utf-8"))}
    assert found == READ_BY.keys() | WITHOUT.keys()
    assert not READ_BY.keys() & WITHOUT.keys()


def test_readers_are_found() -> None:
    """By those whose absence from the table should be noticed."""
    text = """
from rockmq.broker.documents import load, save
class Table:
    def __init__(self, path): self.document = load(path, Document)
    def write(self, path): path.open("w"); open(path, "ab"); os.open(path, os.O_WRONLY | os.O_CREAT); self.saver.open()
def first(path): return path.open("rb").read()
def second(path):
    with open(path) as file: return os.open(path, flags=os.O_RDONLY)
def third(path): return [each for each, text in files.candidates(path)] or files.load(path)
"""
    assert set(readers_in(text)) == {"Table.__init__", "first", "second", "third"}


def sources() -> Iterator[Path]:
    for path in sorted(SOURCES.rglob("*.py")):
        if not name(path).startswith(ELSEWHERE):
            yield path


def name(path: Path) -> str:
    return path.relative_to(SOURCES).as_posix()


def readers_in(source: str) -> Iterator[str]:
    """The functions in a source that read a file, by qualified name."""
    tree = ast.parse(source)
    loads = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == DOCUMENTS
        for alias in node.names
        if alias.name == "load"
    }

    def within(node: ast.AST, scope: tuple[str, ...]) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Call) and reads(child, loads):
                yield ".".join(scope)
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield from within(child, (*scope, child.name))
            else:
                yield from within(child, scope)

    return within(tree, ())


def reads(call: ast.Call, loads: set[str]) -> bool:
    called = call.func
    if isinstance(called, ast.Name) and called.id in loads:
        return True
    word = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
    if word != "open":
        return word in READS and not (word == "read_bytes" and call.args)  # with bytes it is a reader of properties
    given = [ast.unparse(each) for each in (*call.args, *(each.value for each in call.keywords))]
    if isinstance(called, ast.Name) or ast.unparse(called) == "os.open":
        return not any(map(WRITING.search, given))
    return any(map(READING.match, given))
