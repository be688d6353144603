package fence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// kinds are all that remember, as one function: check runs f if the token is accepted.
func kinds(t *testing.T) map[string]func(resource string, token int64, f func()) error {
	gate := new(Gate)
	file, err := OpenFile(filepath.Join(t.TempDir(), "tokens"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	table := newTestTable(t, &fakeDB{}, TableOptions{})
	return map[string]func(string, int64, func()) error{
		"gate": func(r string, n int64, f func()) error { return gate.Do(r, n, func() error { f(); return nil }) },
		"file": func(r string, n int64, f func()) error { return file.Do(r, n, func() error { f(); return nil }) },
		"table": func(r string, n int64, f func()) error {
			return table.Do(context.Background(), r, n, func(*sql.Tx) error { f(); return nil })
		},
	}
}

func TestRule(t *testing.T) {
	all := kinds(t)
	_, store := newStore(t)
	objects := openObjects(t, store)
	all["objects"] = func(r string, n int64, f func()) error {
		err := objects.Put(t.Context(), r, n, nil)
		if err == nil {
			f()
		}
		return err
	}
	for name, do := range all {
		t.Run(name, func(t *testing.T) {
			for i, step := range []struct {
				resource string
				token    int64
				newest   int64 // that the refusal names; 0: accepted, -1: invalid
			}{
				{"a", 33, 0},
				{"a", 33, 0},
				{"a", 34, 0},
				{"a", 33, 34},
				{"a", 34, 0},
				{"b", 1, 0},
				{"a", 1 << 40, 0},
				{"a", 1<<40 - 1, 1 << 40},
				{"b", 0, -1},
				{"c", 0, -1},
				{"c", -5, -1},
				{"b", 2, 0},
				{"b \"\n", 7, 0},
				{"b \"\n", 6, 7},
				{"", 3, 0},
				{"", 2, 3},
			} {
				called := false
				err := do(step.resource, step.token, func() { called = true })
				var stale *StaleError
				switch {
				case step.newest == 0:
					if err != nil {
						t.Errorf("step %d: %v", i, err)
					}
				case step.newest < 0:
					if !errors.Is(err, ErrInvalid) {
						t.Errorf("step %d: %v, want ErrInvalid", i, err)
					}
				case !errors.As(err, &stale) || !errors.Is(err, ErrStale):
					t.Errorf("step %d: %v, want a StaleError", i, err)
				case *stale != StaleError{step.resource, step.token, step.newest}:
					t.Errorf("step %d: %+v", i, *stale)
				}
				if called != (err == nil) {
					t.Errorf("step %d: called = %v after %v", i, called, err)
				}
			}
		})
	}
}

func TestStaleErrorSaysBoth(t *testing.T) {
	var g Gate
	g.Check("x", 7)
	err := g.Check("x", 5)
	if want := `fence: token 5 for "x" is stale: 7 has been seen`; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// TestConcurrent: accepted work is done in the order of the tokens.
func TestConcurrent(t *testing.T) {
	for name, do := range kinds(t) {
		t.Run(name, func(t *testing.T) {
			var wg sync.WaitGroup
			var done, refused atomic.Int64
			newest := make(map[string]int64) // guarded by the code under test
			for _, r := range []string{"a", "b"} {
				newest[r] = 0
			}
			var mu sync.Mutex // the map's, not the order's
			for w := range uint64(8) {
				wg.Go(func() {
					rnd := rand.New(rand.NewPCG(1, w))
					for range 40 {
						r, token := []string{"a", "b"}[rnd.IntN(2)], 1+rnd.Int64N(100)
						err := do(r, token, func() {
							mu.Lock()
							defer mu.Unlock()
							if token < newest[r] {
								t.Errorf("%d of %s accepted after %d", token, r, newest[r])
							}
							newest[r] = token
						})
						switch {
						case err == nil:
							done.Add(1)
						case errors.Is(err, ErrStale):
							refused.Add(1)
						default:
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			if done.Load() == 0 || refused.Load() == 0 {
				t.Errorf("%d done, %d refused", done.Load(), refused.Load())
			}
		})
	}
}

// TestGateDo: a newer holder waits until the work of an older one is over.
func TestGateDo(t *testing.T) {
	var g Gate
	inside, leave := make(chan struct{}), make(chan struct{})
	first := make(chan error)
	go func() {
		first <- g.Do("x", 1, func() error {
			close(inside)
			<-leave
			return errors.New("what f says")
		})
	}()
	<-inside
	if err := g.Check("other", 1); err != nil {
		t.Error(err) // does not wait
	}
	var order []string
	second := make(chan error)
	go func() { second <- g.Do("x", 2, func() error { order = append(order, "second"); return nil }) }()
	order = append(order, "first")
	close(leave)
	if err := <-first; err == nil || err.Error() != "what f says" {
		t.Error(err)
	}
	if err := <-second; err != nil {
		t.Error(err)
	}
	if fmt.Sprint(order) != "[first second]" {
		t.Error(order)
	}
	if g.Newest("x") != 2 || g.Newest("never") != 0 {
		t.Error(g.Newest("x"), g.Newest("never"))
	}
}

func TestFileSurvives(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	for i := range int64(4) {
		f, err := OpenFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if newest, err := f.Newest("a"); err != nil || newest != 10*i {
			t.Errorf("opened again: %d, %v, want %d", newest, err, 10*i)
		}
		if err := f.Check("a", 10*i+10); err != nil {
			t.Error(err)
		}
		if err := f.Check("a", 10*i+9); !errors.Is(err, ErrStale) {
			t.Error(err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if err := f.Check("a", 1000); err == nil {
			t.Error("accepted after Close")
		}
		// The remains of a crash while writing.
		if err := os.WriteFile(path+".new", []byte("lockkeeper-fe"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFileIsShared: processes that share the file see each other's tokens.
func TestFileIsShared(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	a, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := a.Check("x", 5); err != nil {
		t.Error(err)
	}
	if err := b.Check("x", 4); !errors.Is(err, ErrStale) {
		t.Errorf("%v, want ErrStale", err)
	}
	held, let := make(chan struct{}), make(chan struct{})
	go a.Do("x", 6, func() error { close(held); <-let; return nil })
	<-held
	if err := lockFile(b.lock, false); err == nil {
		t.Error("b gets past a's Do")
	}
	done := make(chan error, 1)
	go func() { done <- b.Check("x", 7) }()
	close(let)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestFileDamaged: every single bit and every missing byte is noticed, and said.
func TestFileDamaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	f, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.Check("a", 1234)
	f.Check("some \"resource\"\n", 5)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	try := func(what string, data []byte) {
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		err := f.Check("a", 5000)
		if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", what, err)
		}
		if g, err := OpenFile(path); err == nil {
			g.Close()
			t.Errorf("%s: can be opened", what)
		}
	}
	for i := range good {
		for bit := range 8 {
			data := append([]byte(nil), good...)
			data[i] ^= 1 << bit
			try(fmt.Sprintf("bit %d of byte %d", bit, i), data)
		}
		try(fmt.Sprintf("cut after %d", i), good[:i])
	}
	try("something behind it", append(append([]byte(nil), good...), '\n'))
	try("another file", []byte("127.0.0.1 localhost\n"))
	if err := os.WriteFile(path, good, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := f.Check("a", 1233); !errors.Is(err, ErrStale) {
		t.Errorf("repaired: %v", err)
	}
}

// TestFileCannotBeWritten: no token is accepted that is not on the disk.
func TestFileCannotBeWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := OpenFile(filepath.Join(dir, "tokens"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	called := false
	if err := f.Do("a", 1, func() error { called = true; return nil }); err == nil || called {
		t.Errorf("accepted: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(encode(map[string]int64{"a": 1, "b\n": 1 << 60}))
	f.Add(encode(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		tokens, err := decode(data)
		if err != nil {
			return
		}
		again, err := decode(encode(tokens))
		if err != nil || fmt.Sprint(again) != fmt.Sprint(tokens) {
			t.Errorf("%v, %v, want %v", again, err, tokens)
		}
	})
}
