package bench

import (
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"lockkeeper/internal/zkconn"
	"lockkeeper/wire"
)

// answerer is a server that answers each request with a code; false ends the connection instead.
func answerer(t *testing.T, answer func(request int) (wire.Code, bool)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	var requests atomic.Int64
	serve := func(c net.Conn) {
		defer c.Close()
		if _, err := wire.ReadFrame(c, nil, zkconn.MaxFrameBytes); err != nil {
			return
		}
		_, _ = c.Write(wire.AppendFrame(nil, wire.ConnectResponse{TimeoutMs: 4000,
			Password: make([]byte, wire.PasswordLen), HasReadOnly: true}))
		for {
			frame, err := wire.ReadFrame(c, nil, zkconn.MaxFrameBytes)
			if err != nil {
				return
			}
			r, err := wire.DecodeRequest(frame)
			if err != nil {
				return
			}
			code, ok := answer(int(requests.Add(1)))
			if !ok {
				return
			}
			_, _ = c.Write(wire.AppendReply(nil, wire.ReplyHeader{Xid: r.Xid, Err: code}, nil))
		}
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	return l.Addr().String()
}

func setRoot(int) (wire.Op, wire.Record) {
	return wire.OpSetData, &wire.SetDataRequest{Path: "/", Version: -1}
}

// takeUntil takes from a stream until all that was taken is enough.
func takeUntil(t *testing.T, s *Stream, enough func(h *Histogram, lost int) bool) (all Histogram, lost int) {
	t.Helper()
	for !enough(&all, lost) {
		h, n, err := s.Take()
		if err != nil {
			t.Fatal(err)
		}
		all.Merge(&h)
		lost += n
	}
	return all, lost
}

// A pause of the server shows in all requests that were due in it.
func TestStreamCountsFromTheIntendedTime(t *testing.T) {
	const hold, every = 100 * time.Millisecond, 5 * time.Millisecond
	addr := answerer(t, func(request int) (wire.Code, bool) {
		if request == 3 {
			time.Sleep(hold)
		}
		return wire.CodeOK, true
	})
	s, err := StartStream(t.Context(), StreamConfig{Server: addr, Every: every, Request: setRoot})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	all, lost := takeUntil(t, s, func(h *Histogram, _ int) bool { return h.Count() >= 30 })
	if all.Max() < hold || lost != 0 {
		t.Errorf("the longest took %v, %d connections lost", all.Max(), lost)
	}
	// Of the 30, those due in the first half of the pause waited for half of it at least: 10.
	if late := all.Quantile(1 - 8.0/float64(all.Count())); late < hold/2 {
		t.Errorf("the eighth longest of %d took %v", all.Count(), late)
	}
}

// A request that is lost with its connection is sent again, and counts once.
func TestStreamSendsAgain(t *testing.T) {
	addr := answerer(t, func(request int) (wire.Code, bool) { return wire.CodeOK, request != 3 && request != 4 })
	s, err := StartStream(t.Context(), StreamConfig{Server: addr, Request: setRoot})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, lost := takeUntil(t, s, func(h *Histogram, _ int) bool { return h.Count() >= 10 }); lost != 2 {
		t.Errorf("%d connections lost", lost)
	}
}

// A refusal ends a stream, which says so.
func TestStreamEndsWithARefusal(t *testing.T) {
	addr := answerer(t, func(int) (wire.Code, bool) { return wire.CodeNoNode, true })
	s, err := StartStream(t.Context(), StreamConfig{Server: addr, Request: setRoot})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for err == nil {
		_, _, err = s.Take()
	}
	if !errors.Is(err, wire.CodeNoNode) {
		t.Error(err)
	}
}
