package server

import (
	"fmt"
	"testing"
	"time"

	"lockkeeper/server/ops"
	"lockkeeper/wire"
)

// TestTLSIsTurnedOnMemberByMember: the steps of docs/security.md, from no TLS between members to
// nothing else, and back. A client of another member writes while one is replaced.
func TestTLSIsTurnedOnMemberByMember(t *testing.T) {
	t.Parallel()
	l := newCertLab(t)
	members, _ := startCluster(t, "")
	for _, s := range members {
		awaitServing(t, s)
	}
	type step struct{ on, also bool }
	for at, next := range []step{{false, true}, {true, true}, {true, false}, {true, true}, {false, true}, {false, false}} {
		for i := range members {
			c := dialReal(t, members[(i+1)%3])
			c.connect(20 * time.Second)
			write := func(when string) {
				c.call(wire.OpCreate, create(fmt.Sprintf("/%d-%d-%s", at, i, when), nil, wire.ModePersistent))
			}
			write("before")
			cfg := members[i].cfg
			if err := members[i].Close(); err != nil {
				t.Fatal(err)
			}
			write("without")
			var settings Config
			l.secure(&settings)
			cfg.TLS.Peers, cfg.Cluster.TLS, cfg.Cluster.TLSAlso = settings.TLS.Clients, next.on, next.also
			s, err := Start(cfg)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() }) // or it is replaced
			members[i] = s
			write("while it starts")
			awaitServing(t, s)
			other := dialReal(t, s)
			other.connect(20 * time.Second)
			other.call(wire.OpSync, &wire.SyncRequest{Path: "/"})
			other.call(wire.OpGetData, &wire.PathWatchRequest{Path: fmt.Sprintf("/%d-%d-while it starts", at, i)})
			_ = other.Close()
			_ = c.Close()
		}
		want := "loopback" // nothing is demanded
		if next == (step{on: true}) {
			want = "tls"
		}
		for _, m := range members[0].Ops().Cluster().Listed() {
			if m.PeerAuth != want || m.State == ops.NoAnswer {
				t.Errorf("%+v: %+v", next, m)
			}
		}
	}
}
