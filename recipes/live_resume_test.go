package recipes

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// liveFile is a session with a session file. The test ends it.
func liveFile(t *testing.T, addr, file string, timeout time.Duration) *Session {
	t.Helper()
	s, err := Connect(Config{Servers: []string{addr}, SessionTimeout: timeout, HostProvider: &impatientHosts{},
		Dial: dialLive, SessionFile: file})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Detach) // Close has come before, if all went well
	return s
}

func mustResume(t *testing.T, ctx context.Context, s *Session) Resumption {
	t.Helper()
	r, err := s.Resumed(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// resumable are the recipes that a restarted process takes up.
var resumable = []struct {
	name string
	take func(ctx context.Context, s *Session, path string) (*Grant, error)
}{
	{"mutex", func(ctx context.Context, s *Session, path string) (*Grant, error) {
		return NewMutex(s, path, MutexOptions{}).Lock(ctx)
	}},
	{"try", func(ctx context.Context, s *Session, path string) (*Grant, error) {
		return NewMutex(s, path, MutexOptions{}).TryLock(ctx)
	}},
	{"delay", func(ctx context.Context, s *Session, path string) (*Grant, error) {
		return NewMutex(s, path, MutexOptions{LockDelay: time.Minute}).Lock(ctx)
	}},
	{"read", func(ctx context.Context, s *Session, path string) (*Grant, error) {
		return NewRWMutex(s, path, MutexOptions{}).RLock(ctx)
	}},
	{"write", func(ctx context.Context, s *Session, path string) (*Grant, error) {
		return NewRWMutex(s, path, MutexOptions{}).Lock(ctx)
	}},
	{"semaphore", func(ctx context.Context, s *Session, path string) (*Grant, error) {
		return NewSemaphore(s, path, SemaphoreOptions{Leases: 1}).Lock(ctx)
	}},
	{"simple", func(ctx context.Context, s *Session, path string) (*Grant, error) {
		return NewSimpleMutex(s, path+"/node", MutexOptions{}).Lock(ctx)
	}},
	{"handle", func(ctx context.Context, s *Session, path string) (*Grant, error) {
		h := NewMutex(s, path, MutexOptions{}).Handle()
		if _, err := h.Lock(ctx); err != nil {
			return nil, err
		}
		return h.Lock(ctx)
	}},
	{"election", func(ctx context.Context, s *Session, path string) (*Grant, error) {
		l, err := NewElection(s, path, ElectionOptions{}).Campaign(ctx, []byte("me"))
		if err != nil {
			return nil, err
		}
		return l.Grant, nil
	}},
	{"group", func(ctx context.Context, s *Session, path string) (*Grant, error) {
		m, err := NewGroup(s, path, nil).Join(ctx, "member", Describe("of a test"))
		if err != nil {
			return nil, err
		}
		return m.grant, nil
	}},
}

// TestLiveResume: a process that comes back has its lock, with the token, at once; nobody got it
// in between, and the next one gets it when it is given back.
func TestLiveResume(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		for _, r := range resumable {
			t.Run(r.name, func(t *testing.T) {
				t.Parallel()
				ctx, path, file := limit(t, time.Minute), livePath(t), filepath.Join(t.TempDir(), "session")
				before := liveFile(t, addr, file, liveTimeout)
				g, err := r.take(ctx, before, path)
				if err != nil {
					t.Fatal(err)
				}
				if got := mustResume(t, ctx, before); got.Session != 0 || got.Reason != nil || g.Resumed() {
					t.Errorf("the first process resumed %+v, %v", got, g.Resumed())
				}
				other := live(t, addr, liveTimeout)
				next, waits := make(chan *Grant, 1), r.name != "read" && r.name != "try" && r.name != "group"
				if waits {
					go func() {
						g, err := r.take(ctx, other, path)
						if err != nil {
							t.Error(err)
						}
						next <- g
					}()
					awaitWaiting(t, ctx, other, path, r.name)
				}
				before.Detach()

				after := liveFile(t, addr, file, liveTimeout)
				got := mustResume(t, ctx, after)
				if want := (Held{Path: g.Path(), Node: g.Node(), Token: g.Token()}); got.Session != g.Session() ||
					len(got.Held) != 1 || got.Held[0] != want || len(got.Lost) > 0 || got.Reason != nil {
					t.Errorf("resumed %+v, want %+v of session %#x", got, want, g.Session())
				}
				again, err := r.take(ctx, after, path)
				if err != nil {
					t.Fatal(err)
				}
				if again.Token() != g.Token() || again.Node() != g.Node() || !again.Resumed() || !again.Held() {
					t.Errorf("token %d, node %s, resumed %v, held %v; it was %d, %s", again.Token(), again.Node(),
						again.Resumed(), again.Held(), g.Token(), g.Node())
				}
				if err := again.Valid(ctx); err != nil {
					t.Error(err)
				}
				select {
				case <-next:
					t.Error("another has it, too")
				default:
				}
				if err := again.Unlock(ctx); err != nil {
					t.Error(err)
				}
				if waits {
					if g := <-next; g != nil && g.Token() <= again.Token() {
						t.Errorf("token %d after %d", g.Token(), again.Token())
					}
				}
				after.Close()
				if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("the session file after Close: %v", err)
				}
			})
		}
	})
}

