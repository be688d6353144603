package store

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite"

	"lockkeeper/jepsen/locklab/lock"
	"lockkeeper/jepsen/locklab/system"
	"lockkeeper/recipes/fence"
)

// The names of a resource's counter, for all languages. In a directory: the file RESOURCE.count
// with the digits, the file RESOURCE of tokens, and the database RESOURCE.db. In a database: the
// row RESOURCE of the table counter (resource, count). In Redis and etcd: the key count/RESOURCE.
// As objects: RESOURCE.
const (
	countKey    = "count/"
	createTable = "CREATE TABLE IF NOT EXISTS counter (resource VARCHAR(100) NOT NULL PRIMARY KEY, count BIGINT NOT NULL)"
	selectCount = "SELECT count FROM counter WHERE resource = '%s'"
	updateCount = "UPDATE counter SET count = %d WHERE resource = '%s'"
	insertCount = "INSERT INTO counter (resource, count) VALUES ('%s', 0)"
)

// opened are the counters of this process, one for each place: its clients share connections.
var opened struct {
	sync.Mutex
	all map[lock.Place]*counter
}

// counter is a lock.Counter, and more for the lab.
type counter struct {
	lock.Counter
	prepare func(ctx context.Context, resource string) error
	count   func(ctx context.Context, resource string) (int64, error)
}

func open(p lock.Place) (*counter, error) {
	opened.Lock()
	defer opened.Unlock()
	if c := opened.all[p]; c != nil {
		return c, nil
	}
	c, err := dial(p)
	if err != nil {
		return nil, fmt.Errorf("store: %s: %w", p.Kind, err)
	}
	if opened.all == nil {
		opened.all = make(map[lock.Place]*counter)
	}
	opened.all[p] = c
	return c, nil
}

// Open returns the counters in a place, with Go's fence.
func Open(p lock.Place) (lock.Counter, error) { return open(p) }

// Prepare makes the counter of a resource, if its store wants that. It begins at 0.
func Prepare(ctx context.Context, p lock.Place, resource string) error {
	c, err := open(p)
	if err == nil && c.prepare != nil {
		err = c.prepare(ctx, resource)
	}
	return err
}

// Count returns a counter, without a fence.
func Count(ctx context.Context, p lock.Place, resource string) (int64, error) {
	c, err := open(p)
	if err != nil {
		return 0, err
	}
	return c.count(ctx, resource)
}

func dial(p lock.Place) (*counter, error) {
	switch p.Kind {
	case "file":
		return &counter{Counter: files(p.At), count: func(_ context.Context, resource string) (int64, error) {
			return files(p.At).read(resource)
		}}, nil
	case "sqlite":
		s := sqlites{p.At}
		return &counter{s, s.prepare, s.count}, nil
	case "mariadb":
		return dialTable("mysql", system.MariaDBName(p.At), false)
	case "postgresql":
		return dialTable("pgx", system.PostgreSQLName(p.At), true)
	case "redis":
		r := newRedis(p.At)
		return &counter{Counter: r, count: r.count}, nil
	case "etcd":
		e := &etcd{fence: fence.Etcd{URL: "http://" + p.At}, at: p.At}
		return &counter{Counter: e, count: e.count}, nil
	case "objects":
		o, err := fence.OpenObjects(context.Background(), &fence.HTTPStore{URL: p.At}, fmt.Sprintf("go-%d-", os.Getpid()))
		return &counter{Counter: objects{o}, count: objects{o}.count}, err
	}
	return nil, errors.New("there is no such kind")
}

// number reads the digits of a counter; no digits are 0.
func number(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	return strconv.ParseInt(text, 10, 64)
}

// files are counters in a directory.
type files string

// hold calls f under the fence of the resource. The file of tokens is opened each time: clients of
// other languages have it as well.
func (d files) hold(resource string, token int64, f func() error) error {
	tokens, err := fence.OpenFile(filepath.Join(string(d), resource))
	if err != nil {
		return err
	}
	return errors.Join(tokens.Do(resource, token, f), tokens.Close())
}

func (d files) read(resource string) (int64, error) {
	text, err := os.ReadFile(filepath.Join(string(d), resource+".count"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return number(string(text))
}

// Read implements lock.Counter.
func (d files) Read(_ context.Context, resource string, token int64) (n int64, err error) {
	err = d.hold(resource, token, func() error { n, err = d.read(resource); return err })
	return n, err
}

// Write implements lock.Counter.
func (d files) Write(_ context.Context, resource string, token, count int64) error {
	return d.hold(resource, token, func() error {
		return os.WriteFile(filepath.Join(string(d), resource+".count"), strconv.AppendInt(nil, count, 10), 0o644)
	})
}

// table are counters in a database.
type table struct {
	db    *sql.DB
	fence *fence.Table
}

func newTable(driver, source string, dollar bool) (*table, error) {
	db, err := sql.Open(driver, source)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(20)
	t := &table{db: db}
	t.fence, err = fence.NewTable(db, fence.TableOptions{Dollar: dollar})
	return t, err
}

// dialTable opens a database, and makes the tables unless another process has.
func dialTable(driver, source string, dollar bool) (*counter, error) {
	t, err := newTable(driver, source, dollar)
	if err != nil {
		return nil, err
	}
	if err := t.create(context.Background()); err != nil {
		return nil, err
	}
	return &counter{t, t.prepare, t.count}, nil
}

func (t *table) create(ctx context.Context) error {
	if _, err := t.db.ExecContext(ctx, fmt.Sprintf(selectCount, "")); err == nil {
		return nil
	}
	err := t.fence.Create(ctx)
	if err == nil {
		_, err = t.db.ExecContext(ctx, createTable)
	}
	return err
}

func (t *table) prepare(ctx context.Context, resource string) error {
	_, err := t.db.ExecContext(ctx, fmt.Sprintf(insertCount, resource))
	return err
}

func (t *table) count(ctx context.Context, resource string) (n int64, err error) {
	err = t.db.QueryRowContext(ctx, fmt.Sprintf(selectCount, resource)).Scan(&n)
	return n, err
}

// Read implements lock.Counter.
func (t *table) Read(ctx context.Context, resource string, token int64) (n int64, err error) {
	err = t.fence.Do(ctx, resource, token, func(tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, fmt.Sprintf(selectCount, resource)).Scan(&n)
	})
	return n, err
}

// Write implements lock.Counter.
func (t *table) Write(ctx context.Context, resource string, token, count int64) error {
	return t.fence.Do(ctx, resource, token, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, fmt.Sprintf(updateCount, count, resource))
		return err
	})
}

