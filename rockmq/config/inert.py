"""Keys of Apache's that RockMQ doesn't own: those without effect here, and those that ask for what isn't here.

An existing broker.conf must start, so the former load with one warning. The latter would change what a cluster promises
(who may read, what survives a crash, who is master), so asking for one is an error; saying its default is fine.
"""

from typing import NamedTuple

REPLICATION = "not built yet: replication comes with the cluster release"
ACCESS = "not built yet: without access control a broker that ignored this would be open to everyone"
ROCKSDB = "only Apache's files; RocksDB isn't built"


class Refusal(NamedTuple):
    """The values (in lower case) that ask for nothing, and why any other is refused."""

    accepted: frozenset[str]
    why: str


class Foreign(NamedTuple):
    """A role's foreign keys."""

    inert: frozenset[str]
    refused: dict[str, Refusal]


PREFIXES = ("com.rocketmq.", "rocketmq.", "org.apache.rocketmq.", "tls.")
"""How Java system properties begin that people put into such files."""


def _only(values: str, why: str) -> Refusal:
    return Refusal(frozenset(values.split("|")), why)


_TLS = "not built yet: this server speaks plain TCP only, and clients that expect TLS would not be protected"

_REFUSED_BY_ALL = {
    "tls.enable": _only("false|", _TLS),
    "tls.server.mode": _only("disabled|permissive|", _TLS),
    "useTLS": _only("false|", _TLS),
    "enableControllerMode": _only("false|", "controller mode is " + REPLICATION),
}

