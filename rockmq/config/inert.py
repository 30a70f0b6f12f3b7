"""Keys of Apache's that RockMQ doesn't own: those without effect here, and those that ask for what isn't here.

An existing broker.conf must start, so the former load with one warning that says why each has no effect. The latter would
change what a cluster promises (who may read, what survives a crash, who is master), so asking for one is an error; saying
its default is fine.
"""

from collections.abc import Mapping
from typing import NamedTuple

REPLICATION = "not built yet: replication comes with the cluster release"
PROVIDER = "only Apache's own provider: Java classes can't be loaded here"
STRATEGY = "only the stateless one: every request is looked at, so that a change counts at once"
ROCKSDB = "only Apache's files; RocksDB isn't built"


_AUTH = "org.apache.rocketmq.auth."


class Refusal(NamedTuple):
    """The values (in lower case) that ask for nothing, and why any other is refused."""

    accepted: frozenset[str]
    why: str


class Foreign(NamedTuple):
    """A role's foreign keys: those without effect, each with the reason, and those that are refused."""

    inert: Mapping[str, str]
    refused: Mapping[str, Refusal]


PREFIXES = ("com.rocketmq.", "rocketmq.", "org.apache.rocketmq.")
"""How Java system properties begin that people put into such files."""
SYSTEM_PROPERTY = "a system property of Java's"


def _only(values: str, why: str) -> Refusal:
    return Refusal(frozenset(values.split("|")), why)


def _by_key(*groups: Mapping[str, str]) -> dict[str, str]:
    """Reasons by key, from keys by reason."""
    found: dict[str, str] = {}
    for group in groups:
        for why, words in group.items():
            for key in words.split():
                assert key not in found, f"{key} is inert for two reasons"
                found[key] = why
    return found


_REFUSED_BY_ALL = {
    "useTLS": _only("false|", "said by tls.enable here"),
    "enableControllerMode": _only("false|", "controller mode is " + REPLICATION),
}

_REFUSED_BY_BROKER = _REFUSED_BY_ALL | {
    "haMasterAddress": _only("", REPLICATION),
    "enableSlaveActingMaster": _only("false|", "acting masters are " + REPLICATION),
    "enableRemoteEscape": _only("false|", "acting masters are " + REPLICATION),
    "enableDLegerCommitLog": _only("false|", "DLedger isn't built; " + REPLICATION),
    "duplicationEnable": _only("false|", REPLICATION),
    "isInBrokerContainer": _only("false|", "broker containers aren't built; run one process per broker"),
    "migrateAuthFromV1Enabled": _only("false|", "not built: make users and rules of the accounts in plain_acl.yml yourself"),
    "authenticationProvider": _only(f"{_AUTH}authentication.provider.defaultauthenticationprovider|", PROVIDER),
    "authenticationMetadataProvider": _only(
        f"{_AUTH}authentication.provider.localauthenticationmetadataprovider|", PROVIDER
    ),
    "authenticationStrategy": _only(f"{_AUTH}authentication.strategy.statelessauthenticationstrategy|", STRATEGY),
    "authorizationProvider": _only(f"{_AUTH}authorization.provider.defaultauthorizationprovider|", PROVIDER),
    "authorizationMetadataProvider": _only(f"{_AUTH}authorization.provider.localauthorizationmetadataprovider|", PROVIDER),
    "authorizationStrategy": _only(f"{_AUTH}authorization.strategy.statelessauthorizationstrategy|", STRATEGY),
    "rejectPullConsumerEnable": _only("false|", "not built yet: pull consumers would not be refused"),
    "indexRocksDBEnable": _only("false|", ROCKSDB),
    "indexFileWriteEnable": _only("true|", "not built: messageIndexEnable=false is what stops the index files"),
    "indexFileReadEnable": _only("true|", "not built: queries are always answered from the index files"),
    "timerRocksDBEnable": _only("false|", ROCKSDB),
    "transRocksDBEnable": _only("false|", ROCKSDB),
    "useSingleRocksDBForAllConfigs": _only("false|", ROCKSDB),
    "storeType": _only("default|", ROCKSDB),
    "configManagerVersion": _only("v1|", "only `v1`, Apache's JSON files"),
    "messageStorePlugIn": _only("", "Java plug-ins can't be loaded here"),
    "fetchNamesrvAddrByAddressServer": _only("false|", "not built: list the name servers in namesrvAddr"),
}

