package raftnet

import (
	"errors"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/rafttest"

	"github.com/hashicorp/raft"
)

// farEnd is the follower at the other end of a pipeline.
type farEnd struct {
	t   *testing.T
	c   net.Conn
	got chan farFrame // in order
}

type farFrame struct {
	kind rpcKind
	req  *raft.AppendEntriesRequest
}

// pipelineTo opens a pipeline to member 2, in a bubble.
func pipelineTo(t *testing.T, tr *Transport) (*pipeline, *farEnd) {
	near, c := net.Pipe()
	f := &farEnd{t: t, c: c, got: make(chan farFrame, 100)}
	go func() {
		defer close(f.got)
		for s := streamOf(c); ; {
			kind, body, err := s.readRPC(maxRequestBytes)
			if err != nil {
				return
			}
			req, err := decodeRequest(kind, body)
			if err != nil {
				t.Error(err)
				return
			}
			f.got <- farFrame{kind, req.(*raft.AppendEntriesRequest)}
		}
	}()
	return newPipeline(tr, rafttest.ServerID(2), "", streamOf(near)), f
}

// answer is what a follower answers to a request of term 5.
type answer struct {
	term    uint64
	success bool
}

var ok = answer{term: 5, success: true}

// expect takes the next frame.
func (f *farEnd) expect(kind rpcKind) *raft.AppendEntriesRequest {
	f.t.Helper()
	got := <-f.got
	if got.kind != kind {
		f.t.Errorf("got a frame of kind %d, want %d", got.kind, kind)
	}
	return got.req
}

// answer answers the next request. It waits until the answer is read.
func (f *farEnd) answer(a answer) {
	f.t.Helper()
	q := f.expect(rpcAppend)
	f.send(rpcAppend, &raft.AppendEntriesResponse{Term: a.term, Success: a.success, LastLog: q.PrevLogEntry + uint64(len(q.Entries))}, nil)
}

func (f *farEnd) send(kind rpcKind, resp any, err error) {
	_, _ = f.c.Write(appendAnswer(nil, kind, raft.RPCResponse{Response: resp, Error: err}))
}

// carrying is a request of term 5 with one entry; 0: without one.
func carrying(index uint64) *raft.AppendEntriesRequest {
	q := &raft.AppendEntriesRequest{Term: 5}
	if index > 0 {
		q.PrevLogEntry, q.PrevLogTerm, q.Entries = index-1, 5, rafttest.Entries(index, index)
	}
	return q
}

func mustAppend(t *testing.T, p *pipeline, q *raft.AppendEntriesRequest) raft.AppendFuture {
	t.Helper()
	f, err := p.AppendEntries(q, new(raft.AppendEntriesResponse))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// The library reads answers up to the first that is a refusal. Then nobody may have to wait to get
// rid of an answer, or for room to send.
func TestPipelineIsDrainedBehindARefusal(t *testing.T) {
	for name, last := range map[string]func(f *farEnd){
		"refused":    func(f *farEnd) { f.answer(answer{term: 5}) },
		"later term": func(f *farEnd) { f.answer(answer{term: 6, success: true}) },
		"no answer":  func(f *farEnd) { f.expect(rpcAppend); f.send(rpcAppend, nil, errors.New("no")) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := newTransport(rafttest.ServerID(1), &fakeLocal{})
				p, far := pipelineTo(t, tr)
				for _, answer := range []func(*farEnd){func(f *farEnd) { f.answer(ok) }, last} {
					want := mustAppend(t, p, carrying(0))
					answer(far)
					if got := <-p.Consumer(); got != want {
						t.Errorf("passed on: %+v, want %+v", got, want)
					}
				}
				sent := rafttest.Begin(func() (err error) {
					for range 3 * inFlightMax {
						_, err = p.AppendEntries(carrying(0), new(raft.AppendEntriesResponse))
					}
					return err
				})
				for range 3 * inFlightMax { // a bubble in which this cannot go on ends the test
					far.answer(ok)
				}
				if err, over := sent(); !over || err != nil {
					t.Errorf("the sender is done: %v, %v", over, err)
				}
				if n := len(p.Consumer()); n != 0 {
					t.Errorf("%d answers behind the last one", n)
				}
				if err := p.Close(); err != nil {
					t.Error(err)
				}
				tr.Close()
			})
		})
	}
}

