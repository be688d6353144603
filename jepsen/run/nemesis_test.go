package run

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/jepsen"
)

func TestExpand(t *testing.T) {
	found, err := expand([]string{"all", "kill", "partition-bridge"})
	if err != nil {
		t.Fatal(err)
	}
	count := make(map[string]int)
	for _, n := range found {
		count[n.name]++
	}
	for _, n := range nemeses() {
		special := n.general != ""
		want := 1
		if special && n.name != "partition-bridge" {
			want = 0 // its general one is there
		}
		if count[n.name] != want {
			t.Errorf("%s is there %d times, want %d", n.name, count[n.name], want)
		}
	}
	if _, err := expand([]string{"flood"}); err == nil || !strings.Contains(err.Error(), "partition-bridge") {
		t.Errorf("expand of a nemesis that is not there: %v", err)
	}
}

// A test says everything that is wrong with it at once.
func TestCheck(t *testing.T) {
	test := Default
	test.Members, test.Workloads, test.Nemeses, test.Network = 8, []string{"nonsense"}, []string{"flood"}, "string"
	err := test.Check()
	for _, want := range []string{"8 members", "nonsense", "flood", `"string"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %q in it", err, want)
		}
	}
	test = Default
	test.Workloads, test.Nemeses = []string{"all"}, []string{"all"}
	if err := test.Check(); err != nil {
		t.Error(err)
	}
	test.Target.Name, test.Network = "zookeeper", Proxy
	if err := test.Check(); err == nil {
		t.Error("ZooKeeper behind proxies is allowed")
	}
}

// A nemesis mends its faults before it ends, also when it is called off, and the history has them
// with begin and end. The same seed does the same at the same time.
func TestNemesisRun(t *testing.T) {
	play := func(seed uint64) string {
		var out bytes.Buffer
		synctest.Test(t, func(t *testing.T) {
			history := jepsen.NewHistory()
			f := &field{history: history, out: &out, claimed: make(map[any]string)}
			broken := 0
			n := nemesis{
				name: "breaker", rest: seconds(1, 3), lasts: seconds(1, 3),
				plan: func(_ context.Context, f *field, rng *rand.Rand) (*act, error) {
					got, release := f.claim("breaker", []any{"it"})
					if len(got) == 0 {
						t.Error("what it had claimed was not released")
					}
					return &act{
						on:    string(rune('a' + rng.IntN(26))),
						begin: []jepsen.Op{{F: jepsen.FCut}}, end: []jepsen.Op{{F: jepsen.FHeal}},
						start:   func(context.Context) error { broken++; return nil },
						mend:    func(ctx context.Context) error { broken--; return ctx.Err() },
						release: release,
					}, nil
				},
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if err := n.run(ctx, f, seed); err != nil {
				t.Error(err)
			}
			if broken != 0 {
				t.Error("something is left broken")
			}
			ops := history.Ops()
			for i, op := range ops {
				if want := []string{jepsen.FCut, jepsen.FHeal}[i%2]; op.F != want || op.Kind != jepsen.Info {
					t.Errorf("entry %d is %v, want %s", i, op, want)
				}
			}
			if len(ops)%2 != 0 || len(ops) < 2*3 || len(f.faults) != len(ops)/2 {
				t.Errorf("%d entries, %d faults in 20 s", len(ops), len(f.faults))
			}
			for _, fault := range f.faults {
				if fault.Open || fault.To < fault.From {
					t.Errorf("fault %+v", fault)
				}
			}
		})
		return out.String()
	}
	first := play(1)
	if again := play(1); again != first {
		t.Errorf("the same seed:\n%s\nand then:\n%s", first, again)
	}
	if other := play(2); other == first {
		t.Errorf("another seed does the same:\n%s", first)
	}
}

// No nemesis breaks a part that another one has broken.
func TestClaim(t *testing.T) {
	f := &field{out: io.Discard, claimed: make(map[any]string)}
	all := []*jepsen.Member{{ID: 1}, {ID: 2}, {ID: 3}}
	rng := rand.New(rand.NewPCG(1, 1))
	first, release := f.claimMembers("kill", rng, all, 3)
	if len(first) != 3 {
		t.Fatalf("got %v", first)
	}
	if second, _ := f.claimMembers("pause", rng, all, 2); len(second) != 0 {
		t.Errorf("got %v, which another has", second)
	}
	release()
	third, _ := f.claimMembers("pause", rng, all, 2)
	if len(third) != 2 || !slices.IsSortedFunc(third, func(a, b *jepsen.Member) int { return a.ID - b.ID }) {
		t.Errorf("got %v", third)
	}
}
