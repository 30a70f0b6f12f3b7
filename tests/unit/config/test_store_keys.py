"""The keys of the store (store spec, 8.1): each has an effect, or it is said at the start that it has none."""

import logging
import re
from pathlib import Path

import pytest

import rockmq
from rockmq.base.errors import ConfigError
from rockmq.config.broker import BrokerOptions
from rockmq.config.inert import SYSTEM_PROPERTY
from rockmq.config.key import dump, keys, load

# MessageStoreConfig.java, with its defaults.
APACHE = """
    storePathRootDir=$HOME/store storePathCommitLog= readOnlyCommitLogStorePaths= storePathEpochFile=
    storePathBrokerIdentity= storeType=default enableDLegerCommitLog=false

    mappedFileSizeCommitLog=1073741824 mappedFileSizeConsumeQueue=6000000 mapperFileSizeBatchConsumeQueue=13800000
    mappedFileSizeConsumeQueueExt=50331648 mappedFileSizeTimerLog=104857600 maxHashSlotNum=5000000 maxIndexNum=20000000
    maxMessageSize=4194304 maxTopicLength=127 autoMessageVersionOnTopicLen=true

    brokerRole=ASYNC_MASTER haListenPort=10912 haMasterAddress= haSendHeartbeatInterval=5000 haHousekeepingInterval=20000
    haTransferBatchSize=32768 haFlowControlEnable=false maxHaTransferByteInSecond=104857600 slaveTimeout=3000
    haMaxGapNotInSync=268435456 haSlaveFallbehindMax=268435456 totalReplicas=1 inSyncReplicas=1 minInSyncReplicas=1
    enableAutoInSyncReplicas=false allAckInSyncStateSet=false haMaxTimeSlaveNotCatchup=15000 syncFromLastFile=false
    asyncLearner=false syncMasterFlushOffsetWhenStartup=false offsetCheckInSlave=false duplicationEnable=false

    flushDiskType=ASYNC_FLUSH syncFlushTimeout=5000 flushCommitLogTimed=true flushIntervalCommitLog=500
    flushCommitLogLeastPages=4 flushCommitLogThoroughInterval=10000 commitIntervalCommitLog=200
    commitCommitLogLeastPages=4 commitCommitLogThoroughInterval=200 flushIntervalConsumeQueue=1000
    flushConsumeQueueLeastPages=2 flushConsumeQueueThoroughInterval=60000 flushDelayOffsetInterval=10000
    wakeCommitWhenPutMessage=true wakeFlushWhenPutMessage=false

    transientStorePoolEnable=false transientStorePoolSize=5 fastFailIfNoBufferInStorePool=false writeWithoutMmap=false
    warmMapedFileEnable=false flushLeastPagesWhenWarmMapedFile=4096 dataReadAheadEnable=true
    putConsumeQueueDataByFileChannel=true enableRunningFlagsInFlush=false
    useReentrantLockWhenPutMessage=true useABSLock=false topicQueueLockNum=32 osPageCacheBusyTimeOutMills=1000

    enabledAppendPropCRC=false forceVerifyPropCRC=false checkCRCOnRecover=true enableLmq=false enableMultiDispatch=false
    maxLmqConsumeQueueNum=20000

    fileReservedTime=72 deleteWhen=04 cleanResourceInterval=10000 deleteCommitLogFilesInterval=100
    deleteConsumeQueueFilesInterval=100 destroyMapedFileIntervalForcibly=120000 redeleteHangedFileInterval=120000
    deleteFileBatchMax=10 cleanFileForciblyEnable=true diskMaxUsedSpaceRatio=75 diskSpaceCleanForciblyRatio=85
    diskSpaceWarningLevelRatio=90 replicasPerDiskPartition=1 logicalDiskSpaceCleanForciblyThreshold=0.8
    rocketmq.broker.diskSpaceWarningLevelRatio=0.9 rocketmq.broker.diskSpaceCleanForciblyRatio=0.85

    maxTransferBytesOnMessageInMemory=262144 maxTransferCountOnMessageInMemory=32 maxTransferBytesOnMessageInDisk=65536
    maxTransferCountOnMessageInDisk=8 accessMessageInMemoryMaxRatio=40 accessMessageInMemoryHotRatio=26
    maxFilterMessageSize=16000 coldDataFlowControlEnable=false

    messageIndexEnable=true messageIndexSafe=false maxMsgsNumBatch=64 defaultQueryMaxNum=32
    enableConsumeQueueExt=false readUnCommitted=false recheckReputOffsetFromCq=false
    enableBuildConsumeQueueConcurrently=false

    messageDelayLevel=1s enableScheduleAsyncDeliver=false scheduleAsyncDeliverMaxPendingLimit=2000
    scheduleAsyncDeliverMaxResendNum2Blocked=3 timerWheelEnable=true timerPrecisionMs=1000 timerRollWindowSlot=172800
    timerMaxDelaySec=259200 timerFlushIntervalMs=1000 timerGetMessageThreadNum=3 timerPutMessageThreadNum=3
    timerStopEnqueue=false timerStopDequeue=false timerEnableRetryUntilSuccess=false timerSkipUnknownError=false
    timerCongestNumEachSlot=2147483647

    enableCompaction=true compactionMappedFileSize=104857600 compactionCqMappedFileSize=10485760
    compactionScheduleInternal=900000 compactionThreadNum=6 maxOffsetMapSize=104857600

    maxRecoveryCommitlogFiles=30 putMsgIndexHightWater=600000 pullBatchMaxMessageCount=160 putMessageTimeout=8000
    maxBatchDeleteFilesNum=50 maxSlaveResendLength=268435456 enableCleanExpiredOffset=false
    dispatchFromSenderThread=false enableAsyncReput=true dispatchCqThreads=4 mappedFileSwapEnable=true
    timerInterceptDelayLevel=false highSpeedMode=false flushConsumerOffsetHistoryInterval=60000
"""
DEFAULTS = dict(pair.split("=", 1) for pair in APACHE.split())


