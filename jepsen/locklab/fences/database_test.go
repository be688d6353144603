package fences

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the drivers; system has MariaDB's
	_ "modernc.org/sqlite"

	"lockkeeper/jepsen"
	"lockkeeper/jepsen/locklab/system"
	"lockkeeper/recipes/fence"
)

// A level is a way in which a database keeps transactions apart.
type level struct {
	name      string
	isolation sql.IsolationLevel
	params    string // of the data source, for all connections
	// oldReads: a transaction that has read before its check may read old data after it, and no
	// error says so.
	oldReads bool
	// current: a check after the commit of a larger token is refused as stale, and by no other
	// error.
	current bool
	// shut: the beginning of a transaction locks the database.
	shut bool
	// fails: a statement that would wait for a lock fails instead.
	fails bool
}

// A database is one of those that a Table can be in.
type database struct {
	name   string
	dollar bool
	levels []level
	tables []table
	// commitWaits: a commit may wait for another transaction.
	commitWaits bool
	// open connects. SQLite has a database of its own for each name and params.
	open func(name, params string) *sql.DB
}

func (d *database) options(name string) fence.TableOptions {
	return fence.TableOptions{Name: name, Dollar: d.dollar}
}

// do executes statements with parameters called ?.
func (d *database) do(ctx context.Context, q interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}, statement string, args ...any) error {
	_, err := q.ExecContext(ctx, d.statement(statement), args...)
	return err
}

// count executes a query for one number.
func (d *database) count(ctx context.Context, q interface {
	QueryRowContext(context.Context, string, ...any) *sql.Row
}, query string, args ...any) (n int64, err error) {
	return n, q.QueryRowContext(ctx, d.statement(query), args...).Scan(&n)
}

// statement gives the parameters of a statement the names that they have here.
func (d *database) statement(s string) string {
	for i := 1; d.dollar && strings.Contains(s, "?"); i++ {
		s = strings.Replace(s, "?", fmt.Sprintf("$%d", i), 1)
	}
	return s
}

// must ends the test with an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// server starts a server, and returns its address.
func server(t *testing.T, name string) string {
	t.Helper()
	kinds := system.Kinds()
	kind := kinds[slices.IndexFunc(kinds, func(k system.Kind) bool { return k.Name == name })]
	jepsen.Need(t, kind.Needs())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := kind.Start(ctx, system.Site{Dir: t.TempDir()})
	must(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s.Servers()[0].Addr()
}

// pools are the connections of a test, by data source.
type pools struct {
	t  *testing.T
	mu sync.Mutex
	by map[string]*sql.DB
}

func (p *pools) open(driver, source string) *sql.DB {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if db := p.by[source]; db != nil {
		return db
	}
	db, err := sql.Open(driver, source)
	must(p.t, err)
	db.SetMaxIdleConns(3 * stages)
	p.t.Cleanup(func() { db.Close() })
	p.by[source] = db
	return db
}

// databases are all of them, each of which starts when it is first opened.
func databases(t *testing.T) []database {
	p := &pools{t: t, by: make(map[string]*sql.DB)}
	mariadb := sync.OnceValue(func() string {
		addr := server(t, "mariadb")
		_, err := p.open("mysql", system.MariaDBName(addr)).Exec("set global innodb_flush_log_at_trx_commit=0, global sync_binlog=0")
		must(t, err)
		return addr
	})
	postgresql := sync.OnceValue(func() string { return server(t, "postgresql") })
	dir := t.TempDir()
	return []database{
		{
			name: "mariadb",
			levels: []level{
				{name: "read uncommitted", isolation: sql.LevelReadUncommitted, current: true},
				{name: "read committed", isolation: sql.LevelReadCommitted, current: true},
				{name: "repeatable read", isolation: sql.LevelRepeatableRead, current: true, oldReads: true},
				// MariaDB's newer default: a row that is newer than the snapshot cannot be locked.
				{name: "snapshot", isolation: sql.LevelRepeatableRead, params: "innodb_snapshot_isolation=1"},
				{name: "serializable", isolation: sql.LevelSerializable, current: true},
			},
			tables: []table{
				{name: "made", equal: true},
				{name: "made_loosely", params: "sql_mode=''&default_storage_engine=MyISAM", equal: true},
				{name: "general", suffix: "COLLATE utf8mb4_general_ci", equal: true},
				{name: "unicode", suffix: "COLLATE utf8mb4_unicode_ci", equal: true},
				{name: "latin", suffix: "COLLATE latin1_swedish_ci", equal: true},
			},
			open: func(_, params string) *sql.DB {
				return p.open("mysql", system.MariaDBName(mariadb())+"&"+params)
			},
		},
		{
			name: "postgresql", dollar: true,
			levels: []level{
				{name: "read committed", isolation: sql.LevelReadCommitted, current: true},
				{name: "repeatable read", isolation: sql.LevelRepeatableRead},
				{name: "serializable", isolation: sql.LevelSerializable},
			},
			tables: []table{
				{name: "made"},
				{
					name: "level1", column: "COLLATE level1", equal: true,
					before: "CREATE COLLATION level1 (provider = icu, locale = 'und-u-ks-level1', deterministic = false)",
				},
			},
			open: func(_, params string) *sql.DB {
				return p.open("pgx", system.PostgreSQLName(postgresql())+"&synchronous_commit=off&deadlock_timeout=20ms&"+params)
			},
		},
		{
			name: "sqlite", commitWaits: true,
			levels: []level{
				{name: "deferred", params: "_txlock=deferred", fails: true},
				{name: "deferred, waits", params: "_txlock=deferred&_pragma=busy_timeout(10000)"},
				{name: "deferred, WAL", params: "_txlock=deferred&_pragma=journal_mode(WAL)", fails: true},
				{name: "deferred, WAL, waits", params: "_txlock=deferred&_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)"},
				{
					name:   "shared cache, read uncommitted",
					params: "_txlock=deferred&cache=shared&_pragma=read_uncommitted(1)",
				},
				{name: "immediate, waits", params: "_txlock=immediate&_pragma=busy_timeout(10000)", shut: true},
				{name: "immediate, WAL", params: "_txlock=immediate&_pragma=journal_mode(WAL)", shut: true, fails: true},
				{name: "exclusive", params: "_txlock=exclusive", shut: true, fails: true},
				{name: "exclusive, WAL, waits", params: "_txlock=exclusive&_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)", shut: true},
			},
			tables: []table{
				{name: "made"},
				{name: "nocase", column: "COLLATE NOCASE", equal: true},
				{name: "rtrim", column: "COLLATE RTRIM"},
			},
			open: func(name, params string) *sql.DB {
				file := filepath.Join(dir, url.PathEscape(name+" "+params))
				return p.open("sqlite", "file:"+url.PathEscape(file)+"?_pragma=synchronous(OFF)&"+params)
			},
		},
	}
}
