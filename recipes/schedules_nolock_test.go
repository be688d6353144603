package recipes

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// stay is a member's stay in a double barrier.
type stay struct {
	in      *Inside
	entered time.Time
	leaving bool
}

// playDoubleBarrier has three members enter and leave a barrier for two. At the opening there were
// enough; as long as one is inside "ready" is there; who leaves was not left alone inside.
func playDoubleBarrier(p *play) func() {
	var mu sync.Mutex
	var stays []*stay
	check := func() {
		mu.Lock()
		defer mu.Unlock()
		for _, s := range stays {
			if !s.leaving && s.in.Err() == nil {
				now := time.Now()
				if !p.between(now, now, func(v *fakeCluster) bool { return v.nodes[testPath+"/"+readyName] != nil }) {
					p.fault("ready is gone under %s", s.in.grant.Node())
				}
			}
		}
	}
	for _, s := range p.sessions {
		p.worker(func(rnd *rand.Rand) {
			for range 3 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+rnd.Int64N(int64(20*time.Second))))
				in, err := NewDoubleBarrier(s, testPath, 2, nil).Enter(ctx, nil)
				cancel()
				if err != nil {
					if !errOneOf(err, mayEnd) {
						p.fault("enter: %v", err)
					}
					continue
				}
				p.judgeOpening(in)
				one := &stay{in: in, entered: time.Now()}
				mu.Lock()
				stays = append(stays, one)
				mu.Unlock()
				check()
				time.Sleep(time.Duration(rnd.Int64N(int64(4 * time.Second))))
				check()
				mu.Lock()
				one.leaving = true
				called := time.Now()
				mu.Unlock()
				err = in.Leave(context.Background())
				mu.Lock()
				for _, o := range stays {
					if err == nil && !o.leaving && o.in.Err() == nil && o.entered.Before(called) {
						p.fault("%s left while %s is inside", in.grant.Node(), o.in.grant.Node())
					}
				}
				mu.Unlock()
				if err != nil && !errOneOf(err, mayEnd) {
					p.fault("leave: %v", err)
				}
			}
		})
	}
	return nil
}

// judgeOpening looks whether enough were there when the round began.
func (p *play) judgeOpening(in *Inside) {
	defer p.lock()()
	for _, e := range p.history {
		ready := e.view.nodes[testPath+"/"+readyName]
		if ready == nil || ready.czxid != in.round {
			continue
		}
		if n := len(e.view.children(testPath)) - 1; n < 2 {
			p.fault("opened with %d members", n)
		}
		return
	}
	p.fault("no ready has the zxid %d", in.round)
}

// playBarrier sets, removes, and waits. Whoever is let through was let through by a barrier that
// was not set at some moment of its wait.
func playBarrier(p *play) func() {
	p.worker(func(rnd *rand.Rand) {
		b := NewBarrier(p.sessions[0], testPath, nil)
		for i := range 6 {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			do := b.Set
			if i%2 == 1 {
				do = b.Remove
			}
			for do(ctx) != nil && ctx.Err() == nil {
				time.Sleep(time.Second)
			}
			cancel()
			time.Sleep(time.Duration(rnd.Int64N(int64(5 * time.Second))))
		}
	})
	for _, s := range p.sessions[1:] {
		p.worker(func(rnd *rand.Rand) {
			for range 5 {
				began := time.Now()
				err := NewBarrier(s, testPath, nil).Wait(context.Background())
				now := time.Now()
				if err == nil && !p.between(began, now, func(v *fakeCluster) bool { return v.nodes[testPath] == nil }) {
					p.fault("let through by a barrier that is set")
				}
				if err != nil && !errOneOf(err, mayEnd) {
					p.fault("wait: %v", err)
				}
				time.Sleep(time.Duration(rnd.Int64N(int64(3 * time.Second))))
			}
		})
	}
	return nil
}

// counterOp is a request to a counter: to add, or, with 0, its value.
type counterOp struct{ add int64 }

var counterModel = sequential{int64(0), func(state, input, output any) (bool, any) {
	next := state.(int64) + input.(counterOp).add
	return output == nil || output.(int64) == next, next
}}

// playCounter adds and reads; the outcome is linearizable. An addition with an unknown outcome may
// take effect at any time, or never, which is the same as at the end.
func playCounter(p *play) func() {
	var mu sync.Mutex
	var ops []timedCall
	began := time.Now()
	for _, s := range p.sessions {
		p.worker(func(rnd *rand.Rand) {
			c := NewCounter(s, testPath, CounterOptions{})
			for range 5 {
				op := counterOp{int64(rnd.IntN(3))}
				call := time.Since(began)
				var v int64
				var err error
				if op.add == 0 {
					v, err = c.Get(context.Background())
				} else {
					v, err = c.Add(context.Background(), op.add)
				}
				o := timedCall{call: int64(call), end: int64(time.Since(began)), input: op, output: v}
				switch {
				case errors.Is(err, ErrUnknown):
					o.output, o.end = nil, math.MaxInt64
				case err != nil && !errOneOf(err, mayEnd):
					p.fault("counter: %v", err)
				}
				if err == nil || errors.Is(err, ErrUnknown) {
					mu.Lock()
					ops = append(ops, o)
					mu.Unlock()
				}
				time.Sleep(time.Duration(rnd.Int64N(int64(2 * time.Second))))
			}
		})
	}
	return func() {
		if !counterModel.linearizable(ops) {
			p.fault("not linearizable: %v", ops)
		}
	}
}

// playGroup joins, leaves and looks. Whoever was there during the whole look is seen, and nobody
// that was not there at any moment of it.
func playGroup(p *play) func() {
	for i, s := range p.sessions[:2] {
		p.worker(func(rnd *rand.Rand) {
			for n := range 4 {
				m, err := NewGroup(s, testPath, nil).Join(context.Background(), strconv.Itoa(10*i+n%2), nil)
				if err != nil {
					if !errOneOf(err, mayEnd) {
						p.fault("join: %v", err)
					}
					continue
				}
				time.Sleep(time.Duration(rnd.Int64N(int64(3 * time.Second))))
				if err := m.Leave(context.Background()); err != nil && !errOneOf(err, mayEnd) {
					p.fault("leave: %v", err)
				}
			}
		})
	}
	p.worker(func(rnd *rand.Rand) {
		for range 12 {
			began := time.Now()
			list, err := NewGroup(p.sessions[2], testPath, nil).Members(context.Background())
			if err != nil {
				if !errOneOf(err, mayEnd) {
					p.fault("members: %v", err)
				}
				continue
			}
			var got []string
			for _, m := range list {
				got = append(got, fmt.Sprint(m.ID, "/", m.Token))
			}
			all, ever := []string(nil), map[string]bool{}
			first := true
			p.between(began, time.Now(), func(v *fakeCluster) bool {
				var there []string
				for _, id := range v.children(testPath) {
					name := fmt.Sprint(id, "/", v.nodes[testPath+"/"+id].czxid)
					there, ever[name] = append(there, name), true
				}
				if first {
					all = there
				}
				first = false
				all = slices.DeleteFunc(all, func(name string) bool { return !slices.Contains(there, name) })
				return false
			})
			for _, name := range all {
				if !slices.Contains(got, name) {
					p.fault("%s is a member, but not among %s", name, strings.Join(got, " "))
				}
			}
			for _, name := range got {
				if !ever[name] {
					p.fault("%s is no member any more", name)
				}
			}
			time.Sleep(time.Duration(rnd.Int64N(int64(time.Second))))
		}
	})
	return nil
}