def other(key: str) -> str:
    """A value that isn't the default."""
    default = DEFAULTS[key]
    if default in ("true", "false"):
        return "false" if default == "true" else "true"
    return str(int(default) + 1) if default.isdigit() else "something"


@pytest.mark.parametrize("key", [key for key in DEFAULTS if key not in keys(BrokerOptions)])
def test_a_key_without_effect_is_said_or_refused(key: str, caplog: pytest.LogCaptureFixture) -> None:
    try:
        load(BrokerOptions, {key: other(key)})
    except ConfigError as error:
        assert str(error).startswith(f"{key}={other(key)}: ")
    else:
        why = BrokerOptions.foreign.inert.get(key, SYSTEM_PROPERTY)
        assert caplog.record_tuples == [
            ("rockmq.config.key", logging.WARNING, f"these keys have no effect in RockMQ: {key} ({why})"),
        ]
    caplog.clear()
    load(BrokerOptions, {key: DEFAULTS[key]})


def test_a_key_that_is_taken_is_read_somewhere() -> None:
    root = Path(rockmq.__file__).parent
    sources = [path.read_text(encoding="utf-8") for path in root.rglob("*.py") if path.parent != root / "config"]
    derived = {
        "delete_when": "delete_hours",
        "metrics_label": "labels",
        "metrics_grpc_exporter_target": "collector",
        "metrics_grpc_exporter_header": "grpc_headers",
        "message_delay_level": "delay_levels",
        "enable_lmq": "light_queues",
        "init_authentication_user": "initial_user",
        "inner_client_authentication_credentials": "credentials",
        "authentication_whitelist": "open_codes",
        "authorization_whitelist": "free_codes",
        "enable_multi_dispatch": "light_queues",
        "store_path_commit_log": "log_directories",
        "read_only_commit_log_store_paths": "read_only_log_directories",
    }
    unread = [
        each.wire
        for each in keys(BrokerOptions).values()
        if not any(re.search(rf"\.{derived.get(each.attribute, each.attribute)}\b", source) for source in sources)
    ]
    assert unread == []
    assert set(DEFAULTS) & keys(BrokerOptions).keys() > {"storePathRootDir", "flushDiskType", "forceVerifyPropCRC"}


def test_defaults_are_apaches() -> None:
    ours = dump(BrokerOptions())
    known = {
        key: default.replace("$HOME", str(Path.home())) for key, default in DEFAULTS.items() if key in keys(BrokerOptions)
    }
    otherwise = {key: ours.get(key, "") for key, default in known.items() if ours.get(key, "") != default}
    levels = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"  # Apache's, too; the table above has only words
    differ = {
        "flushDiskType": "SYNC_FLUSH",
        "maxTransferCountOnMessageInMemory": "1024",
        "maxTransferCountOnMessageInDisk": "1024",
        "maxTransferBytesOnMessageInDisk": str(8 << 20),
    }
    assert otherwise == differ | {"messageDelayLevel": levels}
