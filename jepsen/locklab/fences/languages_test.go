package fences

import (
	"bufio"
	"cmp"
	"context"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"lockkeeper/internal/freeport"
	"lockkeeper/internal/s3test"
	"lockkeeper/jepsen"
	"lockkeeper/jepsen/locklab/system"
	"lockkeeper/recipes/fence"
)

// A place is a store that fences of all languages are in, and a log that their writes append to.
type place struct {
	kind string
	at   string // for the agents
	// write appends a token to the log under the fence of Go.
	write func(ctx context.Context, resource string, token int64) error
	// log returns the tokens in the order of their writes.
	log func(ctx context.Context) ([]int64, error)
	// plain appends a token without a fence.
	plain func(ctx context.Context, token int64) error
	// put, if not nil, is write without a log that grows.
	put func(ctx context.Context, resource string, token int64) error
}

// numbers are the lines of a text.
func numbers(text string) (all []int64) {
	for line := range strings.Lines(text) {
		n, _ := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
		all = append(all, n)
	}
	return all
}

func filePlace(t testing.TB) place {
	path := filepath.Join(t.TempDir(), "tokens")
	f, err := fence.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	plain := func(_ context.Context, token int64) error {
		log, err := os.OpenFile(path+".log", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(log, token)
		return errors.Join(err, log.Close())
	}
	return place{
		kind: "file", at: path, plain: plain,
		write: func(ctx context.Context, resource string, token int64) error {
			return f.Do(resource, token, func() error { return plain(ctx, token) })
		},
		log: func(context.Context) ([]int64, error) {
			text, err := os.ReadFile(path + ".log")
			if errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
			return numbers(string(text)), err
		},
	}
}

func objectsPlace(t testing.TB) place {
	server := httptest.NewServer(new(s3test.Server))
	t.Cleanup(server.Close)
	store := &fence.HTTPStore{URL: server.URL}
	o, err := fence.OpenObjects(t.Context(), store, "go-")
	if err != nil {
		t.Fatal(err)
	}
	body := func(ctx context.Context) (string, error) {
		b, _, err := o.Get(ctx, "many")
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return string(b), err
	}
	return place{
		kind: "objects", at: server.URL,
		plain: func(ctx context.Context, token int64) error {
			_, etag, err := store.Get(ctx, "plain")
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return store.Put(ctx, "plain", fmt.Appendln(nil, token), etag)
		},
		write: func(ctx context.Context, resource string, token int64) error {
			return o.Update(ctx, resource, token, func(old []byte) ([]byte, error) { return fmt.Appendln(old, token), nil })
		},
		put: func(ctx context.Context, resource string, token int64) error {
			return o.Put(ctx, resource, token, fmt.Appendln(nil, token))
		},
		log: func(ctx context.Context) ([]int64, error) { text, err := body(ctx); return numbers(text), err },
	}
}

// tablePlace is a place in a database.
func tablePlace(t testing.TB, kind, driver, source, at string) place {
	db, err := sql.Open(driver, source)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	table, err := fence.NewTable(db, fence.TableOptions{Dollar: kind == "postgresql"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.ExecContext(t.Context(), "CREATE TABLE log (seen BIGINT NOT NULL, token BIGINT NOT NULL)")
	if err := errors.Join(err, table.Create(t.Context())); err != nil {
		t.Fatal(err)
	}
	insert := func(ctx context.Context, tx *sql.Tx, token int64) error {
		var seen int64
		if err := tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM log").Scan(&seen); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO log (seen, token) VALUES (%d, %d)", seen, token))
		return err
	}
	return place{
		kind: kind, at: at,
		plain: func(ctx context.Context, token int64) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			if err := insert(ctx, tx, token); err != nil {
				return err
			}
			return tx.Commit()
		},
		write: func(ctx context.Context, resource string, token int64) error {
			return table.Do(ctx, resource, token, func(tx *sql.Tx) error { return insert(ctx, tx, token) })
		},
		log: func(ctx context.Context) (log []int64, err error) {
			rows, err := db.QueryContext(ctx, "SELECT token FROM log ORDER BY seen")
			if err != nil {
				return nil, err
			}
			defer rows.Close()
			for rows.Next() {
				var n int64
				if err := rows.Scan(&n); err != nil {
					return nil, err
				}
				log = append(log, n)
			}
			return log, rows.Err()
		},
	}
}

