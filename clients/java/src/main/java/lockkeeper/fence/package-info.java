/**
 * Fences: a resource refuses the late write of a holder that has lost its lock.
 *
 * <p>A fence remembers the largest token that it has seen for a resource, refuses a smaller one with
 * {@link lockkeeper.fence.StaleException}, and makes the check and the write one step. There is one
 * for each place in which data are: {@link lockkeeper.fence.FileFence}, {@link
 * lockkeeper.fence.TableFence} (PostgreSQL, MariaDB, MySQL, SQLite), {@link
 * lockkeeper.fence.RedisFence}, {@link lockkeeper.fence.EtcdFence} and {@link
 * lockkeeper.fence.ObjectsFence} (S3 and its kin). They need no driver: a DataSource or a client is
 * the caller's. The fences of Go (recipes/fence) and Python (clients/python) have the same table,
 * keys, objects and file, so programs of the three languages may share a resource.
 */
package lockkeeper.fence;
