package znode

import (
	"math/rand/v2"
	"slices"
	"testing"

	"lockkeeper/wire"
)

// The guards of an event are those nodes above its path that not everybody may read, as of before
// the multi that deletes them.
func TestGuards(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		s := New()
		me := Identity{Scheme: "digest", ID: "me:h"}
		var term uint64 = 1
		apply := func(op wire.Op, record wire.Record) (events []Event) {
			s.tx.begin(term, 0, &Command{})
			term++
			s.tx.ids = append(s.tx.ids, me)
			var r Result
			var code wire.Code
			if m, ok := record.(*wire.MultiRequest); ok {
				code = s.tx.multiRequest(m.Ops, &r)
			} else {
				code = s.tx.op(op, record, &r.Path, &r.Stat)
			}
			if code != wire.CodeOK {
				t.Fatal(code)
			}
			s.state.zxid = s.tx.effects.zxid
			return slices.Clone(s.tx.effects.events)
		}
		path, hidden := "", map[string]bool{}
		var paths []string
		for range 1 + random.IntN(maxGuards-1) {
			path += "/" + string(rune('a'+random.IntN(3)))
			acl := wire.OpenACL
			if hidden[path] = random.IntN(2) == 0; hidden[path] {
				perms := wire.PermAll &^ wire.Perm(random.IntN(2))
				acl = []wire.ACL{{Perms: perms, ID: wire.ID{Scheme: "digest", ID: "me:h"}},
					{Perms: wire.PermWrite, ID: wire.ID{Scheme: "digest", ID: path + ":h"}}}
			}
			apply(wire.OpCreate, &wire.CreateRequest{Path: path, ACL: acl})
			paths = append(paths, path)
		}
		multi := &wire.MultiRequest{}
		for _, p := range slices.Backward(paths) {
			multi.Ops = append(multi.Ops, wire.MultiOp{Op: wire.OpDelete, Record: &wire.DeleteRequest{Path: p, Version: -1}})
		}
		check := func(events []Event) {
			for _, e := range events {
				var want []int
				for p := e.Path; e.Type != wire.EventNodeChildrenChanged && p != rootPath; {
					if p = parentOf(p); hidden[p] {
						want = append(want, len(p))
					}
				}
				var got []int
				for _, g := range e.above {
					got = append(got, g.length)
				}
				if !slices.Equal(got, want) || e.buried {
					t.Fatalf("%v %s: guards %v, want %v of %v", e.Type, e.Path, got, want, hidden)
				}
			}
		}
		check(apply(wire.OpSetData, &wire.SetDataRequest{Path: paths[0], Version: -1}))
		check(apply(wire.OpMulti, multi))
		if s.state.tree.acls.closed != 0 {
			t.Fatalf("%d closed ACLs are left", s.state.tree.acls.closed)
		}
	}
}

// A client that may read some of the guards learns of what is below these; one that nests more ACLs
// than are looked at is told of nothing below them.
func TestNamedTo(t *testing.T) {
	list := func(user string) *aclList {
		return newACLList([]wire.ACL{{Perms: wire.PermRead, ID: wire.ID{Scheme: "digest", ID: user}}})
	}
	e := Event{Path: "/a/b/c", above: []guard{{len("/a/b"), list("b:h")}, {len("/"), list("r:h")}}}
	for _, tt := range []struct {
		user string
		base string
		want bool
	}{
		{"b:h", "/a", true}, {"b:h", "/a/b", true}, {"b:h", "/", false}, {"r:h", "/", false}, {"x:h", "/a", false},
	} {
		if got := e.NamedTo([]Identity{{Scheme: "digest", ID: tt.user}}, len(tt.base)); got != tt.want {
			t.Errorf("%s from %s: %v", tt.user, tt.base, got)
		}
	}
	super := []Identity{{Scheme: schemeSuper}}
	e.buried = true
	if !e.NamedTo(super, 1) || e.NamedTo([]Identity{{Scheme: "digest", ID: "b:h"}}, len("/a/b")) {
		t.Error("more guards than are looked at")
	}
}
