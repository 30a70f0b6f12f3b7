import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Sends messages `from` ... `from + count - 1` in each of `modes` (sync, async, oneway, batch, selector, bare: sync
 * without tag, keys and properties, large: sync with bodies of `size`, which the client compresses) and prints what the broker acknowledged. The messages of a mode have
 * the prefix `prefix`-mode. With retry=true a message that failed is sent again until it is acknowledged.
 */
public final class Producer {
    private final DefaultMQProducer producer;
    private final String topic;
    private final int size;
    private final boolean retry;
    private String mode;
    private String prefix;

    private Producer(Options options) throws ReflectiveOperationException {
        producer = new DefaultMQProducer(options.text("group", "producer-group"), options.hook());
        producer.setNamesrvAddr(options.text("namesrv"));
        producer.setMqClientApiTimeout(20_000);
        producer.setVipChannelEnabled(options.flag("vip"));
        producer.setSendMsgTimeout(options.number("timeoutMs", 20_000));
        producer.setDefaultTopicQueueNums(options.number("queues", 4));
        topic = options.text("topic");
        size = options.number("size", 6000);
        retry = options.flag("retry");
    }

    public static void main(String[] args) throws Exception {
        Options options = new Options(args);
        Producer program = new Producer(options);
        program.producer.start();
        Lines.print("started");
        int from = options.number("from", 0);
        int end = from + options.number("count", 1);
        try {
            for (String mode : options.text("modes", "sync").split(",")) {
                program.mode = mode;
                program.prefix = options.text("prefix", "message") + "-" + mode;
                program.run(from, end, options.number("batch", 10), options.number("inFlight", 64));
                Lines.print("finished", "mode", mode);
            }
        } finally {
            Ending.of(program.producer::shutdown);
        }
        Lines.print("done");
        System.exit(0);
    }

    private void run(int from, int end, int batch, int inFlight) throws Exception {
        if (mode.equals("async")) {
            async(from, end, inFlight);
            return;
        }
        for (int i = from; i < end; i += mode.equals("batch") ? batch : 1) {
            while (!attempt(i, Math.min(i + batch, end)) && retry) {
                TimeUnit.MILLISECONDS.sleep(100);
            }
        }
        if (mode.equals("oneway")) {
            TimeUnit.SECONDS.sleep(1); // shutdown drops what the event loop has not written yet
        }
    }

    private boolean attempt(int index, int batchEnd) {
        try {
            switch (mode) {
                case "sync":
                case "bare":
                case "large":
                    return acknowledged(index, producer.send(message(index)));
                case "selector":
                    return acknowledged(index, producer.send(message(index), Producer::byIndex, index));
                case "oneway":
                    producer.sendOneway(message(index));
                    Lines.print("written", "mode", mode, "index", index);
                    return true;
                case "batch":
                    List<Message> messages = new ArrayList<>();
                    for (int i = index; i < batchEnd; i++) {
                        messages.add(message(i));
                    }
                    SendResult result = producer.send(messages);
                    Lines.print("sent-batch", "mode", mode, "index", index, "count", messages.size(), "status", result.getSendStatus(),
                        "msgId", result.getMsgId(), "offsetMsgId", result.getOffsetMsgId(),
                        "queueId", result.getMessageQueue().getQueueId(), "queueOffset", result.getQueueOffset());
                    return result.getSendStatus() == SendStatus.SEND_OK;
                default:
                    throw new IllegalArgumentException("mode " + mode);
            }
        } catch (Exception e) {
            Lines.print("failed", "mode", mode, "index", index, "error", e.toString(), "cause", String.valueOf(e.getCause()));
            return false;
        }
    }

    private void async(int from, int end, int inFlight) throws Exception {
        Semaphore window = new Semaphore(inFlight);
        for (int i = from; i < end; i++) {
            window.acquire();
            sendAsync(i, window);
        }
        window.acquire(inFlight);
    }

    private void sendAsync(int index, Semaphore window) {
        SendCallback callback = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                acknowledged(index, result);
                window.release();
            }

            @Override
            public void onException(Throwable e) {
                Lines.print("failed", "mode", mode, "index", index, "error", e.toString());
                if (retry) {
                    sendAsync(index, window);
                } else {
                    window.release();
                }
            }
        };
        try {
            producer.send(message(index), callback);
        } catch (Exception e) {
            callback.onException(e);
        }
    }

    private Message message(int index) {
        if (mode.equals("bare")) {
            return new Message(topic, Content.body(prefix, index, 0));
        }
        return Content.message(topic, prefix, index, mode.equals("large") ? size : 0);
    }

    private static MessageQueue byIndex(List<MessageQueue> queues, Message message, Object index) {
        return queues.get((Integer) index % queues.size());
    }

    private boolean acknowledged(int index, SendResult result) {
        Lines.print("sent", "mode", mode, "index", index, "status", result.getSendStatus(),
            "msgId", result.getMsgId(), "offsetMsgId", result.getOffsetMsgId(), "queueId", result.getMessageQueue().getQueueId(),
            "queueOffset", result.getQueueOffset());
        return result.getSendStatus() == SendStatus.SEND_OK;
    }
}
