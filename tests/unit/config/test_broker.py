"""The broker's options from what people write."""

import logging
from pathlib import Path

import pytest

from rockmq.base.errors import ConfigError
from rockmq.config import inert, properties
from rockmq.config.broker import BrokerOptions, Flush
from rockmq.config.key import dump, keys, load

# distribution/conf/2m-noslave/broker-a.properties, and the keys that people add to it.
APACHE = """
# Licensed to the Apache Software Foundation (ASF) under one or more
brokerClusterName=DefaultCluster
brokerName=broker-a
brokerId=0
deleteWhen=04
fileReservedTime=48
brokerRole=ASYNC_MASTER
flushDiskType=ASYNC_FLUSH
namesrvAddr=127.0.0.1:9876;10.0.0.2:9876
brokerIP1 = 192.168.1.10
listenPort=10911
defaultTopicQueueNums=4
autoCreateTopicEnable=true
autoCreateSubscriptionGroup=true
mapedFileSizeCommitLog=1073741824
mapedFileSizeConsumeQueue=300000
storePathRootDir=$HOME/rocketmq/store
storePathCommitLog=${user.home}/rocketmq/store/commitlog
storePathConsumeQueue=/usr/local/rocketmq/store/consumequeue
storePathIndex=/usr/local/rocketmq/store/index
storeCheckpoint=/usr/local/rocketmq/store/checkpoint
abortFile=/usr/local/rocketmq/store/abort
maxMessageSize=65536
sendMessageThreadPoolNums=128
enablePropertyFilter=false
tls.server.mode=permissive
"""


