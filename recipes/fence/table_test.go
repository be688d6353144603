package fence

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"sync"
	"testing"
)

// fakeDB is a database with one table that understands Table's statements. Transactions run one
// after the other, and are undone by Rollback. It can tell how Table goes on after an error; what a
// transaction sees beside another, only a real database tells (jepsen/locklab/fences).
type fakeDB struct {
	fail func(statement string) error // nil: nothing fails

	mu     sync.Mutex
	turn   chan struct{} // holds one while no transaction runs
	tokens map[string]int64
}

func (d *fakeDB) Connect(context.Context) (driver.Conn, error) { return &fakeConn{db: d}, nil }
func (d *fakeDB) Driver() driver.Driver                        { return nil }

type fakeConn struct {
	db     *fakeDB
	before map[string]int64 // as it was when the transaction began
}

func (c *fakeConn) Prepare(string) (driver.Stmt, error) { return nil, errors.New("not needed") }
func (c *fakeConn) Close() error                        { return nil }
func (c *fakeConn) Begin() (driver.Tx, error) {
	<-c.db.turn
	c.db.mu.Lock()
	defer c.db.mu.Unlock()
	c.before = make(map[string]int64)
	for r, n := range c.db.tokens {
		c.before[r] = n
	}
	return c, nil
}

func (c *fakeConn) Commit() error {
	defer func() { c.db.turn <- struct{}{} }()
	return c.db.failing("COMMIT")
}

func (c *fakeConn) Rollback() error {
	c.db.mu.Lock()
	defer c.db.mu.Unlock()
	c.db.tokens = c.before
	c.db.turn <- struct{}{}
	return nil
}

func (d *fakeDB) failing(statement string) error {
	if d.fail == nil {
		return nil
	}
	return d.fail(statement)
}

func (c *fakeConn) ExecContext(_ context.Context, statement string, args []driver.NamedValue) (driver.Result, error) {
	d := c.db
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.failing(statement); err != nil {
		return nil, err
	}
	switch word, _, _ := strings.Cut(statement, " "); word {
	case "CREATE":
		if d.tokens == nil {
			d.tokens = make(map[string]int64)
		}
		return driver.RowsAffected(0), nil
	case "UPDATE":
		if strings.Contains(statement, "SET checks") {
			_, ok := d.tokens[args[0].Value.(string)]
			return rowsAffected(ok), nil
		}
		token, id := args[0].Value.(int64), args[1].Value.(string)
		if args[2].Value.(int64) != token {
			return nil, errors.New("two tokens")
		}
		old, ok := d.tokens[id]
		if !ok || old > token {
			return driver.RowsAffected(0), nil
		}
		d.tokens[id] = token
		return driver.RowsAffected(1), nil
	case "INSERT":
		id := args[0].Value.(string)
		if _, ok := d.tokens[id]; ok {
			return nil, errors.New("duplicate key")
		}
		d.tokens[id] = args[2].Value.(int64)
		return driver.RowsAffected(1), nil
	}
	return nil, fmt.Errorf("unknown statement %q", statement)
}

// rowsAffected is of a statement that changes a row if there is one.
func rowsAffected(ok bool) driver.RowsAffected {
	if ok {
		return 1
	}
	return 0
}

func (c *fakeConn) QueryContext(_ context.Context, statement string, args []driver.NamedValue) (driver.Rows, error) {
	c.db.mu.Lock()
	defer c.db.mu.Unlock()
	if err := c.db.failing(statement); err != nil {
		return nil, err
	}
	if len(args) == 0 { // the columns
		return &fakeRows{}, nil
	}
	token, ok := c.db.tokens[args[0].Value.(string)]
	return &fakeRows{token, ok}, nil
}

type fakeRows struct {
	token int64
	more  bool
}

func (r *fakeRows) Columns() []string { return []string{"token"} }
func (r *fakeRows) Close() error      { return nil }
func (r *fakeRows) Next(dest []driver.Value) error {
	if !r.more {
		return io.EOF
	}
	dest[0], r.more = r.token, false
	return nil
}

