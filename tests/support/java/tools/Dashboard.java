import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONWriter;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.math.BigDecimal;
import java.net.SocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.stats.Stats;
import org.apache.rocketmq.common.topic.TopicValidator;
import org.apache.rocketmq.remoting.RemotingClient;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.body.AclInfo;
import org.apache.rocketmq.remoting.protocol.body.BrokerStatsData;
import org.apache.rocketmq.remoting.protocol.body.Connection;
import org.apache.rocketmq.remoting.protocol.body.ConsumerConnection;
import org.apache.rocketmq.remoting.protocol.body.KVTable;
import org.apache.rocketmq.remoting.protocol.body.SubscriptionGroupWrapper;
import org.apache.rocketmq.remoting.protocol.body.UserInfo;
import org.apache.rocketmq.remoting.protocol.header.GetConsumerConnectionListRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.GetTopicConfigRequestHeader;
import org.apache.rocketmq.remoting.protocol.statictopic.TopicConfigAndQueueMapping;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.CommandUtil;
import org.apache.rocketmq.tools.command.stats.StatsAllSubCommand;

/**
 * Asks servers what Apache's dashboard 2.1 asks them, by the calls its services make, page by page. Each line is a JSON array of
 * the page with the call and either what came back, its fields as they are in Java, or the error.
 *
 * The servers have topic Orders, which a member of group readers consumes, a producer of group writers, and a dead letter of
 * group broken, which has a member, too.
 */
public final class Dashboard {
    private static final String TOPIC = "Orders";
    private static final String GROUP = "readers";
    private static final String DEAD = MixAll.DLQ_GROUP_TOPIC_PREFIX + "broken";
    private static final int QUERY_MAX = 64;
    private static final int PULL_MAX = 32;
    private static final long WAIT_MS = 20_000;

    private final String namesrv;
    private final AclClientRPCHook hook;
    private final DefaultMQAdminExt admin;
    private final DefaultMQPullConsumer reader;
    private String cluster;
    private String brokerName;
    private String broker;

    public static void main(String[] args) throws Exception {
        int code = 1;
        try {
            new Dashboard(args[0], args[1], args[2]).run();
            code = 0;
        } catch (Throwable error) {
            error.printStackTrace();
        }
        System.exit(code); // threads of clients would go on
    }

    private Dashboard(String namesrv, String accessKey, String secretKey) throws MQClientException {
        this.namesrv = namesrv;
        hook = new AclClientRPCHook(new SessionCredentials(accessKey, secretKey));
        admin = new DefaultMQAdminExt(hook, 30_000);
        admin.setNamesrvAddr(namesrv);
        admin.start();
        reader = new DefaultMQPullConsumer(MixAll.TOOLS_CONSUMER_GROUP, hook);
        reader.setNamesrvAddr(namesrv);
        reader.start();
    }

    private void run() throws Exception {
        clusters();
        topics();
        groups();
        producers();
        messages();
        deadLetters();
        offsets();
        users();
        deletes();
    }

    /** ClusterServiceImpl, DashboardCollectTask. */
    private void clusters() throws Exception {
        tell("cluster: list", admin::examineBrokerClusterInfo);
        cluster = admin.examineBrokerClusterInfo().getClusterAddrTable().keySet().iterator().next();
        brokerName = admin.examineBrokerClusterInfo().getClusterAddrTable().get(cluster).iterator().next();
        broker = admin.examineBrokerClusterInfo().getBrokerAddrTable().get(brokerName).selectBrokerAddr();
        tell("cluster: figures it shows", () -> {
            KVTable stats = admin.fetchBrokerRuntimeStats(broker);
            Map<String, Object> shown = new TreeMap<>();
            for (String name : Arrays.asList("putTps", "getTransferredTps", "getTotalTps")) {
                Arrays.stream(stats.getTable().get(name).trim().split(" ")).forEach(BigDecimal::new);
                shown.put(name, "numbers");
            }
            for (String name : Arrays.asList("msgPutTotalTodayMorning", "msgPutTotalYesterdayMorning", "msgGetTotalTodayMorning",
                "msgGetTotalYesterdayMorning", "msgPutTotalTodayNow", "msgGetTotalTodayNow")) {
                shown.put(name, Long.parseLong(stats.getTable().get(name)) >= 0);
            }
            shown.put("brokerVersionDesc", stats.getTable().get("brokerVersionDesc"));
            return shown;
        });
        tell("cluster: configuration", () -> {
            Map<String, Object> shown = new TreeMap<>();
            admin.getBrokerConfig(broker).forEach((key, value) -> shown.put(key.toString(), value));
            shown.keySet().retainAll(Arrays.asList("brokerName", "brokerClusterName", "brokerId", "brokerRole"));
            return shown;
        });
        tell("dashboard: put of a topic", () -> collected(Stats.TOPIC_PUT_NUMS, TOPIC));
        tell("dashboard: got by a group", () -> collected(Stats.GROUP_GET_NUMS, TOPIC + "@" + GROUP));
    }

