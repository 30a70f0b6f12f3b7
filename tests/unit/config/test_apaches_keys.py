"""The keys of broker and name server (store spec, 8.2 and 8.3; those of the store: test_store_keys), and Apache's files."""

import logging
from pathlib import Path

import pytest

from rockmq.base.errors import ConfigError
from rockmq.config import properties
from rockmq.config.broker import BrokerOptions
from rockmq.config.key import Role, dump, keys, load
from rockmq.config.namesrv import NamesrvOptions
from rockmq.protocol.codes import RequestCode
from tests.unit.broker.conftest import running

# BrokerConfig.java, BrokerIdentity.java, NettyServerConfig.java, with their defaults.
OF_BROKER = """
    brokerClusterName=DefaultCluster brokerName=broker-a brokerId=0 brokerIP1= brokerIP2= listenPort=10911
    bindAddress=0.0.0.0 regionId=DefaultRegion brokerPermission=6

    namesrvAddr= fetchNamesrvAddrByAddressServer=false fetchNameSrvAddrByDnsLookup=false updateNameServerAddrPeriod=120000

    registerNameServerPeriod=30000 registerBrokerTimeoutMills=24000 forceRegister=true compressedRegister=false
    brokerHeartbeatInterval=1000 brokerNotActiveTimeoutMillis=10000

    serverWorkerThreads=8 serverSelectorThreads=3 serverOnewaySemaphoreValue=256 serverAsyncSemaphoreValue=64
    serverChannelMaxIdleTimeSeconds=120 serverSocketBacklog=1024

    autoCreateTopicEnable=true autoCreateSubscriptionGroup=true defaultTopicQueueNums=8 clusterTopicEnable=true
    brokerTopicEnable=true traceTopicEnable=false msgTraceTopicName=RMQ_SYS_TRACE_TOPIC traceOn=true

    sendMessageThreadPoolNums=4 pullMessageThreadPoolNums=24 litePullMessageThreadPoolNums=24 ackMessageThreadPoolNums=16
    queryMessageThreadPoolNums=12 adminBrokerThreadPoolNums=16 clientManageThreadPoolNums=32
    consumerManageThreadPoolNums=32 heartbeatThreadPoolNums=4

    sendThreadPoolQueueCapacity=10000 pullThreadPoolQueueCapacity=100000 litePullThreadPoolQueueCapacity=100000
    ackThreadPoolQueueCapacity=100000 queryThreadPoolQueueCapacity=20000 adminBrokerThreadPoolQueueCapacity=10000
    clientManagerThreadPoolQueueCapacity=1000000 consumerManagerThreadPoolQueueCapacity=1000000
    heartbeatThreadPoolQueueCapacity=50000 endTransactionPoolQueueCapacity=100000

    brokerFastFailureEnable=true waitTimeMillsInSendQueue=200 waitTimeMillsInPullQueue=5000
    waitTimeMillsInLitePullQueue=5000 waitTimeMillsInHeartbeatQueue=31000 waitTimeMillsInTransactionQueue=3000
    waitTimeMillsInAckQueue=3000 waitTimeMillsInAdminBrokerQueue=5000 startAcceptSendRequestTimeStamp=0

    flushConsumerOffsetInterval=5000 consumerOffsetUpdateVersionStep=500 delayOffsetUpdateVersionStep=200
    useServerSideResetOffset=true enableBroadcastOffsetStore=true broadcastOffsetExpireSecond=120
    broadcastOffsetExpireMaxSecond=300

    longPollingEnable=true shortPollingTimeMills=1000 transferMsgByHeap=true slaveReadEnable=false
    rejectPullConsumerEnable=false litePullMessageEnable=true disableConsumeIfConsumerReadSlowly=false
    consumerFallbehindThreshold=17179869184

    notifyConsumerIdsChangedEnable=true lockInStrictMode=false channelExpiredTimeout=120000
    subscriptionExpiredTimeout=600000

    enablePropertyFilter=false enableCalcFilterBitMap=false expectConsumerNumUseFilter=32 maxErrorRateOfBloomFilter=20
    filterDataCleanTimeSpan=86400000 filterSupportRetry=false

    rejectTransactionMessage=false transactionTimeOut=6000 transactionCheckMax=15 transactionCheckInterval=30000
    transactionOpMsgMaxSize=4096 transactionOpBatchInterval=3000 transactionMetricFlushInterval=10000

    reviveQueueNum=8 reviveInterval=1000 reviveMaxSlow=3 reviveScanTime=10000 enablePopBufferMerge=false
    popCkStayBufferTime=10000 popCkStayBufferTimeOut=3000 popCkMaxBufferSize=200000 enablePopBatchAck=false
    enableRetryTopicV2=false retrieveMessageFromPopRetryTopicV1=true popFromRetryProbability=20 popPollingSize=1024
    popPollingMapSize=100000 popReviveMaxAttemptTimes=16 popConsumerKVServiceEnable=false defaultMessageRequestMode=PULL
    appendAckAsync=false appendCkAsync=false

    enableSlaveActingMaster=false enableRemoteEscape=false skipPreOnline=false enableControllerMode=false controllerAddr=
    syncBrokerMetadataPeriod=5000 checkSyncStateSetPeriod=5000 syncControllerMetadataPeriod=10000
    controllerHeartBeatTimeoutMills=10000 brokerElectionPriority=2147483647 compatibleWithOldNameSrv=true

    aclEnable=false recallMessageEnable=false storeReplyMessageEnable=true asyncSendEnable=true recoverConcurrently=false
    recoverThreadPoolNums=32 configManagerVersion=v1 enableNetWorkFlowControl=false autoDeleteUnusedStats=true
    metricsExporterType=DISABLE
"""
# NamesrvConfig.java, with its defaults.
OF_NAMESRV = """
    listenPort=9876 kvConfigPath=/tmp/kvConfig.json configStorePath=/tmp/namesrv.properties clusterTest=false
    productEnvName=center orderMessageEnable=false returnOrderTopicConfigToBroker=true clientRequestThreadPoolNums=8
    clientRequestThreadPoolQueueCapacity=50000 defaultThreadPoolNums=16 defaultThreadPoolQueueCapacity=10000
    scanNotActiveBrokerInterval=5000 unRegisterBrokerQueueCapacity=3000 supportActingMaster=false
    notifyMinBrokerIdChanged=false enableAllTopicList=true enableTopicList=true enableControllerInNamesrv=false
    needWaitForService=false waitSecondsForService=45 deleteTopicWithBrokerRegistration=false configBlackList=rocketmqHome
"""


