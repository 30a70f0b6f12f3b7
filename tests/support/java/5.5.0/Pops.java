import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.AckCallback;
import org.apache.rocketmq.client.consumer.AckResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PopCallback;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.header.AckMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ExtraInfoUtil;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;

/**
 * Pops all queues of `topic` for `group` on `broker` until it has `count` messages or `timeoutMs` are over, `batch` at a time
 * for `invisibleMs`, and prints each. Acknowledges none, `all`, or those of even `index`, as `ack` says. With `handles`
 * (topic,queue,offset,handle and `;`) it acknowledges these first. `route` is a topic of that broker, if `topic` is a light queue.
 */
public final class Pops {
    private final MQClientAPIImpl client;
    private final Options options;
    private final String broker;
    private final String address;

    private Pops(MQClientInstance instance, Options options) throws InterruptedException {
        client = instance.getMQClientAPIImpl();
        this.options = options;
        broker = options.text("broker");
        String route = options.text("route", options.text("topic"));
        String found = null;
        while (found == null) { // without one the client would ask the name server
            instance.updateTopicRouteInfoFromNameServer(route);
            found = instance.findBrokerAddressInPublish(broker);
            Thread.sleep(found == null ? 200 : 0);
        }
        address = found;
    }

    public static void main(String[] args) throws Exception {
        Options options = new Options(args);
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(options.text("group"));
        consumer.setNamesrvAddr(options.text("namesrv"));
        consumer.setMqClientApiTimeout(20_000);
        consumer.setRegisterTopics(Collections.singleton(options.text("topic")));
        consumer.start();
        MQClientInstance instance = consumer.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory();
        Pops pops = new Pops(instance, options);
        for (String handle : options.text("handles", "").split(";")) {
            if (!handle.isEmpty()) {
                String[] parts = handle.split(",");
                pops.ack(parts[0], Integer.parseInt(parts[1]), Long.parseLong(parts[2]), parts[3]);
            }
        }
        pops.run();
        Ending.of(consumer::shutdown);
        Lines.print("done");
        System.exit(0);
    }

    private void run() throws Exception {
        int left = options.number("count", Integer.MAX_VALUE);
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(options.number("timeoutMs", 60_000));
        String ack = options.text("ack", "");
        while (left > 0 && System.nanoTime() < deadline) {
            for (MessageExt message : pop(Math.min(left, options.number("batch", 32)))) {
                Map<String, String> properties = message.getProperties();
                String handle = properties.get(MessageConst.PROPERTY_POP_CK);
                String[] parts = ExtraInfoUtil.split(handle);
                String real = ExtraInfoUtil.getRealTopic(parts, message.getTopic(), options.text("group"));
                int queueId = ExtraInfoUtil.getQueueId(parts);
                long offset = ExtraInfoUtil.getQueueOffset(parts);
                Lines.print("popped", "keys", message.getKeys(), "realTopic", real, "queueId", queueId, "offset", offset,
                    "handle", handle, "reconsumeTimes", message.getReconsumeTimes(), "properties", properties,
                    "sha256", Lines.sha256(message.getBody()), "at", System.currentTimeMillis());
                left--;
                String index = properties.getOrDefault("index", "0");
                if (ack.equals("all") || ack.equals("even") && Integer.parseInt(index) % 2 == 0) {
                    ack(real, queueId, offset, handle);
                }
            }
        }
    }

    private List<MessageExt> pop(int count) throws Exception {
        PopMessageRequestHeader header = new PopMessageRequestHeader();
        header.setConsumerGroup(options.text("group"));
        header.setTopic(options.text("topic"));
        header.setQueueId(-1);
        header.setMaxMsgNums(count);
        header.setInvisibleTime(options.number("invisibleMs", 60_000));
        header.setPollTime(1000);
        header.setBornTime(System.currentTimeMillis());
        header.setInitMode(0);
        header.setOrder(options.flag("order"));
        CompletableFuture<PopResult> popped = new CompletableFuture<>();
        client.popMessageAsync(broker, address, header, 20_000, new PopCallback() {
            @Override
            public void onSuccess(PopResult result) {
                popped.complete(result);
            }

            @Override
            public void onException(Throwable error) {
                popped.completeExceptionally(error);
            }
        });
        List<MessageExt> found;
        try {
            found = popped.get(30, TimeUnit.SECONDS).getMsgFoundList();
        } catch (Exception e) {
            Lines.print("failed", "error", e.toString(), "where", Arrays.toString(e.getCause().getStackTrace()));
            Thread.sleep(500);
            return new ArrayList<>();
        }
        return found == null ? new ArrayList<>() : found;
    }

    private void ack(String topic, int queueId, long offset, String handle) throws Exception {
        AckMessageRequestHeader header = new AckMessageRequestHeader();
        header.setConsumerGroup(options.text("group"));
        header.setTopic(topic);
        header.setQueueId(queueId);
        header.setOffset(offset);
        header.setExtraInfo(handle);
        CompletableFuture<String> acknowledged = new CompletableFuture<>();
        client.ackMessageAsync(address, 20_000, new AckCallback() {
            @Override
            public void onSuccess(AckResult result) {
                acknowledged.complete(result.getStatus().name());
            }

            @Override
            public void onException(Throwable error) {
                acknowledged.completeExceptionally(error);
            }
        }, header);
        Lines.print("acknowledged", "handle", handle, "status", acknowledged.get(30, TimeUnit.SECONDS));
    }
}
