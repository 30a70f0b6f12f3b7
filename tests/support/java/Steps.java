import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * What a Java client can ask for, once each, in the order of `steps` (default: all). Every step prints its name and either
 * what came of it or the error. Topics must be new: results are counts and contents that depend on what was sent before. But
 * `topic`-ordered must be there, with an order configuration, and `topic`-cloned with messages, some consumed by `group`-cloned.
 */
public final class Steps {
    private static final String[] ALL = {
        "send", "queues", "offsets", "search", "view", "query", "pull", "pullNothing", "pullFilter", "commit", "sendBack",
        "litePull", "orderly", "delay", "transaction", "request", "orderTopic", "cloned", "namespace"};

    private final Options options;
    private final String topic;
    private final String group;
    private final String namesrv;
    private DefaultMQProducer producer;
    private DefaultMQPullConsumer puller;
    private SendResult first;

    private Steps(Options options) {
        this.options = options;
        topic = options.text("topic");
        group = options.text("group");
        namesrv = options.text("namesrv");
    }

    public static void main(String[] args) throws Exception {
        Options options = new Options(args);
        Steps steps = new Steps(options);
        steps.start();
        for (String step : options.text("steps", String.join(",", ALL)).split(",")) {
            try {
                Lines.print("step", "name", step, "result", steps.run(step));
            } catch (Exception e) {
                Lines.print("step", "name", step, "error", e.toString());
            }
        }
        Ending.of(steps.puller::shutdown);
        Ending.of(steps.producer::shutdown);
        Lines.print("done");
        System.exit(0);
    }

    private void start() throws Exception {
        producer = new DefaultMQProducer(group + "-producer");
        producer.setNamesrvAddr(namesrv);
        producer.setMqClientApiTimeout(20_000);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        puller = new DefaultMQPullConsumer(group + "-pull");
        puller.setNamesrvAddr(namesrv);
        puller.setMqClientApiTimeout(20_000);
        puller.setConsumerPullTimeoutMillis(15_000);
        puller.start();
    }

    private Object run(String step) throws Exception {
        switch (step) {
            case "send":
                return send();
            case "queues":
                return puller.fetchSubscribeMessageQueues(topic).size() + "/" + producer.fetchPublishMessageQueues(topic).size();
            case "offsets":
                return puller.minOffset(queue()) + "/" + puller.maxOffset(queue()) + "/"
                    + (puller.earliestMsgStoreTime(queue()) > 0);
            case "search":
                return puller.searchOffset(queue(), 0) + "/" + puller.searchOffset(queue(), System.currentTimeMillis() + 60_000);
            case "view":
                return new String(producer.viewMessage(topic, first.getOffsetMsgId()).getBody(), StandardCharsets.UTF_8);
            case "query":
                return await(() -> {
                    QueryResult found = producer.queryMessage(topic, "steps-key-1", 8, 0, Long.MAX_VALUE);
                    return found.getMessageList().size() + "/" + found.getMessageList().get(0).getKeys();
                });
            case "pull":
                PullResult all = puller.pull(queue(), "*", 0, 32);
                return all.getPullStatus() + "/" + all.getMsgFoundList().size() + "/" + all.getNextBeginOffset();
            case "pullNothing":
                PullResult none = puller.pull(queue(), "*", 5, 32);
                return none.getPullStatus() + "/" + none.getNextBeginOffset() + "/" + none.getMaxOffset();
            case "pullFilter":
                PullResult some = puller.pull(queue(), "tag1", 0, 32);
                return some.getPullStatus() + "/" + some.getMsgFoundList().size() + "/" + some.getNextBeginOffset();
            case "commit":
                puller.updateConsumeOffset(queue(), 3);
                puller.getDefaultMQPullConsumerImpl().getOffsetStore().persistAll(Collections.singleton(queue()));
                return await(() -> puller.fetchConsumeOffset(queue(), true) == 3 ? 3 : null);
            case "sendBack":
                MessageExt message = puller.pull(queue(), "*", 0, 1).getMsgFoundList().get(0);
                puller.sendMessageBack(message, 1, queue().getBrokerName());
                return "accepted";
            case "litePull":
                return litePull();
            case "orderly":
                return orderly();
            case "delay":
                return delay();
            case "transaction":
                return transaction();
            case "request":
                return request();
            case "orderTopic":
                return producer.fetchPublishMessageQueues(topic + "-ordered").size();
            case "cloned":
                return body(consume(group + "-cloned", topic + "-cloned", 1, false).get(0));
            case "namespace":
                return namespace();
            default:
                throw new IllegalArgumentException("step " + step);
        }
    }

