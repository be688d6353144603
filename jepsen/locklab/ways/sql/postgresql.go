package sql

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"lockkeeper/jepsen/locklab/lock"
	"lockkeeper/jepsen/locklab/system"
)

// advisory is a client of PostgreSQL's advisory locks, which belong to a connection.
type advisory struct {
	name string
	conn *pgx.Conn
}

func openAdvisory(ctx context.Context, c lock.Config) (lock.Client, error) {
	a := &advisory{name: system.PostgreSQLName(c.Servers[0])}
	return a, a.connect(ctx)
}

func (a *advisory) connect(ctx context.Context) (err error) {
	if a.conn, err = pgx.Connect(ctx, a.name); err != nil {
		return fmt.Errorf("postgresql: %w", err)
	}
	return nil
}

// Lock implements lock.Client. A context that ends closes pgx's connection.
func (a *advisory) Lock(ctx context.Context, resource string) (lock.Held, error) {
	var last error
	for {
		if a.conn == nil || a.conn.IsClosed() {
			last = a.connect(ctx)
		}
		if a.conn != nil && !a.conn.IsClosed() {
			if _, last = a.conn.Exec(ctx, "select pg_advisory_lock(hashtextextended($1, 0))", resource); last == nil {
				return &advisoryLock{conn: a.conn, resource: resource}, nil
			}
		}
		select {
		case <-time.After(spin):
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), last)
		}
	}
}

// Close implements lock.Client.
func (a *advisory) Close() error {
	if a.conn == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return a.conn.Close(ctx)
}

type advisoryLock struct {
	silent
	conn     *pgx.Conn
	resource string
}

// Unlock implements lock.Held.
func (l *advisoryLock) Unlock(ctx context.Context) error {
	var released bool
	if err := l.conn.QueryRow(ctx, "select pg_advisory_unlock(hashtextextended($1, 0))", l.resource).Scan(&released); err != nil {
		return fmt.Errorf("postgresql: %w", err)
	}
	if !released {
		return errNotHeld
	}
	return nil
}