func sqlitePlace(t testing.TB) place {
	path := filepath.Join(t.TempDir(), "db")
	return tablePlace(t, "sqlite", "sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(60000)", path)
}

func redisPlace(t testing.TB, addr string) place {
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { client.Close() })
	f := fence.Redis{Eval: func(ctx context.Context, script string, keys []string, args ...any) (any, error) {
		return client.Eval(ctx, script, keys, args...).Result()
	}}
	return place{
		kind: "redis", at: addr,
		plain: func(ctx context.Context, token int64) error { return client.RPush(ctx, "plain", token).Err() },
		write: func(ctx context.Context, resource string, token int64) error {
			_, err := f.Do(ctx, resource, token, "RPUSH", []string{"log"}, token)
			return err
		},
		log: func(ctx context.Context) ([]int64, error) {
			list, err := client.LRange(ctx, "log", 0, -1).Result()
			return numbers(strings.Join(list, "\n")), err
		},
	}
}

// places are all of them.
func places(t *testing.T) []place {
	mariadb, _ := start(t, "mariadb")
	postgresql, _ := start(t, "postgresql")
	redisAddr, _ := start(t, "redis")
	etcd, _ := start(t, "etcd")
	return []place{
		filePlace(t), objectsPlace(t), sqlitePlace(t), redisPlace(t, redisAddr),
		tablePlace(t, "mariadb", "mysql", system.MariaDBName(mariadb), mariadb),
		tablePlace(t, "postgresql", "pgx", system.PostgreSQLName(postgresql), postgresql),
		etcdPlace(etcd),
	}
}

// etcdPlace has no log; plain is the transaction with the write alone.
func etcdPlace(addr string) place {
	e := fence.Etcd{URL: "http://" + addr}
	encode := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	return place{
		kind: "etcd", at: addr,
		write: func(ctx context.Context, resource string, token int64) error {
			return e.Do(ctx, resource, token, fence.EtcdPut("log", fmt.Sprint(token)))
		},
		plain: func(ctx context.Context, token int64) error {
			body := fmt.Sprintf(`{"success":[{"requestPut":{"key":%q,"value":%q}}]}`, encode("plain"), encode(fmt.Sprint(token)))
			return send(ctx, http.MethodPost, "http://"+addr+"/v3/kv/txn", body, token)
		},
	}
}

// send sends a request, whose answer is to be 200.
func send(ctx context.Context, method, url, body string, token int64) error {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Fencing-Token", fmt.Sprint(token))
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, text)
	}
	return err
}

// proxyPlace is a server behind the proxy of lockkeeper fence, and without it.
func proxyPlace(b *testing.B) place {
	tools, err := jepsen.NewToolbox(false)
	must(b, err)
	b.Cleanup(func() { must(b, tools.Close()) })
	target, err := tools.Lockkeeper()
	must(b, err)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	b.Cleanup(server.Close)
	ports, err := freeport.Take(1)
	must(b, err)
	dir, addr := b.TempDir(), fmt.Sprintf("127.0.0.1:%d", ports[0])
	cmd := exec.Command(target.Tool().Path, "fence", "-listen", addr, "-to", server.URL, "-lock", "/locks/bench")
	cmd.Dir = dir
	p, err := jepsen.StartProcess("fence", cmd, filepath.Join(dir, "log"))
	must(b, err)
	b.Cleanup(func() { must(b, p.Kill()) })
	put := func(url string) func(context.Context, int64) error {
		return func(ctx context.Context, token int64) error { return send(ctx, http.MethodPut, url, "1", token) }
	}
	fenced := put("http://" + addr)
	must(b, jepsen.Poll(b.Context(), 10*time.Millisecond, func() error { return fenced(b.Context(), 7) }))
	return place{kind: "proxy", plain: put(server.URL),
		write: func(ctx context.Context, _ string, token int64) error { return fenced(ctx, token) }}
}