    /** TopicServiceImpl, CollectTaskRunnble. */
    private void topics() {
        tell("topic: list", () -> new TreeSet<>(admin.fetchAllTopicList().getTopicList()));
        tell("topic: those of the system", () -> new TreeSet<>(api().getSystemTopicList(20_000).getTopicList()));
        tell("topic: types", () -> {
            Map<String, Object> types = new TreeMap<>();
            admin.getAllTopicConfig(broker, 10_000).getTopicConfigTable().forEach((name, config) -> types.put(name, config.getAttributes()));
            return types;
        });
        for (String type : Arrays.asList("NORMAL", "FIFO", "DELAY", "TRANSACTION", "UNSPECIFIED")) {
            tell("topic: create " + type, () -> create(type, 1));
            tell("topic: config of " + type, () -> topicConfig("dash-" + type));
        }
        tell("topic: update", () -> create("NORMAL", 3));
        tell("topic: config after", () -> topicConfig("dash-NORMAL"));
        tell("topic: config of nothing", () -> topicConfig("nowhere"));
        tell("topic: no such type", () -> create("ODD", 1));
        tell("topic: route", () -> admin.examineTopicRouteInfo(TOPIC));
        tell("topic: route of nothing", () -> admin.examineTopicRouteInfo("nowhere"));
        tell("topic: stats", () -> admin.examineTopicStats(TOPIC));
        tell("topic: who consumes", () -> admin.queryTopicConsumeByWho(TOPIC));
        tell("topic: who consumes nothing", () -> admin.queryTopicConsumeByWho("dash-NORMAL"));
    }

    /** ConsumerServiceImpl, ProxyAdminImpl. */
    private void groups() {
        tell("consumer: groups", () -> admin.getAllSubscriptionGroup(broker, 30_000).getSubscriptionGroupTable());
        tell("consumer: how far", () -> admin.examineConsumeStats(GROUP));
        tell("consumer: how far in a topic", () -> admin.examineConsumeStats(GROUP, TOPIC));
        tell("consumer: how far at a broker", () -> admin.examineConsumeStats(broker, GROUP, null, 3_000));
        tell("consumer: how far is nobody", () -> admin.examineConsumeStats("nobody"));
        tell("consumer: members", () -> admin.examineConsumerConnectionInfo(GROUP));
        tell("consumer: members at a broker", () -> admin.examineConsumerConnectionInfo(GROUP, broker));
        tell("consumer: members through a proxy's address", () -> connections(GROUP));
        tell("consumer: members of nobody", () -> admin.examineConsumerConnectionInfo("nobody"));
        tell("consumer: what a member does", () -> admin.getConsumerRunningInfo(GROUP, member(GROUP), false));
        tell("consumer: stacks of a member", () -> admin.getConsumerRunningInfo(GROUP, member(GROUP), true).getJstack().isEmpty());
        tell("consumer: what nobody does", () -> admin.getConsumerRunningInfo(GROUP, "nobody", false));
        SubscriptionGroupConfig group = new SubscriptionGroupConfig();
        group.setGroupName("dash-group");
        group.setRetryMaxTimes(3);
        tell("consumer: create", () -> done(() -> admin.createAndUpdateSubscriptionGroupConfig(broker, group)));
        tell("consumer: config", () -> groupConfig("dash-group"));
        group.setConsumeEnable(false);
        group.setConsumeMessageOrderly(true);
        tell("consumer: update", () -> done(() -> admin.createAndUpdateSubscriptionGroupConfig(broker, group)));
        tell("consumer: config after", () -> groupConfig("dash-group"));
        tell("consumer: config of nobody", () -> groupConfig("nobody"));
    }

