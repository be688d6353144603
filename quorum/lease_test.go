package quorum

import (
	"bytes"
	"testing"
	"time"

	"lockkeeper/quorum/codec"
	"lockkeeper/wire"
)

// FuzzLeaseFrames decodes what a leader and a follower may send on a lease stream.
func FuzzLeaseFrames(f *testing.F) {
	c := codec.Encode(nil)
	(&leaseAnswer{status: leaseConfirmed, lag: time.Second, extended: []wire.SessionID{1, -2}}).code(&c)
	f.Add(c.Encoded())
	f.Add([]byte{leaseNotLeader})
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, frame := range []interface{ code(*codec.Codec) }{&leaseAnswer{}, &leaseReport{}} {
			d := codec.Decode(b)
			if frame.code(&d); d.Err() != nil {
				continue
			}
			c := codec.Encode(nil)
			if frame.code(&c); !bytes.Equal(c.Encoded(), b) {
				t.Errorf("%x decoded as %+v, and encoded again: %x", b, frame, c.Encoded())
			}
		}
	})
}
