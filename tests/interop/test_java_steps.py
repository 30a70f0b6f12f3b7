"""Each thing a Java client can ask for, once, with the answer Apache's own server gives."""

from collections.abc import Callable

import pytest

from rockmq.protocol.codes import RequestCode
from tests.interop.administrators import ask, clone_offset, make_topic
from tests.support import apache
from tests.support.cluster import Cluster, broker_name
from tests.support.events import Event, events

EXPECTED: dict[str, object] = {
    "send": [0, 1, 2, 3, 4],
    "queues": "4/4",
    "offsets": "0/5/true",
    "search": "0/5",
    "view": "steps-0 ü",
    "query": "1/steps-key-1",
    "pull": "FOUND/5/5",
    "pullNothing": "NO_NEW_MSG/5/5",
    "pullFilter": "FOUND/2/5",
    "commit": 3,
    "sendBack": "accepted",
    "litePull": 5,
    "orderly": 5,
    "delay": "1/true",
    "transaction": "[COMMIT_MESSAGE, UNKNOW]/true",  # UNKNOW: the broker asked back and got a commit
    "request": "answer to a question",
    "orderTopic": 3,
    "cloned": "new",
    "namespace": "within/inside/4",
}


@pytest.fixture(scope="module", params=apache.CLIENTS)
def answers(
    request: pytest.FixtureRequest,
    shared: Cluster,
    unique: Callable[[str], str],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Event]:
    topic, group = unique("steps"), unique("steps-group")
    make_topic(shared.namesrv, shared.broker, f"{topic}-cloned", 1, ["seen", "seen", "new"])
    clone_offset(shared.broker, f"{topic}-cloned", f"{group}-cloned", 2)
    make_topic(shared.namesrv, shared.broker, f"{topic}-ordered", 4)
    configuration = {"namespace": "ORDER_TOPIC_CONFIG", "key": f"{topic}-ordered", "value": f"{broker_name(shared)}:3"}
    ask(shared.namesrv, RequestCode.UPDATE_NAMESRV_CONFIG, {}, b"orderMessageEnable=true")
    ask(shared.namesrv, RequestCode.PUT_KV_CONFIG, configuration)
    arguments = f"namesrv={shared.namesrv}", f"topic={topic}", f"group={group}"
    directory = tmp_path_factory.mktemp("steps")
    with apache.program(request.param, "Steps", *arguments, directory=directory) as steps:
        assert steps.wait(400) == 0, steps.tail()
        return {event["name"]: event for event in events(steps, "step")}


@pytest.mark.parametrize("step", EXPECTED)
def test_answer_is_what_apache_answers(answers: dict[str, Event], step: str) -> None:
    assert answers[step].get("result", answers[step].get("error")) == EXPECTED[step]