    /** ProducerServiceImpl. */
    private void producers() {
        tell("producer: members", () -> admin.examineProducerConnectionInfo("writers", TOPIC));
        tell("producer: members of nobody", () -> admin.examineProducerConnectionInfo("nobody", TOPIC));
    }

    /** TopicServiceImpl.sendTopicMessageRequest, MessageServiceImpl. */
    private void messages() throws Exception {
        long before = System.currentTimeMillis();
        SendResult sent = sent("dash-UNSPECIFIED", new DefaultMQProducer(MixAll.SELF_TEST_PRODUCER_GROUP, hook, true, TopicValidator.RMQ_SYS_TRACE_TOPIC));
        tell("message: send", () -> sent);
        SendResult ended = sent("dash-TRANSACTION", new TransactionMQProducer(null, MixAll.SELF_TEST_PRODUCER_GROUP, hook, true, TopicValidator.RMQ_SYS_TRACE_TOPIC));
        tell("message: send in a transaction", () -> ended);
        for (SendResult each : Arrays.asList(sent, ended)) {
            String topic = each.getMessageQueue().getTopic();
            waitFor(() -> byUniqueKey(topic, each.getMsgId()));
            tell("message: by id in " + topic, () -> byUniqueKey(topic, each.getMsgId()));
            tell("message: who has it of " + topic, () -> admin.messageTrackDetail(byUniqueKey(topic, each.getMsgId())));
            tell("message: by key in " + topic, () -> byKey(topic, "dash-key"));
        }
        MessageExt consumed = byKey(TOPIC, "k1").get(0);
        tell("message: who has consumed it", () -> admin.messageTrackDetail(consumed));
        tell("message: by no key", () -> byKey(TOPIC, "nothing"));
        tell("message: by no id", () -> byUniqueKey(TOPIC, "nothing"));
        tell("message: hand it over", () -> admin.consumeMessageDirectly(GROUP, member(GROUP), TOPIC, consumed.getMsgId()));
        tell("message: hand it to nobody", () -> admin.consumeMessageDirectly(GROUP, "nobody", TOPIC, consumed.getMsgId()));
        tell("message: page of all", () -> page(TOPIC, 0, System.currentTimeMillis()));
        tell("message: page of a time before", () -> page(TOPIC, before - 7_200_000, before - 3_600_000));
        tell("message: page of a time to come", () -> page(TOPIC, before + 3_600_000, before + 7_200_000));
        tell("message: page of nothing", () -> page("nowhere", 0, before));
    }

    /** DlqMessageServiceImpl. */
    private void deadLetters() throws Exception {
        tell("dead letters: route of none", () -> admin.examineTopicRouteInfo(MixAll.DLQ_GROUP_TOPIC_PREFIX + "nobody"));
        tell("dead letters: page", () -> page(DEAD, 0, System.currentTimeMillis()));
        MessageExt dead = page(DEAD, 0, System.currentTimeMillis()).get(0);
        tell("dead letters: by id", () -> byUniqueKey(DEAD, dead.getMsgId()));
        tell("dead letters: send again", () -> admin.consumeMessageDirectly("broken", member("broken"),
            dead.getProperty("RETRY_TOPIC"), dead.getProperty("ORIGIN_MESSAGE_ID")));
    }

    /** ConsumerServiceImpl.resetOffset, which is also how the page of topics skips what has piled up, with the time -1. */
    private void offsets() {
        for (long time : new long[] {0, System.currentTimeMillis() + 3_600_000, -1}) {
            tell("consumer: reset to " + Long.signum(time), () -> reset(GROUP, TOPIC, time));
            tell("consumer: who is away, to " + Long.signum(time), () -> reset("away", TOPIC, time));
            tell("consumer: how far is who was away, " + Long.signum(time), () -> admin.examineConsumeStats("away", TOPIC));
        }
        tell("consumer: reset in nothing", () -> reset(GROUP, "nowhere", 0));
    }