_REFUSED_BY_NAMESRV = _REFUSED_BY_ALL | {
    "supportActingMaster": _only("false|", "acting masters are " + REPLICATION),
    "notifyMinBrokerIdChanged": _only("false|", REPLICATION),
    "enableControllerInNamesrv": _only("false|", "controller mode is " + REPLICATION),
    "clusterTest": _only("false|", "not built: routes are never looked up in another environment"),
}

_NOT_A_JVM = "there are no pools of threads: one event loop answers requests, and the core stores messages"
_REMOTING = {
    "sockets are served by the core, without Netty and its threads and buffers": """
        channelNotActiveInterval clientAsyncSemaphoreValue clientCallbackExecutorThreads clientChannelMaxIdleTimeSeconds
        clientCloseSocketIfTimeout clientOnewaySemaphoreValue clientPooledByteBufAllocatorEnable clientSocketRcvBufSize
        clientSocketSndBufSize clientWorkerThreads connectTimeoutMillis disableCallbackExecutor disableNettyWorkerGroup
        enableReconnectForGoAway enableShutdownGracefully maxReconnectIntervalTimeSeconds scanAvailableNameSrv
        serverAsyncSemaphoreValue serverCallbackExecutorThreads serverNettyWorkerGroupEnable serverOnewaySemaphoreValue
        serverPooledByteBufAllocatorEnable serverSelectorThreads serverSocketRcvBufSize serverSocketSndBufSize
        serverWorkerThreads shutdownWaitTimeSeconds socksProxyConfig useEpollNativeSelector writeBufferHighWaterMark
        writeBufferLowWaterMark
    """,
}

