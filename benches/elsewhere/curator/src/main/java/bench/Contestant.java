package bench;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.retry.RetryOneTime;

/**
 * ZooKeeper's side of the comparison: reads orders from standard input and answers each with one
 * line. The orders are described in {@code benches/elsewhere/src/worker.rs}; this understands the
 * same.
 *
 * <p>Curator's owner is a thread, so that a task is one here.
 */
public final class Contestant {
    private static final int SESSION_MILLIS = 10_000;

    private final CuratorFramework zookeeper;
    private final Function<String, Seat> seats;
    private final BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));

    private Contestant(String tool, String[] ports) throws Exception {
        String site = "127.0.0.1:" + ports[3];
        zookeeper = CuratorFrameworkFactory.newClient(site, SESSION_MILLIS, SESSION_MILLIS, new RetryOneTime(100));
        zookeeper.start();
        if (!zookeeper.blockUntilConnected(30, TimeUnit.SECONDS)) {
            throw new IllegalStateException("no connection to ZooKeeper");
        }
        if (tool.equals("checked")) {
            seats = name -> new Seat(zookeeper, name, new Node(zookeeper, name));
        } else {
            Row.Database database = new Row.Database(ports[1]);
            seats = name -> new Seat(zookeeper, name, new Row(database, name));
        }
    }

    /** {@code plain} or {@code checked}, and the ports. */
    public static void main(String[] args) throws Exception {
        new Contestant(args[0], args[1].split(" ")).serve();
        // Whoever still waits for a lock does not keep the process.
        System.exit(0);
    }

    private void serve() throws Exception {
        say("ready");
        Seat seat = null;
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "stock" -> {
                    seats.apply(words[1]).store.stock(Long.parseLong(words[2]));
                    say("stocked");
                }
                case "sell" -> crowd(words[1], Integer.parseInt(words[2]), Contestant::sell);
                case "turns" -> {
                    long turns = Long.parseLong(words[3]);
                    long length = Long.parseLong(words[4]);
                    crowd(words[1], Integer.parseInt(words[2]), each -> takeTurns(each, turns, length));
                }
                case "sit" -> {
                    seat = seats.apply(words[1]);
                    say("seated");
                }
                default -> atSeat(seat, words);
            }
        }
    }

    private static void atSeat(Seat seat, String[] words) throws Exception {
        switch (words[0]) {
            case "take" -> {
                seat.lock();
                say("got " + nowMicros());
            }
            case "read" -> say("pieces " + seat.store.read());
            case "write" -> {
                try {
                    boolean written = seat.store.write(Long.parseLong(words[1]), seat);
                    say(written ? "written" : "refused");
                } catch (Exception e) {
                    say("error " + e);
                }
            }
            case "free" -> {
                long begun = nowMicros();
                seat.unlock();
                say("freed " + begun);
            }
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    private static void say(String answer) {
        System.out.println(answer);
        System.out.flush();
    }

    /** Wall clock, because two processes have to agree on it. */
    private static long nowMicros() {
        Instant now = Instant.now();
        return now.getEpochSecond() * 1_000_000 + now.getNano() / 1_000;
    }

    /** What one task has done, and when it did the last of it. */
    private record Done(long times, long refused, long last) {}

    private interface Part {
        Done run(Seat seat) throws Exception;
    }

    private void crowd(String name, int tasks, Part part) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(tasks);
        CountDownLatch go = new CountDownLatch(1);
        List<Future<Done>> all = new ArrayList<>();
        for (int task = 0; task < tasks; task++) {
            Seat seat = seats.apply(name);
            Callable<Done> whole = () -> {
                go.await();
                return part.run(seat);
            };
            all.add(threads.submit(whole));
        }
        say("set");
        orders.readLine();
        long begun = System.nanoTime();
        go.countDown();
        long times = 0;
        long refused = 0;
        long last = begun;
        for (Future<Done> one : all) {
            Done done = one.get();
            times += done.times;
            refused += done.refused;
            last = Math.max(last, done.last);
        }
        threads.shutdown();
        say("done " + times + " " + refused + " " + (last - begun) / 1_000);
    }

    private static Done sell(Seat seat) throws Exception {
        long sold = 0;
        long refused = 0;
        long last = System.nanoTime();
        for (;;) {
            seat.lock();
            long pieces;
            boolean written;
            try {
                pieces = seat.store.read();
                written = pieces > 0 && seat.store.write(pieces - 1, seat);
            } finally {
                seat.unlock();
            }
            if (pieces <= 0) {
                return new Done(sold, refused, last);
            }
            if (written) {
                sold++;
                last = System.nanoTime();
            } else {
                refused++;
            }
        }
    }

    private static Done takeTurns(Seat seat, long turns, long lengthMicros) throws Exception {
        for (long turn = 0; turn < turns; turn++) {
            seat.lock();
            try {
                TimeUnit.MICROSECONDS.sleep(lengthMicros);
            } finally {
                seat.unlock();
            }
        }
        return new Done(turns, 0, System.nanoTime());
    }
}