// An agent is a process of another language that writes under a fence.
type agent struct {
	mu  sync.Mutex
	in  io.Writer
	out *bufio.Scanner
}

// startAgent starts it, with the places.
func startAgent(t *testing.T, cmd *exec.Cmd, all []place) *agent {
	t.Helper()
	for _, p := range all {
		cmd.Args = append(cmd.Args, p.kind+"="+p.at)
	}
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	stderr := new(strings.Builder)
	cmd.Stderr = stderr
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Logf("%s: %v\n%s", cmd.Path, err, stderr)
		}
	})
	return &agent{in: in, out: bufio.NewScanner(out)}
}

// write is a write of place.write's kind.
func (a *agent) write(kind, resource string, token int64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, err := fmt.Fprintf(a.in, "%s %s %d\n", kind, base64.StdEncoding.EncodeToString([]byte(resource)), token); err != nil {
		return err
	}
	if !a.out.Scan() {
		return fmt.Errorf("the agent has ended: %w", cmp.Or(a.out.Err(), io.EOF))
	}
	word, rest, _ := strings.Cut(a.out.Text(), " ")
	switch word {
	case "ok":
		return nil
	case "stale":
		newest, err := strconv.ParseInt(rest, 10, 64)
		if err != nil {
			return err
		}
		return &fence.StaleError{Resource: resource, Token: token, Newest: newest}
	case "invalid":
		return fence.ErrInvalid
	}
	return errors.New(a.out.Text())
}

// clients are the clients of other languages, or copies of them with a bug.
const clients = "../../../clients"

func pythonAgent(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	const python = "/usr/bin/python3" // which has Debian's modules
	for module, name := range map[string]string{"psycopg2": "psycopg2", "pymysql": "pymysql", "redis": "redis"} {
		if err := exec.Command(python, "-c", "import "+module).Run(); err != nil {
			jepsen.Need(t, fmt.Errorf("%s: %w (apt-get install python3-%s)", module, jepsen.ErrMissing, name))
		}
	}
	agent, err := filepath.Abs(filepath.Join(clients, "python/tests/fence_agent.py"))
	must(t, err)
	cmd := exec.Command(python, agent)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+dir, "PYTHONDONTWRITEBYTECODE=1")
	return cmd
}

// javaAgent compiles the fences in dir, which is clients/java/src or a copy, and a class Page
// beside the agent if there is one.
func javaAgent(t *testing.T, dir string, page ...string) *exec.Cmd {
	t.Helper()
	target := t.TempDir()
	path := []string{target}
	for jar, name := range map[string]string{"sqlite-jdbc": "libxerial-sqlite-jdbc-java", "postgresql": "libpostgresql-jdbc-java",
		"mariadb-java-client": "libmariadb-java", "slf4j-api": "libslf4j-java"} {
		file := "/usr/share/java/" + jar + ".jar"
		if _, err := os.Stat(file); err != nil {
			jepsen.Need(t, fmt.Errorf("%s: %w (apt-get install %s)", file, jepsen.ErrMissing, name))
		}
		path = append(path, file)
	}
	sources, err := filepath.Glob(dir + "/*/java/lockkeeper/fence/*.java")
	must(t, err)
	for _, text := range page {
		file := filepath.Join(target, "Page.java")
		must(t, os.WriteFile(file, []byte(text), 0o644))
		sources = append(sources, file)
	}
	out, err := exec.Command("javac", append([]string{"--release", "8", "-Xlint:-options", "-d", target}, sources...)...).CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		jepsen.Need(t, fmt.Errorf("javac: %w (apt-get install default-jdk-headless)", jepsen.ErrMissing))
	}
	if err != nil {
		t.Fatalf("javac: %v\n%s", err, out)
	}
	return exec.Command("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m", "-cp", strings.Join(path, ":"), "lockkeeper.fence.Agent")
}

