"""Options of clients, producers and consumers that can't be: those who use no type checker are told, too."""

import pytest

from rockmq.client import Client, ClientError


@pytest.mark.parametrize(
    ("option", "value"), [("compression_level", 10), ("compress_from", -1), ("message_size_max", 0), ("timeout", 0)]
)
async def test_figures_out_of_bounds(mq: Client, option: str, value: int) -> None:
    with pytest.raises(ClientError, match=f"{option} is {value}: expected"):
        mq.producer("pg", **{option: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("option", ["compression", "durability"])
async def test_options_that_are_misspelt(mq: Client, option: str) -> None:
    with pytest.raises(ClientError, match=f"{option} is 'diskk': expected '"):
        mq.producer("pg", **{option: "diskk"})  # type: ignore[arg-type]


async def test_a_place_to_begin_that_is_none(mq: Client) -> None:
    for make in (mq.consumer, mq.lite_pull_consumer):
        with pytest.raises(ClientError, match="from_where is 'frist': expected 'first', 'last' or a datetime"):
            make("g", ["T"], from_where="frist")  # type: ignore[operator, call-arg, arg-type]


def test_headers_of_no_kind() -> None:
    with pytest.raises(ClientError, match="serializer is 'xml': expected 'json', 'binary'"):
        Client("127.0.0.1:9876", serializer="xml")  # type: ignore[arg-type]


@pytest.mark.parametrize("option", ["max_in_flight", "max_in_flight_bytes"])
def test_room_for_nothing(option: str) -> None:
    with pytest.raises(ClientError, match=f"{option}=0"):
        Client("127.0.0.1:9876", **{option: 0})  # type: ignore[arg-type]