    /** AclServiceImpl. */
    private void users() {
        tell("acl: users", () -> admin.listUser(broker, ""));
        UserInfo clerk = user("dash-clerk", "of-clerk", "Normal", null);
        tell("acl: create a user", () -> done(() -> admin.createUser(broker, clerk)));
        tell("acl: create it again", () -> done(() -> admin.createUser(broker, clerk)));
        tell("acl: create nobody", () -> done(() -> admin.createUser(broker, user("", "x", "Normal", null))));
        tell("acl: update a user", () -> done(() -> admin.updateUser(broker, user("dash-clerk", "anew", "Super", "disable"))));
        tell("acl: user after", () -> admin.getUser(broker, "dash-clerk"));
        tell("acl: update nobody", () -> done(() -> admin.updateUser(broker, user("nobody", "anew", "Normal", "enable"))));
        tell("acl: no such user", () -> admin.getUser(broker, "nobody"));
        tell("acl: rules, none", () -> admin.listAcl(broker, "", ""));
        tell("acl: create a rule", () -> done(() -> admin.createAcl(broker, rule("Topic:Orders", "Pub", "Sub"))));
        tell("acl: and another", () -> done(() -> admin.createAcl(broker, rule("Group:read*", "Sub"))));
        tell("acl: no such action", () -> done(() -> admin.createAcl(broker, rule("Topic:Orders", "Fly"))));
        tell("acl: rules", () -> admin.listAcl(broker, "", ""));
        tell("acl: rules of a user", () -> admin.listAcl(broker, "dash-clerk", ""));
        tell("acl: rules of a resource", () -> admin.listAcl(broker, "", "Topic:Orders"));
        tell("acl: update a rule", () -> done(() -> admin.updateAcl(broker, rule("Topic:Orders", "Get"))));
        tell("acl: rule after", () -> admin.getAcl(broker, "User:dash-clerk"));
        tell("acl: delete a rule", () -> done(() -> admin.deleteAcl(broker, "User:dash-clerk", "Topic:Orders")));
        tell("acl: rules that are left", () -> admin.getAcl(broker, "User:dash-clerk"));
        tell("acl: delete all rules", () -> done(() -> admin.deleteAcl(broker, "User:dash-clerk", "")));
        tell("acl: no rules", () -> admin.getAcl(broker, "User:dash-clerk"));
        tell("acl: delete a user", () -> done(() -> admin.deleteUser(broker, "dash-clerk")));
        tell("acl: users after", () -> admin.listUser(broker, ""));
    }

    /** ConsumerServiceImpl.deleteSubGroup, TopicServiceImpl.deleteTopic. */
    private void deletes() {
        Set<String> at = Collections.singleton(broker);
        Set<String> known = new HashSet<>(Arrays.asList(namesrv.split(";")));
        tell("consumer: delete", () -> done(() -> admin.deleteSubscriptionGroup(broker, "dash-group", true)));
        for (String topic : Arrays.asList(MixAll.RETRY_GROUP_TOPIC_PREFIX + "dash-group", MixAll.DLQ_GROUP_TOPIC_PREFIX + "dash-group")) {
            tell("consumer: delete " + topic, () -> done(() -> admin.deleteTopicInBroker(at, topic)));
            tell("consumer: forget " + topic, () -> done(() -> admin.deleteTopicInNameServer(known, topic)));
        }
        tell("consumer: config of what is deleted", () -> groupConfig("dash-group"));
        tell("topic: delete", () -> done(() -> admin.deleteTopicInBroker(CommandUtil.fetchMasterAddrByClusterName(admin, cluster), "dash-NORMAL")));
        tell("topic: forget", () -> done(() -> admin.deleteTopicInNameServer(known, "dash-NORMAL")));
        tell("topic: route of what is deleted", () -> admin.examineTopicRouteInfo("dash-NORMAL"));
        tell("topic: config of what is deleted", () -> topicConfig("dash-NORMAL"));
    }

    private Object collected(String name, String key) throws Exception {
        BrokerStatsData data = admin.viewBrokerStatsData(broker, name, key);
        return data.getStatsMinute().getTps() >= 0 && StatsAllSubCommand.compute24HourSum(data) >= 0;
    }