// writer is a write by one of the languages.
type writer func(resource string, token int64) error

// agree has fences of several languages take turns on one resource, and then write at once. It
// returns the faults.
func agree(ctx context.Context, p place, by []writer) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, p.kind+": "+fmt.Sprintf(format, args...)) }
	rnd := rand.New(rand.NewPCG(1, 2))
	newest := make(map[string]int64)
	for i := range 60 {
		resource := []string{"a", "b\n\"é😀'\\"}[rnd.IntN(2)]
		token := 1<<53 + int64(i)/3 + rnd.Int64N(8)
		who := rnd.IntN(len(by))
		err := by[who](resource, token)
		var stale *fence.StaleError
		switch {
		case token >= newest[resource] && err == nil:
			newest[resource] = token
		case token < newest[resource] && errors.As(err, &stale) && stale.Newest == newest[resource]:
		default:
			fault("writer %d, %q, token %d after %d: %v", who, resource, token, newest[resource], err)
		}
		if err := by[who](resource, -3); !errors.Is(err, fence.ErrInvalid) {
			fault("writer %d: token -3: %v", who, err)
		}
	}
	before := 0
	if p.log != nil {
		log, err := p.log(ctx)
		if before = len(log); err != nil {
			fault("%v", err)
		}
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	accepted := 0
	for w, write := range by {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(3, uint64(w)))
			for range 30 {
				err := write("many", 1+rnd.Int64N(60))
				mu.Lock()
				switch {
				case err == nil:
					accepted++
				case !errors.Is(err, fence.ErrStale):
					fault("writer %d, many at once: %v", w, err)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if p.log == nil {
		return faults
	}
	log, err := p.log(ctx)
	if p.kind != "objects" { // whose log is the resource's own
		log = log[before:]
	}
	if err != nil || len(log) != accepted || !slices.IsSorted(log) {
		fault("%d writes were accepted, and written are %d, %v", accepted, log, err)
	}
	return faults
}

// TestLanguages: fences of Go, Python and Java on one resource agree, in every place; and bugs that
// are planted into copies of the clients are found.
func TestLanguages(t *testing.T) {
	all := places(t)
	py := startAgent(t, pythonAgent(t, filepath.Join(clients, "python")), all)
	java := startAgent(t, javaAgent(t, filepath.Join(clients, "java/src")), all)
	for _, p := range all {
		t.Run(p.kind, func(t *testing.T) {
			for _, fault := range agree(t.Context(), p, []writer{
				func(r string, n int64) error { return p.write(t.Context(), r, n) },
				func(r string, n int64) error { return py.write(p.kind, r, n) },
				func(r string, n int64) error { return java.write(p.kind, r, n) },
			}) {
				t.Error(fault)
			}
		})
	}
}

// clientBugs are planted into a file of a client.
var clientBugs = []struct {
	name, file string
	edits      []string // from, to, ...
}{
	{"accepts any token", "python/lockkeeper/fence.py", []string{"if token < newest:", "if False:"}},
	{"refuses an equal token", "python/lockkeeper/fence.py", []string{"if token < newest:", "if token <= newest:"}},
	{"forgets", "python/lockkeeper/fence.py", []string{"self._write(_encode(tokens))", "pass"}},
	{"does not lock", "python/lockkeeper/fence.py", []string{"_lock(lock)  #", "pass  #"}},
	{"compares after the write", "python/lockkeeper/fence.py", []string{
		"            larger = _check(", "            yield\n            larger = _check(",
		"tokens))\n            yield\n", "tokens))\n",
	}},
	{"an older token in the table", "python/lockkeeper/fence.py", []string{"AND token <= {m}\"", "AND token <= {m} + 1\""}},
	{"another file", "python/lockkeeper/fence.py", []string{"0x82F63B78", "0xEDB88320"}},
	{"ignores the condition", "python/lockkeeper/fence.py", []string{`{"If-Match": etag} if etag else {"If-None-Match": "*"}`, "{}"}},
	{"accepts any token", "java/src/main/java/lockkeeper/fence/Names.java", []string{"if (token < newest)", "if (false)"}},
	{"forgets", "java/src/main/java/lockkeeper/fence/FileFence.java", []string{"write(encode(tokens));", ""}},
	{"does not lock", "java/src/main/java/lockkeeper/fence/FileFence.java", []string{"lock.lock(); //", "//"}},
	{"compares after the write", "java/src/main/java/lockkeeper/fence/FileFence.java", []string{
		"            work.run();\n", "", "            boolean larger", "            work.run();\n            boolean larger",
	}},
	{"refuses an equal token", "java/src/main/java/lockkeeper/fence/Names.java", []string{"if (token < newest)", "if (token <= newest && newest > 0)"}},
	{"an older token in the table", "java/src/main/java/lockkeeper/fence/TableFence.java", []string{"token <= ?", "token <= ? + 1"}},
	{"another row", "java/src/main/java/lockkeeper/fence/Names.java", []string{"SHA-256\").", "SHA-1\")."}},
}

func TestLanguagesBugs(t *testing.T) {
	for _, bug := range clientBugs {
		language, _, _ := strings.Cut(bug.file, "/")
		t.Run(language+" "+bug.name, func(t *testing.T) {
			dir := t.TempDir()
			must(t, os.CopyFS(filepath.Join(dir, language), os.DirFS(filepath.Join(clients, language))))
			text, err := os.ReadFile(filepath.Join(dir, bug.file))
			must(t, err)
			edited := string(text)
			for i := 0; i < len(bug.edits); i += 2 {
				if !strings.Contains(edited, bug.edits[i]) {
					t.Fatalf("%s has no %q", bug.file, bug.edits[i])
				}
				edited = strings.Replace(edited, bug.edits[i], bug.edits[i+1], 1)
			}
			must(t, os.WriteFile(filepath.Join(dir, bug.file), []byte(edited), 0o644))
			all := []place{filePlace(t), objectsPlace(t), sqlitePlace(t)}
			cmd := (*exec.Cmd)(nil)
			if language == "python" {
				cmd = pythonAgent(t, filepath.Join(dir, "python"))
			} else {
				cmd = javaAgent(t, filepath.Join(dir, "java/src"))
			}
			a := startAgent(t, cmd, all)
			var faults []string
			for _, p := range all {
				faults = append(faults, agree(t.Context(), p, []writer{
					func(r string, n int64) error { return p.write(t.Context(), r, n) },
					func(r string, n int64) error { return a.write(p.kind, r, n) },
				})...)
			}
			if len(faults) == 0 {
				t.Error("not found")
			} else {
				t.Log(faults[0])
			}
		})
	}
}

// BenchmarkFenced is a write under the fence of Go beside the same write without one, in each
// store, by one client with no faults.
func BenchmarkFenced(b *testing.B) {
	addr, _ := start(b, "mariadb")
	mariadb := tablePlace(b, "mariadb", "mysql", system.MariaDBName(addr), addr)
	addr, _ = start(b, "postgresql")
	postgresql := tablePlace(b, "postgresql", "pgx", system.PostgreSQLName(addr), addr)
	addr, _ = start(b, "redis")
	etcd, _ := start(b, "etcd")
	for _, p := range []place{filePlace(b), sqlitePlace(b), mariadb, postgresql, redisPlace(b, addr), etcdPlace(etcd),
		objectsPlace(b), proxyPlace(b)} {
		if p.put != nil {
			p.write = p.put
		}
		for _, fenced := range []bool{false, true} {
			name := "plain"
			if fenced {
				name = "fenced"
			}
			b.Run(p.kind+"/"+name, func(b *testing.B) {
				for b.Loop() {
					err := error(nil)
					if fenced {
						err = p.write(b.Context(), "bench", 7)
					} else {
						err = p.plain(b.Context(), 7)
					}
					if err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