    /** Five messages to queue 0, which later steps look at. */
    private Object send() throws Exception {
        List<Long> offsets = new ArrayList<>();
        for (int i = 0; i < 5; i++) {
            SendResult result = producer.send(Content.message(topic, "steps", i, 0),
                (queues, message, argument) -> queue(queues), null);
            first = first == null ? result : first;
            offsets.add(result.getQueueOffset());
        }
        return offsets;
    }

    private Object litePull() throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group + "-lite");
        consumer.setNamesrvAddr(namesrv);
        consumer.setMqClientApiTimeout(20_000);
        consumer.setAutoCommit(false);
        consumer.start();
        try {
            consumer.assign(Collections.singletonList(queue()));
            consumer.seekToBegin(queue());
            List<MessageExt> messages = new ArrayList<>();
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
            while (messages.size() < 5 && System.nanoTime() < deadline) {
                messages.addAll(consumer.poll(500));
            }
            consumer.commitSync();
            return messages.size();
        } finally {
            Ending.of(consumer::shutdown);
        }
    }

    private Object orderly() throws Exception {
        return consume(group + "-orderly", topic, 5, true).size();
    }

    private Object delay() throws Exception {
        String delayed = topic + "-delay";
        Message message = new Message(delayed, "later".getBytes(StandardCharsets.UTF_8));
        message.setDelayTimeLevel(1);
        long before = System.currentTimeMillis();
        producer.send(message);
        List<MessageExt> received = consume(group + "-delay", delayed, 1, false);
        return received.size() + "/" + (received.get(0).getStoreTimestamp() - before >= 900);
    }

    /** One each of commit, rollback, unknown answered with commit when the broker asks back. */
    private Object transaction() throws Exception {
        String transactional = topic + "-transaction";
        CountDownLatch asked = new CountDownLatch(1);
        TransactionMQProducer sender = new TransactionMQProducer(group + "-transaction");
        sender.setNamesrvAddr(namesrv);
        sender.setMqClientApiTimeout(20_000);
        sender.setSendMsgTimeout(10_000);
        sender.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object state) {
                return (LocalTransactionState) state;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                asked.countDown();
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        sender.start();
        try {
            for (LocalTransactionState state : LocalTransactionState.values()) {
                Message message = new Message(transactional, "tag", state.name(), state.name().getBytes(StandardCharsets.UTF_8));
                sender.sendMessageInTransaction(message, state);
            }
            boolean checked = asked.await(options.number("checkMs", 90_000), TimeUnit.MILLISECONDS);
            List<String> bodies = new ArrayList<>();
            for (MessageExt message : consume(group + "-transaction-consumer", transactional, checked ? 2 : 1, false)) {
                bodies.add(body(message));
            }
            Collections.sort(bodies);
            return bodies + "/" + checked;
        } finally {
            Ending.of(sender::shutdown);
        }
    }

    private Object request() throws Exception {
        String asked = topic + "-request";
        producer.send(new Message(asked, "ignored", "make the topic".getBytes(StandardCharsets.UTF_8)));
        CountDownLatch answered = new CountDownLatch(1); // a shutdown would interrupt the answering thread
        DefaultMQPushConsumer replier = new DefaultMQPushConsumer(group + "-replier");
        replier.setNamesrvAddr(namesrv);
        replier.setMqClientApiTimeout(20_000);
        replier.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        replier.subscribe(asked, "question");
        replier.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                try {
                    byte[] answer = ("answer to " + new String(message.getBody(), StandardCharsets.UTF_8))
                        .getBytes(StandardCharsets.UTF_8);
                    producer.send(MessageUtil.createReplyMessage(message, answer));
                } catch (Exception e) {
                    Lines.print("failed", "error", e.toString());
                }
            }
            answered.countDown();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        replier.start();
        try {
            // A heartbeat that found another one on its way isn't sent: the replier gets nothing before the next, after 30 s.
            Message reply = producer.request(
                new Message(asked, "question", "a question".getBytes(StandardCharsets.UTF_8)), 90_000);
            answered.await(30, TimeUnit.SECONDS);
            return new String(reply.getBody(), StandardCharsets.UTF_8);
        } finally {
            Ending.of(replier::shutdown);
        }
    }

    /** A tenant's message as it sees it, and the queues that others see. */
    private Object namespace() throws Exception {
        String tenant = topic + "-tenant";
        DefaultMQProducer sender = new DefaultMQProducer(group + "-namespace");
        sender.setNamespace(tenant);
        sender.setNamesrvAddr(namesrv);
        sender.setSendMsgTimeout(10_000);
        sender.start();
        try {
            sender.send(new Message("within", "inside".getBytes(StandardCharsets.UTF_8)));
            MessageExt message = consume(tenant, group + "-namespace", "within", 1, false).get(0);
            return message.getTopic() + "/" + body(message) + "/"
                + puller.fetchSubscribeMessageQueues(tenant + "%within").size();
        } finally {
            Ending.of(sender::shutdown);
        }
    }

    private static String body(MessageExt message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    private List<MessageExt> consume(String consumerGroup, String from, int count, boolean orderly) throws Exception {
        return consume(null, consumerGroup, from, count, orderly);
    }

    private List<MessageExt> consume(String namespace, String consumerGroup, String from, int count, boolean orderly)
        throws Exception {
        List<MessageExt> received = Collections.synchronizedList(new ArrayList<>());
        Set<String> ids = ConcurrentHashMap.newKeySet();
        CompletableFuture<Void> enough = new CompletableFuture<>();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(consumerGroup);
        consumer.setNamespace(namespace);
        consumer.setNamesrvAddr(namesrv);
        consumer.setMqClientApiTimeout(20_000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(from, "*");
        if (orderly) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                collect(messages, received, ids, count, enough);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                collect(messages, received, ids, count, enough);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        try {
            enough.get(60, TimeUnit.SECONDS);
            return received;
        } finally {
            Ending.of(consumer::shutdown);
        }
    }

    private static void collect(
        List<MessageExt> messages, List<MessageExt> received, Set<String> ids, int count, CompletableFuture<Void> enough) {
        for (MessageExt message : messages) {
            if (ids.add(message.getMsgId())) {
                received.add(message);
            }
        }
        if (received.size() >= count) {
            enough.complete(null);
        }
    }

    private MessageQueue queue() throws Exception {
        return queue(new ArrayList<>(puller.fetchSubscribeMessageQueues(topic)));
    }

    private static MessageQueue queue(List<MessageQueue> queues) {
        return queues.stream().filter(queue -> queue.getQueueId() == 0).findFirst().get();
    }

    /** The result of an attempt that succeeds within 20 s; indexes and one-way commits follow in their own time. */
    private static Object await(Callable<Object> attempt) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
        while (true) {
            Exception last = new IllegalStateException("no result");
            try {
                Object result = attempt.call();
                if (result != null) {
                    return result;
                }
            } catch (Exception e) {
                last = e;
            }
            if (System.nanoTime() > deadline) {
                throw last;
            }
            TimeUnit.MILLISECONDS.sleep(200);
        }
    }
}
