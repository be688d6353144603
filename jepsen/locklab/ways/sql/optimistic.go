package sql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"lockkeeper/jepsen/locklab/lock"
	"lockkeeper/jepsen/locklab/system"
)

// optimistic is a client that locks nothing: the row of the resource has a version, which is
// compared when it is updated.
type optimistic struct{ db *sql.DB }

const makeData = `create table if not exists data (
	resource varchar(128) not null primary key,
	version bigint not null
)`

func openOptimistic(ctx context.Context, c lock.Config) (lock.Client, error) {
	db, err := sql.Open("mysql", system.MariaDBName(c.Servers[0]))
	if err == nil {
		_, err = db.ExecContext(ctx, makeData)
	}
	if err != nil {
		return nil, fmt.Errorf("mariadb: %w", err)
	}
	return optimistic{db}, nil
}

// Lock implements lock.Client: it makes the row, if there is none.
func (o optimistic) Lock(ctx context.Context, resource string) (lock.Held, error) {
	if _, err := o.db.ExecContext(ctx, "insert ignore into data (resource, version) values (?, 0)", resource); err != nil {
		return nil, fmt.Errorf("mariadb: %w", err)
	}
	return &versioned{db: o.db, resource: resource}, nil
}

// Close implements lock.Client.
func (o optimistic) Close() error { return o.db.Close() }

// versioned is a row that is about to be updated.
type versioned struct {
	silent
	db       *sql.DB
	resource string
}

// Load implements lock.Store.
func (v *versioned) Load(ctx context.Context) (version int64, err error) {
	err = v.db.QueryRowContext(ctx, "select version from data where resource = ?", v.resource).Scan(&version)
	return version, err
}

var errNewer = errors.New("the row has a newer version")

// Save implements lock.Store.
func (v *versioned) Save(ctx context.Context, version int64) (found int64, err error) {
	updated, err := v.db.ExecContext(ctx, "update data set version = version + 1 where resource = ? and version = ?",
		v.resource, version)
	if err != nil {
		return 0, err
	}
	if n, err := updated.RowsAffected(); err != nil || n == 0 {
		return 0, errors.Join(err, errNewer)
	}
	return version, nil
}

// Unlock implements lock.Held. There is nothing to give back.
func (v *versioned) Unlock(context.Context) error { return nil }
