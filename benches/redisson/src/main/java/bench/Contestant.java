package bench;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
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
        say("done " + elapsed + " " + held / 1_000 + " " + errors + " " + late + each);
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
