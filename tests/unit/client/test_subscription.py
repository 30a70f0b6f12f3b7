"""Subscriptions as brokers are told."""

import pytest

from rockmq.client import Client, ClientError
from rockmq.client.subscription import BrokerFilter, Sql, subscription, subscriptions
from tests.unit.client.fakes import FakeBroker


def test_tags_and_their_codes() -> None:
    found = subscription("T", " TagA ||TagB|| ", 7)
    assert found.sub_string == "TagA ||TagB||"
    assert found.tags_set == ["TagA", "TagB"]
    assert found.code_set == sorted([2598919, 2598920])
    assert (found.sub_version, found.expression_type) == (7, "TAG")


@pytest.mark.parametrize("expression", ["*", "", "  "])
def test_everything(expression: str) -> None:
    found = subscription("T", expression, 1)
    assert (found.sub_string, found.tags_set, found.code_set) == ("*", [], [])


@pytest.mark.parametrize("wanted", ["T", ["T"], {"T": "*"}])
def test_the_retry_topic_comes_along(wanted: object) -> None:
    assert sorted(subscriptions(wanted, "g", 1)) == ["%RETRY%g", "T"]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wanted", "fault"),
    [({}, "at least one topic"), ({"T": "||"}, "names no tag"), ({"bad topic": "*"}, "characters other than")],
)
def test_what_makes_no_sense(wanted: dict[str, str], fault: str) -> None:
    with pytest.raises(ClientError, match=fault):
        subscriptions(wanted, "g", 1)


def test_expressions_go_as_they_are() -> None:
    found = subscriptions({"T": Sql(" a > 5 "), "U": "x", "V": BrokerFilter("large")}, "g", 7)
    assert (found["T"].sub_string, found["T"].expression_type) == (" a > 5 ", "SQL92")
    assert (found["T"].tags_set, found["T"].code_set, found["T"].sub_version) == ([], [], 7)
    assert found["U"].expression_type == "TAG"
    assert (found["V"].sub_string, found["V"].expression_type) == ("large", "PYTHON")
    with pytest.raises(ClientError, match="expression for T is empty"):
        subscription("T", Sql(""), 1)


async def test_no_group_shares_a_light_queue(mq: Client, broker: FakeBroker) -> None:
    for make in (mq.consumer, mq.lite_pull_consumer, mq.pop_consumer):
        with pytest.raises(ClientError, match="which no group shares"):
            make("g", "%LMQ%alice")
    async with mq.consumer("g", "T") as member:
        with pytest.raises(ClientError, match="which no group shares"):
            await member.subscribe("%LMQ%alice")
