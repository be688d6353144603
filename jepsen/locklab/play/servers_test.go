package play

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lockkeeper/jepsen/locklab/system"
)

// recorder is a system of servers that only note the faults that hit them. The second one decides,
// if there are two.
type recorder struct {
	system.System
	servers []system.Server

	mu   sync.Mutex
	done []string
}

type recorded struct {
	r    *recorder
	name string
	data string
}

func newRecorder(t *testing.T, n int) *recorder {
	r := &recorder{}
	for i := range n {
		name := fmt.Sprintf("s%d", i+1)
		data := filepath.Join(t.TempDir(), name)
		if err := os.Mkdir(data, 0o755); err != nil {
			t.Fatal(err)
		}
		r.servers = append(r.servers, &recorded{r, name, data})
	}
	return r
}

func (r *recorder) Servers() []system.Server             { return r.servers }
func (r *recorder) Primary(context.Context) (int, error) { return min(1, len(r.servers)-1), nil }

func (s *recorded) note(what string) error {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	s.r.done = append(s.r.done, what+" "+s.name)
	return nil
}

func (s *recorded) Name() string                { return s.name }
func (s *recorded) Addr() string                { return "" }
func (s *recorded) Data() string                { return s.data }
func (s *recorded) Pause() error                { return s.note("pause") }
func (s *recorded) Resume() error               { return s.note("resume") }
func (s *recorded) Kill() error                 { return s.note("kill") }
func (s *recorded) Start(context.Context) error { return s.note("start") }
func (s *recorded) SetClock(ahead time.Duration) error {
	if ahead == 0 {
		return nil
	}
	return s.note("set")
}

func (s *recorded) write(t *testing.T, text string) {
	if err := os.WriteFile(filepath.Join(s.data, "log"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A disk that lies has its contents of before A got the lock; those who have the lock stay away,
// unless there is a replica only.
func TestDisk(t *testing.T) {
	fault, err := FindFault("disk-lies")
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range map[int]string{
		1: "pause s1, resume s1, kill s1, start s1",
		2: "pause s2, resume s2, kill s2, start s2",
		3: "kill s3, pause s2, resume s2, kill s1, kill s2, start s2, start s3",
		5: "kill s3, kill s4, pause s2, resume s2, kill s1, kill s2, kill s5, start s2, start s3, start s4",
	} {
		r := newRecorder(t, n)
		s := &Stage{sys: r}
		for _, server := range r.servers {
			server.(*recorded).write(t, "before")
		}
		away, err := s.prepare(t.Context(), fault, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, server := range r.servers {
			server.(*recorded).write(t, "after")
		}
		if err := s.hitDisk(t.Context(), nil, away); err != nil {
			t.Fatal(err)
		}
		// Those that come back do so in any order.
		back := slices.IndexFunc(r.done, func(text string) bool { return strings.HasPrefix(text, "start") })
		slices.Sort(r.done[max(0, back):])
		if got := strings.Join(r.done, ", "); got != want {
			t.Errorf("%d servers:\n%s, want\n%s", n, got, want)
		}
		liar, _ := r.Primary(t.Context())
		for i, server := range r.servers {
			text, err := os.ReadFile(filepath.Join(server.Data(), "log"))
			if want := map[bool]string{true: "before", false: "after"}[i == liar]; err != nil || string(text) != want {
				t.Errorf("%d servers: %s has %q, %v", n, server.Name(), text, err)
			}
			if _, err := os.Stat(before(server)); err == nil {
				t.Errorf("%d servers: the copy of %s is left", n, server.Name())
			}
		}
	}
}

// The clocks of one server or of a majority are set, the one that decides among them.
func TestClocks(t *testing.T) {
	for name, want := range map[string][]string{
		"clock-one": {"set s2"}, "clock-most": {"set s2", "set s3"}, "clock-back": {"set s2", "set s3"},
		"clock-drift": {"set s2", "set s3"},
	} {
		fault, err := FindFault(name)
		if err != nil {
			t.Fatal(err)
		}
		r := newRecorder(t, 3)
		s := &Stage{sys: r}
		plan := Plan{Ahead: time.Second, Hold: 5 * driftStep}
		if err := s.hitClocks(t.Context(), fault, nil, 1, plan); err != nil {
			t.Fatal(err)
		}
		slices.Sort(r.done)
		if got := slices.Compact(slices.Clone(r.done)); !slices.Equal(got, want) {
			t.Errorf("%s: %v", name, got)
		}
		if drifts := name == "clock-drift"; drifts != (len(r.done) > 2) {
			t.Errorf("%s: clocks were set %d times", name, len(r.done))
		}
	}
}
