import java.nio.charset.StandardCharsets;
import java.util.Collections;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Sends a message for each of `dispatch` (lists of light queues, apart by `;`) to `topic`, then pulls each of `queues` on
 * `broker` from its beginning to its end, and commits that for `group` after printing what was committed before.
 */
public final class LightQueues {
    public static void main(String[] args) throws Exception {
        Options options = new Options(args);
        String topic = options.text("topic");
        send(options, topic);
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(options.text("group"));
        consumer.setNamesrvAddr(options.text("namesrv"));
        consumer.setMqClientApiTimeout(20_000);
        consumer.setRegisterTopics(Collections.singleton(topic));
        consumer.start();
        // Only of a topic with a route does the client know where the broker is.
        consumer.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory().updateTopicRouteInfoFromNameServer(topic);
        for (String name : options.text("queues").split(";")) {
            MessageQueue queue = new MessageQueue(name, options.text("broker"), 0);
            long next = consumer.minOffset(queue);
            Lines.print("queue", "name", name, "min", next, "max", consumer.maxOffset(queue),
                "committed", consumer.fetchConsumeOffset(queue, true));
            PullResult result = consumer.pull(queue, "*", next, 32);
            while (result.getPullStatus() == PullStatus.FOUND) {
                for (MessageExt message : result.getMsgFoundList()) {
                    Lines.print("message", "queue", name, "body", new String(message.getBody(), StandardCharsets.UTF_8),
                        "topic", message.getTopic(), "queueId", message.getQueueId(),
                        "properties", message.getProperties());
                }
                next = result.getNextBeginOffset();
                result = consumer.pull(queue, "*", next, 32);
            }
            consumer.updateConsumeOffset(queue, next);
            consumer.getDefaultMQPullConsumerImpl().getOffsetStore().persist(queue);
        }
        Ending.of(consumer::shutdown);
        Lines.print("done");
        System.exit(0);
    }

    private static void send(Options options, String topic) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("producers");
        producer.setNamesrvAddr(options.text("namesrv"));
        producer.setMqClientApiTimeout(20_000);
        producer.setSendMsgTimeout(20_000);
        producer.start();
        int number = 0;
        for (String names : options.text("dispatch").split(";")) {
            Message message = new Message(topic, "tag", (options.text("prefix") + number).getBytes(StandardCharsets.UTF_8));
            message.putUserProperty(MessageConst.PROPERTY_INNER_MULTI_DISPATCH, names);
            SendResult result = producer.send(message);
            Lines.print("sent", "number", number, "status", result.getSendStatus(), "offsetMsgId", result.getOffsetMsgId());
            number++;
        }
        Ending.of(producer::shutdown);
    }
}
