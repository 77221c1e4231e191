package bench;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Supplier;
import java.util.stream.LongStream;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Redisson's side of the benchmark: reads orders from standard input and answers each with one line.
 * The orders are described in {@code benches/compare/harness/orders.rs}; this understands the same.
 *
 * <p>Redisson's owner is a thread, so that a task is one here, and what it is given is its default:
 * a lock with the watchdog, waited for without a limit.
 */
public final class Contestant {
    /**
     * Nobody is interrupted before that: a lock that comes after its caller has gone is renewed for
     * ever. After the end, whoever gets the lock gives it back at once, and soon all have left.
     */
    private static final long GRACE_MILLIS = 10_000;

    private final RedissonClient client;
    private final BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));

    private Contestant(String url) {
        Config config = new Config();
        config.useSingleServer().setAddress(url);
        client = Redisson.create(config);
    }

    public static void main(String[] args) throws Exception {
        Contestant contestant = new Contestant(args[0].replaceAll("/+$", ""));
        contestant.warmUp();
        contestant.serve();
        contestant.client.shutdown(0, 1, TimeUnit.SECONDS);
    }

    /** A property says which lock. */
    private RLock lock(String name) {
        String kind = System.getProperty("kind", "lock");
        return switch (kind) {
            case "fair" -> client.getFairLock(name);
            case "read", "read-mostly" -> client.getReadWriteLock(name).readLock();
            case "several-3" -> several(name, 3);
            case "several-10" -> several(name, 10);
            default -> client.getLock(name);
        };
    }

    private RLock several(String name, int many) {
        RLock[] locks = new RLock[many];
        for (int key = 0; key < many; key++) {
            locks[key] = client.getLock(name + ":" + key);
        }
        return client.getMultiLock(locks);
    }

    /** The lock of each turn: who reads mostly writes in one of ten. */
    private Supplier<RLock> turns(String name, int task) {
        RLock lock = lock(name);
        if (!System.getProperty("kind", "lock").equals("read-mostly")) {
            return () -> lock;
        }
        RLock write = client.getReadWriteLock(name).writeLock();
        int[] turn = {task % 10};
        return () -> turn[0]++ % 10 == 9 ? write : lock;
    }

    private void warmUp() {
        RLock lock = lock("warm-up:" + ProcessHandle.current().pid());
        lock.lock();
        lock.unlock();
    }

    private void serve() throws Exception {
        say("ready");
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "work" -> work(words);
                case "paced" -> paced(words);
                case "hold" -> hold(words[1]);
                case "wait" -> waitFor(words[1]);
                default -> throw new IllegalArgumentException(line);
            }
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

    /** The processor time of this process, in microseconds. */
    private static long cpuMicros() {
        Duration time = ProcessHandle.current().info().totalCpuDuration().orElse(Duration.ZERO);
        return TimeUnit.NANOSECONDS.toMicros(time.toNanos());
    }

    private void hold(String name) throws Exception {
        RLock lock = lock(name);
        lock.lock();
        say("held");
        orders.readLine();
        long begun = nowMicros();
        lock.unlock();
        say("freed " + begun);
    }

    private void waitFor(String name) {
        RLock lock = lock(name);
        lock.lock();
        long got = nowMicros();
        lock.unlock();
        say("got " + got);
    }

    /** work MODE TASKS NAME TURNS HOLD_MICROS LIMIT_MICROS */
    private void work(String[] words) throws Exception {
        boolean ownNames = words[1].equals("apart");
        long turns = Long.parseLong(words[4]);
        long hold = Long.parseLong(words[5]);
        long limit = Long.parseLong(words[6]);
        CountDownLatch go = new CountDownLatch(1);
        List<Task> tasks = new ArrayList<>();
        for (int task = 0; task < Integer.parseInt(words[2]); task++) {
            String name = ownNames ? words[3] + ":" + task : words[3];
            tasks.add(new Task(turns(name, task), turns, hold, limit, go));
        }
        tasks.forEach(Thread::start);
        say("set");
        orders.readLine();
        long cpu = cpuMicros();
        long begun = System.nanoTime();
        go.countDown();
        for (Task task : tasks) {
            long left = limit / 1_000 + GRACE_MILLIS - (System.nanoTime() - begun) / 1_000_000;
            task.join(Math.max(1, left));
            if (task.isAlive()) {
                task.interrupt();
            }
        }
        for (Task task : tasks) {
            task.join();
        }
        boolean all = tasks.stream().allMatch(task -> task.turns == turns);
        long elapsed = all ? (System.nanoTime() - begun) / 1_000 : limit;
        long held = 0;
        long errors = 0;
        long late = 0;
        StringBuilder each = new StringBuilder();
        for (Task task : tasks) {
            held += task.held;
            errors += task.errors;
            late += task.late;
            each.append(' ').append(task.turns).append(':').append(task.longest / 1_000);
        }
        cpu = cpuMicros() - cpu;
        each.append(" cpu=").append(cpu);
        say("done " + elapsed + " " + held / 1_000 + " " + errors + " " + late + each);
    }

    /** paced TASKS NAME RATE LIMIT_MICROS */
    private void paced(String[] words) throws Exception {
        double rate = Double.parseDouble(words[3]) / 1e9;
        long limit = Long.parseLong(words[4]) * 1_000;
        Pace pace = new Pace(rate);
        List<PacedTask> tasks = new ArrayList<>();
        for (int task = 0; task < Integer.parseInt(words[1]); task++) {
            tasks.add(new PacedTask(lock(words[2] + ":" + task), pace));
        }
        tasks.forEach(Thread::start);
        say("set");
        orders.readLine();
        pace.begun = System.nanoTime();
        long given = 0;
        for (long passed = 0; passed < limit; passed = System.nanoTime() - pace.begun) {
            long all = (long) (passed * rate);
            pace.due.release((int) (all - given));
            given = all;
            LockSupport.parkNanos(50_000);
        }
        pace.over = true;
        pace.due.release(tasks.size());
        for (Thread task : tasks) {
            task.join();
        }
        // Those that had no turn have waited until now.
        long now = System.nanoTime();
        LongStream failed = tasks.stream().flatMapToLong(task -> longs(task.failed));
        LongStream waiting = LongStream.concat(failed, LongStream.range(pace.next.get(), given));
        LongStream waited = waiting.map(turn -> now - pace.when(turn));
        LongStream had = tasks.stream().flatMapToLong(task -> longs(task.took));
        long turns = tasks.stream().mapToLong(task -> task.took.size()).sum();
        long errors = tasks.stream().mapToLong(task -> task.failed.size()).sum();
        long[] took = LongStream.concat(had, waited).sorted().toArray();
        say("paced " + turns + " " + errors + " " + micros(took, 50) + " " + micros(took, 99));
    }

    private static LongStream longs(List<Long> list) {
        return list.stream().mapToLong(one -> one);
    }

    private static long micros(long[] took, int part) {
        return took.length == 0 ? 0 : took[took.length * part / 100] / 1_000;
    }

    /** Which turns are due. */
    private static final class Pace {
        private final Semaphore due = new Semaphore(0);
        private final AtomicLong next = new AtomicLong();
        private final double rate;
        private volatile long begun;
        private volatile boolean over;

        Pace(double rate) {
            this.rate = rate;
        }

        private long when(long turn) {
            return begun + (long) (turn / rate);
        }
    }

    private static final class PacedTask extends Thread {
        private final RLock lock;
        private final Pace pace;
        private final List<Long> took = new ArrayList<>();
        private final List<Long> failed = new ArrayList<>();

        PacedTask(RLock lock, Pace pace) {
            this.lock = lock;
            this.pace = pace;
            setDaemon(true);
        }

        @Override
        public void run() {
            while (true) {
                pace.due.acquireUninterruptibly();
                if (pace.over) {
                    return;
                }
                long turn = pace.next.getAndIncrement();
                try {
                    lock.lock();
                    lock.unlock();
                    took.add(System.nanoTime() - pace.when(turn));
                } catch (RuntimeException e) {
                    failed.add(turn);
                }
            }
        }
    }

    private static final class Task extends Thread {
        private final Supplier<RLock> next;
        private final long wanted;
        private final long hold;
        private final long limit;
        private final CountDownLatch go;
        private long turns;
        private long longest;
        private long held;
        private long errors;
        private long late;

        Task(Supplier<RLock> next, long wanted, long hold, long limit, CountDownLatch go) {
            this.next = next;
            this.wanted = wanted;
            this.hold = hold;
            this.limit = limit;
            this.go = go;
            setDaemon(true);
        }

        @Override
        public void run() {
            try {
                go.await();
            } catch (InterruptedException e) {
                return;
            }
            long end = System.nanoTime() + limit * 1_000;
            while (turns < wanted && System.nanoTime() < end) {
                RLock lock = next.get();
                long asked = System.nanoTime();
                try {
                    lock.lockInterruptibly();
                } catch (InterruptedException e) {
                    longest = Math.max(longest, end - asked);
                    return;
                } catch (RuntimeException e) {
                    errors++;
                    continue;
                }
                long got = System.nanoTime();
                longest = Math.max(longest, Math.min(got, end) - asked);
                boolean counts = got < end;
                boolean interrupted = pause();
                held += counts ? System.nanoTime() - got : 0;
                try {
                    lock.unlock();
                    turns += counts ? 1 : 0;
                    late += counts ? 0 : 1;
                } catch (RuntimeException e) {
                    errors++;
                }
                if (interrupted) {
                    return;
                }
            }
        }

        private boolean pause() {
            if (hold == 0) {
                return false;
            }
            try {
                TimeUnit.MICROSECONDS.sleep(hold);
                return false;
            } catch (InterruptedException e) {
                return true;
            }
        }
    }
}
