package fence

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// fakeDB is a database with one table of two columns that understands Table's four statements.
// Transactions run one after the other, and are undone by Rollback.
type fakeDB struct {
	changedOnly bool                         // RowsAffected counts rows that changed, as MySQL does
	fail        func(statement string) error // nil: nothing fails

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
		token, resource := args[0].Value.(int64), args[1].Value.(string)
		if args[2].Value.(int64) != token {
			return nil, errors.New("two tokens")
		}
		old, ok := d.tokens[resource]
		if !ok || old > token {
			return driver.RowsAffected(0), nil
		}
		d.tokens[resource] = token
		if old == token && d.changedOnly {
			return driver.RowsAffected(0), nil
		}
		return driver.RowsAffected(1), nil
	case "INSERT":
		resource := args[0].Value.(string)
		if _, ok := d.tokens[resource]; ok {
			return nil, errors.New("duplicate key")
		}
		d.tokens[resource] = args[1].Value.(int64)
		return driver.RowsAffected(1), nil
	}
	return nil, fmt.Errorf("unknown statement %q", statement)
}

func (c *fakeConn) QueryContext(_ context.Context, statement string, args []driver.NamedValue) (driver.Rows, error) {
	c.db.mu.Lock()
	defer c.db.mu.Unlock()
	if err := c.db.failing(statement); err != nil {
		return nil, err
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
		if word != "COMMIT" && len(d.tokens) > 0 { // a commit may have had its effect
			t.Errorf("%s: remembered %v", word, d.tokens)
		}
		if err := table.Check(t.Context(), "a", 5); err != nil {
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
			if once && strings.HasPrefix(statement, "UPDATE") && d.tokens["a"] == 0 {
				d.tokens["a"] = other
			}
			return nil
		}
		if err := table.Check(t.Context(), "a", 5); !errors.Is(err, want) {
			t.Errorf("after %d: %v, want %v", other, err, want)
		}
	}
}

// TestTableSQL has SQLite, as Python has it, run the statements.
func TestTableSQL(t *testing.T) {
	python := "/usr/bin/python3"
	if err := exec.Command(python, "-c", "import sqlite3").Run(); err != nil {
		t.Skip("no SQLite: apt-get install python3 (", err, ")")
	}
	table, err := NewTable(nil, TableOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const script = `
import sqlite3, sys
create, update, query, insert = sys.argv[1:]
db = sqlite3.connect(":memory:")
db.execute(create); db.execute(create)
def check(resource, token):
    n = db.execute(update, (token, resource, token)).rowcount
    if n == 0:
        row = db.execute(query, (resource,)).fetchone()
        if row is None:
            db.execute(insert, (resource, token))
        else:
            return "newest %d" % row
    return "ok"
print(*[check("a", n) for n in (33, 33, 34, 33, 1 << 62, 34)], check("b", 1), sep=", ")
`
	out, err := exec.Command(python, "-c", script, table.create, table.update, table.query, table.insertInto).CombinedOutput()
	if want := "ok, ok, ok, newest 34, ok, newest 4611686018427387904, ok\n"; err != nil || string(out) != want {
		t.Errorf("%s, %v, want %s", out, err, want)
	}
}
