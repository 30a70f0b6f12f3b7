"""Every command of mqadmin 5.5.0 against our servers: it prints what it prints of Apache's in the same state, or says that
something isn't supported, for which `docs/compatibility.md` has the reason.
"""

import asyncio
import json
import re
from contextlib import AsyncExitStack
from pathlib import Path

from tests.interop import beside
from tests.interop.beside import Server, Step, differences, lines
from tests.support import apache

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"
NOT_SUPPORTED = "not supported"


STATUS = "brokerStatus -b {broker}"


def no(line: str, says: str = NOT_SUPPORTED) -> Step:
    """One that isn't carried out here."""
    return Step(line, says)


BEFORE = [
    Step("clusterList", "Cluster Name"),  # a JVM that is young, and others that start, cost commands their time
    Step("updateTopic -b {broker} -t Orders -r 3 -w 3", until="success"),
    Step("updateTopic -c {cluster} -t Ordered -r 2 -w 2 -o true", until="success"),
    Step("updateTopicPerm -b {broker} -t Ordered -p 4"),
    Step("updateTopicList -b {broker} -f {directory}/topics.json", until="success"),
    Step("updateSubGroup -b {broker} -g readers", until="success"),
    Step("updateSubGroup -c {cluster} -g others -r 3", until="success"),
    Step("updateSubGroupList -b {broker} -f {directory}/groups.json", until="success"),
]
"""What the messages of `Server.used` need."""