    private Object create(String type, int queues) throws Exception {
        TopicConfig config = new TopicConfig("dash-" + type, queues, queues, 6);
        config.setAttributes(Collections.singletonMap("+message.type", type));
        return done(() -> admin.createAndUpdateTopicConfig(broker, config));
    }

    private Object topicConfig(String topic) throws Exception {
        GetTopicConfigRequestHeader header = new GetTopicConfigRequestHeader();
        header.setTopic(topic);
        RemotingCommand answer = invoke(RequestCode.GET_TOPIC_CONFIG, header);
        return RemotingSerializable.decode(answer.getBody(), TopicConfigAndQueueMapping.class);
    }

    private Object groupConfig(String group) throws Exception {
        RemotingCommand answer = invoke(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, null);
        return RemotingSerializable.decode(answer.getBody(), SubscriptionGroupWrapper.class).getSubscriptionGroupTable().get(group);
    }

    private Object connections(String group) throws Exception {
        GetConsumerConnectionListRequestHeader header = new GetConsumerConnectionListRequestHeader();
        header.setConsumerGroup(group);
        return ConsumerConnection.decode(invoke(RequestCode.GET_CONSUMER_CONNECTION_LIST, header).getBody(), ConsumerConnection.class);
    }

    private RemotingCommand invoke(int code, org.apache.rocketmq.remoting.CommandCustomHeader header) throws Exception {
        RemotingClient client = (RemotingClient) field(api(), "remotingClient");
        RemotingCommand answer = client.invokeSync(broker, RemotingCommand.createRequestCommand(code, header), 30_000);
        if (answer.getCode() != 0) {
            throw new MQBrokerException(answer.getCode(), answer.getRemark());
        }
        return answer;
    }

    private MQClientInstance instance() throws Exception {
        return (MQClientInstance) field(field(admin, "defaultMQAdminExtImpl"), "mqClientInstance");
    }

    private MQClientAPIImpl api() throws Exception {
        return instance().getMQClientAPIImpl();
    }

    private static Object field(Object of, String name) throws Exception {
        Field field = of.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return field.get(of);
    }

    private String member(String group) throws Exception {
        for (Connection each : admin.examineConsumerConnectionInfo(group).getConnectionSet()) {
            return each.getClientId();
        }
        throw new IllegalStateException("nobody");
    }

    private SendResult sent(String topic, DefaultMQProducer producer) throws Exception {
        producer.setInstanceName(topic);
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(30_000);
        Message message = new Message(topic, "dash-tag", "dash-key", "sent by hand".getBytes(StandardCharsets.UTF_8));
        try {
            if (!(producer instanceof TransactionMQProducer)) {
                producer.start();
                return producer.send(message);
            }
            ((TransactionMQProducer) producer).setTransactionListener(new TransactionListener() {
                @Override
                public LocalTransactionState executeLocalTransaction(Message ignored, Object state) {
                    return LocalTransactionState.COMMIT_MESSAGE;
                }

                @Override
                public LocalTransactionState checkLocalTransaction(MessageExt ignored) {
                    return LocalTransactionState.COMMIT_MESSAGE;
                }
            });
            producer.start();
            return producer.sendMessageInTransaction(message, null);
        } finally {
            producer.shutdown();
        }
    }

    private MessageExt byUniqueKey(String topic, String id) throws Exception {
        for (String name : admin.getTopicClusterList(topic)) {
            QueryResult found = instance().getMQAdminImpl().queryMessage(name, topic, id, PULL_MAX, 0, Long.MAX_VALUE, true);
            if (found != null && !found.getMessageList().isEmpty()) {
                return found.getMessageList().get(0);
            }
        }
        return null;
    }

    private List<MessageExt> byKey(String topic, String key) throws Exception {
        return admin.queryMessage(topic, key, QUERY_MAX, 0, System.currentTimeMillis()).getMessageList();
    }

    private List<MessageExt> page(String topic, long begin, long end) throws Exception {
        List<MessageExt> found = new ArrayList<>();
        for (MessageQueue queue : new TreeSet<>(reader.fetchSubscribeMessageQueues(topic))) {
            long offset = reader.searchOffset(queue, begin);
            long last = reader.searchOffset(queue, end);
            while (offset <= last) {
                PullResult pulled = reader.pull(queue, "*", offset, PULL_MAX);
                offset = pulled.getNextBeginOffset();
                if (pulled.getPullStatus() != PullStatus.FOUND) {
                    break;
                }
                pulled.getMsgFoundList().stream().filter(each -> each.getStoreTimestamp() >= begin && each.getStoreTimestamp() <= end).forEach(found::add);
            }
        }
        return found;
    }

