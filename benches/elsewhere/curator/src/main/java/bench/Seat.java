package bench;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;

/** One task: a lock of its own, and the store that it protects. */
final class Seat {
    /** A mutex that says which node its holder has. */
    private static final class Mutex extends InterProcessMutex {
        Mutex(CuratorFramework zookeeper, String path) {
            super(zookeeper, path);
        }

        String node() {
            return getLockPath();
        }
    }

    final Store store;
    private final Mutex mutex;
    private String node;

    Seat(CuratorFramework zookeeper, String name, Store store) {
        mutex = new Mutex(zookeeper, "/locks/" + name);
        this.store = store;
    }

    void lock() throws Exception {
        mutex.acquire();
        node = mutex.node();
    }

    void unlock() throws Exception {
        mutex.release();
    }

    /** The holder's node, which ends with the session. */
    String node() {
        return node;
    }
}
