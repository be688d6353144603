package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"lockkeeper/bench"
	"lockkeeper/jepsen"
	"lockkeeper/wire"
)

// The table of pauses: the longest time that a writer waits while a cluster with many nodes does
// work beside its writes. Four clients write 100 bytes all the time: at the leader and at a
// follower, one write after the other and at given times. The disturbances are at the other
// follower, or in all members.
const (
	// pauseLimit is the target of the longest pause.
	pauseLimit = 50 * time.Millisecond
	// steadyEvery is the time between the intended moments of a writer at given times: 200 a
	// second.
	steadyEvery = 5 * time.Millisecond
	// catchUpBytes is how much a follower misses.
	catchUpBytes = 300 << 20
	// pauseRest is how long a cluster is left alone between two disturbances.
	pauseRest = 2 * time.Second
)

// disturbance is a reason for pauses.
type disturbance struct {
	name string
	// extra are lines of zoo.cfg, for which it gets a cluster of its own.
	extra []string
	// run disturbs for at least d, once at least, and returns how often it did.
	run func(p *pausing, ctx context.Context, d time.Duration) (times int, err error)
}

func disturbances() []disturbance {
	return []disturbance{
		{name: "nothing else", run: (*pausing).nothing},
		{name: "changes of the segment (4 MB/s of writes)", run: (*pausing).segments},
		{name: "garbage collection (10 MB/s of writes and 200 listings/s of 1,000)", run: (*pausing).garbage},
		{name: "a follower that is killed and starts again", run: (*pausing).restarts},
		{name: "a follower that catches up with 300 MB", run: (*pausing).catchUps},
		{name: "a follower that joins with a blank disk", run: (*pausing).blankJoins},
		{name: "snapshots (snapCount=5000)", extra: []string{"snapCount=5000"}, run: (*pausing).snapshots},
	}
}

// pauseResult has the measurements of one disturbance.
type pauseResult struct {
	times            int
	leader, follower pauseTimes
	lost             int // connections of the writers
}

// pauseTimes are the times of writes at one member.
type pauseTimes struct{ closed, steady bench.Histogram }

// longest is the longest pause, in milliseconds.
func (t *pauseTimes) longest() float64 {
	return float64(max(t.closed.Max(), t.steady.Max())) / float64(time.Millisecond)
}

// p999 is the 99.9th percentile of the writes at given times, in milliseconds.
func (t *pauseTimes) p999() float64 {
	return float64(t.steady.Quantile(0.999)) / float64(time.Millisecond)
}

// runPauses measures all disturbances, of one system after the other.
func runPauses(ctx context.Context, r *ownRun) (string, error) {
	var list []disturbance
	for _, d := range disturbances() {
		if r.only.MatchString(d.name) {
			list = append(list, d)
		}
	}
	if len(list) == 0 {
		return "", fmt.Errorf("-only %s: there is no such disturbance", r.only)
	}
	each := r.duration / time.Duration(len(list))
	results := map[string][]*pauseResult{}
	for _, s := range r.systems {
		for _, group := range sameCluster(list) {
			cfg := jepsen.ClusterConfig{Members: members, Extra: group[0].extra}
			err := r.with(ctx, s, cfg, func(k *keeper) error {
				found, err := r.pauses(ctx, k, group, each)
				results[s.name] = append(results[s.name], found...)
				return err
			})
			if err != nil {
				return "", err
			}
		}
	}
	return pauseTable(list, results), nil
}

// sameCluster puts neighbours that can be measured on one cluster together.
func sameCluster(list []disturbance) (groups [][]disturbance) {
	for i, d := range list {
		if i == 0 || !slices.Equal(d.extra, list[i-1].extra) {
			groups = append(groups, nil)
		}
		last := &groups[len(groups)-1]
		*last = append(*last, d)
	}
	return groups
}

// pausing is a cluster with writers.
type pausing struct {
	*ownRun
	*keeper
	leads, victim *jepsen.Member
	bystander     *jepsen.Member // a follower that is not disturbed
	writers       []*bench.Stream
	result        *pauseResult
}

// pauses measures disturbances in turn.
func (r *ownRun) pauses(ctx context.Context, k *keeper, list []disturbance, each time.Duration) (
	results []*pauseResult, err error) {
	if err := r.fill(ctx, k, r.nodes); err != nil {
		return nil, err
	}
	p := &pausing{ownRun: r, keeper: k}
	if err := p.open(ctx); err != nil {
		return nil, err
	}
	defer func() {
		for _, w := range p.writers {
			w.Close()
		}
	}()
	for _, d := range list {
		jepsen.Sleep(ctx, pauseRest)
		p.result = &pauseResult{}
		if err := p.take(&pauseResult{}); err != nil {
			return nil, err
		}
		times, err := d.run(p, ctx, each)
		if err == nil {
			err = p.take(p.result)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", d.name, err)
		}
		p.result.times = times
		results = append(results, p.result)
		r.say("%s: %d times, longest %s ms, p99.9 %s ms", d.name, times,
			p.result.text((*pauseTimes).longest), p.result.text((*pauseTimes).p999))
	}
	leads, err := k.AwaitLeader(ctx)
	if err == nil && leads != p.leads {
		err = errors.New("the leader changed")
	}
	return results, err
}