    private Object reset(String group, String topic, long time) throws Exception {
        try {
            return admin.resetOffsetByTimestamp(topic, group, time, true);
        } catch (MQClientException error) {
            if (error.getResponseCode() != 206) {
                throw error;
            }
            return admin.resetOffsetByTimestampOld(group, topic, time, true);
        }
    }

    private static UserInfo user(String name, String password, String type, String status) {
        UserInfo user = new UserInfo();
        user.setUsername(name);
        user.setPassword(password);
        user.setUserType(type);
        user.setUserStatus(status);
        return user;
    }

    private static AclInfo rule(String resource, String... actions) {
        AclInfo.PolicyEntryInfo entry = new AclInfo.PolicyEntryInfo();
        entry.setResource(resource);
        entry.setActions(Arrays.asList(actions));
        entry.setDecision("Allow");
        entry.setSourceIps(new ArrayList<>());
        AclInfo.PolicyInfo policy = new AclInfo.PolicyInfo();
        policy.setPolicyType("Custom");
        policy.setEntries(Collections.singletonList(entry));
        AclInfo rule = new AclInfo();
        rule.setSubject("User:dash-clerk");
        rule.setPolicies(Collections.singletonList(policy));
        return rule;
    }

    private interface Act {
        void run() throws Exception;
    }

    private static Object done(Act act) throws Exception {
        act.run();
        return "done";
    }

    /** Until something is found, as an index may be a moment behind; what isn't there after that time is told as it is. */
    private static void waitFor(Callable<Object> look) throws Exception {
        for (long end = System.currentTimeMillis() + WAIT_MS; System.currentTimeMillis() < end; Thread.sleep(50)) {
            try {
                if (look.call() != null) {
                    return;
                }
            } catch (MQClientException notYet) {
                continue;
            }
        }
    }

    private static void tell(String page, Callable<Object> ask) {
        Map<String, Object> told = new HashMap<>();
        try {
            told.put("answer", plain(ask.call()));
        } catch (MQClientException error) {
            told.put("error", error.getResponseCode());
        } catch (MQBrokerException error) {
            told.put("error", error.getResponseCode());
        } catch (Throwable error) {
            told.put("error", error.toString());
        }
        System.out.println(JSON.toJSONString(Arrays.asList(page, told), JSONWriter.Feature.WriteMapNullValue));
    }

    /** As maps, lists and texts: maps and sets in order, the keys of maps as texts, and of other objects their fields. */
    private static Object plain(Object value) throws IllegalAccessException {
        if (value == null || value instanceof String || value instanceof Boolean || value instanceof Long || value instanceof Integer
            || value instanceof Double) {
            return value;
        }
        if (value instanceof byte[]) {
            return new String((byte[]) value, StandardCharsets.UTF_8);
        }
        if (value instanceof Map) {
            Map<String, Object> found = new TreeMap<>();
            for (Map.Entry<?, ?> each : ((Map<?, ?>) value).entrySet()) {
                found.put(String.valueOf(each.getKey()), plain(each.getValue()));
            }
            return found;
        }
        if (value instanceof Collection) {
            List<Object> found = new ArrayList<>();
            for (Object each : (Collection<?>) value) {
                found.add(plain(each));
            }
            if (value instanceof Set) {
                found.sort(Comparator.comparing(JSON::toJSONString));
            }
            return found;
        }
        if (value instanceof Enum || value instanceof Number || value instanceof SocketAddress) {
            return value.toString();
        }
        Map<String, Object> found = new TreeMap<>();
        for (Class<?> kind = value.getClass(); kind != Object.class; kind = kind.getSuperclass()) {
            for (Field field : kind.getDeclaredFields()) {
                if (!Modifier.isStatic(field.getModifiers()) && !Modifier.isTransient(field.getModifiers())) {
                    field.setAccessible(true);
                    found.put(field.getName(), plain(field.get(value)));
                }
            }
        }
        return found;
    }
}
