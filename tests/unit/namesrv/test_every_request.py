"""Every request a name server knows, with fields and bodies as they must not be: an answer in words each time, nothing that
nobody foresaw, and afterwards everything as before."""

import logging
import random

import pytest

from rockmq.protocol.codec import Command
from rockmq.protocol.codes import RequestCode, ResponseCode
from tests.unit.broker.test_every_request import CASES, cases
from tests.unit.namesrv.conftest import Connect, Start
from tests.unit.namesrv.peer import registration, topics


async def test_bad_fields_and_bodies(start: Start, connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    server = await start()
    broker, peer = connect(server), connect(server)
    await broker.good(RequestCode.REGISTER_BROKER, registration(), topics("Kept", "Other"))
    before = (await broker.route("Kept")).body
    assert len(server.request_codes) > 20
    for code in sorted(server.request_codes):
        seed = random.randrange(1 << 32)
        for _, (fields, body) in zip(range(CASES), cases(code, random.Random(seed), {}), strict=False):
            answer = await peer.remoting.invoke(server.address, Command(code, 0, fields=dict(fields), body=body), 10)
            about = f"{RequestCode(code).name} seed {seed} fields {str(fields)[:300]} body {body[:100]!r}: {answer.remark}"
            if answer.code != ResponseCode.SUCCESS:
                assert answer.remark, about
                assert len(answer.remark) < 100_000, about
            assert not [each for each in caplog.records if each.getMessage().startswith("request ")], about
    assert (await broker.route("Kept")).body == before
