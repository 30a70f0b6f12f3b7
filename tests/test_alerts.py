"""What is shipped for operators names metrics that there are: the page, the alert rules and the dashboards."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rockmq.config.metrics import OWN_LABELS
from rockmq.metrics import names
from rockmq.metrics.samples import Metric

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "metrics.md"
RULES = ROOT / "deploy" / "prometheus" / "rules.yml"
DASHBOARDS = sorted((ROOT / "deploy" / "grafana").glob("*.json"))
OF_PROMETHEUS = frozenset({"instance", "job", "le"})
BY_NAME = {metric.name: metric for metric in names.ALL}
_SERIES = re.compile(r"\b((?:rocketmq|rockmq)_[a-z_]+)\b(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'([a-z_]+)(?:=~|!~|!=|=)"')


def row(metric: Metric) -> str:
    """The page's row of a metric."""
    labels = ", ".join(f"`{label}`" for label in metric.labels) or "-"
    bounds = f" Ranges up to {', '.join(f'{bound:,}' for bound in metric.bounds)}." if metric.bounds else ""
    return f"| `{metric.name}` | {metric.kind} | {labels} | {metric.doc}{bounds} | {metric.source or 'RockMQ'} |"


def metric_of(series: str) -> Metric:
    """The metric that has this series. Fails when there is none."""
    for suffix in ("", "_bucket", "_count", "_sum"):
        metric = BY_NAME.get(series.removesuffix(suffix))
        if metric is not None and (not suffix or series.endswith(suffix)) and bool(suffix) == (metric.kind == "histogram"):
            return metric
    pytest.fail(f"no metric has the series {series}")


_INCREASE = re.compile(r"\bincrease\(([a-z_]+)(\{[^}]*\})?\[([0-9a-z]+)\]\)")


def check(expression: str) -> None:
    for opened, closed in ("()", "{}", "[]"):
        assert expression.count(opened) == expression.count(closed), expression
    found = _SERIES.findall(expression)
    assert found or "up{" in expression, expression
    for series, matchers in found:
        known = {*metric_of(series).labels, *OWN_LABELS, *OF_PROMETHEUS}
        assert set(_MATCHER.findall(matchers)) <= known, expression
    # A series with labels begins when there is something to count, and that is no increase.
    for series, matchers, window in _INCREASE.findall(expression):
        if metric_of(series).labels:
            assert f"({series}{matchers} unless {series}{matchers} offset {window})" in expression, expression


def expressions(panel: dict[str, Any]) -> Iterator[str]:
    for target in panel.get("targets", ()):
        yield target["expr"]
    for inner in panel.get("panels", ()):
        yield from expressions(inner)


def test_the_page_has_every_metric() -> None:
    rows = [
        line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith(("| `rocketmq_", "| `rockmq_"))
    ]
    assert rows == [row(metric) for metric in names.ALL]


def test_metrics_are_named_as_prometheus_wants_it() -> None:
    assert len(BY_NAME) == len(names.ALL)
    for metric in names.ALL:
        assert re.fullmatch(r"(rocketmq|rockmq)_[a-z_]+", metric.name)
        assert metric.name.startswith("rocketmq_") == bool(metric.source)
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert bool(metric.bounds) == (metric.kind == "histogram")
    for metric in names.BROKER:
        assert not OWN_LABELS & set(metric.labels)


def test_rules_are_about_metrics_that_there_are() -> None:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        check(rule["expr"])
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"]["summary"]
        assert re.fullmatch(r"[0-9]+[smh]", rule.get("for", "0s"))
    assert any("predict_linear(rockmq_disk_free_bytes" in rule["expr"] for rule in rules)


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_dashboards_show_metrics_that_there_are(path: Path) -> None:
    dashboard = json.loads(path.read_text(encoding="utf-8"))
    shown = [expression for panel in dashboard["panels"] for expression in expressions(panel)]
    assert len(shown) > 5
    for expression in shown:
        check(expression)
    variables = dashboard["templating"]["list"]
    for variable in variables:
        if variable["type"] == "query":
            check(variable["query"]["query"])
    known = {variable["name"] for variable in variables} | {"__rate_interval"}
    assert set(re.findall(r"\$([a-z_]+)", " ".join(shown))) <= known
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))


def test_there_are_dashboards() -> None:
    assert [path.stem for path in DASHBOARDS] == ["broker", "consumers", "namesrv"]


def test_a_wrong_name_or_label_is_found() -> None:
    for wrong in (
        "rate(rocketmq_messages_in[5m])",
        'rockmq_ready{topic="x"}',
        "rockmq_event_loop_lag_seconds > 1",
        "sum(",
        "increase(rockmq_refusals_total[5m]) > 0",
    ):
        with pytest.raises((AssertionError, pytest.fail.Exception)):
            check(wrong)
