package fence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Table remembers in a table of a database, through database/sql. Any number of
// processes may share it. Its methods may be called from any goroutine.
//
// CheckTx is the one to use where the resource is the same database: the check and
// the write are one transaction, and a late holder's is rolled back.
type Table struct {
	db                                *sql.DB
	create, update, query, insertInto string
}

// TableOptions are the settings of a Table. The zero value is good for MySQL, MariaDB and SQLite.
type TableOptions struct {
	// Name of the table; "" stands for "fence". Letters, digits and underscores,
	// with a schema in front if need be.
	Name string

	// Dollar: parameters are called $1, $2, as in PostgreSQL, and not ?.
	Dollar bool
}

var tableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?$`)

// NewTable returns the table; Create makes it.
func NewTable(db *sql.DB, o TableOptions) (*Table, error) {
	if o.Name == "" {
		o.Name = "fence"
	}
	if !tableName.MatchString(o.Name) {
		return nil, fmt.Errorf("fence: %q is not the name of a table", o.Name)
	}
	params := strings.NewReplacer("{t}", o.Name, "{1}", "?", "{2}", "?", "{3}", "?")
	if o.Dollar {
		params = strings.NewReplacer("{t}", o.Name, "{1}", "$1", "{2}", "$2", "{3}", "$3")
	}
	return &Table{
		db: db,
		create: params.Replace("CREATE TABLE IF NOT EXISTS {t} " +
			"(resource VARCHAR(255) NOT NULL PRIMARY KEY, token BIGINT NOT NULL)"),
		update:     params.Replace("UPDATE {t} SET token = {1} WHERE resource = {2} AND token <= {3}"),
		query:      params.Replace("SELECT token FROM {t} WHERE resource = {1}"),
		insertInto: params.Replace("INSERT INTO {t} (resource, token) VALUES ({1}, {2})"),
	}, nil
}

// Create makes the table if there is none.
func (t *Table) Create(ctx context.Context) error {
	if _, err := t.db.ExecContext(ctx, t.create); err != nil {
		return fmt.Errorf("fence: create table: %w", err)
	}
	return nil
}

// tableAttempts is how often Check tries. The one thing that makes it fail for no
// lasting reason is that two insert the row of a new resource at the same time.
const tableAttempts = 3

// Check accepts a token or refuses it, in a transaction of its own. With an error
// other than ErrStale it is not known whether the token was remembered: try again.
func (t *Table) Check(ctx context.Context, resource string, token int64) error {
	var err error
	for range tableAttempts {
		err = t.Do(ctx, resource, token, func(*sql.Tx) error { return nil })
		if err == nil || errors.Is(err, ErrStale) || errors.Is(err, ErrInvalid) || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// Do calls f within a transaction in which the token was accepted, and commits it
// if f returns nil. The row of the resource is locked until then, in databases that
// lock rows, so that no larger token is accepted while f runs.
func (t *Table) Do(ctx context.Context, resource string, token int64, f func(*sql.Tx) error) error {
	tx, err := t.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("fence: begin: %w", err)
	}
	defer tx.Rollback() // does nothing after Commit
	if err := t.CheckTx(ctx, tx, resource, token); err != nil {
		return err
	}
	if err := f(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("fence: commit: %w", err)
	}
	return nil
}

// CheckTx accepts a token or refuses it, within the caller's transaction, which
// has to be rolled back if it returns an error.
func (t *Table) CheckTx(ctx context.Context, tx *sql.Tx, resource string, token int64) error {
	if _, err := check(resource, token, 0); err != nil {
		return err
	}
	done, err := tx.ExecContext(ctx, t.update, token, resource, token)
	if err != nil {
		return fmt.Errorf("fence: update: %w", err)
	}
	if n, err := done.RowsAffected(); err == nil && n > 0 {
		return nil
	}
	// There is no row, or a larger token, or an equal one and a database that
	// counts only what it changed (MySQL).
	var newest int64
	err = tx.QueryRowContext(ctx, t.query, resource).Scan(&newest)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		if _, err := tx.ExecContext(ctx, t.insertInto, resource, token); err != nil {
			return fmt.Errorf("fence: insert: %w", err)
		}
		return nil
	case err != nil:
		return fmt.Errorf("fence: query: %w", err)
	}
	larger, err := check(resource, token, newest)
	if err == nil && larger {
		// The update did not see what the query does: a database that gives
		// each its own snapshot. Nothing was remembered.
		err = errors.New("fence: the row has changed meanwhile")
	}
	return err
}
