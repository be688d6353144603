package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/jepsen"
	"lockkeeper/jepsen/locklab/lock"
	"lockkeeper/recipes"
)

// Ways are the locks of both systems.
func Ways() (ways []lock.Way) {
	for _, on := range []string{"zookeeper", "lockkeeper"} {
		ways = append(ways,
			lock.Way{Name: on + "-curator", System: on, Fenced: true, ClientClock: true, Open: openWorker("curator", "mutex"),
				Ask: openAsker},
			lock.Way{Name: on + "-kazoo", System: on, Fenced: true, ClientClock: true, Open: openWorker("kazoo", "lock"),
				Ask: openAsker},
			lock.Way{Name: on + "-curator-fenced", System: on, Twin: on + "-curator", Fenced: true, ClientClock: true,
				Open: openHolder("fenced-curator"), Ask: openAsker},
			lock.Way{Name: on + "-kazoo-fenced", System: on, Twin: on + "-kazoo", Fenced: true, ClientClock: true,
				Open: openHolder("fenced-kazoo"), Ask: openAsker})
	}
	return append(ways,
		lock.Way{Name: "lockkeeper-mutex", System: "lockkeeper", Open: openMutex(mutex{})},
		lock.Way{Name: "lockkeeper-mutex-fenced", System: "lockkeeper", Twin: "lockkeeper-mutex", Fenced: true,
			Open: openMutex(mutex{tokens: true}), Ask: openAsker},
		lock.Way{Name: "lockkeeper-mutex-guard", System: "lockkeeper", Open: openMutex(mutex{guard: true})},
		lock.Way{Name: "lockkeeper-mutex-delay", System: "lockkeeper", Open: openMutex(mutex{delay: true})},
		// Twins with wrong tokens: the fence accepts an equal one, from another session, or a late
		// one.
		lock.Way{Name: "lockkeeper-mutex-equal-tokens", System: "lockkeeper", Fenced: true, Broken: true, Only: "pause-writing",
			Open: openMutex(mutex{token: func() uint64 { return 1 }})},
		lock.Way{Name: "lockkeeper-mutex-clock-tokens", System: "lockkeeper", Fenced: true, Broken: true, Only: "pause-writing",
			Open: openMutex(mutex{token: func() uint64 { return uint64(time.Now().UnixNano()) }})})
}

// path is the node of a resource's lock.
func path(resource string) string { return "/locks/" + resource }

// mutex is a client of package recipes, that shows its tokens, guards data in the cluster, or asks
// for a lock-delay.
type mutex struct {
	session              *recipes.Session
	tokens, guard, delay bool
	token                func() uint64 // in the place of the grant's; nil but for a twin
	lease                time.Duration
}

func openMutex(kind mutex) func(context.Context, lock.Config) (lock.Client, error) {
	return func(_ context.Context, c lock.Config) (lock.Client, error) {
		m := kind
		var err error
		m.session, err = recipes.Connect(recipes.Config{Servers: c.Servers, SessionTimeout: c.Lease})
		m.lease = c.Lease
		return &m, err
	}
}

// Lock implements lock.Client.
func (m *mutex) Lock(ctx context.Context, resource string) (lock.Held, error) {
	var o recipes.MutexOptions
	if m.delay {
		o.LockDelay = m.lease
	}
	g, err := recipes.NewMutex(m.session, path(resource), o).Lock(ctx)
	if err != nil {
		return nil, err
	}
	if m.guard {
		return &guarded{grant{g, m.tokens, nil}, m.session.Conn(), "/data-" + resource}, nil
	}
	return &grant{g, m.tokens, m.token}, nil
}

// Close implements lock.Client.
func (m *mutex) Close() error {
	m.session.Close()
	return nil
}

// grant is a recipes.Grant.
type grant struct {
	*recipes.Grant
	tokens bool
	token  func() uint64
}

// Token implements lock.Held.
func (g *grant) Token() uint64 {
	switch {
	case g.token != nil:
		return g.token()
	case !g.tokens:
		return 0
	}
	return uint64(g.Grant.Token())
}

// guarded is a grant that protects a node of the cluster (recipes.Grant.Guard).
type guarded struct {
	grant
	conn recipes.Conn
	node string
}

// Load implements lock.Store.
func (g *guarded) Load(context.Context) (int64, error) {
	_, err := g.conn.Create(g.node, nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll))
	if err != nil && !errors.Is(err, zk.ErrNodeExists) {
		return 0, err
	}
	_, stat, err := g.conn.Get(g.node)
	if err != nil {
		return 0, err
	}
	return int64(stat.Version), nil
}

// Save implements lock.Store.
func (g *guarded) Save(ctx context.Context, _ int64) (found int64, err error) {
	results, err := g.Guard(ctx, &zk.SetDataRequest{Path: g.node, Version: -1})
	if err != nil {
		return 0, err
	}
	return int64(results[0].Stat.Version) - 1, nil
}

// asker is a resource's connection to the cluster.
type asker struct{ session *recipes.Session }

func openAsker(_ context.Context, c lock.Config) (lock.Asker, error) {
	s, err := recipes.Connect(recipes.Config{Servers: c.Servers, SessionTimeout: c.Lease})
	return asker{s}, err
}

