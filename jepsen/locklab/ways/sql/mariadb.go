package sql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver

	"lockkeeper/jepsen/locklab/lock"
	"lockkeeper/jepsen/locklab/system"
)

// Ways are the locks of one server and, for MariaDB, of a primary with a replica.
func Ways() []lock.Way {
	return []lock.Way{
		{Name: "mariadb-table", System: "mariadb", Open: openTable},
		{Name: "mariadb-get-lock", System: "mariadb", Open: openGetLock},
		{Name: "mariadb-optimistic", System: "mariadb", Optimistic: true, Open: openOptimistic},
		{Name: "mariadb-replica-table", System: "mariadb-replica", Open: openTable},
		{Name: "postgresql-advisory", System: "postgresql", Open: openAdvisory},
	}
}

// spin is how long somebody who did not get a lock waits before the next try.
const spin = 25 * time.Millisecond

// nobody is the result of Lost where nothing reports a loss.
type silent struct{}

// Token implements lock.Held.
func (silent) Token() uint64 { return 0 }

// Lost implements lock.Held.
func (silent) Lost() <-chan struct{} { return nil }

// table is a client of the lock table.
type table struct {
	node  string
	lease time.Duration
	dbs   []*sql.DB // of the servers; the one that is not read-only is the primary
	stop  context.CancelFunc
	job   sync.WaitGroup
}

const makeTable = `create table if not exists locks (
	resource varchar(128) not null primary key,
	node_info varchar(128) not null,
	count int not null,
	taken timestamp(3) not null default current_timestamp(3)
)`

func openTable(ctx context.Context, c lock.Config) (lock.Client, error) {
	t := &table{node: c.Node, lease: c.Lease}
	for _, addr := range c.Servers {
		db, err := sql.Open("mysql", system.MariaDBName(addr)+"&readTimeout=5s")
		if err != nil {
			return nil, fmt.Errorf("mariadb: %w", err)
		}
		t.dbs = append(t.dbs, db)
	}
	db, err := t.primary(ctx)
	if err == nil {
		_, err = db.ExecContext(ctx, makeTable)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("mariadb: %w", err), t.Close())
	}
	var cleaning context.Context
	cleaning, t.stop = context.WithCancel(context.Background())
	t.job.Go(func() { t.cleanUp(cleaning) })
	return t, nil
}

// primary is the server that takes writes.
func (t *table) primary(ctx context.Context) (*sql.DB, error) {
	var errs []error
	for _, db := range t.dbs {
		if len(t.dbs) == 1 {
			return db, nil
		}
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		var readOnly bool
		err := db.QueryRowContext(ctx, "select @@read_only").Scan(&readOnly)
		cancel()
		if err == nil && !readOnly {
			return db, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(append(errs, errors.New("no server takes writes"))...)
}

// cleanUp is the job that removes locks that have been held for too long, by the database's clock.
func (t *table) cleanUp(ctx context.Context) {
	tick := time.NewTicker(t.lease / 4)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if db, err := t.primary(ctx); err == nil {
			_, _ = db.ExecContext(ctx, "delete from locks where taken < current_timestamp(3) - interval ? microsecond", t.lease.Microseconds())
		}
	}
}

// Lock implements lock.Client: it tries again and again.
func (t *table) Lock(ctx context.Context, resource string) (lock.Held, error) {
	var last error
	for {
		ok, err := t.try(ctx, resource)
		switch {
		case ok:
			return &row{table: t, resource: resource}, nil
		case err != nil:
			last = err
		}
		select {
		case <-time.After(spin):
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), last)
		}
	}
}

// try is tryLock: in a transaction the row is read and locked, made if there is none, and counted
// up if it is of this node.
func (t *table) try(ctx context.Context, resource string) (ok bool, err error) {
	return ok, t.transaction(ctx, func(tx *sql.Tx) error {
		var node string
		err := tx.QueryRowContext(ctx, "select node_info from locks where resource = ? for update", resource).Scan(&node)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			_, err = tx.ExecContext(ctx, "insert into locks (resource, node_info, count) values (?, ?, 1)", resource, t.node)
			ok = err == nil // else somebody else was faster
			return err
		case err == nil && node == t.node:
			_, err = tx.ExecContext(ctx, "update locks set count = count + 1, taken = current_timestamp(3) where resource = ?", resource)
			ok = err == nil
		}
		return err
	})
}

func (t *table) transaction(ctx context.Context, do func(*sql.Tx) error) error {
	db, err := t.primary(ctx)
	if err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// Close implements lock.Client.
func (t *table) Close() error {
	if t.stop != nil {
		t.stop()
	}
	t.job.Wait()
	var errs []error
	for _, db := range t.dbs {
		errs = append(errs, db.Close())
	}
	return errors.Join(errs...)
}

// row is a lock that is held.
type row struct {
	silent
	table    *table
	resource string
}

var errNotHeld = errors.New("the lock was not held any more")

// Unlock implements lock.Held: it counts down, and deletes the row at the last one.
func (r *row) Unlock(ctx context.Context) error {
	return r.table.transaction(ctx, func(tx *sql.Tx) error {
		var count int
		err := tx.QueryRowContext(ctx, "select count from locks where resource = ? and node_info = ? for update", r.resource,
			r.table.node).Scan(&count)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return errNotHeld
		case err == nil && count > 1:
			_, err = tx.ExecContext(ctx, "update locks set count = count - 1 where resource = ?", r.resource)
		case err == nil:
			_, err = tx.ExecContext(ctx, "delete from locks where resource = ?", r.resource)
		}
		return err
	})
}

// getLock is a client of GET_LOCK. Its locks belong to a connection.
type getLock struct {
	db   *sql.DB
	conn *sql.Conn
}

func openGetLock(ctx context.Context, c lock.Config) (lock.Client, error) {
	db, err := sql.Open("mysql", system.MariaDBName(c.Servers[0]))
	if err != nil {
		return nil, fmt.Errorf("mariadb: %w", err)
	}
	g := &getLock{db: db}
	if g.conn, err = db.Conn(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("mariadb: %w", err), db.Close())
	}
	return g, nil
}

// Lock implements lock.Client.
func (g *getLock) Lock(ctx context.Context, resource string) (lock.Held, error) {
	for {
		var got sql.NullInt64
		err := g.conn.QueryRowContext(ctx, "select get_lock(?, 1)", resource).Scan(&got)
		if err == nil && got.Int64 == 1 {
			return &connectionLock{conn: g.conn, resource: resource}, nil
		}
		if ctx.Err() != nil {
			return nil, errors.Join(ctx.Err(), err)
		}
		if err != nil { // the connection is gone, and with it its locks
			_ = g.conn.Close()
			time.Sleep(spin)
			if conn, e := g.db.Conn(ctx); e == nil {
				g.conn = conn
			}
		}
	}
}

// Close implements lock.Client.
func (g *getLock) Close() error {
	err := g.conn.Close()
	if errors.Is(err, sql.ErrConnDone) {
		err = nil
	}
	return errors.Join(err, g.db.Close())
}

type connectionLock struct {
	silent
	conn     *sql.Conn
	resource string
}

// Unlock implements lock.Held.
func (l *connectionLock) Unlock(ctx context.Context) error {
	var released sql.NullInt64
	if err := l.conn.QueryRowContext(ctx, "select release_lock(?)", l.resource).Scan(&released); err != nil {
		return fmt.Errorf("mariadb: %w", err)
	}
	if released.Int64 != 1 {
		return errNotHeld
	}
	return nil
}
