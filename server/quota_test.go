package server

import (
	"testing"
	"time"

	"lockkeeper/server/zoocfg"
	"lockkeeper/wire"
)

// A member keeps quotas for super users before and after it has restarted, with a state from the
// log and with one from a snapshot.
func TestKeptQuotasStayHidden(t *testing.T) {
	dir := t.TempDir()
	cfg := Config{
		Client: zoocfg.Client{Addr: "127.0.0.1:0"},
		Data:   zoocfg.Data{Dir: dir},
		Logger: testLogger(),
		Quotas: zoocfg.Quotas{Keep: true},
		Auth:   zoocfg.Auth{SuperDigest: "super:D/InIHSb7yEEbrWz8b9l71RjZJU="},
	}
	const quota = "/zookeeper/quota/a"
	for start := range 3 {
		s, err := Start(cfg)
		if err != nil {
			t.Fatal(err)
		}
		awaitServing(t, s)
		super := dialReal(t, s)
		super.connect(10 * time.Second)
		super.call(wire.OpAuth, wire.AuthPacket{Scheme: "digest", Auth: []byte("super:test")})
		if start == 0 {
			super.call(wire.OpCreate, create(quota, nil, wire.ModePersistent))
		}
		super.call(wire.OpGetData, wire.PathWatchRequest{Path: quota})
		c := dialReal(t, s)
		c.connect(10 * time.Second)
		for op, body := range map[wire.Op]wire.Record{
			wire.OpGetData: wire.PathWatchRequest{Path: quota},
			wire.OpDelete:  wire.DeleteRequest{Path: quota, Version: -1},
		} {
			c.put(c.request(op, body)...)
			if h, _ := c.reply(); h.Err != wire.CodeNoAuth {
				t.Errorf("start %d: %v: %v", start, op, h.Err)
			}
		}
		if start == 1 {
			if _, err := s.replica.TakeSnapshot(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