# BrokerConfig.java, BrokerIdentity.java
_BROKER = {
    _NOT_A_JVM: """
        ackMessageThreadPoolNums ackThreadPoolQueueCapacity adminBrokerThreadPoolNums adminBrokerThreadPoolQueueCapacity
        asyncSendEnable clientManageThreadPoolNums clientManagerThreadPoolQueueCapacity consumerManageThreadPoolNums
        consumerManagerThreadPoolQueueCapacity enableFastChannelEventProcess endTransactionPoolQueueCapacity
        endTransactionThreadPoolNums heartbeatThreadPoolNums heartbeatThreadPoolQueueCapacity
        litePullMessageThreadPoolNums litePullThreadPoolQueueCapacity loadBalanceProcessorThreadPoolNums
        loadBalanceThreadPoolQueueCapacity processReplyMessageThreadPoolNums pullMessageThreadPoolNums
        pullThreadPoolQueueCapacity putMessageFutureThreadPoolNums putThreadPoolQueueCapacity
        queryMessageThreadPoolNums queryThreadPoolQueueCapacity replyThreadPoolQueueCapacity sendMessageThreadPoolNums
        sendThreadPoolQueueCapacity
    """,
    "requests don't wait in queues, so none is too old to be answered": """
        brokerFastFailureEnable waitTimeMillsInAckQueue waitTimeMillsInAdminBrokerQueue
        waitTimeMillsInHeartbeatQueue waitTimeMillsInLitePullQueue waitTimeMillsInPullQueue waitTimeMillsInSendQueue
        waitTimeMillsInTransactionQueue
    """,
    "there are no slaves and no controllers: replication comes with the cluster release": """
        brokerElectionPriority brokerHeartbeatInterval brokerNotActiveTimeoutMillis checkSyncStateSetPeriod
        cleanOfflineBrokerInterval compatibleWithOldNameSrv consumerOffsetUpdateVersionStep controllerAddr
        controllerHeartBeatTimeoutMills delayOffsetUpdateVersionStep fetchControllerAddrByDnsLookup forwardTimeout
        loadBalancePollNameServerInterval lockInStrictMode sendHeartbeatTimeoutMillis skipPreOnline
        syncBrokerMemberGroupPeriod syncBrokerMetadataPeriod syncControllerMetadataPeriod
    """,
    "one process is one broker: there are no containers": "inBrokerContainer isolateLogEnable",
    "pops are kept without a log of their own (docs/adr/0012)": """
        appendAckAsync appendCkAsync enableNotifyAfterPopOrderLockRelease enableNotifyBeforePopCalculateLag
        enablePopBatchAck enablePopBufferMerge enablePopLog enablePopMessageThreshold enableRetryTopicV2
        enableSkipLongAwaitingAck initPopOffsetByCheckMsgInMem maxMessageFilterNumForNotification maxPopPollingSize
        popCkMaxBufferSize popCkOffsetMaxQueueSize popCkStayBufferTime popCkStayBufferTimeOut popConsumerFSServiceInit
        popConsumerKVServiceEnable popConsumerKVServiceInit popConsumerKVServiceLog popFromRetryProbabilityForPriority
        popLongPollingForceNotifyInterval popPollingMapExpireTimeSeconds popPollingMapSize popPollingSize
        popResponseReturnActualRetryTopic popReviveConcurrency popReviveMaxAttemptTimes popReviveMaxReturnSizePerRead
        popReviveSkipIfGroupAbsent priorityOrderAsc retrieveMessageFromPopRetryTopicV1 reviveAckWaitMs reviveInterval
        reviveMaxSlow reviveQueueNum reviveScanTime skipWhenCKRePutReachMaxTimes useMessageFilterForNotification
        useSeparateRetryQueue
    """,
    "clients keep the offsets of a broadcast themselves; only Apache's proxy leaves them to the broker": """
        broadcastOffsetExpireMaxSecond broadcastOffsetExpireSecond enableBroadcastOffsetStore
    """,
    "a group that reads what isn't in memory any more isn't slowed down; see disableConsumeIfConsumerReadSlowly": """
        cgColdReadThreshold coldCtrStrategyEnable globalColdReadThreshold usePIDColdCtrStrategy
    """,
    "the core evaluates each expression as messages are read, without bits in the queue": "enableCalcFilterBitMap",
    "there are no lite topics": """
        enableLiteEventMode enableLitePopLog liteEventCheckInterval liteEventFullDispatchDelayTime
        liteEventFullDispatchDelayTimeForWildcardGroup liteLagCountMetricsEnable liteLagLatencyCollectEnable
        liteLagLatencyMetricsEnable liteLagLatencyTopK liteSubscriptionCheckInterval liteSubscriptionCheckTimeoutMills
        liteTtlCheckInterval maxClientEventCount maxLiteSubscriptionCount minLiteTTl
    """,
    "all metrics are told, by HTTP and to who asks": """
        enableConnectionMetrics enableLagAndDlqMetrics enableMessageStoreMetrics enablePopMetrics enableRemotingMetrics
        enableRequestMetrics enableStatsMetrics enableTransactionMetrics transactionMetricFlushInterval
    """,
    "metrics always tell of all since the start": "metricsInDelta",
    "statistics aren't chosen: they are always the same": """
        accountStatsEnable accountStatsPrintZeroValues autoDeleteUnusedStats commercialBaseCount commercialSizePerMsg
        enableDetailStat enableLmqStats estimateAccumulation maxStatsIdleTimeInMinutes
    """,
    "names in namesrvAddr are looked up whenever a connection to one is made": """
        fetchNameSrvAddrByDnsLookup fetchNamesrvAddrInterval updateNameServerAddrPeriod
    """,
    "each registration has all topics, and a change of one is told at once": """
        enableSingleTopicRegister enableSplitMetadata enableSplitRegistration forceRegister splitMetadataSize
        splitRegistrationSize
    """,
    "who takes part is known by heartbeats, and told at once; a group without members is forgotten": """
        enableRegisterProducer printChannelGroups printChannelGroupsMinNum realTimeNotifyConsumerChange
        subscriptionExpiredTimeout useStaticSubscription
    """,
    "it is always so here": """
        clearRetryTopicWhenDeleteTopic enableCreateSysGroup litePullMessageEnable useServerSideResetOffset
        validateSystemTopicWhenUpdateTopic
    """,
    "sends are taken as soon as the broker has started": "startAcceptSendRequestTimeStamp",
    "a topic takes messages of every type": "enableMixedMessageType",
    "over its bounds a connection isn't read from": "enableNetWorkFlowControl",
    "what is read is sent from the log where it lies": "transferMsgByHeap",
    "offsets are saved whole": "persistConsumerOffsetIncrementally",
    "keys that can't change while running are refused": "configBlackList",
    "the file is the one that --config names": "brokerConfigPath",
    "what a start reads of the log doesn't depend on it": "recoverConcurrently recoverThreadPoolNums",
    "only Apache's files are written: there is no RocksDB": """
        transactionCheckRocksdbCoreThreads transactionCheckRocksdbMaxThreads transactionCheckRocksdbQueueCapacity
    """,
    "Apache's 5.5.0 doesn't read it either": "flushConsumerOffsetHistoryInterval highSpeedMode",
}

