package fence

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Table remembers in a table of a database, through database/sql. Any number of processes may share
// it. Its methods may be called from any goroutine. It is tested with MariaDB, PostgreSQL and
// SQLite, at every isolation level that they have.
//
// CheckTx and Do are the ones to use where the resource is the same database: the check and the
// write are one transaction, and a late holder's is rolled back.
//
// # How it excludes
//
// An accepted check writes the row of its resource, also when the token stays the same: the UPDATE
// counts the check. So the row is locked until the transaction ends, a check by another transaction
// waits or fails, and no token is accepted on the strength of a snapshot. A check that cannot tell
// returns an error, which is never an acceptance: the database chose the transaction as the victim
// of a deadlock, could not serialize it (PostgreSQL's 40001), inserted the row for another
// transaction, or is busy (SQLite). Commit may fail in the same ways. Then roll back, and begin
// again; Check and Do begin again by themselves until f is called.
//
// The transaction's own reads are another matter. At MariaDB's and MySQL's REPEATABLE READ, their
// default, a plain SELECT sees the transaction's first one's snapshot: if that was before CheckTx,
// it may lack writes of earlier holders. So let CheckTx be the first statement, as Do does, or read
// with FOR UPDATE. PostgreSQL, at that level, and SQLite fail instead. In SQLite a check beside
// another transaction's waits if there is a busy_timeout, and if the transaction has not read
// before: BEGIN IMMEDIATE sees to that.
//
// # The table
//
// Create makes it, as
//
//	CREATE TABLE fence (
//		id       VARCHAR(64) NOT NULL PRIMARY KEY,  -- SHA-256 of the resource's name, in hexadecimal
//		resource VARCHAR(255) NOT NULL,             -- the name for people: escaped to ASCII, cut off
//		token    BIGINT NOT NULL,                   -- the largest one seen
//		checks   BIGINT NOT NULL                    -- how often one was accepted
//	)
//
// in the engine InnoDB, where there are engines: one without transactions does not exclude. Rows
// are told apart by id alone. So names may be of any length and have any bytes, and no collation
// (without case, without accents, with padding) lets two resources share a row.
type Table struct {
	db   *sql.DB
	name string
	create, columns,
	accept, touch, newest, insert string
}

// TableOptions are the settings of a Table. The zero value is good for MySQL, MariaDB and SQLite.
type TableOptions struct {
	// Name of the table; "" stands for "fence". Letters, digits and underscores, with a schema in
	// front if need be.
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
		db:   db,
		name: o.Name,
		// To databases other than MySQL and MariaDB the engine is a comment.
		create: params.Replace("CREATE TABLE IF NOT EXISTS {t} (id VARCHAR(64) NOT NULL PRIMARY KEY, " +
			"resource VARCHAR(255) NOT NULL, token BIGINT NOT NULL, checks BIGINT NOT NULL) /*! ENGINE=InnoDB */"),
		columns: params.Replace("SELECT id, resource, token, checks FROM {t} WHERE 1 = 0"),
		accept:  params.Replace("UPDATE {t} SET token = {1}, checks = checks + 1 WHERE id = {2} AND token <= {3}"),
		touch:   params.Replace("UPDATE {t} SET checks = checks + 1 WHERE id = {1}"),
		newest:  params.Replace("SELECT token FROM {t} WHERE id = {1}"),
		insert:  params.Replace("INSERT INTO {t} (id, resource, token, checks) VALUES ({1}, {2}, {3}, 1)"),
	}, nil
}

// Create makes the table if there is none. It fails if there is one that lacks a column.
func (t *Table) Create(ctx context.Context) error {
	if _, err := t.db.ExecContext(ctx, t.create); err != nil {
		return fmt.Errorf("fence: create table: %w", err)
	}
	rows, err := t.db.QueryContext(ctx, t.columns)
	if err == nil {
		err = errors.Join(rows.Err(), rows.Close())
	}
	if err != nil {
		return fmt.Errorf("fence: the table %s exists, and lacks columns of a Table: %w", t.name, err)
	}
	return nil
}

// tableAttempts is how often Check and Do try. A transaction fails for no lasting reason when
// another one is in its way: both insert the row of a new resource, say.
const tableAttempts = 3

// Check accepts a token or refuses it, in a transaction of its own. With an error other than
// ErrStale it is not known whether the token was remembered: try again.
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

