package recipes

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// ensemble is three ZooKeepers that are one cluster, in a test of its own.
type ensemble [3]*server

func startEnsemble(t *testing.T, more string) *ensemble {
	t.Helper()
	goOnly(t)
	if err := zookeeperMissing(); errors.Is(err, errMissing) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	var members strings.Builder
	members.WriteString(more)
	for n := range 3 {
		peer, err := freePort()
		elect, eerr := freePort()
		if err := cmp.Or(err, eerr); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&members, "server.%d=127.0.0.1:%d:%d\n", n+1, peer, elect)
	}
	e := new(ensemble)
	var wg sync.WaitGroup
	for n := range e {
		e[n] = &server{name: fmt.Sprint("ensemble-", n+1), missing: zookeeperMissing, command: zookeeperCommand,
			settings: func(dir string) (string, error) {
				data := filepath.Join(dir, "data")
				err := os.MkdirAll(data, 0o755)
				if err == nil {
					err = os.WriteFile(filepath.Join(data, "myid"), []byte(strconv.Itoa(n+1)), 0o644)
				}
				return members.String(), err
			}}
		t.Cleanup(func() { e[n].stop(false) })
		wg.Go(func() {
			if _, err := e[n].start(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return e
}

// leader is the number of the one that leads.
func (e *ensemble) leader(t *testing.T) int {
	t.Helper()
	for n, s := range e {
		if text, err := srvr(s.addr); err == nil && strings.Contains(text, "Mode: leader") {
			return n
		}
	}
	t.Fatal("no leader")
	return 0
}

// TestLiveLoneLeader: the two followers of a ZooKeeper are stopped. Its leader goes on answering
// syncs, but no write, whether that changes something or not. A grant of its client is lost after
// two thirds of the session timeout.
func TestLiveLoneLeader(t *testing.T) {
	t.Parallel()
	e := startEnsemble(t, "initLimit=50\nsyncLimit=100\n")
	lead := e.leader(t)
	ctx, path := limit(t, 2*time.Minute), livePath(t)
	const timeout = 3 * time.Second
	s := live(t, e[lead].addr, timeout)
	g := liveLock(t, ctx, s, path)
	asked := live(t, e[lead].addr, liveTimeout)
	if err := asked.link.confirm(); err != nil {
		t.Fatal(err)
	}
	for n, member := range e {
		if n != lead {
			member.signal(t, syscall.SIGSTOP)
		}
	}
	stopped := time.Now()
	select {
	case <-g.Lost():
		if err := g.Err(); !errors.Is(err, ErrSilent) {
			t.Errorf("lost because of %v", err)
		}
	case <-time.After(2 * timeout):
		t.Errorf("held for %v by a leader without followers", time.Since(stopped))
	}
	// It does answer syncs.
	if answer, err := asked.link.conn.Sync(syncQuestion); err != nil || answer != syncQuestion {
		t.Errorf("sync of a leader without followers: %q, %v", answer, err)
	}
	written := make(chan error, 1)
	go func() { written <- asked.link.writeNothing() }()
	select {
	case err := <-written:
		t.Errorf("a leader without followers answers a write after %v: %v", time.Since(stopped), err)
	case <-time.After(timeout):
	}
	for n, member := range e {
		if n != lead {
			member.signal(t, syscall.SIGCONT)
		}
	}
}

// TestLiveConfirm: each server tells the truth about its sync.
func TestLiveConfirm(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		s := live(t, addr, liveTimeout)
		if err := s.link.confirm(); err != nil {
			t.Fatal(err)
		}
		says := s.link.silent == nil
		if want := strings.HasSuffix(t.Name(), "/lockkeeper"); says != want {
			t.Errorf("says that its sync is linearizable: %v", says)
		}
		if err := s.link.writeNothing(); err != nil {
			t.Errorf("a multi without operations: %v", err)
		}
	})
}

// signal signals the server, which is a child of the shell that guards it.
func (s *server) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", s.pid, s.pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, child := range strings.Fields(string(text)) {
		name, _ := os.ReadFile("/proc/" + child + "/comm")
		if strings.TrimSpace(string(name)) == "cat" {
			continue
		}
		pid, err := strconv.Atoi(child)
		if err == nil {
			err = syscall.Kill(pid, sig)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
