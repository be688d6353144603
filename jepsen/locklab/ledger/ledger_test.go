package ledger

import (
	"errors"
	"testing"
	"time"
)

// A step is a request of a holder: a read, or a write of the value that the holder has read last.
type step struct {
	holder string
	token  uint64
	write  bool
}

// TestBooks plays requests and counts, for each book, the updates that were lost and the writes
// that were refused.
func TestBooks(t *testing.T) {
	type counts struct{ lost, refused int }
	for name, c := range map[string]struct {
		steps []step
		want  map[Rule]counts
	}{
		"one after the other": {
			[]step{{"A", 1, false}, {"A", 1, true}, {"B", 2, false}, {"B", 2, true}},
			map[Rule]counts{},
		},
		"the late write comes after that of the next holder": {
			[]step{{"A", 1, false}, {"B", 2, false}, {"B", 2, true}, {"A", 1, true}},
			map[Rule]counts{Open: {1, 0}, Fenced: {0, 1}, WritesOnly: {0, 1}, Twin: {1, 0}, Versions: {0, 1}, Asked: {0, 1}},
		},
		"the late write comes between read and write of the next holder": {
			[]step{{"A", 1, false}, {"B", 2, false}, {"A", 1, true}, {"B", 2, true}},
			map[Rule]counts{Open: {1, 0}, Fenced: {0, 1}, WritesOnly: {1, 0}, Twin: {1, 0}, Versions: {0, 1}, Asked: {0, 1}},
		},
		"a lock without tokens": {
			[]step{{"A", 0, false}, {"A", 0, true}},
			map[Rule]counts{Fenced: {0, 1}, WritesOnly: {0, 1}, Twin: {0, 1}, Asked: {0, 1}},
		},
		"a token that does not grow": {
			[]step{{"A", 5, false}, {"A", 5, true}, {"B", 4, false}, {"B", 4, true}},
			map[Rule]counts{Fenced: {0, 1}, WritesOnly: {0, 1}, Twin: {0, 1}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := OpenLedger()
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			// The servers that are asked know the holder that has read last.
			holder := uint64(0)
			l.Ask(func(_ string, token uint64) error {
				if token == 0 || token != holder {
					return errors.New("another holds the lock")
				}
				return nil
			})
			clients, bases := map[string]*Client{}, map[string]map[Rule]int64{}
			for _, s := range c.steps {
				client := clients[s.holder]
				if client == nil {
					if client, err = Dial(l.Addr()); err != nil {
						t.Fatal(err)
					}
					defer client.Close()
					clients[s.holder] = client
				}
				if s.write {
					_, err = client.Write("r", s.holder, s.token, bases[s.holder])
				} else {
					holder = s.token
					bases[s.holder], err = client.Read("r", s.holder, s.token)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			got, last := map[Rule]counts{}, time.Duration(0)
			for _, e := range l.Entries("r") {
				n := got[e.Rule]
				if e.Lost() {
					n.lost++
				}
				if e.Write && e.Refused != "" {
					n.refused++
				}
				got[e.Rule] = n
				if e.At < last {
					t.Errorf("%+v came before the entry above it", e)
				}
				last = e.At
			}
			for _, rule := range Rules {
				if got[rule] != c.want[rule] {
					t.Errorf("%s: %+v, not %+v", rule, got[rule], c.want[rule])
				}
			}
			if l.Forget("r"); len(l.Entries("r")) != 0 {
				t.Error("the entries are still there")
			}
		})
	}
}

// A client's requests before its death count.
func TestWriteOfADeadClient(t *testing.T) {
	l, err := OpenLedger()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := Dial(l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Send("r", "A", 1, map[Rule]int64{Open: 0}); err != nil {
		t.Fatal(err)
	}
	c.Close()
	for start := time.Now(); len(l.Entries("r")) == 0; time.Sleep(time.Millisecond) {
		if time.Since(start) > 10*time.Second {
			t.Fatal("the write did not arrive")
		}
	}
}