// open finds the roles, makes the writers' nodes and starts the writers.
func (p *pausing) open(ctx context.Context) (err error) {
	if p.leads, err = p.AwaitLeader(ctx); err != nil {
		return err
	}
	followers := slices.DeleteFunc(slices.Clone(p.Members()), func(m *jepsen.Member) bool { return m == p.leads })
	p.bystander, p.victim = followers[0], followers[1]
	if err := bench.Send(ctx, p.leads.ClientAddr, pauseNodes, func(i int) (wire.Op, wire.Record) {
		return wire.OpCreate, &wire.CreateRequest{Path: pausePath(i), ACL: wire.OpenACL}
	}); err != nil {
		return err
	}
	if err := bench.Send(ctx, p.leads.ClientAddr, 1+listedNodes, func(i int) (wire.Op, wire.Record) {
		path := listedPath
		if i > 0 {
			path = fmt.Sprintf("%s/node-%06d", listedPath, i)
		}
		return wire.OpCreate, &wire.CreateRequest{Path: path, ACL: wire.OpenACL}
	}); err != nil {
		return err
	}
	if err := bench.Send(ctx, p.bystander.ClientAddr, 1, func(int) (wire.Op, wire.Record) {
		return wire.OpSync, &wire.SyncRequest{Path: "/"}
	}); err != nil {
		return err
	}
	for i, m := range []*jepsen.Member{p.leads, p.leads, p.bystander, p.bystander} {
		every := time.Duration(i%2) * steadyEvery
		w, err := bench.StartStream(ctx, bench.StreamConfig{Server: m.ClientAddr, Every: every, Request: setTo(pausePath(i), 100)})
		if err != nil {
			return err
		}
		p.writers = append(p.writers, w)
	}
	jepsen.Sleep(ctx, p.warmUp)
	return ctx.Err()
}

// pauseNodes is the number of nodes that are written: the first of them by the writers.
const pauseNodes = 64

// listedPath is a node with listedNodes children.
const (
	listedPath  = "/pause-listed"
	listedNodes = 1000
)

func pausePath(i int) string { return fmt.Sprintf("/pause-%d", i) }

// setTo are writes of a number of bytes to a node.
func setTo(path string, sizeBytes int) bench.Request {
	data := make([]byte, sizeBytes)
	for i := range data {
		data[i] = byte(i * 7)
	}
	return func(int) (wire.Op, wire.Record) {
		return wire.OpSetData, &wire.SetDataRequest{Path: path, Data: data, Version: -1}
	}
}

// take adds the writers' times since the last take to a result.
func (p *pausing) take(to *pauseResult) error {
	for i, w := range p.writers {
		h, lost, err := w.Take()
		if err != nil {
			return err
		}
		at := &to.leader
		if i >= 2 {
			at = &to.follower
		}
		if i%2 == 0 {
			at.closed.Merge(&h)
		} else {
			at.steady.Merge(&h)
		}
		to.lost += lost
	}
	return nil
}

// unmeasured runs f, which prepares a disturbance and does not count.
func (p *pausing) unmeasured(ctx context.Context, f func() error) error {
	if err := p.take(p.result); err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	jepsen.Sleep(ctx, pauseRest) // until all writes that were due meanwhile are done
	return p.take(&pauseResult{})
}

func (p *pausing) nothing(ctx context.Context, d time.Duration) (int, error) {
	jepsen.Sleep(ctx, d)
	return 1, ctx.Err()
}

// snapshots counts the snapshots that all members write meanwhile.
func (p *pausing) snapshots(ctx context.Context, d time.Duration) (times int, err error) {
	newest := map[*jepsen.Member]string{}
	for began := time.Now(); time.Since(began) < d && jepsen.Sleep(ctx, 100*time.Millisecond); {
		for _, m := range p.Members() {
			now := newestSnapshot(m.DataDir())
			if before, known := newest[m]; known && now != before {
				times++
			}
			newest[m] = now
		}
	}
	return times, ctx.Err()
}

// segments has 4 MB written each second, which is a segment of lockkeeper's log.
func (p *pausing) segments(ctx context.Context, d time.Duration) (int, error) {
	return p.beside(ctx, d, bench.StreamConfig{Every: 10 * time.Millisecond, Request: setTo(pausePath(10), 40<<10)})
}

