import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Paths;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;

/** Prints every record at the start of a commit log file, as Apache's own decoder reads it; bodies stay as stored. */
public final class DumpRecords {
    public static void main(String[] args) throws Exception {
        for (String file : args) {
            ByteBuffer log = ByteBuffer.wrap(Files.readAllBytes(Paths.get(file)));
            while (log.remaining() > 4 && log.getInt(log.position()) > 0) {
                int start = log.position();
                int size = log.getInt(start);
                log.limit(start + size);
                MessageExt message = MessageDecoder.decode(log, true, false);
                if (message == null) {
                    Lines.print("end", "file", file, "at", start, "size", size, "magic", log.getInt(start + 4));
                    break;
                }
                Lines.print("record", "position", message.getCommitLogOffset(), "size", message.getStoreSize(),
                    "bodyCRC", message.getBodyCRC(), "queueId", message.getQueueId(), "flag", message.getFlag(),
                    "queueOffset", message.getQueueOffset(), "sysFlag", message.getSysFlag(),
                    "bornTimestamp", message.getBornTimestamp(), "bornHost", message.getBornHostString(),
                    "storeTimestamp", message.getStoreTimestamp(), "storeHost", message.getStoreHost().toString(),
                    "reconsumeTimes", message.getReconsumeTimes(),
                    "preparedTransactionOffset", message.getPreparedTransactionOffset(), "topic", message.getTopic(),
                    "properties", message.getProperties(), "bodySize", message.getBody() == null ? 0 : message.getBody().length,
                    "bodySha256", Lines.sha256(message.getBody() == null ? new byte[0] : message.getBody()));
                log.position(start + size);
                log.limit(log.capacity());
            }
        }
    }
}
