//go:build linux

package sessionfile

import (
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"lockkeeper/internal/durable"
)

var quiet = slog.New(slog.DiscardHandler)

var testSession = Session{ID: -0x7eff00001234abcd, TimeoutMs: 10000, Password: []byte("0123456789abcdef")}

// filled is a session file with a session that holds two locks.
func filled(t *testing.T) (path string, held []Held) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "session")
	k := mustOpen(t, path)
	if _, err := k.Attached(testSession); err != nil {
		t.Fatal(err)
	}
	held = []Held{
		{"/locks/a", "/locks/a/_c_x-lock-0000000001", 4294967311},
		{"/locks/\"odd\"\n name", "/locks/\"odd\"\n name/_c_x-lock-0000000002", 4294967312},
	}
	for _, h := range held {
		k.Hold(testSession.ID, h)
	}
	k.Stop()
	if err := k.Close(false); err != nil {
		t.Fatal(err)
	}
	return path, held
}

func mustOpen(t *testing.T, path string) *Keeper {
	t.Helper()
	k, err := Open(path, quiet)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestNextProcessGetsTheSession(t *testing.T) {
	path, held := filled(t)
	k := mustOpen(t, path)
	s, ok := k.Offer()
	if !ok || !reflect.DeepEqual(s, testSession) {
		t.Errorf("offered %+v, %v", s, ok)
	}
	left := []string{held[1].Node, "/locks/a/_c_y-lock-0000000003", "/group/me"}
	slices.Reverse(left)
	if err := k.Resumed(left); err != nil {
		t.Fatal(err)
	}
	<-k.Known()
	if want := (Past{Session: testSession.ID, Held: held[1:], Lost: held[:1]}); !reflect.DeepEqual(k.Past(), want) {
		t.Errorf("%+v, want %+v", k.Past(), want)
	}
	any := func(string) bool { return true }
	if node, _ := k.TakeUp(testSession.ID+1, false, any); node != "" {
		t.Errorf("another session takes %s", node)
	}
	for _, want := range []string{held[1].Node, "/locks/a/_c_y-lock-0000000003", "/group/me", ""} {
		if node, was := k.TakeUp(testSession.ID, false, any); node != want || was != (node == held[1].Node) {
			t.Errorf("took up %q, held %v, want %q", node, was, want)
		}
	}
	k.Stop()
	if err := k.Close(true); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after a clean end: %v", err)
	}
}

// TestDamagedFile: a file that lacks a byte, has one more, or another one, is named and refused.
func TestDamagedFile(t *testing.T) {
	path, _ := filled(t)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	refused := func(data []byte) {
		t.Helper()
		if err := os.WriteFile(path, data, mode); err != nil {
			t.Fatal(err)
		}
		k, err := Open(path, quiet)
		if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v", data, err)
		}
		if k != nil {
			_ = k.Close(false)
		}
	}
	for i := range whole {
		refused(whole[:i])
		refused(slices.Insert(slices.Clone(whole), i, 'x'))
		other := slices.Clone(whole)
		other[i] ^= 1
		refused(other)
	}
	refused(encode(state{place: "x"})) // no session
	if err := os.WriteFile(path, whole, mode); err != nil {
		t.Fatal(err)
	}
	_ = mustOpen(t, path).Close(false)
}

// TestCloseWhileProcessesStart: who has closed a file can open it at once, though processes are
// started meanwhile, which inherit it until their programs begin.
func TestCloseWhileProcessesStart(t *testing.T) {
	path, _ := filled(t)
	stop := make(chan struct{})
	var starts sync.WaitGroup
	starts.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if err := exec.Command("true").Run(); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	for range 500 {
		k, err := Open(path, quiet)
		if err != nil {
			t.Error(err)
			break
		}
		k.Stop()
		if err := k.Close(false); err != nil {
			t.Error(err)
			break
		}
	}
	close(stop)
	starts.Wait()
}

// TestExposedFile: a file that others may read, or a link to another kind of file, is refused.
func TestExposedFile(t *testing.T) {
	path, _ := filled(t)
	for _, file := range []string{path, path + ".lock"} {
		for _, bits := range []os.FileMode{0o640, 0o604, 0o620, 0o644} {
			if err := os.Chmod(file, bits); err != nil {
				t.Fatal(err)
			}
			if _, err := Open(path, quiet); !errors.Is(err, ErrExposed) || !strings.Contains(err.Error(), file) {
				t.Errorf("%s with mode %04o: %v", file, bits, err)
			}
		}
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
	}
	_ = mustOpen(t, path).Close(false)
	if os.Geteuid() == 0 {
		if err := os.Chown(path, 1, -1); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path, quiet); !errors.Is(err, ErrExposed) {
			t.Errorf("another user's: %v", err)
		}
	}
	if err := errors.Join(os.Remove(path), os.Symlink("/dev/null", path)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, quiet); err == nil {
		t.Error("/dev/null: no error")
	}
}

