package zkconn

import (
	"errors"
	"net"
	"testing"

	"lockkeeper/wire"
)

// Pings and auth packets have xids of their own, and do not count.
func TestXids(t *testing.T) {
	c := New(nil)
	for i, test := range []struct {
		op   wire.Op
		want wire.Xid
	}{
		{wire.OpExists, 1}, {wire.OpPing, wire.XidPing}, {wire.OpAuth, wire.XidAuth}, {wire.OpExists, 2},
	} {
		b, xid := c.Append(nil, test.op, nil)
		if xid != test.want {
			t.Errorf("request %d, %v: xid %d, want %d", i, test.op, xid, test.want)
		}
		if r, err := wire.DecodeRequest(b[4:]); err != nil || r.Xid != xid {
			t.Errorf("request %d, %v: %+v, %v in the frame", i, test.op, r, err)
		}
	}
}

// A server that gives no session answers with a timeout of 0.
func TestRefused(t *testing.T) {
	for _, timeoutMs := range []int32{0, 4000} {
		ours, theirs := net.Pipe()
		go func() {
			_, _ = wire.ReadFrame(theirs, nil, MaxFrameBytes)
			_, _ = theirs.Write(wire.AppendFrame(nil, wire.ConnectResponse{TimeoutMs: timeoutMs}))
		}()
		answer, err := New(ours).Handshake(wire.ConnectRequest{TimeoutMs: 4000})
		if refused := errors.Is(err, ErrRefused); answer.TimeoutMs != timeoutMs || refused != (timeoutMs == 0) {
			t.Errorf("%d ms: %+v, %v", timeoutMs, answer, err)
		}
		_, _ = ours.Close(), theirs.Close()
	}
}
