package quorum

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// fakePipeline is the library's pipeline as far as it answers.
type fakePipeline struct {
	raft.AppendPipeline
	done chan raft.AppendFuture
}

func (f *fakePipeline) Consumer() <-chan raft.AppendFuture { return f.done }
func (f *fakePipeline) Close() error                       { return nil }

// answer is a future that has its answer.
type answer struct {
	term    uint64 // of the answer; that of the request is 5
	success bool
}

func (answer) Error() error                        { return nil }
func (answer) Start() time.Time                    { return time.Time{} }
func (answer) Request() *raft.AppendEntriesRequest { return &raft.AppendEntriesRequest{Term: 5} }
func (a answer) Response() *raft.AppendEntriesResponse {
	return &raft.AppendEntriesResponse{Term: a.term, Success: a.success}
}

// The library reads answers up to the first that is a refusal. Then nobody may have to wait to get rid of an answer.
func TestPipelineIsDrainedBehindARefusal(t *testing.T) {
	for name, last := range map[string]answer{"refused": {term: 5}, "later term": {term: 6, success: true}, "no answer": {}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := newTransport(nil, 1, nil)
				defer tr.close()
				fake := &fakePipeline{done: make(chan raft.AppendFuture)}
				p := &pipeline{AppendPipeline: fake, t: tr, id: "2", out: make(chan raft.AppendFuture), stop: make(chan struct{})}
				p.wg.Add(1)
				go p.relay()
				for _, a := range []answer{{term: 5, success: true}, last} {
					fake.done <- a
					if got := <-p.Consumer(); got != a {
						t.Errorf("handed on: %+v, want %+v", got, a)
					}
				}
				for range 3 { // a bubble in which this cannot go on ends the test
					fake.done <- answer{term: 5, success: true}
				}
				if err := p.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