# MessageStoreConfig.java
_STORE = {
    "there are no slaves: replication comes with the cluster release": """
        allAckInSyncStateSet asyncLearner dLegerGroup dLegerPeers dLegerSelfId diskFallRecorded enableAutoInSyncReplicas
        enableBatchPush haFlowControlEnable haHousekeepingInterval haListenPort haMaxGapNotInSync
        haMaxTimeSlaveNotCatchup haSendHeartbeatInterval haTransferBatchSize maxChecksumRange maxHaTransferByteInSecond
        minInSyncReplicas offsetCheckInSlave preferredLeaderId slaveTimeout storePathBrokerIdentity
        storePathDLedgerCommitLog storePathEpochFile syncFromLastFile syncMasterFlushOffsetWhenStartup totalReplicas
    """,
    "a topic's name has at most 127 characters": "autoMessageVersionOnTopicLen maxTopicLength",
    "a queue's entry is written with its message, so nothing is dispatched behind the log": """
        batchDispatchRequestThreadPoolNums dispatchCqCacheNum dispatchCqThreads dispatchFromSenderThread enableAsyncReput
        enableBuildConsumeQueueConcurrently readUnCommitted recheckReputOffsetFromCq
    """,
    "the core evaluates expressions as messages are read, so queues have no extensions": """
        bitMapLengthConsumeQueueExt enableConsumeQueueExt mappedFileSizeConsumeQueueExt maxFilterMessageSize
    """,
    "only Apache's files are written, without RocksDB": """
        bottomMostCompressionTypeForConsumeQueueStore cleanRocksDBDirtyCQIntervalMin combineAssignOffsetCQType
        combineCQEnableCheckSelf combineCQLoadingCQTypes combineCQMaxExtraSearchCommitLogFiles combineCQPreferCQType
        combineCQUseRocksdbForLmq enableRocksDBLog iteratorWhenUseRocksdbConsumeQueue maxRocksDBIndexQueryDays
        memTableFlushIntervalMs realTimePersistRocksDBConfig rocksdbCQDoubleWriteEnable rocksdbCompressionType
        rocksdbFlushWalFrequency rocksdbWalFileRollingThreshold statRocksDBCQIntervalSec timerRecallToTimeWheelEnable
        timerRecallToTimelineEnable timerReputServiceCorePoolSize timerReputServiceMaxPoolSize
        timerReputServiceQueueCapacity timerRocksDBPrecisionMs timerRocksDBRollIntervalHours timerRocksDBRollMaxTps
        timerRocksDBRollRangeHours timerRocksDBStopScan timerRocksDBTimeExpiredMaxTps transWriteOriginTransHalfEnable
        useSeparateStorePathForRocksdbCQ
    """,
    "a start reads the log from where it and the queues were surely on disk": """
        checkCommitLogOffsetOnRecover commitLogRecoverMaxNum enableAcceleratedRecovery
        enableLogConsumeQueueRepeatedlyBuildWhenRecover maxRecoveryCommitlogFiles messageIndexSafe
    """,
    "the kernel drops pages of old files by itself": """
        cleanSwapedMapInterval commitLogForceSwapMapInterval commitLogSwapMapInterval commitLogSwapMapReserveFileNum
        logicQueueForceSwapMapInterval logicQueueSwapMapInterval logicQueueSwapMapReserveFileNum mappedFileSwapEnable
    """,
    "messages are written to the mapped log, and to no pool before it (docs/adr/0005)": """
        commitCommitLogLeastPages commitCommitLogThoroughInterval commitIntervalCommitLog fastFailIfNoBufferInStorePool
        sharedByteBufferNum transientStorePoolSize wakeCommitWhenPutMessage writeWithoutMmap
    """,
    "a force takes all that was appended, and one that fails ends the broker": """
        enableRunningFlagsInFlush flushCommitLogLeastPages flushCommitLogThoroughInterval flushCommitLogTimed
        flushConsumeQueueLeastPages flushLeastPagesWhenWarmMapedFile wakeFlushWhenPutMessage
    """,
    "topics aren't compacted": """
        compactionCqMappedFileSize compactionMappedFileSize compactionScheduleInternal compactionThreadNum enableCompaction
        maxOffsetMapSize
    """,
    "a group that reads what isn't in memory isn't slowed down; see disableConsumeIfConsumerReadSlowly": """
        accessMessageInMemoryHotRatio coldDataFlowControlEnable coldDataScanEnable
    """,
    "a queue begins where the log does as soon as a file of the log is deleted": """
        correctLogicMinOffsetForceInterval correctLogicMinOffsetSleepInterval deleteConsumeQueueFilesInterval
    """,
    "a file is deleted at once; who still reads it may go on": """
        destroyMapedFileIntervalForcibly redeleteHangedFileInterval
    """,
    "one ratio is for all disks of the store: diskSpaceCleanForciblyRatio": """
        logicalDiskSpaceCleanForciblyThreshold replicasPerDiskPartition
    """,
    "messages are stored by one thread, so there is no lock to choose": """
        debugLockEnable spinLockCollisionRetreatOptimalDegree topicQueueLockNum useABSLock useReentrantLockWhenPutMessage
    """,
    "over its bounds a connection isn't read from; nothing else is refused for being slow": """
        maxAsyncPutMessageRequests osPageCacheBusyTimeOutMills
    """,
    "entries of queues are written by the core, and found by it": """
        putConsumeQueueDataByFileChannel searchBcqByCacheEnable travelCqFileNumWhenGetMessage
    """,
    "how far a group is behind isn't estimated by samples": "maxConsumeQueueScan sampleCountThreshold sampleSteps",
    "what is due is delivered in bulk, without waiting for one by one": """
        enableScheduleAsyncDeliver scheduleAsyncDeliverMaxPendingLimit scheduleAsyncDeliverMaxResendNum2Blocked
    """,
    "timers have no threads; one that fails is tried until it succeeds, and one that never can is logged": """
        disappearTimeAfterStart timerColdDataCheckIntervalMs timerEnableRetryUntilSuccess timerGetMessageThreadNum
        timerProgressLogIntervalMs timerPutMessageThreadNum timerSkipUnknownError timerWheelSnapshotFlush
        timerWheelSnapshotIntervalMs
    """,
    "figures of timers and delays are always kept": """
        enableScheduleMessageStats timerEnableCheckMetrics timerMetricSmallThreshold
    """,
    "light queues have a bound of their number only: maxLmqConsumeQueueNum": "enableLmqQuota",
    "Apache's 5.5.0 doesn't read it": """
        enableCleanExpiredOffset maxBatchDeleteFilesNum maxSlaveResendLength pullBatchMaxMessageCount
        putMessageTimeout putMsgIndexHightWater timerInterceptDelayLevel
    """,
}

