package raftnet

import (
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// pipeline is a raft stream on which a leader sends entries to one follower without waiting for the
// answers to those before. The library sends from one goroutine; readLoop reads the answers and
// looks at them before the library does.
//
// Notices of commits go over it too, between the requests; nobody answers them.
type pipeline struct {
	t    *Transport
	id   raft.ServerID
	addr raft.ServerAddress
	c    *conn
	out  chan raft.AppendFuture
	stop chan struct{} // closed by Close
	dead chan struct{} // closed when the stream has failed
	once sync.Once
	wg   sync.WaitGroup
	// writing is full while a frame is written. It is no mutex, because waiting for it ends with
	// dead, too.
	writing chan struct{}

	mu            sync.Mutex
	space         *sync.Cond // another request may fit, or err is set
	inFlight      []*appendFuture
	inFlightBytes int
	err           error // why the stream has failed
}

var _ raft.AppendPipeline = (*pipeline)(nil)

const (
	// inFlightMax and inFlightMaxBytes bound the requests of one pipeline in flight, and the bytes
	// of their entries. A single request may have more. New entries stay far below; a follower that
	// is behind gets there.
	inFlightMax      = 16
	inFlightMaxBytes = 8 << 20
)

var errUnrequested = fmt.Errorf("%w: an answer without a request", errRaftFrame)

// appendFuture is a request in flight. It implements raft.AppendFuture.
type appendFuture struct {
	start  time.Time
	sentAt time.Time // the same by Config.Clock
	args   *raft.AppendEntriesRequest
	resp   *raft.AppendEntriesResponse
	size   int
	err    error
	done   chan struct{} // closed when resp, or err, is there
}

// Error implements raft.Future. It waits for the answer.
func (f *appendFuture) Error() error {
	<-f.done
	return f.err
}

// Start implements raft.AppendFuture.
func (f *appendFuture) Start() time.Time { return f.start }

// Request implements raft.AppendFuture.
func (f *appendFuture) Request() *raft.AppendEntriesRequest { return f.args }

// Response implements raft.AppendFuture. After an error it is the zero answer.
func (f *appendFuture) Response() *raft.AppendEntriesResponse { return f.resp }

// newPipeline begins a pipeline on a stream, which it closes at its end.
func newPipeline(t *Transport, id raft.ServerID, addr raft.ServerAddress, c *conn) *pipeline {
	p := &pipeline{t: t, id: id, addr: addr, c: c, out: make(chan raft.AppendFuture, inFlightMax),
		stop: make(chan struct{}),
		dead: make(chan struct{}), writing: make(chan struct{}, 1)}
	p.space = sync.NewCond(&p.mu)
	t.opened(p)
	p.wg.Go(p.readLoop)
	return p
}

// Consumer implements raft.AppendPipeline.
func (p *pipeline) Consumer() <-chan raft.AppendFuture { return p.out }

// Close implements raft.AppendPipeline.
func (p *pipeline) Close() error {
	p.once.Do(func() { close(p.stop) })
	p.fail(raft.ErrPipelineShutdown)
	p.wg.Wait()
	return nil
}

// AppendEntries implements raft.AppendPipeline. It waits while too much is in flight. Errors: why
// the stream has failed.
func (p *pipeline) AppendEntries(args *raft.AppendEntriesRequest,
	resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	f := &appendFuture{start: time.Now(), sentAt: p.t.clock.Now(), args: args, resp: resp, done: make(chan struct{})}
	for _, e := range args.Entries {
		f.size += len(e.Data)
	}
	if err := p.enqueue(f); err != nil {
		return nil, err
	}
	if err := p.write(rpcAppend, args); err != nil {
		return nil, err
	}
	p.t.carried(p, args)
	return f, nil
}

// enqueue records a request that is about to be sent, when it fits.
func (p *pipeline) enqueue(f *appendFuture) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.err == nil && len(p.inFlight) > 0 &&
		(len(p.inFlight) >= inFlightMax || p.inFlightBytes+f.size > inFlightMaxBytes) {
		p.space.Wait()
	}
	if p.err != nil {
		return p.err
	}
	p.inFlight = append(p.inFlight, f)
	p.inFlightBytes += f.size
	if len(p.inFlight) == 1 {
		p.limitLocked()
	}
	return nil
}

