package differ

import (
	"testing"

	"lockkeeper/wire"
)

// TestSequences plays sequences with which random requests once found a difference, or that they
// make too rarely.
func TestSequences(t *testing.T) {
	ar := newArena(t)
	d, err := ar.open(t.Context(), mood{ttl: true, enforce: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.close(); err != nil {
			t.Error(err)
		}
	}()
	for id, steps := range sequences() {
		for i := range steps {
			steps[i].ID = id*100 + i
		}
		diff, err := d.play(t.Context(), steps)
		if err != nil {
			t.Fatal(err)
		}
		if diff != nil {
			t.Fatalf("%v, which ends in\n%v", steps, diff)
		}
	}
	if err := d.complaints(); err != nil {
		t.Error(err)
	}
}

func sequences() [][]*Step {
	do := func(slot int, requests ...Request) *Step { return &Step{Slot: slot, Requests: requests} }
	open := func(path string, mode wire.CreateMode) Request {
		return newRequest(wire.OpCreate2, wire.CreateRequest{Path: path, Data: []byte{}, ACL: wire.OpenACL, Mode: mode})
	}
	auth := func(who string) Request {
		return newRequest(wire.OpAuth, wire.AuthPacket{Scheme: "digest", Auth: []byte(who)})
	}
	set := func(path, data string) Request {
		return newRequest(wire.OpSetData, wire.SetDataRequest{Path: path, Data: []byte(data), Version: -1})
	}
	remove := func(path string) Request {
		return newRequest(wire.OpDelete, wire.DeleteRequest{Path: path, Version: -1})
	}
	list := func(path string) Request {
		return newRequest(wire.OpGetChildren2, wire.PathWatchRequest{Path: path, Watch: true})
	}
	attach := func(slot int, requests ...Request) *Step {
		return &Step{Kind: Attach, Slot: slot, Requests: requests,
			Handshake: Handshake{TimeoutMs: sessionTimeoutMs, Zxid: SeenLast}}
	}
	afresh := func(slot int) *Step {
		return &Step{Kind: Connect, Slot: slot, Handshake: Handshake{TimeoutMs: sessionTimeoutMs, HasReadOnly: true}}
	}
	watches := newRequest(wire.OpSetWatches, wire.SetWatchesRequest{
		Data: []string{"/s"}, Exist: []string{"/s", "/none"}, Child: []string{"/s", "/none"}})
	return [][]*Step{
		{ // a super user's data in the configuration outlive a restart
			do(0, auth(superUser)), do(0, set("/zookeeper/config", "mine")),
			{Kind: Restart}, observe(0), attach(0), attach(1), attach(2),
		},
		{ // behind closeSession nothing takes effect, a ping is refused too
			do(1, open("/e", wire.ModeEphemeral), newRequest(wire.OpCloseSession, nil),
				newRequest(wire.OpPing, nil)),
			afresh(1),
			do(1, newRequest(wire.OpCloseSession, nil), open("/late", wire.ModePersistent)),
			afresh(1),
			do(1, newRequest(wire.OpCloseSession, nil),
				newRequest(wire.OpReconfig, wire.ReconfigRequest{CurConfigID: -1})),
			afresh(1),
		},
		{ // cversion and the numbers of sequential nodes, over deletes and a failed multi
			do(1, open("/s", wire.ModePersistent)),
			do(1, open("/s/a", wire.ModePersistent), open("/s/b", wire.ModeEphemeral), remove("/s/a"),
				list("/s")),
			do(2, open("/s/n-", wire.ModeEphemeralSequential)),
			do(1, newRequest(wire.OpMulti, wire.MultiRequest{Ops: []wire.MultiOp{
				{Op: wire.OpCreate, Record: wire.CreateRequest{Path: "/s/n-", ACL: wire.OpenACL,
					Mode: wire.ModePersistentSequential}},
				{Op: wire.OpDelete, Record: wire.DeleteRequest{Path: "/none", Version: -1}},
			}})),
			do(1, open("/s/n-", wire.ModePersistentSequential), list("/s")),
		},
		{ // watches set again, by one who was away
			attach(0, watches), {Kind: Drop, Slot: 0}, do(1, set("/s", "new"), open("/s/c", wire.ModePersistent)),
			attach(0, watches),
			do(1, open("/none", wire.ModePersistent), remove("/none")),
		},
		{ // the root has a second name, under which it can be watched too
			do(0, newRequest(wire.OpGetData, wire.PathWatchRequest{Path: "", Watch: true})),
			do(0, newRequest(wire.OpCheckWatches, wire.WatchesRequest{Path: "", Type: wire.WatchTypeData})),
			do(0, newRequest(wire.OpRemoveWatches, wire.WatchesRequest{Path: "", Type: wire.WatchTypeData})),
			do(0, newRequest(wire.OpRemoveWatches, wire.WatchesRequest{Path: "", Type: wire.WatchTypeData})),
		},
		{ // an identity that is no UTF-8, used in an ACL
			do(0, auth("u\xff:p")), do(0, newRequest(wire.OpWhoAmI, nil)),
			do(0, newRequest(wire.OpCreate, wire.CreateRequest{Path: "/acl",
				ACL: []wire.ACL{entry(wire.PermAll, "auth", "")}})),
			do(0, newRequest(wire.OpGetACL, wire.PathRequest{Path: "/acl"})),
			do(1, newRequest(wire.OpExists, wire.PathWatchRequest{Path: "/acl"}),
				newRequest(wire.OpGetACL, wire.PathRequest{Path: "/acl"})),
		},
	}
}
