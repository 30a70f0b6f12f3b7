"""Makes docs/configuration.md from the declarations in `rockmq.config`.

python scripts/make_configuration.py          writes the file
python scripts/make_configuration.py --check  fails when it isn't up to date
"""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

from msgspec import structs

from rockmq.config.broker import BrokerOptions
from rockmq.config.inert import PREFIXES, SYSTEM_PROPERTY
from rockmq.config.key import SAME, Declared, Role, dump, keys, values
from rockmq.config.namesrv import NamesrvOptions

FILE = Path(__file__).resolve().parents[1] / "docs" / "configuration.md"
HEAD = """\
# Configuration

Made from the source by `scripts/make_configuration.py`.

`rockmq broker --config broker.conf` and `rockmq namesrv --config namesrv.conf` read Apache's files as they are: Java
properties, a key in a line. `--set KEY=VALUE` wins over the file, and `rockmq serve`, which needs no file, takes keys of
both so. `--print-config` shows what would hold, and starts nothing.

A key is never passed over in silence: it has an effect; or it has none here, and one warning at the start says why; or it
asks for what isn't here, and nothing starts. A key that nobody knows is an error that names the nearest one, and so is a
value out of its bounds. In paths `~`, `$HOME` and other variables of the environment are expanded.

*Apache's* is the default of Apache's 5.5.0 where it is another one, and — where there is no such key. What is *live* changes
while the server runs; the others need a start.
"""
SERVERS = (("Broker", BrokerOptions), ("Name server", NamesrvOptions))


def generated() -> str:
    """The page as it should be."""
    return "\n".join([HEAD, *(line for title, role in SERVERS for line in _server(title, role))])


def _server(title: str, role: type[Role]) -> Iterator[str]:
    yield f"## {title}\n"
    defaults = dump(role())
    for section in structs.fields(role):
        yield f"### {title}: {section.name}\n"
        if section.type.__doc__:
            yield f"{inspect.cleandoc(section.type.__doc__)}\n"
        yield "| Key | Values | Default | Apache's | Live | |"
        yield "|---|---|---|---|---|---|"
        for each in keys(role).values():
            if each.section == section.name:
                yield _row(each, defaults.get(each.wire, ""))
        yield ""
    yield from _inert(title, role)
    yield from _refused(title, role)


def _row(each: Declared, default: str) -> str:
    ours = each.default or _code(default.replace(str(Path.home()), "$HOME"))
    apache = {SAME: "", None: "—"}.get(each.apache, _code(each.apache or ""))
    cells = f"`{each.wire}`", values(each), ours, apache, "yes" if each.reload else "", each.doc
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _code(value: str) -> str:
    return f"`{value}`" if value else ""


def _inert(title: str, role: type[Role]) -> Iterator[str]:
    yield f"### {title}: keys without effect\n"
    by_reason: dict[str, list[str]] = {}
    for key, why in role.foreign.inert.items():
        by_reason.setdefault(why, []).append(key)
    yield "| Why | Keys |"
    yield "|---|---|"
    for why, found in by_reason.items():
        yield f"| {why} | {', '.join(f'`{key}`' for key in sorted(found))} |"
    yield f"| {SYSTEM_PROPERTY} | {', '.join(f'`{prefix}…`' for prefix in PREFIXES)} |"
    yield ""


def _refused(title: str, role: type[Role]) -> Iterator[str]:
    yield f"### {title}: keys that ask for what isn't here\n"
    yield "| Key | What it may say | Why nothing else |"
    yield "|---|---|---|"
    for key, refusal in role.foreign.refused.items():
        accepted = " or ".join(f"`{value}`" for value in sorted(refusal.accepted) if value) or "nothing"
        yield f"| `{key}` | {accepted} | {refusal.why} |"
    yield ""


def main() -> int:
    text = generated()
    if "--check" in sys.argv:
        if FILE.read_text(encoding="utf-8") == text:
            return 0
        sys.stderr.write(f"{FILE} is not up to date: run python scripts/make_configuration.py\n")
        return 1
    FILE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