// TestOneProcess: a process that has inherited the lock keeps others off after the end of its
// parent.
func TestOneProcess(t *testing.T) {
	path, _ := filled(t)
	k := mustOpen(t, path)
	if _, err := Open(path, quiet); !errors.Is(err, ErrInUse) {
		t.Errorf("two at a time: %v", err)
	}
	cmd := exec.Command("sleep", "1000")
	cmd.ExtraFiles = []*os.File{k.Lock()}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := k.Close(false); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, quiet); !errors.Is(err, ErrInUse) {
		t.Errorf("beside a child: %v", err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	_ = mustOpen(t, path).Close(false)
}

// TestCopiedFile: the session of a copy, of a file with a new lock, and of another boot, is not
// offered.
func TestCopiedFile(t *testing.T) {
	path, held := filled(t)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	copied := path + "-copy"
	if err := os.WriteFile(copied, data, mode); err != nil {
		t.Fatal(err)
	}
	// The file keeps the inode of the old lock, or its number would be free for the new one.
	if err := os.Rename(path+".lock", path+".lock-old"); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{path, copied} {
		k := mustOpen(t, file)
		if s, ok := k.Offer(); ok || s.ID != 0 || !k.Past().Elsewhere || !slices.Equal(k.Past().Lost, held) {
			t.Errorf("%s: offered %+v, %v; %+v", file, s, ok, k.Past())
		}
		_ = k.Close(false)
	}
}

// TestRefusedSession: when the cluster does not know the session, all is lost, and the file keeps
// it until there is another session.
func TestRefusedSession(t *testing.T) {
	path, held := filled(t)
	for range 2 {
		k := mustOpen(t, path)
		k.Refused()
		if want := (Past{Lost: held, Refused: true}); !reflect.DeepEqual(k.Past(), want) {
			t.Errorf("%+v, want %+v", k.Past(), want)
		}
		if _, ok := k.Offer(); ok {
			t.Error("offered again")
		}
		k.Stop()
		_ = k.Close(false)
	}
	k := mustOpen(t, path)
	k.Refused()
	if _, err := k.Attached(Session{ID: 5, TimeoutMs: 4000, Password: testSession.Password}); err != nil {
		t.Fatal(err)
	}
	k.Hold(testSession.ID, held[0]) // a grant of the old session
	k.Stop()
	_ = k.Close(false)
	k = mustOpen(t, path)
	if s, ok := k.Offer(); !ok || s.ID != 5 || len(k.state.held) > 0 {
		t.Errorf("offered %+v, %v, with %v", s, ok, k.state.held)
	}
	_ = k.Close(false)
}

// TestShortestTimeout: the file has the shortest timeout that a server has granted.
func TestShortestTimeout(t *testing.T) {
	path, _ := filled(t)
	for _, tt := range []struct{ granted, want int32 }{{20000, 10000}, {4000, 4000}, {10000, 4000}} {
		k := mustOpen(t, path)
		s, _ := k.Offer()
		s.TimeoutMs = tt.granted
		if got, err := k.Attached(s); got != tt.want || err != nil {
			t.Errorf("granted %d: counts on %d, %v, want %d", tt.granted, got, err, tt.want)
		}
		k.Stop()
		_ = k.Close(false)
	}
}

// countedDisk counts the files that are written, and may refuse to.
type countedDisk struct {
	durable.OS
	creates atomic.Int32
	fails   atomic.Bool
}

func (d *countedDisk) Create(path string) (durable.File, error) {
	d.creates.Add(1)
	if d.fails.Load() {
		return nil, errors.New("the disk is full")
	}
	return d.OS.Create(path)
}

// TestWritesAreShared: all that is held is in the file when Hold returns, and a write serves all
// who wait for one. No change, no write.
func TestWritesAreShared(t *testing.T) {
	path, _ := filled(t)
	disk := &countedDisk{OS: durable.OS{Mode: mode}}
	k, err := openOn(path, quiet, disk)
	if err != nil {
		t.Fatal(err)
	}
	s, _ := k.Offer()
	if _, err := k.Attached(s); err != nil || k.Resumed([]string{k.state.held[0].Node, k.state.held[1].Node}) != nil {
		t.Fatal(err)
	}
	k.Hold(s.ID, k.state.held[0])
	k.Release("/no/such")
	if n := disk.creates.Load(); n != 0 {
		t.Errorf("%d writes for nothing", n)
	}
	const many = 50
	k.writing.Lock() // all wait for a write that is under way
	var wg sync.WaitGroup
	for i := range int64(many) {
		wg.Go(func() { k.Hold(s.ID, Held{"/l", "/l/n", 100 + i}) })
	}
	for len(heldOf(k)) < 2+many {
		continue
	}
	k.writing.Unlock()
	wg.Wait()
	if n := disk.creates.Load(); n > 2 {
		t.Errorf("%d writes for %d at once", n, many)
	}
	disk.fails.Store(true)
	if _, err := k.Attached(Session{ID: 9, Password: testSession.Password}); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a disk that is full: %v", err)
	}
	k.Stop()
	_ = k.Close(false)
	again := mustOpen(t, path)
	if n := len(again.state.held); n != 2+many {
		t.Errorf("%d are in the file", n)
	}
	_ = again.Close(false)
}

func heldOf(k *Keeper) []Held {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state.held
}
