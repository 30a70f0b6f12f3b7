import java.lang.reflect.Method;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.consumer.ProcessQueue;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Prints every message it is given, its queues whenever they change, and "idle" when all it printed so far is consumed
 * for the client too, so that a shutdown would commit it. Ends after `count` different messages, after
 * `timeoutMs`, or by SIGTERM; each way shuts the consumer down in order, which persists its offsets.
 */
public final class PushConsumer {
    private final Set<String> seen = ConcurrentHashMap.newKeySet();
    private final CountDownLatch enough = new CountDownLatch(1);
    private final AtomicInteger printed = new AtomicInteger();
    private final int count;
    private final String failOnce;
    private final String failAlways;

    private PushConsumer(Options options) {
        count = options.number("count", Integer.MAX_VALUE);
        failOnce = options.text("failOnce", "");
        failAlways = options.text("failAlways", "");
    }

    public static void main(String[] args) throws Exception {
        Options options = new Options(args);
        PushConsumer program = new PushConsumer(options);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(options.text("group"), options.hook(),
            new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(options.text("namesrv"));
        consumer.setMqClientApiTimeout(20_000);
        consumer.setVipChannelEnabled(options.flag("vip"));
        consumer.setPollNameServerInterval(options.number("pollMs", 1_000));
        consumer.setHeartbeatBrokerInterval(options.number("heartbeatMs", 30_000));
        consumer.setMaxReconsumeTimes(options.number("maxReconsumeTimes", -1));
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf(options.text("from", "CONSUME_FROM_FIRST_OFFSET")));
        consumer.setConsumeThreadMin(options.number("threads", 4));
        consumer.setConsumeThreadMax(options.number("threads", 4));
        if (options.flag("broadcast")) { // offsets are in the directory of rocketmq.client.localOffsetStoreDir
            broadcast(consumer);
            consumer.setClientIP(options.text("ip"));
            consumer.setInstanceName(options.text("instance"));
        }
        if (options.flag("pop")) { // since 5.0: the broker assigns, the client pops
            DefaultMQPushConsumer.class.getMethod("setClientRebalance", boolean.class).invoke(consumer, false);
        }
        String sql = options.text("sql", "");
        consumer.subscribe(options.text("topic"),
            sql.isEmpty() ? MessageSelector.byTag(options.text("tags", "*")) : MessageSelector.bySql(sql));
        if (options.flag("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                program.consumed(messages) ? ConsumeOrderlyStatus.SUCCESS
                    : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
                program.consumed(messages) ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
                    : ConsumeConcurrentlyStatus.RECONSUME_LATER);
        }
        CountDownLatch stopped = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            program.enough.countDown();
            try {
                stopped.await(15, TimeUnit.SECONDS);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }));
        consumer.start();
        Lines.print("started");
        program.await(consumer, options.number("timeoutMs", Integer.MAX_VALUE));
        consumer.getDefaultMQPushConsumerImpl().persistConsumerOffset();
        // Shutdown does the same, and drops what the event loop has not written yet: what is answered came behind that.
        try {
            for (MessageQueue queue : consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable()
                .keySet()) {
                consumer.maxOffset(queue);
            }
        } catch (MQClientException e) {
            Lines.print("unanswered", "error", e.toString());
        }
        Ending.of(consumer::shutdown);
        Lines.print("done", "different", program.seen.size());
        stopped.countDown();
        System.exit(0);
    }

    /** The enumeration is in another package since 5.0. */
    private static void broadcast(DefaultMQPushConsumer consumer) throws Exception {
        for (Method method : DefaultMQPushConsumer.class.getMethods()) {
            if (method.getName().equals("setMessageModel")) {
                method.invoke(consumer, method.getParameterTypes()[0].getField("BROADCASTING").get(null));
            }
        }
    }

    private void await(DefaultMQPushConsumer consumer, int timeoutMs) throws InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeoutMs);
        Set<String> queues = null;
        int idle = 0;
        int before = 0;
        while (!enough.await(100, TimeUnit.MILLISECONDS) && System.nanoTime() < deadline) {
            Set<String> now = new TreeSet<>();
            int soFar = printed.get();
            long pending = 0;
            for (Map.Entry<MessageQueue, ProcessQueue> entry : consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl()
                .getProcessQueueTable().entrySet()) {
                MessageQueue queue = entry.getKey();
                now.add(queue.getTopic() + "@" + queue.getBrokerName() + ":" + queue.getQueueId());
                pending += entry.getValue().getMsgCount().get();
            }
            // Twice in a row, as the offset moves a moment after the last message is taken out.
            if (pending == 0 && soFar == before && soFar > idle) {
                Lines.print("idle", "messages", soFar);
                idle = soFar;
            }
            before = pending == 0 ? soFar : -1;
            if (!now.equals(queues)) {
                Lines.print("queues", "queues", now);
                queues = now;
            }
        }
    }

    private boolean consumed(List<MessageExt> messages) {
        for (MessageExt message : messages) {
            try {
                Lines.print("message", "msgId", message.getMsgId(), "topic", message.getTopic(),
                    "queueId", message.getQueueId(), "queueOffset", message.getQueueOffset(),
                    "sha256", Lines.sha256(message.getBody()), "tags", message.getTags(), "keys", message.getKeys(),
                    "reconsumeTimes", message.getReconsumeTimes(), "storeTimestamp", message.getStoreTimestamp(),
                    "properties", message.getProperties());
                printed.incrementAndGet();
            } catch (Exception e) {
                Lines.print("failed", "error", e.toString());
            }
            if (message.getReconsumeTimes() == 0 && !failOnce.isEmpty()
                && failOnce.equals(message.getUserProperty("index"))) {
                return false;
            }
            if (!failAlways.isEmpty() && failAlways.equals(message.getUserProperty("index"))) {
                return false;
            }
            seen.add(message.getMsgId());
        }
        if (seen.size() >= count) {
            enough.countDown();
        }
        return true;
    }
}
