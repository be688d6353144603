package lockkeeper.fence;

import java.io.IOException;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import javax.sql.DataSource;

/**
 * Remembers in a table of a database, through JDBC: PostgreSQL, MariaDB, MySQL or SQLite. The table is
 * the one of Go's fence.Table, whose documentation has the isolation levels. Any thread may use it.
 */
public final class TableFence {
    /** What is done within the transaction in which a token was accepted. */
    @FunctionalInterface
    public interface Work {
        /** Does it. An exception rolls the transaction back. */
        void run(Connection connection) throws SQLException, IOException;
    }

    private static final int ATTEMPTS = 3;

    private final DataSource source;
    private final String table;

    /** A fence in the table "fence". */
    public TableFence(DataSource source) {
        this(source, "fence");
    }

    /** A fence in that table; with a schema in front of the name if need be. */
    public TableFence(DataSource source, String table) {
        if (!table.matches("[A-Za-z_][A-Za-z0-9_]*(\\.[A-Za-z_][A-Za-z0-9_]*)?")) {
            throw new IllegalArgumentException(table + " is not the name of a table");
        }
        this.source = source;
        this.table = table;
    }

    /** Makes the table if there is none. Fails if there is one that lacks a column. */
    public void create() throws SQLException {
        try (Connection connection = source.getConnection(); Statement statement = connection.createStatement()) {
            // To databases other than MySQL and MariaDB the engine is a comment.
            statement.executeUpdate("CREATE TABLE IF NOT EXISTS " + table + " (id VARCHAR(64) NOT NULL PRIMARY KEY, "
                    + "resource VARCHAR(255) NOT NULL, token BIGINT NOT NULL, checks BIGINT NOT NULL) /*! ENGINE=InnoDB */");
            statement.executeQuery("SELECT id, resource, token, checks FROM " + table + " WHERE 1 = 0").close();
        }
    }

    /**
     * Does the work in a transaction in which the token was accepted, and commits it. The resource's
     * row is locked until then. A check that fails for no lasting reason is tried again; the work is
     * done once.
     */
    public void run(String resource, long token, Work work) throws SQLException, IOException {
        for (int attempt = 1;; attempt++) {
            try (Connection connection = source.getConnection()) {
                boolean auto = connection.getAutoCommit();
                connection.setAutoCommit(false);
                boolean accepted = false;
                boolean done = false;
                try {
                    check(connection, resource, token);
                    accepted = true;
                    work.run(connection);
                    connection.commit();
                    done = true;
                    return;
                } catch (SQLException e) {
                    if (accepted || attempt == ATTEMPTS) {
                        throw e;
                    }
                } finally {
                    if (!done) {
                        connection.rollback();
                    }
                    connection.setAutoCommit(auto);
                }
            }
        }
    }

    /**
     * Accepts a token or refuses it, within the caller's transaction, which has to be rolled back after
     * an exception. A SQLException says nothing about the token.
     *
     * <p>Invariant: it returns only after a statement of ours has changed the row, in this
     * transaction. A row that was read is a snapshot's to some databases, and not locked.
     */
    public void check(Connection connection, String resource, long token) throws SQLException, FenceException {
        Names.check(resource, token, 0);
        if (connection.getAutoCommit()) {
            throw new SQLException("the connection commits by itself: the check and the write would be two transactions");
        }
        String id = Names.rowId(resource);
        String accept = "UPDATE " + table + " SET token = ?, checks = checks + 1 WHERE id = ? AND token <= ?";
        if (change(connection, accept, token, id, token) == 1) {
            return;
        }
        // There is no row, or one with a larger token. The database says for certain which, once the
        // row is locked.
        if (change(connection, "UPDATE " + table + " SET checks = checks + 1 WHERE id = ?", id) == 0) {
            change(connection, "INSERT INTO " + table + " (id, resource, token, checks) VALUES (?, ?, ?, 1)", id,
                    Names.displayName(resource), token);
            return;
        }
        try (PreparedStatement query = connection.prepareStatement("SELECT token FROM " + table + " WHERE id = ?")) {
            query.setString(1, id);
            try (ResultSet row = query.executeQuery()) {
                if (!row.next()) {
                    throw new SQLException("the row that was changed is not there");
                }
                Names.check(resource, token, row.getLong(1));
            }
        }
        // Another transaction has inserted the row meanwhile.
        if (change(connection, accept, token, id, token) != 1) {
            throw new SQLException("the database changed no row for token " + token);
        }
    }

    /** Executes a statement that changes one row, or none. */
    private static int change(Connection connection, String text, Object... values) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement(text)) {
            for (int i = 0; i < values.length; i++) {
                statement.setObject(i + 1, values[i]);
            }
            int n = statement.executeUpdate();
            if (n < 0 || n > 1) {
                throw new SQLException("the resource has " + n + " rows");
            }
            return n;
        }
    }
}