def table(text: str) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in text.split())


KEYS = [
    (role, key, default)
    for role, text in ((BrokerOptions, OF_BROKER), (NamesrvOptions, OF_NAMESRV))
    for key, default in table(text).items()
]


@pytest.mark.parametrize(("role", "key", "default"), KEYS)
def test_a_key_has_an_effect_or_it_is_said_why_not(
    role: type[Role], key: str, default: str, caplog: pytest.LogCaptureFixture
) -> None:
    options = load(role, {key: default})
    if key in keys(role):
        assert dump(options).get(key, "") == default
        assert not caplog.records
    elif key in role.foreign.inert:
        assert caplog.messages == [f"these keys have no effect in RockMQ: {key} ({role.foreign.inert[key]})"]
    else:
        assert not caplog.records
        with pytest.raises(ConfigError, match=f"^{key}=other: ....."):
            load(role, {key: "other"})


def test_defaults_are_apaches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    monkeypatch.setattr("socket.gethostname", lambda: "broker-a")
    for role in (BrokerOptions, NamesrvOptions):
        ours = dump(role())
        differ = {key: default for each, key, default in KEYS if each is role and key in ours and ours[key] != default}
        differ.pop("kvConfigPath", None)  # in the home directory, and the table has none
        differ.pop("configBlackList", None)  # rocketmqHome is on ours whatever it says
        differing = {"scanNotActiveBrokerInterval": "5000"} if role is NamesrvOptions else {"metricsExporterType": "DISABLE"}
        assert differ == differing


# distribution/conf of 5.5.0: broker.conf, and broker-a.properties of 2m-noslave, 2m-2s-async and 2m-2s-sync; those of
# broker-b, of broker-trace and of slaves differ by the values here.
STOCK = """
# Licensed to the Apache Software Foundation (ASF) under one or more
brokerClusterName=DefaultCluster
brokerName={name}
brokerId={id}
deleteWhen=04
fileReservedTime=48
brokerRole={role}
flushDiskType=ASYNC_FLUSH
"""


@pytest.mark.parametrize("name", ["broker-a", "broker-b", "broker-trace"])
@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SYNC_MASTER"])
def test_a_masters_file_loads_as_it_is(name: str, role: str, caplog: pytest.LogCaptureFixture) -> None:
    text = STOCK.format(name=name, id=0, role=role)
    for written in (text, text.replace("=", " = ")):  # broker.conf has blanks
        options = load(BrokerOptions, properties.read(written))
        assert (options.identity.broker_name, options.identity.broker_role) == (name, role)
        assert (options.retention.file_reserved_time, options.store.flush_disk_type) == (48, "ASYNC_FLUSH")
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SYNC_MASTER"])
async def test_a_broker_starts_with_a_masters_file(tmp_path: Path, role: str) -> None:
    file = tmp_path / "broker-a.properties"
    file.write_text(STOCK.format(name="broker-a", id=0, role=role), encoding="utf-8")
    # Beside it only what a machine that tests has need of: a place, ports that are free, and a small log.
    async with running(tmp_path / "store", **properties.read_file(file)) as broker:
        assert RequestCode.SEND_MESSAGE in broker.request_codes


@pytest.mark.parametrize("name", ["broker-a", "broker-b"])
def test_a_slaves_file_is_refused_in_words(name: str) -> None:
    with pytest.raises(ConfigError, match=r"^brokerRole=SLAVE: not built yet: replication comes with the cluster release$"):
        load(BrokerOptions, properties.read(STOCK.format(name=name, id=1, role="SLAVE")))


CONTROLLER = """
#Namesrv config
enableControllerInNamesrv = {enabled}

#controller config
controllerDLegerGroup = group1
controllerDLegerPeers = n0-127.0.0.1:9878
controllerDLegerSelfId = n0
"""


def test_a_name_servers_file_loads_but_for_a_controller(caplog: pytest.LogCaptureFixture) -> None:
    """namesrv.conf of Apache's quick start, which has a controller in the name server."""
    words = r"^enableControllerInNamesrv=true: controller mode is not built yet: replication comes with the cluster release$"
    with pytest.raises(ConfigError, match=words):
        load(NamesrvOptions, properties.read(CONTROLLER.format(enabled="true")))
    assert load(NamesrvOptions, properties.read(CONTROLLER.format(enabled="false"))).network.listen_port == 9876
    (said,) = caplog.messages
    assert said.endswith("controllerDLegerSelfId (there is no controller in a name server)")