STEPS = [
    # Goes on beside the others; what it has found is looked at in the end.
    Step("startMonitoring"),
    # Before the others: Apache's broker counts when it takes a sample, and knows no more of a minute than the last one.
    Step("statsAll -t Orders", until=r" 6 +6$"),
    Step("topicList", ordered=False, leave_out="(?i)rmq_sys_|TOPIC_XXXX"),
    Step("topicList -c", ordered=False, leave_out="(?i)rmq_sys_|TOPIC_XXXX"),
    Step("topicRoute -t Orders"),
    Step("topicRoute -t Orders -l"),
    Step("topicClusterList -t Orders"),
    Step("topicStatus -t Orders"),
    Step("queryMsgByKey -t Orders -k k1"),
    Step("queryMsgById -t Orders -i {offset_id}"),
    Step("queryMsgByUniqueKey -t Orders -i {msg_id}", "Queue Offset"),
    Step("queryMsgByOffset -t Orders -b {name} -i 1 -o 0"),
    Step("queryMsgTraceById -i {msg_id}"),
    Step("printMsg -t Orders", ordered=False),
    Step("printMsgByQueue -t Orders -a {name} -i 1 -p true -f true"),
    Step("consumeMessage -t Orders -b {name} -i 1 -o 0 -c 1"),
    Step("queryCq -t Orders -q 1 -i 0 -c 5 -b {broker}"),
    # When a member tells where it is in its retry topic is its own affair.
    Step("consumerProgress -g readers", ordered=False, leave_out="%RETRY%"),
    Step("consumerProgress", ordered=False, leave_out="TOOLS_CONSUMER"),
    Step("consumerStatus -g readers"),
    Step("consumerConnection -g readers", ordered=False),
    Step("producerConnection -g writers -t Orders"),
    Step("producer -b {broker}", ordered=False, leave_out="CLIENT_INNER_PRODUCER"),
    Step("brokerConsumeStats -b {broker}", ordered=False, leave_out="%RETRY%"),
    Step("getConsumerConfig -g others"),
    Step("clusterList"),
    Step("clusterList -m"),
    Step("haStatus -b {broker}"),
    Step("allocateMQ -t Orders -i a,b", ordered=False),
    Step("cloneGroupOffset -s readers -d others -t Orders -o true"),
    Step("resetOffsetByTime -g others -t Orders -s 0", ordered=False),
    Step("skipAccumulatedMessage -g others -t Orders", ordered=False),
    Step("setConsumeMode -b {broker} -t Ordered -g others -m POP"),
    Step("updateOrderConf -t Orders -m put -v {name}:3"),
    Step("updateOrderConf -t Orders -m get"),
    Step("updateOrderConf -t Orders -m delete"),
    Step("updateKvConfig -s space -k a -v 1"),
    Step("deleteKvConfig -s space -k a"),
    Step("updateBrokerConfig -b {broker} -k longPollingEnable -v true"),
    Step("updateNamesrvConfig -k orderMessageEnable -v false"),
    Step("cleanExpiredCQ -b {broker}"),
    Step("cleanUnusedTopic -b {broker}"),
    Step("deleteExpiredCommitLog -b {broker}"),
    Step("setCommitLogReadAheadMode -b {broker} -m 1"),
    Step("setCommitLogReadAheadMode -b {broker} -m 0"),
    Step("wipeWritePerm -b {name}", leave_out="wipe write perm of broker"),
    Step("addWritePerm -b {name}", leave_out="add write perm of broker"),
    Step("sendMessage -t Orders -p text -k late -c red -b {name} -i 2"),
    Step("sendMsgStatus -b {name} -c 1"),
    Step("checkMsgSendRT -t Orders -a 2"),
    Step("clusterRT -c {cluster} -a 3"),
    Step("remappingStaticTopic -b {name} -t Orders"),
    Step("exportMetadata -c {cluster} -f {directory}/{kind}"),
    Step("exportConfigs -c {cluster} -f {directory}/{kind}"),
    Step("exportMetrics -c {cluster} -f {directory}/{kind}"),
    Step("deleteSubGroup -b {broker} -g others -r true"),
    Step("deleteTopic -c {cluster} -t Ordered"),
    # What tells everything there is, and differs by what the two are.
    Step(STATUS, "putTps"),
    Step("getBrokerConfig -b {broker}", "brokerName"),
    Step("getNamesrvConfig", "kvConfigPath"),
    # What isn't there.
    no("addBroker -c {broker} -b {directory}/broker.conf"),
    no("removeBroker -c {broker} -b {cluster}:{name}:0"),
    no("getControllerMetaData -a {broker}"),
    no("getControllerConfig -a {broker}"),
    no("updateControllerConfig -a {broker} -k a -v 1"),
    no("electMaster -a {broker} -b 0 -bn {name} -c {cluster}"),
    no("cleanBrokerMetadata -a {broker} -bn {name} -c {cluster} -b 1"),
    no("getSyncStateSet -a {broker} -b {name}"),
    no("getBrokerEpoch -b {name}"),
    no("resetMasterFlushOffset -b {broker} -o 0"),
    no("getColdDataFlowCtrInfo -b {broker}"),
    no("updateColdDataFlowCtrGroupConfig -b {broker} -g readers -v 1"),
    no("removeColdDataFlowCtrGroupConfig -b {broker} -g readers"),
    no("updateStaticTopic -b {name} -t Static -qn 2"),
    no("exportPopRecord -b {broker}"),
    no("rocksDBConfigToJson -c {cluster} -t topics"),
    no("checkRocksdbCqWriteProgress -c {cluster} -t Orders"),
    no("switchTimerEngine -b {broker} -e R"),
    no("getBrokerLiteInfo -b {broker}"),
    # These say of a broker that there was an error, and not which.
    no("getParentTopicInfo -p Orders", "[broker-a] error."),
    no("getLiteTopicInfo -p Orders -l one", "[broker-a] error."),
    no("getLiteClientInfo -p Orders -g readers -c nobody", "[broker-a] error."),
    no("getLiteGroupInfo -p Orders -g readers", "[broker-a] error."),
    no("triggerLiteDispatch -p Orders -g readers -b {name}", "error"),
]


