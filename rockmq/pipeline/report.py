"""A report of a job: one HTML file that needs nothing else, neither a network nor a script."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

from rockmq.base import files

ROWS_MAX = 500
"""Rows of a table that are shown; the text below it says how many more there are."""

_STYLE = """
:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,sans-serif;color:#16181d;background:#fff;max-width:900px;margin:2.5rem auto;padding:0 1.2rem}
h1{font-size:1.5rem;margin:0 0 .2rem}h2{font-size:1.1rem;margin:2.2rem 0 .6rem}
p{margin:.4rem 0}.note{color:#5b616b}.verdict{font-size:1.05rem;padding:.7rem 1rem;border-left:4px solid;margin:1rem 0}
.good{border-color:#009e73;background:#009e7314}.bad{border-color:#d55e00;background:#d55e0014}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:13.5px}
th,td{text-align:left;padding:.25rem .9rem .25rem 0;border-bottom:1px solid #e3e5e9;vertical-align:top}
th{font-weight:600;white-space:nowrap}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
svg{display:block;width:100%;height:auto;margin:1rem 0}
@media (prefers-color-scheme:dark){body{color:#e4e6eb;background:#15171b}th,td{border-color:#33373f}.note{color:#a0a6b0}}
@media print{body{margin:0;max-width:none}}
"""


class Report:
    """Put together from above to below, then written."""

    def __init__(self, title: str, about: str) -> None:
        self._title = title
        self._parts = [f"<h1>{escape(title)}</h1>", f'<p class="note">{escape(about)}</p>']

    def verdict(self, text: str, *, good: bool) -> None:
        """The sentence that most readers came for."""
        self._parts.append(f'<p class="verdict {"good" if good else "bad"}">{escape(text)}</p>')

    def heading(self, text: str, note: str = "") -> None:
        self._parts.append(f"<h2>{escape(text)}</h2>")
        if note:
            self.note(note)

    def note(self, text: str) -> None:
        self._parts.append(f'<p class="note">{escape(text)}</p>')

    def paragraphs(self, texts: Iterable[str]) -> None:
        self._parts += [f"<p>{escape(text)}</p>" for text in texts]

    def chart(self, svg: str) -> None:
        """One made by `rockmq.pipeline.plots`."""
        self._parts.append(svg)

    def table(self, rows: Sequence[Mapping[str, object]]) -> None:
        """A column for each key of the first row; numbers stand on the right."""
        if not rows:
            self.note("none")
            return
        shown = rows[:ROWS_MAX]
        numeric = {
            name for name in rows[0] if any(_is_number(row[name]) for row in shown)
            and all(row[name] is None or _is_number(row[name]) for row in shown)
        }  # fmt: skip
        head = "".join(f"<th{' class=n' * (name in numeric)}>{escape(name)}</th>" for name in rows[0])
        lines = []
        for row in shown:
            cells = (f"<td{' class=n' * (name in numeric)}>{escape(_shown(row[name]))}</td>" for name in rows[0])
            lines.append(f"<tr>{''.join(cells)}</tr>")
        self._parts.append(f'<div class="wide"><table><tr>{head}</tr>{"".join(lines)}</table></div>')
        if len(rows) > len(shown):
            self.note(f"and {len(rows) - len(shown):,} more")

    def html(self) -> str:
        head = (
            f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(self._title)}</title>'
        )
        body = "\n".join(self._parts)
        return f'<!doctype html><html lang="en"><head>{head}<style>{_STYLE}</style></head>\n<body>{body}\n</body></html>\n'

    def save(self, path: Path) -> Path:
        """Raises OSError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        files.save(path, self.html())
        path.with_name(path.name + ".bak").unlink(missing_ok=True)  # of a report one is enough
        return path


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if value == int(value) or abs(value) >= 1_000 else f"{value:.3g}"
    return f"{value:,}" if _is_number(value) else str(value)