func newTestTable(t *testing.T, d *fakeDB, o TableOptions) *Table {
	t.Helper()
	d.turn = make(chan struct{}, 1)
	d.turn <- struct{}{}
	db := sql.OpenDB(d)
	t.Cleanup(func() { db.Close() })
	table, err := NewTable(db, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := table.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	return table
}

func TestTableName(t *testing.T) {
	for name, ok := range map[string]bool{
		"": true, "fence": true, "s.fence_2": true, "x; DROP TABLE y": false, "a b": false, "a.b.c": false, "1": false, "`a`": false,
	} {
		if _, err := NewTable(nil, TableOptions{Name: name}); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestTableFails: whatever fails, a token that was refused or not accepted is not
// remembered, and f's work is undone.
func TestTableFails(t *testing.T) {
	broken := errors.New("connection is broken")
	for _, word := range []string{"UPDATE", "SELECT", "INSERT", "COMMIT"} {
		d := new(fakeDB)
		table := newTestTable(t, d, TableOptions{})
		var again error
		if word == "SELECT" { // which comes before a refusal only
			d.tokens[rowID("a")], again = 9, ErrStale
		}
		before := maps.Clone(d.tokens)
		d.fail = func(statement string) error {
			if strings.HasPrefix(statement, word) {
				return broken
			}
			return nil
		}
		if err := table.Check(t.Context(), "a", 5); !errors.Is(err, broken) {
			t.Errorf("%s: %v", word, err)
		}
		d.fail = nil
		if word != "COMMIT" && !maps.Equal(d.tokens, before) { // a commit may have had its effect
			t.Errorf("%s: remembered %v", word, d.tokens)
		}
		if err := table.Check(t.Context(), "a", 5); !errors.Is(err, again) {
			t.Errorf("%s: again: %v", word, err)
		}
	}
	d := new(fakeDB)
	table := newTestTable(t, d, TableOptions{})
	if err := table.Do(t.Context(), "a", 5, func(*sql.Tx) error { return broken }); err != broken {
		t.Errorf("Do = %v", err)
	}
	if len(d.tokens) > 0 {
		t.Errorf("remembered %v", d.tokens)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := table.Check(ctx, "a", 1); !errors.Is(err, context.Canceled) {
		t.Errorf("Check = %v", err)
	}
}

// TestTableTwoInsert: the row of a new resource is inserted by another between
// our query and our insert.
func TestTableTwoInsert(t *testing.T) {
	for other, want := range map[int64]error{4: nil, 5: nil, 6: ErrStale} {
		d := new(fakeDB)
		table := newTestTable(t, d, TableOptions{})
		once := false
		d.fail = func(statement string) error {
			if strings.HasPrefix(statement, "INSERT") && !once {
				once = true
				// It is there when the transaction has been undone.
				return errors.New("duplicate key")
			}
			if id := rowID("a"); once && strings.HasPrefix(statement, "UPDATE") && d.tokens[id] == 0 {
				d.tokens[id] = other
			}
			return nil
		}
		if err := table.Check(t.Context(), "a", 5); !errors.Is(err, want) {
			t.Errorf("after %d: %v, want %v", other, err, want)
		}
	}
}

// TestTableBegins: Do begins again when a check fails, and never calls f a second time.
func TestTableBegins(t *testing.T) {
	broken := errors.New("deadlock")
	for _, c := range []struct {
		word            string
		failures, calls int
		want            error
	}{
		{"UPDATE", 2, 1, nil},
		{"UPDATE", 3, 0, broken},
		{"INSERT", 2, 1, nil},
		{"COMMIT", 1, 1, broken},
	} {
		d := new(fakeDB)
		table := newTestTable(t, d, TableOptions{})
		failures, calls := c.failures, 0
		d.fail = func(statement string) error {
			if strings.HasPrefix(statement, c.word) && failures > 0 {
				failures--
				return broken
			}
			return nil
		}
		err := table.Do(t.Context(), "a", 5, func(*sql.Tx) error { calls++; return nil })
		if !errors.Is(err, c.want) || calls != c.calls {
			t.Errorf("%s fails %d times: %v, %d calls of f", c.word, c.failures, err, calls)
		}
	}
}

// TestTableRowAppears: another transaction inserts the row between the first statement and the
// second.
func TestTableRowAppears(t *testing.T) {
	for other, want := range map[int64]error{4: nil, 5: nil, 6: ErrStale} {
		d := new(fakeDB)
		table := newTestTable(t, d, TableOptions{})
		d.fail = func(statement string) error {
			if strings.Contains(statement, "SET checks") {
				d.tokens[rowID("a")] = other
			}
			return nil
		}
		if err := table.Check(t.Context(), "a", 5); !errors.Is(err, want) || d.tokens[rowID("a")] < 5 && err == nil {
			t.Errorf("after %d: %v, remembered %v; want %v", other, err, d.tokens, want)
		}
	}
}

// TestDisplayName: the name for people fits into every character set.
func TestDisplayName(t *testing.T) {
	for name, want := range map[string]string{
		"/locks/a": "/locks/a", `"q" \`: `"q" \\`, "é😀\x00\xff ": `\u00e9\U0001f600\x00\xff `,
		strings.Repeat("a", 300): strings.Repeat("a", 255),
	} {
		if got := displayName(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}