def files_for(directory: Path) -> None:
    topics = [{"topicName": name, "readQueueNums": 2, "writeQueueNums": 2, "perm": 6} for name in ("One", "Two")]
    (directory / "topics.json").write_text(json.dumps(topics), encoding="utf-8")
    groups = [{"groupName": name, "retryMaxTimes": 5} for name in ("first", "second")]
    (directory / "groups.json").write_text(json.dumps(groups), encoding="utf-8")


async def test_commands_print_what_they_print_of_apaches_servers(tmp_path: Path) -> None:
    files_for(tmp_path)
    with beside.pair(tmp_path, {}) as servers:
        async with AsyncExitStack() as stack:
            await asyncio.gather(*(server.carry_out(BEFORE) for server in servers))
            for server in servers:
                await server.use(stack)
            await asyncio.gather(*(server.carry_out(STEPS) for server in servers))
            monitored = await asyncio.gather(*map(monitored_at, servers))
    found = [told for step in BEFORE + STEPS if (told := differences(step, *servers)) is not None]
    assert not found, "\n\n".join(found)
    assert monitored == [{"readers"}, {"readers"}]
    ours, apaches = (keys_of_status(server.printed[STATUS]) for server in servers)
    assert {"putTps", "putLatency99", "timerReadBehind"} <= apaches
    assert apaches - ours == set()


def keys_of_status(printed: str) -> set[str]:
    """But for what isn't the same of any two brokers: paths, and levels that nothing was delayed by."""
    keys = re.findall(r"^(\w\S*)\s*: ", printed, re.MULTILINE)
    return {key for key in keys if not re.match("commitLogDiskRatio_|scheduleMessageOffset_", key)}


def test_only_how_far_timers_are_behind_the_clock_is_no_difference() -> None:
    line = "TestCluster broker-a 0 127.0.0.1:10911 V5_5_0 0.00(0,0ms) {} 0 0.00 0.2500 true"
    progress = "0-0(0.0w, 0.0, 0.0)", "1-0(0.0w, 0.2, 0.0)", "0-1(0.0w, 0.0, 0.0)"
    one, behind, queued = (lines(line.format(each), Step("clusterList")) for each in progress)
    assert one == behind
    assert one != queued


async def monitored_at(server: Server) -> set[str]:
    """Whose progress in Orders startMonitoring has logged in its first round, 20 s after its start. How far they were then
    is no matter of the servers, as the other commands send meanwhile."""
    log = server.shell.directory / "shell.log"
    async with asyncio.timeout(beside.PATIENCE_S):
        while "[MONITOR] =========================================endRound" not in (text := log.read_text(errors="replace")):
            await asyncio.sleep(0.5)
    return set(re.findall(r"reportUndoneMsgs: UndoneMsgs \[consumerGroup=(\w+), topic=Orders,", text))


# The page


def commands(shell: apache.Shell) -> list[str]:
    return list(dict.fromkeys(re.findall(r"^ {3}(\w+) ", shell(""), re.MULTILINE)))


def rows() -> dict[str, tuple[str, str]]:
    """State and words of each command in the page."""
    text = PAGE.read_text(encoding="utf-8").partition("## Commands of mqadmin\n")[2].partition("\n## ")[0]
    found: dict[str, tuple[str, str]] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `"):
            for name in re.findall(r"`(\w+)`", cells[0]):
                assert name not in found, f"{name} stands there twice"
                found[name] = (cells[1], cells[2])
    return found


def test_the_page_says_of_every_command_what_becomes_of_it(tmp_path: Path) -> None:
    with apache.shell(tmp_path) as shell:
        known = commands(shell)
    listed = rows()
    assert len(known) > 80
    assert sorted(listed) == sorted(known)
    compared = {step.command for step in BEFORE + STEPS if step.says is None}
    refused = {step.command for step in STEPS if step.says == NOT_SUPPORTED}
    for name, (state, words) in listed.items():
        assert state in ("works", "differs", "no"), name
        assert name not in compared or state != "no", name
        assert name not in refused or state == "no", name
        assert words or name in compared, f"{name}: which test shows it, or why not?"