// awaitWaiting waits until a second contender is in the queue.
func awaitWaiting(t *testing.T, ctx context.Context, s *Session, path, name string) {
	t.Helper()
	switch name {
	case "simple": // its waiters make no node
	case "semaphore":
		awaitChildren(t, ctx, s, path+"/leases", 2)
	default:
		awaitChildren(t, ctx, s, path, 2)
	}
}

// TestLiveResumeKilled: a process is killed with -9 again and again while it holds the lock, and
// comes back to it, while kazoo and another process contend.
func TestLiveResumeKilled(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		goOnly(t)
		ctx, path, file := limit(t, 2*time.Minute), livePath(t), filepath.Join(t.TempDir(), "session")
		a, rounds := &arena{t: t}, 5
		start := func() *contender {
			return startGo(t, addr, path, liveTimeout, contenderFileEnv+"="+file)
		}
		c := start()
		token := c.grant()
		a.enter("resumed", token)
		kazoo, other := startKazoo(t, addr, path, rounds, "curator", "mutex"), startGo(t, addr, path, liveTimeout)
		kazoo.say("go")
		other.say(fmt.Sprint("run ", rounds, " mutex"))
		var wg sync.WaitGroup
		wg.Go(func() { a.follow(kazoo) })
		wg.Go(func() { a.follow(other) })
		awaitChildren(t, ctx, live(t, addr, liveTimeout), path, 3)
		for range 3 {
			if err := c.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			for range c.lines { // until it has ended
			}
			c = start()
			if again := c.grant(); again != token {
				t.Fatalf("token %d after the restart, %d before", again, token)
			}
			c.say("resumed")
			c.expect("resumed true")
			c.say("held")
			c.expect("held true")
		}
		a.leave("resumed")
		c.say("unlock")
		c.expect("unlocked")
		wg.Wait()
		if a.rounds != 1+2*rounds {
			t.Errorf("%d rounds, want %d", a.rounds, 1+2*rounds)
		}
	})
}

// TestLiveResumeWaits: a process that waited keeps its place in the queue.
func TestLiveResumeWaits(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		ctx, path, file := limit(t, time.Minute), livePath(t), filepath.Join(t.TempDir(), "session")
		other := live(t, addr, liveTimeout)
		holder := liveLock(t, ctx, other, path)
		before := liveFile(t, addr, file, liveTimeout)
		go func() { _, _ = NewMutex(before, path, MutexOptions{}).Lock(ctx) }()
		first := slices.Sorted(slices.Values(awaitChildren(t, ctx, other, path, 2)))
		behind := lockLater(t, ctx, other, path)
		awaitChildren(t, ctx, other, path, 3)
		before.Detach()
		after := liveFile(t, addr, file, liveTimeout)
		got := make(chan *Grant, 1)
		go func() {
			g, err := NewMutex(after, path, MutexOptions{}).Lock(ctx)
			if err != nil {
				t.Error(err)
			}
			got <- g
		}()
		if err := holder.Unlock(ctx); err != nil {
			t.Fatal(err)
		}
		g := <-got
		if g == nil {
			t.FailNow()
		}
		_, name := split(g.Node())
		if !slices.Contains(first, name) || g.Resumed() {
			t.Errorf("granted %s, resumed %v; it waited as one of %v and held nothing", name, g.Resumed(), first)
		}
		if err := g.Unlock(ctx); err != nil {
			t.Error(err)
		}
		<-behind
		after.Close()
	})
}

