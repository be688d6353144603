package quorum

import (
	"bytes"
	"testing"
	"time"

	"lockkeeper/quorum/codec"
	"lockkeeper/quorum/peer"
	"lockkeeper/wire"
)

// FuzzLeaseAnswer decodes what a leader may send on a lease stream.
func FuzzLeaseAnswer(f *testing.F) {
	c := codec.Encode(nil)
	(&leaseAnswer{status: leaseConfirmed, lag: time.Second, acked: map[peer.DiskID]uint64{3: 30, 1: 10, 2: 20},
		extended: []wire.SessionID{1, -2}}).code(&c)
	f.Add(c.Encoded())
	f.Add([]byte{leaseNotLeader})
	f.Fuzz(func(t *testing.T, b []byte) {
		var answer leaseAnswer
		d := codec.Decode(b)
		if answer.code(&d); d.Err() != nil {
			return
		}
		c := codec.Encode(nil)
		if answer.code(&c); !bytes.Equal(c.Encoded(), b) {
			t.Errorf("%x decoded as %+v, and encoded again: %x", b, answer, c.Encoded())
		}
	})
}