# AuthConfig.java
_ACCESS = {
    "users and rules are in memory, and a change counts at once": """
        aclCacheExpiredSecond aclCacheMaxNum aclCacheRefreshSecond statefulAuthenticationCacheExpiredSecond
        statefulAuthenticationCacheMaxNum statefulAuthorizationCacheExpiredSecond statefulAuthorizationCacheMaxNum
        userCacheExpiredSecond userCacheMaxNum userCacheRefreshSecond
    """,
    "the cluster's name is brokerClusterName": "clusterName configName",
}

# Gone from Apache's source, or never in it, but found in many a broker.conf, or shown by a broker that doesn't read them.
_OLDER = {
    "its place is fixed: storePathRootDir says where": """
        abortFile storeCheckpoint storePathConsumeQueue storePathIndex storePathQueue
    """,
    "Apache's 5.5.0 doesn't know it any more, or never did": """
        brokerSuspendMaxTimeMillis checkTransactionMessageEnable commercialBigCount commercialEnable commercialTimerCount
        commercialTransCount compressMsgBodyOverHowmuch filterServerNums haSlaveFallbehindMax isBrokerContainer
        isScanAvailableNameSrv mapedFileSizeCommitLog mapedFileSizeConsumeQueue maxDelayTime pollNameServerInteval
        timerCheckMetricsWhen timerEnableDisruptor timerWarmEnable transactionCheckMaxTimeInMs
    """,
}

_NAMESRV = {
    _NOT_A_JVM: """
        clientRequestThreadPoolNums clientRequestThreadPoolQueueCapacity defaultThreadPoolNums
        defaultThreadPoolQueueCapacity unRegisterBrokerQueueCapacity
    """,
    # ControllerConfig.java, JraftConfig.java
    "there is no controller in a name server": """
        controllerDLegerGroup controllerDLegerPeers controllerDLegerSelfId controllerRequestThreadPoolQueueCapacity
        controllerStorePath controllerThreadPoolNums controllerType electMasterMaxRetryCount enableElectUncleanMaster
        jRaftControllerRPCAddr jRaftElectionTimeoutMs jRaftGroupId jRaftInitConf jRaftScanWaitTimeoutMs jRaftServerId
        jRaftSnapshotIntervalSecs mappedFileSize notifyBrokerRoleChanged processReadEvent scanInactiveMasterInterval
    """,
    "routes are never looked up in another environment": "productEnvName",
    "a name server needs nothing from there": "rocketmqHome",
}

BROKER = Foreign(_by_key(_BROKER, _STORE, _REMOTING, _ACCESS, _OLDER), _REFUSED_BY_BROKER)
NAMESRV = Foreign(_by_key(_NAMESRV, _REMOTING), _REFUSED_BY_NAMESRV)