_REFUSED_BY_BROKER = _REFUSED_BY_ALL | {
    "brokerRole": _only("async_master|", REPLICATION),
    "haMasterAddress": _only("", REPLICATION),
    "enableSlaveActingMaster": _only("false|", "acting masters are " + REPLICATION),
    "enableRemoteEscape": _only("false|", "acting masters are " + REPLICATION),
    "enableDLegerCommitLog": _only("false|", "DLedger isn't built; " + REPLICATION),
    "duplicationEnable": _only("false|", REPLICATION),
    "isInBrokerContainer": _only("false|", "broker containers aren't built; run one process per broker"),
    "aclEnable": _only("false|", ACCESS),
    "authenticationEnabled": _only("false|", ACCESS),
    "authorizationEnabled": _only("false|", ACCESS),
    "migrateAuthFromV1Enabled": _only("false|", ACCESS),
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

# BrokerConfig.java, BrokerIdentity.java
_BROKER = """
    accountStatsEnable accountStatsPrintZeroValues ackMessageThreadPoolNums ackThreadPoolQueueCapacity
    adminBrokerThreadPoolNums adminBrokerThreadPoolQueueCapacity appendAckAsync
    appendCkAsync asyncSendEnable autoDeleteUnusedStats broadcastOffsetExpireMaxSecond broadcastOffsetExpireSecond
    brokerConfigPath brokerElectionPriority brokerFastFailureEnable brokerHeartbeatInterval brokerNotActiveTimeoutMillis
    cgColdReadThreshold checkSyncStateSetPeriod cleanOfflineBrokerInterval clearRetryTopicWhenDeleteTopic
    clientManagerThreadPoolQueueCapacity clientManageThreadPoolNums coldCtrStrategyEnable commercialBaseCount
    commercialSizePerMsg compatibleWithOldNameSrv configBlackList
    consumerManagerThreadPoolQueueCapacity consumerManageThreadPoolNums consumerOffsetUpdateVersionStep controllerAddr
    controllerHeartBeatTimeoutMills delayOffsetUpdateVersionStep
    enableBroadcastOffsetStore enableCalcFilterBitMap enableConnectionMetrics
    enableCreateSysGroup enableDetailStat enableFastChannelEventProcess enableLagAndDlqMetrics enableLiteEventMode
    enableLitePopLog enableLmqStats enableMessageStoreMetrics enableMixedMessageType enableNetWorkFlowControl
    enableNotifyAfterPopOrderLockRelease enableNotifyBeforePopCalculateLag enablePopBatchAck enablePopBufferMerge
    enablePopLog enablePopMessageThreshold enablePopMetrics enableRegisterProducer enableRemotingMetrics
    enableRequestMetrics enableRetryTopicV2 enableSingleTopicRegister enableSkipLongAwaitingAck enableSplitMetadata
    enableSplitRegistration enableStatsMetrics enableTransactionMetrics endTransactionPoolQueueCapacity
    endTransactionThreadPoolNums estimateAccumulation fetchControllerAddrByDnsLookup
    fetchNameSrvAddrByDnsLookup fetchNamesrvAddrInterval
    flushConsumerOffsetHistoryInterval forceRegister forwardTimeout globalColdReadThreshold heartbeatThreadPoolNums
    heartbeatThreadPoolQueueCapacity highSpeedMode inBrokerContainer initPopOffsetByCheckMsgInMem isolateLogEnable
    liteEventCheckInterval liteEventFullDispatchDelayTime liteEventFullDispatchDelayTimeForWildcardGroup
    liteLagCountMetricsEnable liteLagLatencyCollectEnable liteLagLatencyMetricsEnable liteLagLatencyTopK
    litePullMessageEnable litePullMessageThreadPoolNums litePullThreadPoolQueueCapacity liteSubscriptionCheckInterval
    liteSubscriptionCheckTimeoutMills liteTtlCheckInterval loadBalancePollNameServerInterval
    loadBalanceProcessorThreadPoolNums loadBalanceThreadPoolQueueCapacity lockInStrictMode maxClientEventCount
    maxLiteSubscriptionCount maxMessageFilterNumForNotification maxPopPollingSize
    maxStatsIdleTimeInMinutes metricGrpcExporterIntervalInMills metricGrpcExporterTimeOutInMills
    metricLoggingExporterIntervalInMills metricsExportBatchMaxDataPoints metricsExporterType metricsGrpcExporterHeader
    metricsGrpcExporterTarget metricsInDelta metricsLabel metricsOtelCardinalityLimit metricsPromExporterHost
    metricsPromExporterPort minLiteTTl persistConsumerOffsetIncrementally popCkMaxBufferSize popCkOffsetMaxQueueSize
    popCkStayBufferTime popCkStayBufferTimeOut popConsumerFSServiceInit popConsumerKVServiceEnable
    popConsumerKVServiceInit popConsumerKVServiceLog popFromRetryProbabilityForPriority
    popLongPollingForceNotifyInterval popPollingMapExpireTimeSeconds popPollingMapSize
    popPollingSize popResponseReturnActualRetryTopic popReviveConcurrency popReviveMaxAttemptTimes
    popReviveMaxReturnSizePerRead popReviveSkipIfGroupAbsent printChannelGroups printChannelGroupsMinNum
    priorityOrderAsc processReplyMessageThreadPoolNums pullMessageThreadPoolNums pullThreadPoolQueueCapacity
    putMessageFutureThreadPoolNums putThreadPoolQueueCapacity queryMessageThreadPoolNums queryThreadPoolQueueCapacity
    realTimeNotifyConsumerChange recoverConcurrently recoverThreadPoolNums
    replyThreadPoolQueueCapacity retrieveMessageFromPopRetryTopicV1 reviveAckWaitMs reviveInterval reviveMaxSlow
    reviveQueueNum reviveScanTime rocketmqHome sendHeartbeatTimeoutMillis sendMessageThreadPoolNums
    sendThreadPoolQueueCapacity skipPreOnline skipWhenCKRePutReachMaxTimes
    splitMetadataSize splitRegistrationSize startAcceptSendRequestTimeStamp
    subscriptionExpiredTimeout syncBrokerMemberGroupPeriod syncBrokerMetadataPeriod syncControllerMetadataPeriod
    transactionCheckRocksdbCoreThreads transactionCheckRocksdbMaxThreads
    transactionCheckRocksdbQueueCapacity transactionMetricFlushInterval
    transferMsgByHeap updateNameServerAddrPeriod
    useMessageFilterForNotification usePIDColdCtrStrategy useSeparateRetryQueue useServerSideResetOffset
    useStaticSubscription validateSystemTopicWhenUpdateTopic waitTimeMillsInAckQueue waitTimeMillsInAdminBrokerQueue
    waitTimeMillsInHeartbeatQueue waitTimeMillsInLitePullQueue waitTimeMillsInPullQueue waitTimeMillsInSendQueue
    waitTimeMillsInTransactionQueue
"""

# MessageStoreConfig.java
_STORE = """
    accessMessageInMemoryHotRatio allAckInSyncStateSet
    asyncLearner autoMessageVersionOnTopicLen batchDispatchRequestThreadPoolNums bitMapLengthConsumeQueueExt
    bottomMostCompressionTypeForConsumeQueueStore checkCommitLogOffsetOnRecover cleanRocksDBDirtyCQIntervalMin
    cleanSwapedMapInterval coldDataFlowControlEnable coldDataScanEnable combineAssignOffsetCQType
    combineCQEnableCheckSelf combineCQLoadingCQTypes combineCQMaxExtraSearchCommitLogFiles combineCQPreferCQType
    combineCQUseRocksdbForLmq commitCommitLogLeastPages commitCommitLogThoroughInterval commitIntervalCommitLog
    commitLogForceSwapMapInterval commitLogRecoverMaxNum commitLogSwapMapInterval commitLogSwapMapReserveFileNum
    compactionCqMappedFileSize compactionMappedFileSize compactionScheduleInternal compactionThreadNum
    correctLogicMinOffsetForceInterval correctLogicMinOffsetSleepInterval debugLockEnable
    deleteConsumeQueueFilesInterval destroyMapedFileIntervalForcibly disappearTimeAfterStart diskFallRecorded
    dispatchCqCacheNum dispatchCqThreads dispatchFromSenderThread dLegerGroup dLegerPeers dLegerSelfId
    enableAcceleratedRecovery enableAsyncReput enableAutoInSyncReplicas enableBatchPush
    enableBuildConsumeQueueConcurrently enableCleanExpiredOffset enableCompaction enableConsumeQueueExt enableLmqQuota
    enableLogConsumeQueueRepeatedlyBuildWhenRecover enableRocksDBLog enableRunningFlagsInFlush
    enableScheduleAsyncDeliver enableScheduleMessageStats fastFailIfNoBufferInStorePool flushCommitLogLeastPages
    flushCommitLogThoroughInterval flushCommitLogTimed flushConsumeQueueLeastPages
    flushLeastPagesWhenWarmMapedFile haFlowControlEnable haHousekeepingInterval haListenPort haMaxGapNotInSync
    haMaxTimeSlaveNotCatchup haSendHeartbeatInterval haTransferBatchSize inSyncReplicas
    iteratorWhenUseRocksdbConsumeQueue logicalDiskSpaceCleanForciblyThreshold logicQueueForceSwapMapInterval
    logicQueueSwapMapInterval logicQueueSwapMapReserveFileNum mappedFileSizeConsumeQueueExt
    mappedFileSwapEnable maxAsyncPutMessageRequests maxBatchDeleteFilesNum
    maxChecksumRange maxConsumeQueueScan maxFilterMessageSize maxHaTransferByteInSecond
    maxOffsetMapSize maxRecoveryCommitlogFiles maxRocksDBIndexQueryDays maxSlaveResendLength maxTopicLength
    maxTransferBytesOnMessageInDisk maxTransferCountOnMessageInDisk memTableFlushIntervalMs
    messageIndexSafe minInSyncReplicas offsetCheckInSlave osPageCacheBusyTimeOutMills preferredLeaderId
    pullBatchMaxMessageCount putConsumeQueueDataByFileChannel putMessageTimeout putMsgIndexHightWater readUnCommitted
    realTimePersistRocksDBConfig recheckReputOffsetFromCq redeleteHangedFileInterval replicasPerDiskPartition
    rocksdbCompressionType rocksdbCQDoubleWriteEnable rocksdbFlushWalFrequency rocksdbWalFileRollingThreshold
    sampleCountThreshold sampleSteps scheduleAsyncDeliverMaxPendingLimit scheduleAsyncDeliverMaxResendNum2Blocked
    searchBcqByCacheEnable sharedByteBufferNum slaveTimeout spinLockCollisionRetreatOptimalDegree
    statRocksDBCQIntervalSec storePathBrokerIdentity storePathDLedgerCommitLog storePathEpochFile syncFromLastFile
    syncMasterFlushOffsetWhenStartup timerColdDataCheckIntervalMs timerEnableCheckMetrics
    timerEnableRetryUntilSuccess timerGetMessageThreadNum timerInterceptDelayLevel
    timerMetricSmallThreshold timerProgressLogIntervalMs timerPutMessageThreadNum
    timerRecallToTimelineEnable timerRecallToTimeWheelEnable timerReputServiceCorePoolSize timerReputServiceMaxPoolSize
    timerReputServiceQueueCapacity timerRocksDBPrecisionMs timerRocksDBRollIntervalHours timerRocksDBRollMaxTps
    timerRocksDBRollRangeHours timerRocksDBStopScan timerRocksDBTimeExpiredMaxTps
    timerSkipUnknownError timerWheelSnapshotFlush timerWheelSnapshotIntervalMs
    topicQueueLockNum totalReplicas transientStorePoolSize transWriteOriginTransHalfEnable travelCqFileNumWhenGetMessage
    useABSLock useReentrantLockWhenPutMessage useSeparateStorePathForRocksdbCQ wakeCommitWhenPutMessage
    wakeFlushWhenPutMessage writeWithoutMmap
"""

# NettyServerConfig.java, NettyClientConfig.java
_REMOTING = """
    channelNotActiveInterval clientAsyncSemaphoreValue clientCallbackExecutorThreads clientChannelMaxIdleTimeSeconds
    clientCloseSocketIfTimeout clientOnewaySemaphoreValue clientPooledByteBufAllocatorEnable clientSocketRcvBufSize
    clientSocketSndBufSize clientWorkerThreads connectTimeoutMillis disableCallbackExecutor disableNettyWorkerGroup
    enableReconnectForGoAway enableShutdownGracefully maxReconnectIntervalTimeSeconds scanAvailableNameSrv
    serverAsyncSemaphoreValue serverCallbackExecutorThreads serverNettyWorkerGroupEnable serverOnewaySemaphoreValue
    serverPooledByteBufAllocatorEnable serverSelectorThreads serverSocketRcvBufSize serverSocketSndBufSize
    serverWorkerThreads shutdownWaitTimeSeconds socksProxyConfig useEpollNativeSelector writeBufferHighWaterMark
    writeBufferLowWaterMark
"""

# AuthConfig.java
_ACCESS = """
    aclCacheExpiredSecond aclCacheMaxNum aclCacheRefreshSecond authConfigPath authenticationMetadataProvider
    authenticationProvider authenticationStrategy authenticationWhitelist authorizationMetadataProvider
    authorizationProvider authorizationStrategy authorizationWhitelist clusterName configName initAuthenticationUser
    innerClientAuthenticationCredentials statefulAuthenticationCacheExpiredSecond statefulAuthenticationCacheMaxNum
    statefulAuthorizationCacheExpiredSecond statefulAuthorizationCacheMaxNum userCacheExpiredSecond userCacheMaxNum
    userCacheRefreshSecond
"""

# Gone from Apache's source, or never in it, but found in many a broker.conf, or shown by a broker that doesn't read them.
_OLDER = """
    abortFile brokerSuspendMaxTimeMillis checkTransactionMessageEnable commercialBigCount commercialEnable
    commercialTimerCount commercialTransCount compressMsgBodyOverHowmuch filterServerNums haSlaveFallbehindMax
    isBrokerContainer isScanAvailableNameSrv mapedFileSizeCommitLog mapedFileSizeConsumeQueue maxDelayTime
    pollNameServerInteval storeCheckpoint storePathConsumeQueue storePathIndex storePathQueue timerCheckMetricsWhen
    timerEnableDisruptor timerWarmEnable transactionCheckMaxTimeInMs
"""

_NAMESRV = """
    clientRequestThreadPoolNums clientRequestThreadPoolQueueCapacity defaultThreadPoolNums
    defaultThreadPoolQueueCapacity productEnvName rocketmqHome unRegisterBrokerQueueCapacity
"""

BROKER = Foreign(frozenset(f"{_BROKER} {_STORE} {_REMOTING} {_ACCESS} {_OLDER}".split()), _REFUSED_BY_BROKER)
NAMESRV = Foreign(frozenset(f"{_NAMESRV} {_REMOTING}".split()), _REFUSED_BY_NAMESRV)
