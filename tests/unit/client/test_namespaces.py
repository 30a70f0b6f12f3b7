"""Names with a namespace before them. That both kinds of broker are content with it is in tests/client."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rockmq.client.namespaces import Prefix

NAMES = st.text(alphabet="abc%_-", min_size=1, max_size=20)


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("orders", "tenant%orders"),
        ("%RETRY%billing", "%RETRY%tenant%billing"),
        ("%DLQ%billing", "%DLQ%tenant%billing"),
        ("tenant%orders", "tenant%orders"),
        ("other%orders", "tenant%other%orders"),
        ("TBW102", "TBW102"),
        ("RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRACE_TOPIC"),
        ("rmq_sys_wheel_timer", "rmq_sys_wheel_timer"),
        ("TOOLS_CONSUMER", "TOOLS_CONSUMER"),
        ("DefaultCluster_REPLY_TOPIC", "DefaultCluster_REPLY_TOPIC"),
        ("", ""),
    ],
)
def test_where_it_goes(name: str, named: str) -> None:
    assert Prefix("tenant").put(name) == named


@given(NAMES, st.sampled_from(["", "%RETRY%", "%DLQ%"]))
def test_what_is_put_there_is_taken_away(bare: str, kind: str) -> None:
    prefix = Prefix("tenant")
    named = prefix.put(kind + bare)
    assert prefix.take(named) == kind + bare
    assert prefix.put(named) == named, "once, however often a request is sent"
    assert Prefix("other").take(named) == named
