package fences

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"lockkeeper/recipes/fence"
)

// TestTable tests fence.Table with each database.
func TestTable(t *testing.T) {
	for _, d := range databases(t) {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel() // they wait for each other
			t.Run("orders", func(t *testing.T) { testOrders(t, &d) })
			t.Run("mixed", func(t *testing.T) { testMixed(t, &d) })
			t.Run("twins", func(t *testing.T) { testTwins(t, &d) })
			t.Run("together", func(t *testing.T) { testTogether(t, &d) })
			t.Run("names", func(t *testing.T) { testNames(t, &d) })
			t.Run("earlier", func(t *testing.T) { testEarlier(t, &d) })
		})
	}
}

// Many transactions at once, each of which checks, reads and writes: who is accepted sees all
// writes before its own, none of which has a larger token.
func testTogether(t *testing.T, d *database) {
	for _, l := range d.levels {
		t.Run(l.name, func(t *testing.T) {
			s := newStage(t, d, l, "together")
			together(t, s, l.name, func(ctx context.Context, resource string, token int64, f func(*sql.Tx) error) error {
				tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: l.isolation})
				if err != nil {
					return err
				}
				if err := s.table.CheckTx(ctx, tx, resource, token); err != nil {
					return errors.Join(err, tx.Rollback())
				}
				if err := f(tx); err != nil {
					return errors.Join(err, tx.Rollback())
				}
				return tx.Commit()
			})
		})
	}
	t.Run("Do", func(t *testing.T) {
		l := d.levels[slices.IndexFunc(d.levels, func(l level) bool { return !l.fails })]
		s := newStage(t, d, l, "do")
		together(t, s, "Do", s.table.Do)
	})
}

func together(t *testing.T, s *stage, name string, do func(context.Context, string, int64, func(*sql.Tx) error) error) {
	const writers, rounds, resources = 4, 40, 10
	ctx := t.Context()
	var committed, stale atomic.Int64
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(w)))
			for i := range rounds {
				resource, token := fmt.Sprintf("%s %d", name, i*resources/rounds), 1+rng.Int64N(20)
				err := do(ctx, resource, token, func(tx *sql.Tx) error {
					seen, err := s.count(ctx, tx, "SELECT COUNT(*) FROM "+s.log+" WHERE resource = ?", resource)
					if err != nil {
						return err
					}
					newest, err := s.count(ctx, tx, "SELECT COALESCE(MAX(token), 0) FROM "+s.log+" WHERE resource = ?", resource)
					if err == nil && newest > token {
						t.Errorf("token %d was accepted after %d", token, newest)
					}
					return errors.Join(err, s.do(ctx, tx, "INSERT INTO "+s.log+" (resource, token, seen) VALUES (?, ?, ?)", resource, token, seen))
				})
				switch {
				case err == nil:
					committed.Add(1)
				case errors.Is(err, fence.ErrStale):
					stale.Add(1)
				}
			}
		})
	}
	wg.Wait()
	query := "SELECT COUNT(*) FROM " + s.log + " WHERE resource LIKE ?"
	all, err := s.count(ctx, s.db, query, name+" %")
	must(t, err)
	distinct, err := s.count(ctx, s.db, "SELECT COUNT(*) FROM (SELECT DISTINCT resource, seen FROM "+s.log+" WHERE resource LIKE ?) d", name+" %")
	must(t, err)
	if all != committed.Load() || distinct != all || all < resources && !s.level.fails || all == 0 {
		t.Errorf("%d commits, %d writes, %d of them different, %d stale tokens", committed.Load(), all, distinct, stale.Load())
	}
}

// A table is a fence's table that Create makes with params, or that is made before.
type table struct {
	name, params   string
	before         string // a statement
	column, suffix string // of the table and of its columns of text; both empty: Create makes it
	equal          bool   // names that differ in case are equal here
}

// names are resources, some of which are equal in some collation, encoding, type or length.
var names = []string{
	"/locks/a", "/LOCKS/A", "/locks/a ", "/locks/a\t", "/locks/a\x00", "/locks/á", "/locks/a\u0301", "/locks/ａ", "/locks/ä", "/locks/ae",
	"", " ", "\x00", "\xff", "\xfe", "ß", "ss", "SS", "ı", "i", "I", "İ", "😀", "😁", "?", `\xff`, "�",
	"1", "01", "1.0", "1e0", "'", "''", `"`, `\`, `\\`, "%", "_",
	strings.Repeat("x", 255), strings.Repeat("x", 255) + "a", strings.Repeat("x", 255) + "b", strings.Repeat("x", 100_000),
}

// Each name has a row of its own, whatever the collation.
func testNames(t *testing.T, d *database) {
	for _, made := range d.tables {
		t.Run(made.name, func(t *testing.T) {
			ctx, db := t.Context(), d.open("names", made.params)
			table, err := fence.NewTable(db, d.options("names_"+made.name))
			must(t, err)
			if made.before != "" {
				must(t, d.do(ctx, db, made.before))
			}
			if made.column+made.suffix != "" {
				must(t, d.do(ctx, db, fmt.Sprintf("CREATE TABLE names_%s (id VARCHAR(64) %s NOT NULL PRIMARY KEY, resource VARCHAR(255) %s NOT NULL, "+
					"token BIGINT NOT NULL, checks BIGINT NOT NULL) %s", made.name, made.column, made.column, made.suffix)))
			}
			must(t, table.Create(ctx))
			for i, name := range names {
				if err := table.Check(ctx, name, int64(1000-i)); err != nil {
					t.Errorf("%.20q: %v", name, err)
				}
			}
			for i, name := range names {
				var stale *fence.StaleError
				if err := table.Check(ctx, name, int64(999-i)); !errors.As(err, &stale) || stale.Newest != int64(1000-i) {
					t.Errorf("%.20q: %v, want a StaleError with %d", name, err, 1000-i)
				}
			}
			n, err := d.count(ctx, db, "SELECT COUNT(*) FROM names_"+made.name+" WHERE resource = ?", "/LOCKS/A")
			if err != nil || (n > 1) != made.equal {
				t.Errorf("%d rows are named /LOCKS/A, %v", n, err)
			}
			if d.name == "mariadb" {
				n, err = d.count(ctx, db, "SELECT COUNT(*) FROM information_schema.tables WHERE table_name = ? AND engine = 'InnoDB'", "names_"+made.name)
				if err != nil || n != 1 {
					t.Errorf("the table is not InnoDB's, %v", err)
				}
			}
		})
	}
}

// A table as an earlier version made it, with the name as the key, is refused by its columns.
func testEarlier(t *testing.T, d *database) {
	ctx, db := t.Context(), d.open("names", "")
	must(t, d.do(ctx, db, "CREATE TABLE earlier (resource VARCHAR(255) NOT NULL PRIMARY KEY, token BIGINT NOT NULL)"))
	must(t, d.do(ctx, db, "INSERT INTO earlier (resource, token) VALUES ('/locks/a', 5)"))
	table, err := fence.NewTable(db, d.options("earlier"))
	must(t, err)
	if err := table.Create(ctx); err == nil || !strings.Contains(err.Error(), "earlier exists, and lacks columns") {
		t.Errorf("Create: %v", err)
	}
	if err := table.Check(ctx, "/locks/a", 9); err == nil || errors.Is(err, fence.ErrStale) {
		t.Errorf("Check: %v", err)
	}
	if n, err := d.count(ctx, db, "SELECT COUNT(*) FROM earlier WHERE token = 5"); err != nil || n != 1 {
		t.Errorf("the row has changed: %v", err)
	}
}