// garbage has every member allocate, with a large heap.
func (p *pausing) garbage(ctx context.Context, d time.Duration) (int, error) {
	listing := func(int) (wire.Op, wire.Record) {
		return wire.OpGetChildren, &wire.PathWatchRequest{Path: listedPath}
	}
	return p.beside(ctx, d, bench.StreamConfig{Every: 10 * time.Millisecond, Request: setTo(pausePath(10), 100<<10)},
		bench.StreamConfig{Every: 10 * time.Millisecond, Request: listing},
		bench.StreamConfig{Every: 10 * time.Millisecond, Request: listing})
}

// beside has more clients work for a while.
func (p *pausing) beside(ctx context.Context, d time.Duration, clients ...bench.StreamConfig) (int, error) {
	for i, cfg := range clients {
		cfg.Server = []*jepsen.Member{p.leads, p.bystander, p.victim}[i%members].ClientAddr
		s, err := bench.StartStream(ctx, cfg)
		if err != nil {
			return 0, err
		}
		defer s.Close()
	}
	jepsen.Sleep(ctx, d)
	return 1, ctx.Err()
}

// repeatedly disturbs until d is over.
func repeatedly(ctx context.Context, d time.Duration, disturb func() error) (times int, err error) {
	for began := time.Now(); times == 0 || time.Since(began) < d; times++ {
		if err := disturb(); err != nil {
			return times, err
		}
		jepsen.Sleep(ctx, pauseRest)
		if ctx.Err() != nil {
			return times, ctx.Err()
		}
	}
	return times, nil
}

func (p *pausing) restarts(ctx context.Context, d time.Duration) (int, error) {
	return repeatedly(ctx, d, func() error {
		if err := p.victim.Kill(); err != nil {
			return err
		}
		jepsen.Sleep(ctx, time.Second)
		return p.startVictim(ctx)
	})
}

func (p *pausing) blankJoins(ctx context.Context, d time.Duration) (int, error) {
	return repeatedly(ctx, d, func() error {
		if err := errors.Join(p.victim.Kill(), p.victim.Wipe()); err != nil {
			return err
		}
		return p.startVictim(ctx)
	})
}

// startVictim starts the disturbed follower, which runs when no other process wants the CPU: it
// would have a machine of its own.
func (p *pausing) startVictim(ctx context.Context) error {
	if err := p.victim.Start(); err != nil {
		return err
	}
	return errors.Join(p.victim.Yield(), p.victim.AwaitServing(ctx))
}

// catchUps measures while a member catches up, and not the writes that it has missed.
func (p *pausing) catchUps(ctx context.Context, d time.Duration) (int, error) {
	const each = 64 << 10
	return repeatedly(ctx, d, func() error {
		err := p.unmeasured(ctx, func() error {
			if err := p.victim.Kill(); err != nil {
				return err
			}
			set := setTo("", each)
			return bench.Send(ctx, p.leads.ClientAddr, catchUpBytes/each, func(i int) (wire.Op, wire.Record) {
				op, record := set(i)
				record.(*wire.SetDataRequest).Path = pausePath(pauseNodes/2 + i%(pauseNodes/2))
				return op, record
			})
		})
		if err != nil {
			return err
		}
		return p.startVictim(ctx)
	})
}

// text is a cell: at the leader, at a follower.
func (r *pauseResult) text(value func(*pauseTimes) float64) string {
	return number(value(&r.leader)) + " / " + number(value(&r.follower))
}

// pauseTable is the table of the results, in the order of list.
func pauseTable(list []disturbance, results map[string][]*pauseResult) string {
	head := []string{"meanwhile", "times", "lockkeeper, longest pause, ms", fmt.Sprintf("≤ %v", pauseLimit), "p99.9, ms",
		"ZooKeeper, times", "longest pause, ms", "p99.9, ms", "connections lost"}
	var rows [][]string
	for i, d := range list {
		cells := []string{d.name}
		for _, name := range []string{"lockkeeper", "zookeeper"} {
			ours := name == "lockkeeper"
			if i >= len(results[name]) {
				cells = append(cells, slices.Repeat([]string{"–"}, 4)...)
				continue
			}
			r := results[name][i]
			cells = append(cells, fmt.Sprint(r.times), r.text((*pauseTimes).longest))
			if ours {
				worst := max(r.leader.longest(), r.follower.longest())
				cells = append(cells, yes(worst <= float64(pauseLimit)/float64(time.Millisecond)))
			}
			cells = append(cells, r.text((*pauseTimes).p999))
			if !ours {
				cells = append(cells, fmt.Sprint(r.lost))
			}
		}
		rows = append(rows, cells)
	}
	return "Each cell: at the leader / at a follower.\n\n" + strings.TrimLeft(markdown(head, rows), "\n")
}
