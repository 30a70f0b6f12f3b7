import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;

/** Prints the bits that the broker's bloom filter gives each of `names`, which are separated by commas. */
public final class BloomBits {
    private BloomBits() {
    }

    public static void main(String[] args) throws Exception {
        Options options = new Options(args);
        Class<?> type = Class.forName("org.apache.rocketmq.filter.util.BloomFilter"); // on the server's class path only
        Object filter = type.getMethod("createByFn", int.class, int.class)
            .invoke(null, options.number("error", 20), options.number("expected", 32));
        Method positions = type.getMethod("calcBitPositions", String.class);
        int bits = (Integer) type.getMethod("getM").invoke(filter);
        for (String name : options.text("names").split(",")) {
            List<Integer> found = new ArrayList<>();
            for (int position : (int[]) positions.invoke(filter, name)) {
                found.add(position);
            }
            Lines.print("bits", "name", name, "bits", bits, "positions", found);
        }
        Lines.print("done");
        System.exit(0);
    }
}
