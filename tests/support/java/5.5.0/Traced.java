import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends and consumes with message trace to `trace`: a message with tag and keys, a bare one, a delayed one, one that the
 * consumer refuses, one at which it throws, and two transactions. Ends when the five that aren't rolled back or delayed are consumed.
 */
public final class Traced {
    public static void main(String[] args) throws Exception {
        Options options = new Options(args);
        String topic = options.text("topic");
        CountDownLatch consumed = new CountDownLatch(5);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(options.text("consumerGroup"));
        consumer.setNamesrvAddr(options.text("namesrv"));
        consumer.setEnableTrace(true);
        consumer.setTraceTopic(options.text("trace"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            String body = new String(messages.get(0).getBody(), StandardCharsets.UTF_8);
            if (!body.equals("delayed")) {
                consumed.countDown();
            }
            if (body.equals("thrown")) {
                throw new IllegalStateException("as asked for");
            }
            return body.equals("refused") ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        TransactionMQProducer producer = new TransactionMQProducer(options.text("group"));
        producer.setNamesrvAddr(options.text("namesrv"));
        producer.setSendMsgTimeout(10_000);
        producer.setEnableTrace(true);
        producer.setTraceTopic(options.text("trace"));
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object state) {
                return (LocalTransactionState) state;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.UNKNOW;
            }
        });
        producer.start();
        producer.send(message(topic, "tagged", "paid", "k1 k2"));
        producer.send(message(topic, "bare", null, null));
        producer.send(message(topic, "refused", "paid", "k3"));
        producer.send(message(topic, "thrown", "paid", "k4"));
        Message delayed = message(topic, "delayed", "paid", "k5");
        delayed.setDelayTimeLevel(5);
        producer.send(delayed);
        producer.sendMessageInTransaction(message(topic, "committed", "paid", "k6"), LocalTransactionState.COMMIT_MESSAGE);
        producer.sendMessageInTransaction(message(topic, "rolled back", "paid", "k7"), LocalTransactionState.ROLLBACK_MESSAGE);
        consumer.start();
        if (!consumed.await(60, TimeUnit.SECONDS)) {
            throw new IllegalStateException("not all were consumed");
        }
        // What is told of a message comes after its listener, and what a shutdown tells before it.
        TimeUnit.MILLISECONDS.sleep(500);
        Ending.of(producer::shutdown);
        Ending.of(consumer::shutdown);
        Lines.print("done");
        System.exit(0);
    }

    private static Message message(String topic, String body, String tag, String keys) {
        Message message = new Message(topic, body.getBytes(StandardCharsets.UTF_8));
        if (tag != null) {
            message.setTags(tag);
            message.setKeys(keys);
        }
        return message;
    }
}
