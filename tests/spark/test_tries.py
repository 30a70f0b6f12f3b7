"""What is asked again, and until when."""

import time

import pytest

from rockmq.base.errors import ConnectError, ResponseError, RockMQError, RouteNotFound
from rockmq.protocol.codes import ResponseCode
from rockmq.spark import tries


@pytest.mark.parametrize(
    "error", [RouteNotFound("no route"), ResponseError(ResponseCode.NO_PERMISSION, "the topic is not writable")]
)
async def test_what_routes_tell_soon_is_not_waited_for_as_long_as_a_broker(
    error: RockMQError, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tries, "ROUTE_SECONDS", 0.5)
    asked = []

    async def ask() -> None:
        asked.append(time.monotonic())
        raise error

    with pytest.raises(type(error)):
        await tries.Waiting(60).until(ask)

    assert 0.2 < asked[-1] - asked[0] < 30
    assert len(asked) > 2


async def test_a_name_server_that_was_away_has_to_hear_of_its_brokers_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tries, "ROUTE_SECONDS", 0.1)
    answers: list[RockMQError] = [ConnectError("nobody there"), RouteNotFound("no route"), RouteNotFound("no route")]

    async def ask() -> str:
        if answers:
            raise answers.pop(0)
        return "there"

    assert await tries.Waiting(60).until(ask) == "there"
