import java.util.concurrent.TimeUnit;

/**
 * Shuts a client down without waiting for the thread that tells it of connections: since 5.0 that looks only every three
 * seconds whether it is to end, unless it is interrupted.
 */
final class Ending {
    private static final String EVENTS = "NettyEventExecutor";

    private Ending() {
    }

    static void of(Runnable shutdown) throws InterruptedException {
        Thread ending = new Thread(shutdown);
        ending.start();
        ending.join(50);
        while (ending.isAlive()) {
            Thread[] threads = new Thread[Thread.activeCount() + 10];
            int count = Thread.enumerate(threads);
            for (int i = 0; i < count; i++) {
                if (threads[i].getName().equals(EVENTS) && threads[i].getState() == Thread.State.TIMED_WAITING) {
                    threads[i].interrupt();
                }
            }
            TimeUnit.MILLISECONDS.sleep(50);
        }
    }
}