// Do calls f within a transaction in which the token was accepted, and commits it if f returns nil.
// The row of the resource is locked until then (in SQLite the database), so that no larger token is
// accepted while f runs, and f reads everything that earlier holders have committed. It has the
// database's default isolation level, at which PostgreSQL or SQLite may fail in f or at the commit;
// then Do returns that error, and nothing was written.
//
// f has to return the error of a statement that fails. MariaDB and MySQL roll the transaction back
// after a deadlock, and execute the following statements without one, and without the lock.
func (t *Table) Do(ctx context.Context, resource string, token int64, f func(*sql.Tx) error) error {
	var err error
	for range tableAttempts {
		var accepted bool
		accepted, err = t.do(ctx, resource, token, f)
		if accepted || errors.Is(err, ErrStale) || errors.Is(err, ErrInvalid) || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// do is one attempt of Do. It says whether the token was accepted, so that f was called.
func (t *Table) do(ctx context.Context, resource string, token int64,
	f func(*sql.Tx) error) (accepted bool, err error) {
	tx, err := t.db.BeginTx(ctx, nil)
	if err != nil {
		return false, fmt.Errorf("fence: begin: %w", err)
	}
	defer tx.Rollback() // does nothing after Commit
	if err := t.CheckTx(ctx, tx, resource, token); err != nil {
		return false, err
	}
	if err := f(tx); err != nil {
		return true, err
	}
	if err := tx.Commit(); err != nil {
		return true, fmt.Errorf("fence: commit: %w", err)
	}
	return true, nil
}

// CheckTx accepts a token or refuses it, within the caller's transaction, of any isolation level.
// The transaction has to be rolled back if CheckTx returns an error. One that is neither ErrStale
// nor ErrInvalid says nothing about the token.
//
// Invariant: nil is returned only after a statement of ours has changed the row, in this
// transaction. A row that was read, or that an UPDATE left as it was, is a snapshot's to some
// databases, and not locked.
func (t *Table) CheckTx(ctx context.Context, tx *sql.Tx, resource string, token int64) error {
	if _, err := check(resource, token, 0); err != nil {
		return err
	}
	id := rowID(resource)
	if n, err := changeRow(ctx, tx, t.accept, token, id, token); n == 1 || err != nil {
		return err
	}
	// There is no row, or one with a larger token. Which one it is, the database says for certain
	// once the row is locked, and has a version that is this transaction's own.
	n, err := changeRow(ctx, tx, t.touch, id)
	if err != nil {
		return err
	}
	if n == 0 {
		_, err := changeRow(ctx, tx, t.insert, id, displayName(resource), token)
		return err
	}
	var newest int64
	if err := tx.QueryRowContext(ctx, t.newest, id).Scan(&newest); err != nil {
		return fmt.Errorf("fence: query: %w", err)
	}
	if _, err := check(resource, token, newest); err != nil {
		return err
	}
	// Another transaction has inserted the row meanwhile.
	if n, err := changeRow(ctx, tx, t.accept, token, id, token); n == 1 || err != nil {
		return err
	}
	return fmt.Errorf("fence: token %d for %q: the database changed no row that has %d", token, resource, newest)
}

// changeRow executes a statement that changes one row, or none.
func changeRow(ctx context.Context, tx *sql.Tx, statement string, args ...any) (int64, error) {
	word, _, _ := strings.Cut(statement, " ")
	word = strings.ToLower(word)
	done, err := tx.ExecContext(ctx, statement, args...)
	if err != nil {
		return 0, fmt.Errorf("fence: %s: %w", word, err)
	}
	n, err := done.RowsAffected()
	if err != nil {
		return 0, fmt.Errorf("fence: %s: count of rows: %w", word, err)
	}
	if n < 0 || n > 1 {
		return 0, fmt.Errorf("fence: %s: the resource has %d rows", word, n)
	}
	return n, nil
}

// rowID is the key of a resource's row. Keys have one length and the characters 0 to 9 and a to f,
// which every collation and character set tells apart.
func rowID(resource string) string {
	sum := sha256.Sum256([]byte(resource))
	return hex.EncodeToString(sum[:])
}

// displayName is the name of a resource for people, which fits into every database.
func displayName(resource string) string {
	quoted := strconv.QuoteToASCII(resource)
	name := strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
	return name[:min(len(name), 255)]
}
