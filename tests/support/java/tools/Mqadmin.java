import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Carries out the commands of mqadmin that it reads, one a line with tabs between words, all in one JVM. Before what a command
 * prints comes a line with the number of its bytes.
 */
public class Mqadmin {
    public static void main(String[] ignored) throws Exception {
        hasten(Thread.currentThread());
        PrintStream answers = System.out;
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = commands.readLine()) != null) {
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream captured = new PrintStream(printed, true, StandardCharsets.UTF_8);
            System.setOut(captured);
            System.setErr(captured);
            try {
                MQAdminStartup.main0(line.isEmpty() ? new String[0] : line.split("\t"), null);
            } catch (Throwable thrown) {
                thrown.printStackTrace(captured);
            }
            captured.flush();
            answers.println(printed.size());
            printed.writeTo(answers);
            answers.flush();
        }
        System.exit(0);
    }

    /**
     * Each command ends by waiting for a thread of its client that looks whether it should end every three seconds; and clusterRT
     * doesn't end at all, so it is woken from its first pause.
     */
    private static void hasten(Thread main) {
        Thread watcher = new Thread(() -> {
            while (true) {
                try {
                    Thread.sleep(20);
                } catch (InterruptedException impossible) {
                    return;
                }
                boolean waits = false;
                StackTraceElement[] calls = main.getStackTrace();
                for (int each = 0; each < calls.length && calls[each].getMethodName().startsWith("sleep"); each++) {
                    if (each + 1 < calls.length && calls[each + 1].getClassName().endsWith(".CLusterSendMsgRTCommand")) {
                        main.interrupt();
                    }
                }
                for (StackTraceElement call : calls) {
                    waits |= call.getClassName().endsWith(".ServiceThread") && call.getMethodName().equals("shutdown");
                }
                for (Thread thread : Thread.getAllStackTraces().keySet()) {
                    if (waits && thread.getName().contains("NettyEventExecutor")) {
                        thread.interrupt();
                    }
                }
            }
        });
        watcher.setDaemon(true);
        watcher.start();
    }
}
