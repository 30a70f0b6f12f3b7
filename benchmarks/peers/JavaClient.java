import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.Arrays;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/** Apache's Java client on RockMQ's broker: the same work as the Python programs beside this. */
public final class JavaClient {
    private static final byte[] BODY = new byte[128];
    private static final int WINDOW = 1024;
    private static final double WARMUP_SECONDS = 8;
    private static final int WARMUP_ROUNDS = 2000;

    private final String server;
    private final String topic;
    private final int amount;
    private final OperatingSystemMXBean system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    private long began;
    private long cpu;

    private JavaClient(String server, String topic, int amount) {
        this.server = server;
        this.topic = topic;
        this.amount = amount;
    }

    public static void main(String[] args) throws Exception {
        Arrays.fill(BODY, (byte) 'x');
        JavaClient client = new JavaClient(args[1], args[2], Integer.parseInt(args[3]));
        switch (args[0]) {
            case "send":
                client.send("batches".equals(args[4]));
                break;
            case "consume":
                client.consume();
                break;
            default:
                client.latency();
        }
        System.exit(0);
    }

    private void start() {
        cpu = system.getProcessCpuTime();
        began = System.nanoTime();
    }

    private double seconds() {
        return (System.nanoTime() - began) / 1e9;
    }

    private void tell(long messages, String more) {
        System.out.printf("{\"messages\": %d, \"seconds\": %.4f, \"cpu_seconds\": %.4f%s}%n",
            messages, seconds(), (system.getProcessCpuTime() - cpu) / 1e9, more);
        System.out.flush();
    }

    private DefaultMQProducer producer() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("bench");
        producer.setNamesrvAddr(server);
        producer.setSendMsgTimeout(30_000);
        producer.start();
        return producer;
    }

    private void send(boolean batches) throws Exception {
        DefaultMQProducer producer = producer();
        producer.setAutoBatch(batches);
        Semaphore window = new Semaphore(WINDOW);
        AtomicLong count = new AtomicLong();
        SendCallback counting = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                count.incrementAndGet();
                window.release();
            }

            @Override
            public void onException(Throwable error) {
                error.printStackTrace();
                System.exit(1);
            }
        };
        for (boolean measured : new boolean[] {false, true}) {
            count.set(0);
            start();
            while (seconds() < (measured ? amount : WARMUP_SECONDS)) {
                window.acquire();
                producer.send(new Message(topic, BODY), counting);
            }
        }
        tell(count.get(), "");
    }

    private DefaultMQPushConsumer consumer(MessageListenerConcurrently listener) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("bench-" + topic);
        consumer.setNamesrvAddr(server);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener(listener);
        consumer.start();
        return consumer;
    }

    private void consume() throws Exception {
        DefaultMQProducer producer = producer();
        Semaphore window = new Semaphore(WINDOW);
        for (int number = 0; number < amount; number++) {
            window.acquire();
            producer.send(new Message(topic, BODY), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    window.release();
                }

                @Override
                public void onException(Throwable error) {
                    error.printStackTrace();
                    System.exit(1);
                }
            });
        }
        window.acquire(WINDOW);
        CountDownLatch done = new CountDownLatch(1);
        AtomicInteger count = new AtomicInteger();
        consumer((messages, context) -> {
            int now = count.addAndGet(messages.size());
            if (now == messages.size()) {
                start();
            }
            if (now == amount) {
                tell(amount - 1, "");
                done.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        done.await();
    }

    private void latency() throws Exception {
        Semaphore arrived = new Semaphore(0);
        DefaultMQProducer producer = producer();
        producer.send(new Message(topic, BODY));
        consumer((messages, context) -> {
            arrived.release(messages.size());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        arrived.acquire();
        double[] latencies = new double[amount];
        for (int number = 0; number < WARMUP_ROUNDS + amount; number++) {
            if (number == WARMUP_ROUNDS) {
                start();
            }
            long sent = System.nanoTime();
            producer.send(new Message(topic, BODY), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                }

                @Override
                public void onException(Throwable error) {
                    error.printStackTrace();
                    System.exit(1);
                }
            });
            arrived.acquire();
            if (number >= WARMUP_ROUNDS) {
                latencies[number - WARMUP_ROUNDS] = (System.nanoTime() - sent) / 1e3;
            }
        }
        Arrays.sort(latencies);
        tell(amount, String.format(", \"p50_us\": %.1f, \"p99_us\": %.1f",
            latencies[amount / 2], latencies[amount * 99 / 100]));
    }
}
