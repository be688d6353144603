package znode

import (
	"slices"
	"testing"

	"lockkeeper/wire"
)

// TestIdentitiesStay: a command without identities is judged by the identities of the newest one of
// its generation that did. They go with the generation, and a snapshot has them.
func TestIdentitiesStay(t *testing.T) {
	d := newDriver(t)
	d.apply(d.open(1))
	mine := Identity{"digest", "u:h"}
	onlyMine := wire.CreateRequest{Path: "/mine", ACL: []wire.ACL{{Perms: wire.PermAll, ID: wire.ID{Scheme: "digest", ID: "u:h"}}}}
	set := wire.SetDataRequest{Path: "/mine", Version: -1}
	d.must(1, wire.OpCreate, onlyMine)
	if r := d.do(1, wire.OpSetData, set); r.Code != wire.CodeNoAuth {
		t.Fatalf("before anything was shown: %v", r.Code)
	}
	shows := d.request(1, wire.OpSetData, set)
	shows.req().Identities = []Identity{mine}
	if r := d.apply(shows)[0]; r.Code != wire.CodeOK {
		t.Fatalf("shown with the request: %v", r.Code)
	}
	d.must(1, wire.OpSetData, set)
	if info, _ := d.s.Sessions().Get(1); !slices.Equal(info.Identities, []Identity{mine}) {
		t.Errorf("the state keeps %v", info.Identities)
	}
	d.s = restored(t, d.s)
	d.must(1, wire.OpSetData, set)

	// Sent again it does nothing, and neither does one that comes too early.
	again := shows
	again.Body = &Request{Op: wire.OpSetData, Body: set.Append(nil), Identities: []Identity{{"digest", "other:h"}}}
	early := d.request(1, wire.OpSetData, set)
	early.Seq, early.req().Identities = early.Seq+1, again.req().Identities
	d.conns[1].seq--
	if r := d.apply(again, early); r[0].Status != Duplicate || r[1].Status != Gap {
		t.Fatalf("%v, %v", r[0].Status, r[1].Status)
	}
	d.must(1, wire.OpSetData, set)

	c := d.conns[1]
	d.apply(Command{Session: 1, Generation: 1, Body: &Attach{Connection: Connection{Password: c.password, Addr: c.addr}}})
	c.generation, c.seq = 2, 0
	if r := d.do(1, wire.OpSetData, set); r.Code != wire.CodeNoAuth {
		t.Errorf("a new connection has what the one before had shown: %v", r.Code)
	}
}