// TestLiveResumeTooLate: when the session has expired, Resumed lists the losses, and the next lock
// has another token.
func TestLiveResumeTooLate(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		ctx, path, file := limit(t, time.Minute), livePath(t), filepath.Join(t.TempDir(), "session")
		before, other := liveFile(t, addr, file, time.Second), live(t, addr, liveTimeout)
		g := liveLock(t, ctx, before, path)
		before.Detach()
		next := liveLock(t, ctx, other, path) // when the session has expired
		after := liveFile(t, addr, file, time.Second)
		got := mustResume(t, ctx, after)
		want := Held{Path: path, Node: g.Node(), Token: g.Token()}
		if got.Session != 0 || !errors.Is(got.Reason, ErrExpired) || !slices.Equal(got.Lost, []Held{want}) {
			t.Errorf("resumed %+v, want the loss of %+v", got, want)
		}
		if err := next.Unlock(ctx); err != nil {
			t.Error(err)
		}
		if again := liveLock(t, ctx, after, path); again.Resumed() || again.Token() <= next.Token() {
			t.Errorf("token %d after %d, resumed %v", again.Token(), next.Token(), again.Resumed())
		}
		after.Close()
	})
}

// TestLiveResumeDeleted: a node that somebody has deleted meanwhile is among the losses; the others
// are taken up.
func TestLiveResumeDeleted(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		ctx, path, file := limit(t, time.Minute), livePath(t), filepath.Join(t.TempDir(), "session")
		before, other := liveFile(t, addr, file, liveTimeout), live(t, addr, liveTimeout)
		g, kept := liveLock(t, ctx, before, path), liveLock(t, ctx, before, path+"-kept")
		before.Detach()
		if err := other.Conn().Delete(g.Node(), -1); err != nil {
			t.Fatal(err)
		}
		after := liveFile(t, addr, file, liveTimeout)
		got := mustResume(t, ctx, after)
		if got.Session == 0 || len(got.Lost) != 1 || got.Lost[0].Token != g.Token() || len(got.Held) != 1 {
			t.Errorf("resumed %+v", got)
		}
		if again := liveLock(t, ctx, after, path); again.Resumed() || again.Token() <= g.Token() {
			t.Errorf("token %d after %d, resumed %v", again.Token(), g.Token(), again.Resumed())
		}
		if again := liveLock(t, ctx, after, path+"-kept"); again.Token() != kept.Token() {
			t.Errorf("token %d, it was %d", again.Token(), kept.Token())
		}
		after.Close()
	})
}

// TestLiveResumeGivesBack: a lock that the next process does not take up is given back, on demand
// or after a session timeout. It keeps the one that it has taken up.
func TestLiveResumeGivesBack(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		for name, wait := range map[string]bool{"later": true, "at once": false} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				ctx, path, file := limit(t, time.Minute), livePath(t), filepath.Join(t.TempDir(), "session")
				timeout := liveTimeout
				if wait {
					timeout = 2 * time.Second
				}
				before, other := liveFile(t, addr, file, timeout), live(t, addr, liveTimeout)
				liveLock(t, ctx, before, path)
				kept := liveLock(t, ctx, before, path+"-kept")
				if _, err := NewSimpleMutex(before, path+"-simple", MutexOptions{}).Lock(ctx); err != nil {
					t.Fatal(err)
				}
				next := lockLater(t, ctx, other, path)
				awaitChildren(t, ctx, other, path, 2)
				before.Detach()
				after := liveFile(t, addr, file, timeout)
				again := liveLock(t, ctx, after, path+"-kept")
				if !wait {
					if err := after.GiveBack(ctx); err != nil {
						t.Fatal(err)
					}
				}
				if g := <-next; g == nil || g.Session() == again.Session() {
					t.Error("not given to the next one")
				}
				if _, err := NewSimpleMutex(other, path+"-simple", MutexOptions{}).Lock(ctx); err != nil {
					t.Error(err)
				}
				if again.Token() != kept.Token() || !again.Held() {
					t.Errorf("token %d, it was %d; %v", again.Token(), kept.Token(), again.Err())
				}
				after.Close()
			})
		}
	})
}

// TestLiveResumeDowngraded: a writer that has turned into a reader does not come back as a writer.
func TestLiveResumeDowngraded(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		ctx, path, file := limit(t, time.Minute), livePath(t), filepath.Join(t.TempDir(), "session")
		before, other := liveFile(t, addr, file, liveTimeout), live(t, addr, liveTimeout)
		g, err := NewRWMutex(before, path, MutexOptions{}).Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Downgrade(ctx); err != nil {
			t.Fatal(err)
		}
		reader, err := NewRWMutex(other, path, MutexOptions{}).RLock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		before.Detach()
		after := liveFile(t, addr, file, liveTimeout)
		if _, err := NewRWMutex(after, path, MutexOptions{}).TryLock(ctx); !errors.Is(err, ErrLocked) {
			t.Errorf("TryLock beside a reader: %v", err)
		}
		if !reader.Held() {
			t.Error(reader.Err())
		}
		after.Close()
	})
}