// Holds implements lock.Asker: a token is the czxid of the holder's node.
func (a asker) Holds(ctx context.Context, resource string, token uint64) error {
	holders, err := a.session.Holders(ctx, path(resource))
	if err == nil && !slices.ContainsFunc(holders, func(c recipes.Contender) bool { return uint64(c.Token) == token }) {
		err = fmt.Errorf("the holder of %s does not have token %d", path(resource), token)
	}
	return err
}

// Close implements lock.Asker.
func (a asker) Close() error {
	a.session.Close()
	return nil
}

// worker is a client that is a process of Curator or kazoo.
type worker struct {
	process *jepsen.Worker
	history *jepsen.History
	recipe  string
	opened  map[string]bool
	dir     string
}

// findLibrary is the client in another language that the lab has built.
func findLibrary(library string) (client jepsen.Client, err error) {
	text, err := os.ReadFile(filepath.Join(os.Getenv(lock.ClientsEnv), library+".json"))
	if errors.Is(err, os.ErrNotExist) {
		return client, fmt.Errorf("%s: %w (apt-get install python3-kazoo libcurator-recipes-java default-jdk-headless, "+
			"and the drivers of databases)", library, jepsen.ErrMissing)
	}
	if err == nil {
		err = json.Unmarshal(text, &client)
	}
	if err != nil {
		return client, fmt.Errorf("command of %s: %w", library, err)
	}
	return client, nil
}

func openWorker(library, recipe string) func(context.Context, lock.Config) (lock.Client, error) {
	return func(ctx context.Context, c lock.Config) (lock.Client, error) {
		client, err := findLibrary(library)
		if err != nil {
			return nil, err
		}
		w := &worker{history: jepsen.NewHistory(), recipe: recipe, opened: map[string]bool{}}
		if w.dir, err = os.MkdirTemp("", "locklab-worker-"); err != nil {
			return nil, err
		}
		w.process, err = jepsen.StartWorker(ctx, jepsen.WorkerConfig{Name: library, Client: client,
			Servers: strings.Join(c.Servers, ","), SessionTimeout: c.Lease, Dir: w.dir, History: w.history})
		if err != nil {
			return nil, errors.Join(err, os.RemoveAll(w.dir))
		}
		return w, nil
	}
}

// do has the worker do something in a thread of its own.
func (w *worker) do(ctx context.Context, thread string, words ...string) (string, error) {
	r, err := w.process.Do(ctx, thread, words...)
	if err == nil && r.Kind != jepsen.OK {
		err = errors.New(r.Text)
	}
	return r.Text, err
}

// Lock implements lock.Client.
func (w *worker) Lock(ctx context.Context, resource string) (lock.Held, error) {
	if !w.opened[resource] {
		if _, err := w.do(ctx, "main", "open", resource, w.recipe, path(resource)); err != nil {
			return nil, err
		}
		w.opened[resource] = true
	}
	wait := "-1"
	if deadline, ok := ctx.Deadline(); ok {
		wait = strconv.FormatInt(max(1, time.Until(deadline).Milliseconds()), 10)
	}
	// The library's reports about its connection after it has got the lock, or the last one before
	// if it is not connected then, are about this lock.
	h := &heldByWorker{worker: w, resource: resource, thread: "locker", lost: make(chan struct{})}
	from := 0
	r, err := w.process.DoSeen(ctx, func(jepsen.Reply) { from = sinceConnected(w.history.Ops()) }, h.thread, "acquire",
		resource, wait)
	if err == nil && r.Kind != jepsen.OK {
		err = errors.New(r.Text)
	}
	if err != nil {
		return nil, err
	}
	if h.token, err = strconv.ParseUint(r.Text, 10, 64); err != nil {
		return nil, fmt.Errorf("token %q: %w", r.Text, err)
	}
	var watching context.Context
	watching, h.stop = context.WithCancel(context.Background())
	h.watch.Go(func() {
		suspended := false
		_ = w.history.Follow(watching, from, func(op jepsen.Op) bool {
			suspended = op.F == jepsen.FSuspended || op.F == jepsen.FExpired || op.F == jepsen.FLost
			return suspended
		})
		if suspended {
			close(h.lost)
		}
	})
	return h, nil
}

// sinceConnected is the number of the entry after the last one that says that it is connected.
func sinceConnected(ops []jepsen.Op) int {
	for i := len(ops) - 1; i >= 0; i-- {
		if ops[i].F == jepsen.FConnected {
			return i + 1
		}
	}
	return 0
}

// Close implements lock.Client.
func (w *worker) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = w.process.Close(ctx) // in good order, if it can
	return errors.Join(w.process.Kill(), os.RemoveAll(w.dir))
}

// heldByWorker is a lock that the worker holds.
type heldByWorker struct {
	worker           *worker
	resource, thread string
	token            uint64
	lost             chan struct{}
	stop             context.CancelFunc
	watch            sync.WaitGroup
}

// Token implements lock.Held: the czxid of the lock's node.
func (h *heldByWorker) Token() uint64 { return h.token }

// Lost implements lock.Held.
func (h *heldByWorker) Lost() <-chan struct{} { return h.lost }

// Unlock implements lock.Held.
func (h *heldByWorker) Unlock(ctx context.Context) error {
	h.stop()
	h.watch.Wait()
	_, err := h.worker.do(ctx, h.thread, "release", h.resource)
	return err
}
