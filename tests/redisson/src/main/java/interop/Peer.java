package interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RBucket;
import org.redisson.api.RFencedLock;
import org.redisson.api.RList;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.LongCodec;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/**
 * A service on Redisson that does what it is told: reads one request a line from standard input and
 * answers each with one line on standard output, as soon as it is done.
 *
 * <pre>
 *   ID THREAD VERB [NAME [ARGUMENT...]]
 *   ID ok BEGUN ENDED VALUE
 *   ID failed BEGUN ENDED EXCEPTION: MESSAGE
 * </pre>
 *
 * BEGUN and ENDED are the wall clock in microseconds, around the call. Redisson's owner is a thread,
 * so THREAD names one: all requests of that name are carried out by it, one after the other.
 *
 * <p>A VERB is about the lock of that NAME. With {@code read.} or {@code write.} before it, it is about a
 * side of the read-write lock of that name, and with {@code multi.} about several locks, whose names
 * have commas in between.
 *
 * <p>The arguments of the program are the address of Redis ({@code redis://HOST:PORT}, or
 * {@code cluster:} and the addresses of some nodes with commas in between) and the watchdog timeout
 * in milliseconds. It ends with its input.
 */
public final class Peer {
    private final RedissonClient client;
    private final PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    private final Map<String, Worker> workers = new HashMap<>();

    private Peer(String address, long watchdogMillis) {
        Config config = new Config();
        config.setLockWatchdogTimeout(watchdogMillis);
        if (address.startsWith("cluster:")) {
            String[] nodes = address.substring("cluster:".length()).split(",");
            config.useClusterServers().addNodeAddress(nodes);
        } else {
            config.useSingleServer().setAddress(address);
        }
        client = Redisson.create(config);
    }

    public static void main(String[] args) throws Exception {
        Peer peer = new Peer(args[0], Long.parseLong(args[1]));
        peer.answers.println("ready");
        peer.serve();
        peer.client.shutdown(0, 1, TimeUnit.SECONDS);
    }

    private void serve() throws Exception {
        BufferedReader requests =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            String[] words = line.split(" ");
            Worker worker = workers.computeIfAbsent(words[1], Worker::new);
            if (words[2].equals("parked")) {
                // About the thread, which cannot answer itself.
                answer(words[0], worker::isParked);
            } else {
                worker.requests.add(words);
            }
        }
    }

    private interface Call {
        Object value() throws Exception;
    }

    private void answer(String id, Call call) {
        long begun = nowMicros();
        String outcome = "ok";
        Object value;
        try {
            value = call.value();
        } catch (Exception e) {
            outcome = "failed";
            value = e.getClass().getSimpleName() + ": " + e.getMessage();
        }
        long ended = nowMicros();
        String line = id + " " + outcome + " " + begun + " " + ended + " " + value;
        answers.println(line.replace('\n', ' '));
    }

    /** Wall clock, because two processes have to agree on it. */
    private static long nowMicros() {
        Instant now = Instant.now();
        return now.getEpochSecond() * 1_000_000 + now.getNano() / 1_000;
    }

    /** One of Redisson's owners. */
    private final class Worker extends Thread {
        private final BlockingQueue<String[]> requests = new LinkedBlockingQueue<>();
        /** One object a name: it remembers the lease that a nested unlock applies again. */
        private final Map<String, RLock> locks = new HashMap<>();

        private Worker(String name) {
            super(name);
            setDaemon(true);
            start();
        }

        @Override
        public void run() {
            try {
                while (true) {
                    String[] words = requests.take();
                    answer(words[0], () -> carryOut(words));
                }
            } catch (InterruptedException e) {
                // Nobody interrupts it.
            }
        }

        /** Whether it waits for a message or for the end of the holder's lease, and not for Redis. */
        private boolean isParked() {
            StackTraceElement[] stack = getStackTrace();
            return stack.length > 0
                    && stack[0].getMethodName().equals("park")
                    && Arrays.stream(stack)
                            .anyMatch(frame -> frame.getClassName().equals(Semaphore.class.getName()));
        }

        private RLock lock(String kind, String name) {
            return locks.computeIfAbsent(kind + "." + name, key -> newLock(kind, name));
        }

        private RLock newLock(String kind, String name) {
            switch (kind) {
                case "":
                    return client.getLock(name);
                case "read":
                    return client.getReadWriteLock(name).readLock();
                case "write":
                    return client.getReadWriteLock(name).writeLock();
                case "multi":
                    String[] names = name.split(",");
                    return client.getMultiLock(
                            Arrays.stream(names).map(client::getLock).toArray(RLock[]::new));
                default:
                    throw new IllegalArgumentException(kind);
            }
        }

        private RFencedLock fenced(String name) {
            return (RFencedLock)
                    locks.computeIfAbsent("." + name, key -> client.getFencedLock(name));
        }

        private Object carryOut(String[] words) throws Exception {
            String verb = words[2];
            if (verb.equals("owner")) {
                return client.getId() + ":" + getId();
            }
            int dot = verb.indexOf('.');
            String kind = dot < 0 ? "" : verb.substring(0, dot);
            String name = words[3];
            switch (verb.substring(dot + 1)) {
                case "lock":
                    lock(kind, name).lock();
                    return null;
                case "lockFor":
                    lock(kind, name).lock(Long.parseLong(words[4]), TimeUnit.MILLISECONDS);
                    return null;
                case "tryLock":
                    // A lease of -1 leaves it to the watchdog.
                    return lock(kind, name).tryLock(
                            Long.parseLong(words[4]),
                            Long.parseLong(words[5]),
                            TimeUnit.MILLISECONDS);
                case "unlock":
                    lock(kind, name).unlock();
                    return null;
                case "forceUnlock":
                    return lock(kind, name).forceUnlock();
                case "isLocked":
                    return lock(kind, name).isLocked();
                case "isHeld":
                    return lock(kind, name).isHeldByCurrentThread();
                case "isHeldByThread":
                    return lock(kind, name).isHeldByThread(Long.parseLong(words[4]));
                case "getHoldCount":
                    return lock(kind, name).getHoldCount();
                case "remainTimeToLive":
                    return lock(kind, name).remainTimeToLive();
                case "lockFenced":
                    fenced(name).lock();
                    return fenced(name).getToken();
                case "lockAndGetToken":
                    return fenced(name).lockAndGetToken();
                case "getToken":
                    return fenced(name).getToken();
                case "work":
                    return work(lock(kind, name), words[4], Integer.parseInt(words[5]));
                default:
                    throw new IllegalArgumentException(verb);
            }
        }

        /**
         * Reads, adds one and writes, each time under the lock; and signs a list, in turn. Returns the
         * longest wait for the lock in microseconds.
         */
        private long work(RLock lock, String counter, int turns) {
            RBucket<Long> bucket = client.getBucket(counter, LongCodec.INSTANCE);
            RList<String> signatures = client.getList(counter + ":turns", StringCodec.INSTANCE);
            long longest = 0;
            for (int turn = 0; turn < turns; turn++) {
                long asked = System.nanoTime();
                lock.lock();
                longest = Math.max(longest, (System.nanoTime() - asked) / 1_000);
                try {
                    bucket.set(bucket.get() + 1);
                    signatures.add(getName());
                } finally {
                    lock.unlock();
                }
            }
            return longest;
        }
    }
}