// Answers belong to requests by their order alone. As many as may be are on their way, and the
// sender waits for room.
func TestPipelineKeepsTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTransport(rafttest.ServerID(1), &fakeLocal{})
		p, far := pipelineTo(t, tr)
		const n = 5 * inFlightMax
		sent := 0
		done := rafttest.Begin(func() error {
			for i := range uint64(n) {
				if _, err := p.AppendEntries(carrying(i+1), new(raft.AppendEntriesResponse)); err != nil {
					return err
				}
				sent++
			}
			return nil
		})
		if _, over := done(); over || sent != inFlightMax {
			t.Errorf("%d requests are on their way, want %d", sent, inFlightMax)
		}
		go func() {
			for range n {
				far.answer(ok)
			}
		}()
		for i := range uint64(n) {
			f := <-p.Consumer()
			if err := f.Error(); err != nil || f.Request().Entries[0].Index != i+1 || f.Response().LastLog != i+1 {
				t.Fatalf("answer %d: %+v to %+v, %v", i+1, f.Response(), f.Request(), err)
			}
		}
		if err, over := done(); !over || err != nil {
			t.Errorf("the sender is done: %v, %v", over, err)
		}
		if acked, _ := tr.Progress(rafttest.ServerID(2)); acked != n {
			t.Errorf("the follower has %d, want %d", acked, n)
		}
		p.Close()
		tr.Close()
	})
}

// A large request goes alone.
func TestPipelineBoundsWhatIsOnItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTransport(rafttest.ServerID(1), &fakeLocal{})
		p, far := pipelineTo(t, tr)
		large := carrying(1)
		large.Entries[0].Data = make([]byte, inFlightMaxBytes+1)
		mustAppend(t, p, large)
		next := rafttest.Begin(func() error {
			_, err := p.AppendEntries(carrying(2), new(raft.AppendEntriesResponse))
			return err
		})
		if _, over := next(); over {
			t.Error("another request is sent beside a large one")
		}
		far.answer(ok)
		if err, over := next(); !over || err != nil {
			t.Errorf("sent when the large one is answered: %v, %v", over, err)
		}
		p.Close()
		tr.Close()
	})
}

// A follower that says nothing for rpcTimeout, or goes away, ends the pipeline: what is on its way
// gets no answer, and no more is taken. One without a request may be silent for ever.
func TestPipelineEndsWithItsStream(t *testing.T) {
	for name, end := range map[string]struct {
		f     func(f *farEnd)
		after time.Duration
	}{
		"silent":            {func(*farEnd) {}, rpcTimeout},
		"closed":            {func(f *farEnd) { f.c.Close() }, 0},
		"garbage":           {func(f *farEnd) { f.c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) }, 0},
		"another's answer":  {func(f *farEnd) { f.send(rpcVote, &raft.RequestVoteResponse{}, nil) }, 0},
		"half of an answer": {func(f *farEnd) { f.c.Write([]byte{0, 0, 0, 20, 0x81}) }, rpcTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := newTransport(rafttest.ServerID(1), &fakeLocal{})
				p, far := pipelineTo(t, tr)
				time.Sleep(time.Hour)
				mustAppend(t, p, carrying(1))
				far.answer(ok)
				if f := <-p.Consumer(); f.Error() != nil {
					t.Fatal(f.Error())
				}
				time.Sleep(time.Hour)
				start := time.Now()
				first := mustAppend(t, p, carrying(2))
				mustAppend(t, p, carrying(3))
				end.f(far)
				f := <-p.Consumer()
				if f != first || f.Error() == nil || f.Response().Success || f.Response().Term != 0 {
					t.Errorf("passed on: %+v, %v", f.Response(), f.Error())
				}
				if took := time.Since(start); took != end.after {
					t.Errorf("it took %v, want %v", took, end.after)
				}
				if _, err := p.AppendEntries(carrying(4), new(raft.AppendEntriesResponse)); err == nil {
					t.Error("a request is sent over a stream that has failed")
				}
				if err := p.notice(carrying(0)); err == nil {
					t.Error("a notice is sent over a stream that has failed")
				}
				p.Close()
				far.c.Close()
				tr.Close()
			})
		})
	}
}

// A stream with an answer to no request is of no use any more.
func TestPipelineEndsWithAnAnswerToNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTransport(rafttest.ServerID(1), &fakeLocal{})
		p, far := pipelineTo(t, tr)
		far.send(rpcAppend, &raft.AppendEntriesResponse{Term: 5, Success: true}, nil)
		synctest.Wait()
		if _, err := p.AppendEntries(carrying(1), new(raft.AppendEntriesResponse)); !errors.Is(err, errRaftFrame) {
			t.Errorf("sent: %v", err)
		}
		p.Close()
		tr.Close()
	})
}

