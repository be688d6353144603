package recipes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"
)

// observed is the newest that an observer was shown.
type observed struct {
	mu   sync.Mutex
	text string
}

func (o *observed) set(text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = text
}

func (o *observed) get() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text
}

// afterwards runs f when the workers that run so far have ended and there are no more faults, and
// then ends watching.
func (p *play) afterwards(before *sync.WaitGroup, f func(), watching context.CancelFunc) {
	p.worker(func(*rand.Rand) {
		defer watching()
		before.Wait()
		for quiet := false; !quiet; time.Sleep(time.Second) {
			unlock := p.lock()
			quiet = p.quiet
			unlock()
		}
		time.Sleep(time.Minute)
		f()
	})
}

// playObserve has candidates lead and observers look. What is shown first was so after the call
// began; an observer never goes back; and it sees the leader that stays.
func playObserve(p *play) func() {
	watching, end := context.WithCancel(context.Background())
	var candidates sync.WaitGroup
	for i, s := range p.sessions[:2] {
		candidates.Add(1)
		p.worker(func(rnd *rand.Rand) {
			defer candidates.Done()
			for n := range 4 {
				l, err := NewElection(s, testPath, ElectionOptions{}).Campaign(context.Background(), fmt.Append(nil, i, n))
				if err != nil {
					if !errOneOf(err, mayEnd) {
						p.fault("campaign: %v", err)
					}
					continue
				}
				time.Sleep(time.Duration(rnd.Int64N(int64(3 * time.Second))))
				if err := l.Resign(context.Background()); err != nil && !errOneOf(err, mayEnd) {
					p.fault("resign: %v", err)
				}
			}
		})
	}
	last := make([]observed, len(p.sessions))
	for i, s := range p.sessions {
		p.worker(func(*rand.Rand) {
			for top := int64(0); watching.Err() == nil; {
				top = p.observeOnce(watching, s, &last[i], top)
			}
		})
	}
	p.afterwards(&candidates, func() {
		l, err := NewElection(p.sessions[0], testPath, ElectionOptions{}).Campaign(watching, nil)
		if err != nil {
			p.fault("campaign at the end: %v", err)
			return
		}
		time.Sleep(time.Minute)
		for i := range last {
			if got, want := last[i].get(), l.Node(); got != want {
				p.fault("observer %d sees %q lead, and it is %s", i, got, want)
			}
		}
		if err := l.Resign(watching); err != nil {
			p.fault("resign at the end: %v", err)
		}
	}, end)
	return nil
}

// observeOnce observes until that ends, and returns the largest token that was shown.
func (p *play) observeOnce(ctx context.Context, s *Session, last *observed, top int64) int64 {
	began, first := time.Now(), true
	for leader, err := range NewElection(s, testPath, ElectionOptions{}).Observe(ctx) {
		if err != nil {
			if ctx.Err() == nil && !errOneOf(err, mayEnd) {
				p.fault("observe: %v", err)
			}
			time.Sleep(time.Second)
			break
		}
		leads := func(v *fakeCluster) bool {
			front := firstOf(v.children(testPath), nil)
			return front == "" && leader.Node == "" || front != "" && testPath+"/"+front == leader.Node
		}
		if first && !p.between(began, time.Now(), leads) {
			p.fault("%q is shown as the leader, and led before the call", leader.Node)
		}
		if leader.Node != "" && leader.Token < top {
			p.fault("%s is shown after a leader with token %d", leader.Node, top)
		}
		first, top = false, max(top, leader.Token)
		last.set(leader.Node)
	}
	return top
}

// playWatch has members come, change and go, and watchers look. What is shown first was so after
// the call began, who was seen to have gone does not come back, and what stays is seen.
func playWatch(p *play) func() {
	watching, end := context.WithCancel(context.Background())
	var members sync.WaitGroup
	for i, s := range p.sessions[:2] {
		members.Add(1)
		p.worker(func(rnd *rand.Rand) {
			defer members.Done()
			for n := range 4 {
				m, err := NewGroup(s, testPath, nil).Join(context.Background(), strconv.Itoa(10*i+n%2), []byte("new"))
				if err == nil {
					time.Sleep(time.Duration(rnd.Int64N(int64(2 * time.Second))))
					if err = m.SetData(context.Background(), fmt.Append(nil, n)); err != nil && !errOneOf(err, mayEnd) {
						p.fault("set data: %v", err)
					}
					time.Sleep(time.Duration(rnd.Int64N(int64(2 * time.Second))))
					err = m.Leave(context.Background())
				}
				if err != nil && !errOneOf(err, mayEnd) {
					p.fault("join and leave: %v", err)
				}
			}
		})
	}
	last := make([]observed, len(p.sessions))
	for i, s := range p.sessions {
		p.worker(func(*rand.Rand) {
			for gone := make(map[int64]bool); watching.Err() == nil; {
				p.watchOnce(watching, s, &last[i], gone)
			}
		})
	}
	p.afterwards(&members, func() {
		m, err := NewGroup(p.sessions[0], testPath, nil).Join(watching, "stays", nil)
		for n := 0; n < 3 && err == nil; n++ {
			err = m.SetData(watching, fmt.Append(nil, "final-", n))
			time.Sleep(time.Minute)
		}
		if err != nil {
			p.fault("member at the end: %v", err)
			return
		}
		for i := range last {
			if got := last[i].get(); got != "stays=final-2 " {
				p.fault("watcher %d sees %q at the end", i, got)
			}
		}
		if err := m.Leave(watching); err != nil {
			p.fault("leave at the end: %v", err)
		}
	}, end)
	return nil
}

// watchOnce watches until that ends. gone are the tokens of those that were seen to have gone.
func (p *play) watchOnce(ctx context.Context, s *Session, last *observed, gone map[int64]bool) {
	began := time.Now()
	var before []Member
	first := true
	for list, err := range NewGroup(s, testPath, nil).Watch(ctx) {
		if err != nil {
			if ctx.Err() == nil && !errOneOf(err, mayEnd) {
				p.fault("watch: %v", err)
			}
			time.Sleep(time.Second)
			return
		}
		for _, m := range before {
			if !slices.ContainsFunc(list, func(o Member) bool { return o.Token == m.Token }) {
				gone[m.Token] = true
			}
		}
		text := ""
		for _, m := range list {
			text += fmt.Sprintf("%s=%s ", m.ID, m.Data)
			was := func(v *fakeCluster) bool {
				n := v.nodes[testPath+"/"+m.ID]
				return n != nil && n.czxid == m.Token
			}
			if gone[m.Token] {
				p.fault("%s was seen to have gone, and comes back", m.ID)
			}
			if first && !p.between(began, time.Now(), was) {
				p.fault("%s is shown, and was gone before the call", m.ID)
			}
		}
		last.set(text)
		before, first = list, false
	}
}
