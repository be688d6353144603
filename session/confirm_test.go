package session

import (
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/wire"
)

// Who asks is told that sync is linearizable; every other path comes back as it was sent.
func TestSyncSaysThatItIsLinearizable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newMember(t, Config{})
		c := mustConnect(t, m, 10*time.Second)
		for path, want := range map[string]string{
			wire.SyncQuestion: wire.SyncLinearizable, wire.SyncQuestion + "/": wire.SyncQuestion + "/",
			"/": "/", "": "", "/zookeeper": "/zookeeper",
		} {
			c.send(wire.OpSync, wire.SyncRequest{Path: path})
			var reply wire.SyncResponse
			head, body, err := c.next()
			if err == nil {
				err = wire.Decode(body, &reply)
			}
			if err != nil || head.Err != wire.CodeOK || reply.Path != want {
				t.Errorf("sync of %q is answered with %q, %v, %v, not with %q", path, reply.Path, head.Err, err, want)
			}
		}
	})
}