// TestLiveResumeUnknown: with a wrong password, or at another cluster, there is a new session, and
// nothing is believed to be held.
func TestLiveResumeUnknown(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		for name, change := range map[string]func(line string) string{
			"password": func(line string) string { return line[:len(line)-2] + "00" },
			"cluster":  func(line string) string { return strings.Replace(line, "session 0x", "session 0x7", 1) },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				ctx, path, file := limit(t, time.Minute), livePath(t), filepath.Join(t.TempDir(), "session")
				before, other := liveFile(t, addr, file, 2*time.Second), live(t, addr, liveTimeout)
				g := liveLock(t, ctx, before, path)
				before.Detach()
				rewrite(t, file, "session ", change)
				after := liveFile(t, addr, file, 2*time.Second)
				if got := mustResume(t, ctx, after); got.Session != 0 || !errors.Is(got.Reason, ErrExpired) ||
					len(got.Lost) != 1 {
					t.Errorf("resumed %+v", got)
				}
				if _, err := NewMutex(after, path, MutexOptions{}).TryLock(ctx); !errors.Is(err, ErrLocked) {
					t.Errorf("TryLock while the session before lives: %v", err)
				}
				if next := liveLock(t, ctx, other, path); next.Token() <= g.Token() {
					t.Errorf("token %d after %d", next.Token(), g.Token())
				}
				after.Close()
			})
		}
	})
}

// rewrite changes the line of a session file that begins with a word.
func rewrite(t *testing.T, file, word string, change func(line string) string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, word):
			line = change(line)
		case strings.HasPrefix(line, "crc32c "):
			line = fmt.Sprintf("crc32c %08x", crc32.Checksum([]byte(out.String()), crc32.MakeTable(crc32.Castagnoli)))
		}
		out.WriteString(line + "\n")
	}
	if err := os.WriteFile(file, []byte(out.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestLiveResumeElsewhere: the session of a copied file, or of another boot, is left to the process
// that may use it.
func TestLiveResumeElsewhere(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		ctx, path, file := limit(t, time.Minute), livePath(t), filepath.Join(t.TempDir(), "session")
		before := liveFile(t, addr, file, liveTimeout)
		g := liveLock(t, ctx, before, path)
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		copied := file + "-copy"
		if err := os.WriteFile(copied, data, 0o600); err != nil {
			t.Fatal(err)
		}
		other := liveFile(t, addr, copied, liveTimeout)
		if got := mustResume(t, ctx, other); got.Session != 0 || !errors.Is(got.Reason, ErrElsewhere) {
			t.Errorf("a copy: resumed %+v", got)
		}
		if _, err := NewMutex(other, path, MutexOptions{}).TryLock(ctx); !errors.Is(err, ErrLocked) {
			t.Errorf("TryLock by the copy: %v", err)
		}
		if err := g.Valid(ctx); err != nil {
			t.Error(err)
		}
		other.Close()
		before.Detach()
		rewrite(t, file, "place ", func(line string) string { return "place \"0" + line[len(`place "`):] })
		rebooted := liveFile(t, addr, file, liveTimeout)
		if got := mustResume(t, ctx, rebooted); got.Session != 0 || !errors.Is(got.Reason, ErrElsewhere) {
			t.Errorf("another boot: resumed %+v", got)
		}
		rebooted.Close()
	})
}

// TestLiveResumeTimeout: a session that is taken up has the shortest timeout that it ever had.
func TestLiveResumeTimeout(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		ctx, path, file := limit(t, time.Minute), livePath(t), filepath.Join(t.TempDir(), "session")
		want := []time.Duration{20 * time.Second, 10 * time.Second, 10 * time.Second}
		for i, asked := range []time.Duration{20 * time.Second, 10 * time.Second, 30 * time.Second} {
			s := liveFile(t, addr, file, asked)
			liveLock(t, ctx, s, path)
			if s.Timeout() != want[i] {
				t.Errorf("asked for %v, counts on %v, want %v", asked, s.Timeout(), want[i])
			}
			s.Detach()
		}
	})
}

// TestLiveResumeOneAtATime: two processes do not use one file.
func TestLiveResumeOneAtATime(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		ctx, file := limit(t, time.Minute), filepath.Join(t.TempDir(), "session")
		s := liveFile(t, addr, file, liveTimeout)
		if err := s.Reach(ctx); err != nil {
			t.Fatal(err)
		}
		_, err := Connect(Config{Servers: []string{addr}, SessionFile: file})
		if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), file) {
			t.Errorf("a second process: %v", err)
		}
		s.Close()
		liveFile(t, addr, file, liveTimeout).Close()
	})
}