// What a follower answers when this member leads in a later term, or somebody else does, proves
// nothing in that term, and says nothing of what the follower has.
func TestAnswersOfAnEarlierTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTransport(rafttest.ServerID(1), &fakeLocal{servers: rafttest.Servers("12")})
		p, far := pipelineTo(t, tr)
		mustAppend(t, p, carrying(9))
		mustAppend(t, p, carrying(10))
		far.answer(ok)
		<-p.Consumer()
		tr.answered(rafttest.ServerID(3), "", time.Now(), &raft.AppendEntriesRequest{Term: 6}, &raft.AppendEntriesResponse{Term: 6, Success: true})
		far.answer(ok)
		if f := <-p.Consumer(); f.Error() != nil {
			t.Error(f.Error())
		}
		if at := tr.ProvenAt(6, time.Now()); !at.IsZero() {
			t.Errorf("term 6 is proven by an answer of term 5, at %v", at)
		}
		if acked, _ := tr.Progress(rafttest.ServerID(2)); acked != 0 {
			t.Errorf("in term 6 the follower has %d", acked)
		}
		p.Close()
		tr.Close()
	})
}

// answering is a follower that answers requests without entries, and notes their commit indexes.
type answering struct {
	far     net.Conn // closed at the end of the test
	commits []uint64
}

// newAnswering makes one that the transport reaches, in a bubble.
func newAnswering(tr *Transport) *answering {
	near, far := net.Pipe()
	a := &answering{far: far}
	tr.net = newNetwork(&fakePort{done: make(chan struct{}), dial: func() net.Conn { return near }}, tr.local, nil, nil)
	go func() {
		for s := streamOf(far); ; {
			kind, body, err := s.readRPC(maxRequestBytes)
			if err != nil {
				return
			}
			req, _ := decodeRequest(kind, body)
			q := req.(*raft.AppendEntriesRequest)
			a.commits = append(a.commits, q.LeaderCommitIndex)
			resp := &raft.AppendEntriesResponse{Term: q.Term, Success: true, LastLog: q.PrevLogEntry}
			_, _ = far.Write(appendAnswer(nil, kind, raft.RPCResponse{Response: resp}))
		}
	}()
	return a
}

// A follower is told of each commit once, over the pipeline if there is one, and then need not
// answer. What it has not confirmed it does not count as knowing; a leader that needs to be sure
// has it asked.
func TestNoticesOfCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTransport(rafttest.ServerID(1), &fakeLocal{})
		inner := newAnswering(tr)
		defer inner.far.Close()
		p, far := pipelineTo(t, tr)
		replicate := func(q *raft.AppendEntriesRequest) {
			t.Helper()
			mustAppend(t, p, q)
			far.answer(ok)
			<-p.Consumer()
		}
		quiet := func(what string) {
			t.Helper()
			if synctest.Wait(); len(far.got) > 0 {
				t.Errorf("%s: a frame of kind %d", what, (<-far.got).kind)
			}
		}
		replicate(carrying(1))
		quiet("before the commit")
		tr.Commit(1, 5)
		if q := far.expect(rpcNotice); q.LeaderCommitIndex != 1 || q.PrevLogEntry != 1 || q.PrevLogTerm != 5 || q.Term != 5 || len(q.Entries) > 0 {
			t.Errorf("noticed: %+v", q)
		}
		tr.Commit(1, 5)
		quiet("the second time")
		replicate(carrying(2))
		tr.Commit(2, 5)
		far.expect(rpcNotice)
		replicate(carrying(3))
		with := carrying(4)
		with.LeaderCommitIndex = 3
		replicate(with)
		tr.Commit(3, 5)
		quiet("with the next entry")

		tr.Commit(4, 5)
		far.expect(rpcNotice)
		quiet("after the notice")
		if tr.KnowsAll(rafttest.ServerID(2)) {
			t.Error("it knows what it has not confirmed")
		}
		if synctest.Wait(); !slices.Equal(inner.commits, []uint64{4}) {
			t.Errorf("requested %v, want 4", inner.commits)
		}
		if !tr.KnowsAll(rafttest.ServerID(2)) {
			t.Error("it does not know what it has confirmed")
		}

		replicate(carrying(5))
		p.Close()
		tr.Commit(5, 5)
		if synctest.Wait(); !slices.Equal(inner.commits, []uint64{4, 5}) {
			t.Errorf("requested %v, want 4 and, without a pipeline, 5", inner.commits)
		}
		tr.Close()
	})
}