// sqlites are counters in databases of SQLite, one for each resource: a database has one writer.
type sqlites struct{ dir string }

// with calls f with the table of a resource.
func (s sqlites) with(resource string, f func(*table) error) error {
	path := filepath.Join(s.dir, resource+".db")
	t, err := newTable("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(60000)", false)
	if err != nil {
		return err
	}
	return errors.Join(f(t), t.db.Close())
}

func (s sqlites) prepare(ctx context.Context, resource string) error {
	return s.with(resource, func(t *table) error {
		if err := t.create(ctx); err != nil {
			return err
		}
		return t.prepare(ctx, resource)
	})
}

func (s sqlites) count(ctx context.Context, resource string) (n int64, err error) {
	err = s.with(resource, func(t *table) error { n, err = t.count(ctx, resource); return err })
	return n, err
}

// Read implements lock.Counter.
func (s sqlites) Read(ctx context.Context, resource string, token int64) (n int64, err error) {
	err = s.with(resource, func(t *table) error { n, err = t.Read(ctx, resource, token); return err })
	return n, err
}

// Write implements lock.Counter.
func (s sqlites) Write(ctx context.Context, resource string, token, count int64) error {
	return s.with(resource, func(t *table) error { return t.Write(ctx, resource, token, count) })
}

// redisKeys are counters in Redis.
type redisKeys struct {
	client *redis.Client
	fence  fence.Redis
}

func newRedis(addr string) *redisKeys {
	r := &redisKeys{client: redis.NewClient(&redis.Options{Addr: addr})}
	r.fence.Eval = func(ctx context.Context, script string, keys []string, args ...any) (any, error) {
		return r.client.Eval(ctx, script, keys, args...).Result()
	}
	return r
}

func (r *redisKeys) count(ctx context.Context, resource string) (int64, error) {
	text, err := r.client.Get(ctx, countKey+resource).Result()
	if errors.Is(err, redis.Nil) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return number(text)
}

// Read implements lock.Counter.
func (r *redisKeys) Read(ctx context.Context, resource string, token int64) (int64, error) {
	if err := r.fence.Check(ctx, resource, token); err != nil {
		return 0, err
	}
	return r.count(ctx, resource)
}

// Write implements lock.Counter.
func (r *redisKeys) Write(ctx context.Context, resource string, token, count int64) error {
	_, err := r.fence.Do(ctx, resource, token, "SET", []string{countKey + resource}, count)
	return err
}

// etcd are counters in etcd.
type etcd struct {
	fence fence.Etcd
	at    string
}

func (e *etcd) count(ctx context.Context, resource string) (int64, error) {
	body := fmt.Sprintf(`{"key":%q}`, base64.StdEncoding.EncodeToString([]byte(countKey+resource)))
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+e.at+"/v3/kv/range", strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var answer struct{ Kvs []struct{ Value []byte } }
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("etcd: %s: %w", resp.Status, err)
	}
	if len(answer.Kvs) == 0 {
		return 0, nil
	}
	return number(string(answer.Kvs[0].Value))
}

// Read implements lock.Counter.
func (e *etcd) Read(ctx context.Context, resource string, token int64) (int64, error) {
	if err := e.fence.Check(ctx, resource, token); err != nil {
		return 0, err
	}
	return e.count(ctx, resource)
}

// Write implements lock.Counter.
func (e *etcd) Write(ctx context.Context, resource string, token, count int64) error {
	return e.fence.Do(ctx, resource, token, fence.EtcdPut(countKey+resource, strconv.FormatInt(count, 10)))
}

// objects are counters that are objects.
type objects struct{ fence *fence.Objects }

func (o objects) count(ctx context.Context, resource string) (int64, error) {
	text, _, err := o.fence.Get(ctx, resource)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return number(string(bytes.TrimSpace(text)))
}

// Read implements lock.Counter.
func (o objects) Read(ctx context.Context, resource string, token int64) (int64, error) {
	if err := o.fence.Check(ctx, resource, token); err != nil {
		return 0, err
	}
	return o.count(ctx, resource)
}

// Write implements lock.Counter.
func (o objects) Write(ctx context.Context, resource string, token, count int64) error {
	return o.fence.Put(ctx, resource, token, strconv.AppendInt(nil, count, 10))
}