def test_apaches_file_starts_us(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("HOME", "/home/mq")
    options = load(BrokerOptions, properties.read(APACHE))
    assert options.identity.broker_name == "broker-a"
    assert options.identity.broker_ip1 == "192.168.1.10"
    assert options.identity.broker_ip2 is None
    assert options.topics.default_topic_queue_nums == 4
    assert options.store.flush_disk_type is Flush.ASYNC_FLUSH
    assert options.store.store_path_root_dir == "/home/mq/rocketmq/store"
    assert options.store.store_path_commit_log == "/home/mq/rocketmq/store/commitlog"
    assert options.store.max_message_size == 65536
    (warning,) = caplog.records
    assert warning.levelno == logging.WARNING
    assert (options.retention.file_reserved_time, options.retention.delete_hours) == (48, {4})
    for key in ("storePathIndex", "abortFile", "mapedFileSizeCommitLog"):
        assert key in warning.getMessage()
    assert "flushDiskType" not in warning.getMessage()
    assert "brokerRole" not in warning.getMessage()


def test_defaults_need_nothing(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "ns:9876")
    monkeypatch.setattr("socket.gethostname", lambda: "büro.example-1")
    options = load(BrokerOptions, {})
    assert options == BrokerOptions()
    assert options.store.flush_disk_type is Flush.SYNC_FLUSH
    assert options.identity.broker_name == "b_ro_example-1"
    assert options.identity.namesrv_addr == "ns:9876"
    assert options.network.listen_port == 10911
    assert Path(options.store.store_path_root_dir) == Path.home() / "store"
    assert not caplog.records


def test_values_are_brought_into_shape() -> None:
    options = load(BrokerOptions, {"mappedFileSizeConsumeQueue": "6000001", "registerNameServerPeriod": "1"})
    assert options.store.mapped_file_size_consume_queue == 6_000_020
    assert options.registration.register_name_server_period == 10_000
    assert load(BrokerOptions, {"registerNameServerPeriod": "99999999"}).registration.register_name_server_period == 60_000
    assert load(BrokerOptions, {"listenPort": " 1234 "}).network.listen_port == 1234
    assert load(BrokerOptions, {"deleteWhen": "04; 5;23"}).retention.delete_hours == {4, 5, 23}
    assert load(BrokerOptions, {"retentionBytes": ""}).retention.retention_bytes is None
    assert load(BrokerOptions, {"brokerIP1": ""}).identity.broker_ip1 is None
    assert load(BrokerOptions, {"checkCRCOnRecover": "FALSE"}).store.check_crc_on_recover is False


def test_ratios_are_what_the_file_says() -> None:
    """Row 4.2: Apache would make 90, 85 and 95 of these."""
    asked = {"diskSpaceWarningLevelRatio": "97", "diskSpaceCleanForciblyRatio": "96", "diskMaxUsedSpaceRatio": "98"}
    found = load(BrokerOptions, asked).retention
    ratios = found.disk_space_warning_level_ratio, found.disk_space_clean_forcibly_ratio, found.disk_max_used_space_ratio
    assert ratios == (97, 96, 98)


@pytest.mark.parametrize("host", ["mq.example.com", "10.0.0.1", "fd00::1", "[fd00::1]", "broker-0"])
def test_hosts_that_can_be_advertised(host: str) -> None:
    assert load(BrokerOptions, {"brokerIP1": host}).identity.broker_ip1 == host


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("flushDisktype", "ASYNC_FLUSH", "unknown key 'flushDisktype'; did you mean 'flushDiskType'"),
        ("nothingLikeIt", "1", "unknown key 'nothingLikeIt'$"),
        ("sendMessageThreadPoolNum", "1", "did you mean 'sendMessageThreadPoolNums'"),
        ("listenPort", "70000", "listenPort=70000: expected a whole number <= 65535"),
        ("listenPort", "-1", "listenPort=-1: expected a whole number >= 0"),
        ("listenPort", "9,876", "listenPort=9,876: expected a whole number"),
        ("listenPort", "", "listenPort=: expected a whole number"),
        ("maxMessageSize", "4M", r"maxMessageSize=4M: expected a whole number \(bytes\)"),
        ("maxMessageSize", "99999999999999999999999", "maxMessageSize=9"),
        ("maxMessageSize", "16777217", "<= 16777216"),
        ("autoCreateTopicEnable", "yes", "autoCreateTopicEnable=yes: expected true or false"),
        ("flushDiskType", "async_flush", "flushDiskType=async_flush: expected one of SYNC_FLUSH, ASYNC_FLUSH"),
        ("brokerRole", "SLAVE", "brokerRole=SLAVE: not built yet: replication comes with the cluster release"),
        ("brokerRole", "MASTER", "brokerRole=MASTER: expected one of ASYNC_MASTER, SYNC_MASTER, SLAVE"),
        (
            "inSyncReplicas",
            "2",
            "inSyncReplicas=2: a send is acknowledged when it is on this broker's disk; .*not built yet",
        ),
        ("brokerId", "1", "brokerId=1: .*replication comes with the cluster release"),
        ("aclEnable", "true", "aclEnable=true: .*access control"),
        ("authorizationEnabled", "true", "open to everyone"),
        (
            "authenticationStrategy",
            "org.example.StatefulAuthenticationStrategy",
            "stateless",
        ),
        ("authorizationProvider", "com.example.Mine", "Apache's own provider"),
        ("authenticationWhitelist", "ten", "expected request codes"),
        ("initAuthenticationUser", "root:secret", "expected JSON with username and password"),
        ("enableControllerMode", "true", "controller mode"),
        ("enableDLegerCommitLog", "true", "DLedger"),
        ("deleteWhen", "04;24", "deleteWhen=04;24: '24' is no hour; expected 0 to 23"),
        ("deleteWhen", "four", "'four' is no hour"),
        ("deleteWhen", "4" * 4301, "is no hour"),
        ("storePathRootDir", "~\0", r"storePathRootDir='~\\x00': expected a path"),
        ("storePathRootDir", "a\0b", r"storePathRootDir='a\\x00b': expected a path, in which there is no zero byte"),
        ("deleteWhen", " ; ", "deleteWhen is empty"),
        ("diskMaxUsedSpaceRatio", "101", r"diskMaxUsedSpaceRatio=101: expected a whole number <= 100 \(%\)"),
        ("retentionBytes", "0", "retentionBytes=0: expected a whole number >= 1"),
        ("fileReservedTime", "3d", r"fileReservedTime=3d: expected a whole number \(hours\)"),
        ("storeType", "defaultRocksDB", "RocksDB"),
        ("enableLmq", "true", "light queues need both"),
        ("enableMultiDispatch", "true", "light queues need both"),
        ("maxErrorRateOfBloomFilter", "100", "maxErrorRateOfBloomFilter=100: expected"),
        ("pythonFilters", "a=b:c", "needs enablePropertyFilter"),
        ("expectConsumerNumUseFilter", "0", "expectConsumerNumUseFilter=0: expected"),
        ("tls.server.mode", "strict", "expected one of disabled, permissive, enforcing"),
        ("tls.enable", "yes", "tls.enable=yes: expected true or false"),
        ("tls.server.certpath", "x", r"unknown key 'tls.server.certpath'; did you mean 'tls.server.certPath'"),
        ("brokerIP1", "0.0.0.0", "brokerIP1=0.0.0.0: .*can reach"),
        ("brokerIP1", "10.0.0.1:10911", "without a port"),
        ("brokerName", "a b", "brokerName=a b: expected 1 to 127 characters"),
        ("brokerName", "x" * 128, "1 to 127"),
        ("brokerClusterName", "", "brokerClusterName=: expected"),
        ("namesrvAddr", "ns", "namesrvAddr=ns: 'ns' is not an address"),
        ("storePathRootDir", "$NO_SUCH_VARIABLE/x", "no variable 'NO_SUCH_VARIABLE'"),
        ("storePathRootDir", "", "storePathRootDir is empty"),
        ("readOnlyCommitLogStorePaths", "~/store/commitlog", "the log's next file has no place"),
    ],
)
def test_what_cant_be_had_is_said(key: str, value: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load(BrokerOptions, {key: value})


def test_what_asks_for_nothing_loads_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    for key, refusal in BrokerOptions.foreign.refused.items():
        for accepted in refusal.accepted:
            load(BrokerOptions, {key: accepted.upper()})
    assert not caplog.records


def test_every_inert_key_loads_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    load(BrokerOptions, dict.fromkeys(inert.BROKER.inert, "1"))
    assert len(caplog.records) == 1
    assert not inert.BROKER.inert.keys() & inert.BROKER.refused.keys()


def test_dump_gives_back_what_loads(tmp_path: Path) -> None:
    options = load(BrokerOptions, {"storePathRootDir": str(tmp_path), "advertisedPort": "30911", "traceOn": "false"})
    shown = dump(options)
    assert shown["advertisedPort"] == "30911"
    assert shown["traceOn"] == "false"
    assert shown["flushDiskType"] == "SYNC_FLUSH"
    assert "brokerIP1" not in shown
    assert load(BrokerOptions, properties.read(properties.write(shown))) == options


def test_javas_spellings_hold() -> None:
    assert {"brokerIP1", "brokerIP2", "checkCRCOnRecover", "namesrvAddr", "shortPollingTimeMills"} <= keys(
        BrokerOptions
    ).keys()