// limitLocked has the read that is under way, or the next one, end when the oldest request has
// waited for too long.
func (p *pipeline) limitLocked() {
	var at time.Time
	if len(p.inFlight) > 0 {
		at = time.Now().Add(rpcTimeout)
	}
	_ = p.c.SetReadDeadline(at)
}

// notice sends the follower a commit index, without an answer.
func (p *pipeline) notice(args *raft.AppendEntriesRequest) error { return p.write(rpcNotice, args) }

// write sends one frame.
func (p *pipeline) write(kind rpcKind, args *raft.AppendEntriesRequest) error {
	select {
	case p.writing <- struct{}{}:
	case <-p.dead:
		return p.failure()
	}
	_ = p.c.SetWriteDeadline(time.Now().Add(rpcTimeout))
	err := p.c.send(kind, args)
	<-p.writing
	if err != nil {
		p.fail(err)
	}
	return err
}

// fail ends the stream.
func (p *pipeline) fail(err error) {
	p.mu.Lock()
	first := p.err == nil
	if first {
		p.err = err
		close(p.dead)
		p.space.Broadcast()
	}
	p.mu.Unlock()
	if first {
		p.t.ended(p)
		_ = p.c.Close()
	}
}

func (p *pipeline) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// readLoop passes answers on. After one that ends the pipeline the library takes no more
// (UPSTREAM.md, 3), and may at the same time wait in AppendEntries: it would do so for ever,
// replicate no longer to that follower, and never shut down. So the others are dropped here. So are
// those that it must not see (Transport.hold), and all after them: this member then ends, or no
// longer leads.
func (p *pipeline) readLoop() {
	over := false
	for {
		f, err := p.next()
		if f == nil {
			return
		}
		if err == nil {
			p.t.answered(p.id, p.addr, f.sentAt, f.args, f.resp)
			over = over || p.t.hold(f.args, f.resp, p.stop) != nil
		}
		if over {
			continue
		}
		over = endsPipeline(f)
		select {
		case p.out <- f:
		case <-p.stop:
			over = true
		}
	}
}

// next waits for the answer to the oldest request in flight. If the stream has failed, that is the
// error of all requests in flight. nil: there are none.
func (p *pipeline) next() (*appendFuture, error) {
	p.mu.Lock()
	err := p.err
	if err == nil {
		p.limitLocked()
	}
	p.mu.Unlock()
	var kind rpcKind
	var body []byte
	if err == nil {
		if kind, body, err = p.c.readRPC(maxAnswerBytes); err != nil {
			p.fail(err)
		}
	}
	f := p.acknowledge()
	if f == nil {
		p.fail(errUnrequested)
		return nil, err
	}
	if err == nil {
		if err = decodeAnswer(rpcAppend, kind, body, f.resp); err != nil && !isRefusal(err) {
			p.fail(err)
		}
	}
	if f.err = err; err != nil {
		*f.resp = raft.AppendEntriesResponse{}
	}
	close(f.done)
	return f, err
}

// acknowledge removes the oldest request in flight and returns it; nil if there is none.
func (p *pipeline) acknowledge() *appendFuture {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.inFlight) == 0 {
		return nil
	}
	f := p.inFlight[0]
	p.inFlight[0] = nil
	p.inFlight = p.inFlight[1:]
	p.inFlightBytes -= f.size
	p.space.Signal()
	return f
}

// endsPipeline reports whether the library stops reading answers with this one: the request was
// refused, or has no answer.
func endsPipeline(f *appendFuture) bool {
	return !f.resp.Success || f.resp.Term > f.args.Term
}
