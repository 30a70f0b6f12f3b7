import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.impl.consumer.PullResultExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Pulls `count` messages of a topic's first queue from each of `offsets`, apart by commas, and prints what came of it: the
 * status and the broker that the client is to ask next, or the error.
 */
public final class Puller {
    private Puller() {
    }

    public static void main(String[] args) throws Exception {
        Options options = new Options(args);
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(options.text("group"));
        consumer.setNamesrvAddr(options.text("namesrv"));
        consumer.setMqClientApiTimeout(20_000);
        consumer.start();
        MessageQueue first = null;
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(options.text("topic"))) {
            first = first == null || queue.getQueueId() < first.getQueueId() ? queue : first;
        }
        for (String offset : options.text("offsets").split(",")) {
            try {
                PullResult result = consumer.pull(first, options.text("tags", "*"), Long.parseLong(offset),
                    options.number("count", 1));
                Lines.print("pulled", "offset", Integer.parseInt(offset), "status", result.getPullStatus().name(),
                    "messages", result.getMsgFoundList() == null ? 0 : result.getMsgFoundList().size(),
                    "suggested", ((PullResultExt) result).getSuggestWhichBrokerId());
            } catch (Exception e) {
                Lines.print("failed", "error", e.toString());
            }
            Thread.sleep(options.number("pauseMs", 0));
        }
        Ending.of(consumer::shutdown);
        Lines.print("done");
        System.exit(0);
    }
}
