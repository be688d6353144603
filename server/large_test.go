package server

import (
	"bytes"
	"testing"
	"time"

	"lockkeeper/server/zoocfg"
	"lockkeeper/wire"
)

// TestLargestRequest: a request of the largest size that jute.maxbuffer may allow goes through a
// cluster, from a follower, and costs it neither its leader nor its clients.
func TestLargestRequest(t *testing.T) {
	checkGoroutines(t)
	members, _ := startCluster(t, "jute.maxbuffer=4194304\n")
	from := -1
	for i, s := range members {
		awaitServing(t, s)
		if s.Status().Role == "follower" {
			from = i
		}
	}
	c := dialReal(t, members[from])
	_ = c.SetDeadline(time.Now().Add(3 * patience)) // three logs, perhaps slow ones
	c.connect(40 * time.Second)
	data := bytes.Repeat([]byte("0123456789abcdef"), (zoocfg.MaxMaxBuffer-1000)/16)
	c.call(wire.OpCreate, create("/large", data, wire.ModePersistent))
	for _, s := range members {
		d := dialReal(t, s)
		_ = d.SetDeadline(time.Now().Add(3 * patience))
		d.connect(40 * time.Second)
		d.call(wire.OpSync, &wire.SyncRequest{Path: "/"})
		var got wire.GetDataResponse
		if err := wire.Decode(d.call(wire.OpGetData, &wire.PathWatchRequest{Path: "/large"}), &got); err != nil || !bytes.Equal(got.Data, data) {
			t.Errorf("%d bytes came back, %v", len(got.Data), err)
		}
	}
	c.call(wire.OpPing, wire.Empty{})
}
