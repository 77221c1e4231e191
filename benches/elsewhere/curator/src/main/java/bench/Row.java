package bench;

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;

/** In PostgreSQL, as for every lock that is not the store's own. */
final class Row implements Store {
    /** One connection of the process: who uses it has the lock, so that nobody waits for it. */
    static final class Database {
        private final PreparedStatement stock;
        private final PreparedStatement read;
        private final PreparedStatement write;

        Database(String port) throws SQLException {
            String url = "jdbc:postgresql://127.0.0.1:" + port + "/postgres?prepareThreshold=1";
            Connection connection = DriverManager.getConnection(url, "postgres", "");
            stock = connection.prepareStatement("INSERT INTO stock (name, pieces) VALUES (?, ?)");
            read = connection.prepareStatement("SELECT pieces FROM stock WHERE name = ?");
            write = connection.prepareStatement("UPDATE stock SET pieces = ? WHERE name = ?");
        }
    }

    private final Database database;
    private final String name;

    Row(Database database, String name) {
        this.database = database;
        this.name = name;
    }

    @Override
    public void stock(long pieces) throws SQLException {
        synchronized (database) {
            database.stock.setString(1, name);
            database.stock.setLong(2, pieces);
            database.stock.executeUpdate();
        }
    }

    @Override
    public long read() throws SQLException {
        synchronized (database) {
            database.read.setString(1, name);
            try (ResultSet rows = database.read.executeQuery()) {
                rows.next();
                return rows.getLong(1);
            }
        }
    }

    @Override
    public boolean write(long pieces, Seat holder) throws SQLException {
        synchronized (database) {
            database.write.setLong(1, pieces);
            database.write.setString(2, name);
            return database.write.executeUpdate() == 1;
        }
    }
}
