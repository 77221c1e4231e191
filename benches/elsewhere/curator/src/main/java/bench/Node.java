package bench;

import java.nio.charset.StandardCharsets;
import org.apache.curator.framework.CuratorFramework;
import org.apache.zookeeper.KeeperException;

/** In ZooKeeper itself, which can check in the same transaction that the holder's node is there. */
final class Node implements Store {
    private final CuratorFramework zookeeper;
    private final String path;

    Node(CuratorFramework zookeeper, String name) {
        this.zookeeper = zookeeper;
        path = "/stock/" + name;
    }

    private static byte[] bytes(long pieces) {
        return Long.toString(pieces).getBytes(StandardCharsets.UTF_8);
    }

    @Override
    public void stock(long pieces) throws Exception {
        zookeeper.create().creatingParentsIfNeeded().forPath(path, bytes(pieces));
    }

    @Override
    public long read() throws Exception {
        return Long.parseLong(new String(zookeeper.getData().forPath(path), StandardCharsets.UTF_8));
    }

    @Override
    public boolean write(long pieces, Seat holder) throws Exception {
        try {
            zookeeper.transaction().forOperations(
                zookeeper.transactionOp().check().forPath(holder.node()),
                zookeeper.transactionOp().setData().forPath(path, bytes(pieces)));
            return true;
        } catch (KeeperException.NoNodeException e) {
            return false;
        }
    }
}
