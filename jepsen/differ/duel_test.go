package differ

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"lockkeeper/jepsen"
	"lockkeeper/wire"
)

// Slots of a duel. The generator plays with the first ones; the last one is of the observer, a
// super user who watches the whole tree and reads it in the end.
const (
	players  = 4
	observer = players
)

// A duel is two fresh servers that get the same requests.
type duel struct {
	a, b     *side
	cmp      *comparer
	clusters []*jepsen.Cluster
	quota    bool // there can be quotas
	restarts int  // so far
}

// arena is where duels take place: which servers, in which directory.
type arena struct {
	targets [2]jepsen.Target
	dir     string
	// filter, in tests of the tests, changes the items of the second server.
	filter func([]item) []item
}

// settings are the lines of a zoo.cfg that a duel is about.
func settings(m mood) []string {
	return []string{
		"maxSessionTimeout=600000",
		"DigestAuthenticationProvider.superDigest=" + digestOf(superUser),
		fmt.Sprintf("extendedTypesEnabled=%v", m.ttl),
		fmt.Sprintf("enforceQuota=%v", m.enforce),
		"quotaError=QuotaExceeded",
	}
}

// open starts the two servers and connects the observer and the players.
func (ar *arena) open(ctx context.Context, m mood) (*duel, error) {
	dir, err := os.MkdirTemp(ar.dir, "duel-")
	if err != nil {
		return nil, fmt.Errorf("differ: %w", err)
	}
	d := &duel{cmp: newComparer(), clusters: make([]*jepsen.Cluster, 2), quota: m.quota}
	errs := make([]error, 2)
	var wg sync.WaitGroup
	for i := range d.clusters {
		wg.Go(func() {
			d.clusters[i], errs[i] = jepsen.StartCluster(ctx, jepsen.ClusterConfig{
				Target: ar.targets[i], Members: 1, Dir: filepath.Join(dir, fmt.Sprint(i)), Extra: settings(m),
			})
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(err, d.close())
	}
	d.a = newSide(ar.targets[0].Name, d.clusters[0].Members()[0], players+1)
	d.b = newSide(ar.targets[1].Name, d.clusters[1].Members()[0], players+1)
	d.b.filter = ar.filter
	for _, st := range openingSteps() {
		diff, err := d.do(ctx, st)
		if err == nil && diff != nil {
			err = fmt.Errorf("differ: the duel does not begin: %v", diff)
		}
		if err != nil {
			return nil, errors.Join(err, d.close())
		}
	}
	return d, nil
}

// openingSteps connect the players and the observer.
func openingSteps() (steps []*Step) {
	for i := range players + 1 {
		st := &Step{ID: i - players - 1, Kind: Connect, Slot: i, Handshake: usualHandshake}
		if i == observer {
			st.Requests = observerRequests()
		}
		steps = append(steps, st)
	}
	return steps
}

// observerRequests make a session an observer.
func observerRequests() []Request {
	return []Request{
		newRequest(wire.OpAuth, wire.AuthPacket{Scheme: "digest", Auth: []byte(superUser)}),
		newRequest(wire.OpAddWatch, wire.AddWatchRequest{Path: "/", Mode: wire.AddWatchPersistentRecursive}),
	}
}

// observe is the step with which the observer comes back.
func observe(id int) *Step {
	return &Step{ID: id, Kind: Attach, Slot: observer, Requests: observerRequests(), Handshake: usualHandshake}
}

// close ends the servers. Their files stay.
func (d *duel) close() error {
	var errs []error
	for _, s := range []*side{d.a, d.b} {
		if s != nil {
			s.close()
		}
	}
	for _, c := range d.clusters {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}

// complaints are faults that the servers report of themselves.
func (d *duel) complaints() error {
	for _, c := range d.clusters {
		found, err := c.Complaints()
		if err != nil {
			return err
		}
		if len(found) > 0 {
			return fmt.Errorf("differ: a server complains: %s", strings.Join(found, "\n"))
		}
	}
	return nil
}

// do does one step to both servers.
func (d *duel) do(ctx context.Context, st *Step) (*difference, error) {
	diff, _, err := d.watch(ctx, st)
	return diff, err
}

// watch is do, and returns the answer of the first server.
func (d *duel) watch(ctx context.Context, st *Step) (*difference, []stream, error) {
	if st.Kind == Restart {
		d.restarts++
	}
	from, to, err := d.both(ctx, st)
	if err != nil {
		return nil, nil, err
	}
	after, diff := d.cmp.streams(st, d.a, d.b, from, to)
	for i := range after {
		if diff != nil || err != nil {
			break
		}
		diff, err = d.settle(ctx, st, &after[i])
	}
	return diff, from, err
}

// settle carries out the requests of explanations.
func (d *duel) settle(ctx context.Context, st *Step, after *aftermath) (*difference, error) {
	if len(after.confirm) > 0 {
		from, to, err := d.both(ctx, &Step{ID: st.ID, Slot: after.slot, Requests: after.confirm})
		if err != nil {
			return nil, err
		}
		for _, streams := range [][]stream{from, to} {
			for _, it := range streams[0].items {
				if it.kind == reply && it.header.Err != wire.CodeNoAuth {
					return &difference{st, fmt.Sprintf("  the explanation does not hold: %v is answered %v", it.request,
						it.header.Err)}, nil
				}
			}
		}
	}
	if len(after.mend) == 0 {
		return nil, nil
	}
	_, _, err := d.both(ctx, &Step{ID: st.ID, Slot: after.slot, Requests: after.mend})
	return nil, err
}

func (d *duel) both(ctx context.Context, st *Step) (from, to []stream, err error) {
	var errA, errB error
	var wg sync.WaitGroup
	wg.Go(func() { from, errA = d.a.do(ctx, st) })
	to, errB = d.b.do(ctx, st)
	wg.Wait()
	if err := errors.Join(errA, errB); err != nil {
		return nil, nil, fmt.Errorf("step %d, %v: %w", st.ID, st, err)
	}
	return from, to, nil
}

// walkID is the number of the steps in which the whole tree is read.
const walkID = 1 << 30

// walk compares the whole trees.
func (d *duel) walk(ctx context.Context) (diff *difference, err error) {
	rootLen := 0
	if diff, err := d.do(ctx, observe(walkID)); diff != nil || err != nil {
		return diff, err
	}
	err = d.tree(func(level []string) (from []stream, err error) {
		step := &Step{ID: walkID, Slot: observer}
		for _, path := range level {
			step.Requests = append(step.Requests,
				newRequest(wire.OpGetData, wire.PathWatchRequest{Path: path}),
				newRequest(wire.OpGetACL, wire.PathRequest{Path: path}),
				newRequest(wire.OpGetChildren, wire.PathWatchRequest{Path: path}))
		}
		if diff, from, err = d.watch(ctx, step); diff != nil || err != nil {
			return nil, err
		}
		var root wire.GetDataResponse
		if it := &from[0].items[0]; level[0] == "/" && it.request != nil && wire.Decode(it.body, &root) == nil {
			rootLen = len(root.Data)
		}
		return from, nil
	})
	if diff != nil || err != nil {
		return diff, err
	}
	return d.figures(ctx, rootLen)
}

// tree goes through the tree, level by level. list requests the children of the nodes of one level,
// from the observer's slot; without streams it ends the walk.
func (d *duel) tree(list func(level []string) ([]stream, error)) error {
	for level := []string{"/"}; len(level) > 0; {
		from, err := list(level)
		if err != nil || len(from) == 0 {
			return err
		}
		level = nil
		for _, it := range from[0].items {
			var q wire.GetChildrenResponse
			if it.request == nil || it.request.Op != wire.OpGetChildren || wire.Decode(it.body, &q) != nil {
				continue
			}
			for _, name := range q.Children {
				level = append(level, strings.TrimSuffix(it.request.path(), "/")+"/"+name)
			}
		}
	}
	return nil
}

// figures compares the servers' figures of their whole state. rootLen is the length of the root's
// data, which lockkeeper counts twice, as it does the root. ZooKeeper counts it once; the part from
// a snapshot at its start, twice, and later changes once: behind a restart it is off by the growth
// of the root's data. ZooKeeper does not count its own writes into the usage of a quota.
func (d *duel) figures(ctx context.Context, rootLen int) (*difference, error) {
	const size = "zk_approximate_data_size"
	for _, name := range []string{"zk_znode_count", "zk_ephemerals_count", size, "zk_global_sessions"} {
		x, errA := d.a.metric(ctx, name)
		y, errB := d.b.metric(ctx, name)
		if err := errors.Join(errA, errB); err != nil {
			return nil, err
		}
		if name == size && (d.quota || y == x+rootLen || d.restarts > 0 && max(x-y, y-x) < maxDataLen) {
			continue
		}
		if x != y {
			return &difference{&Step{ID: walkID, Slot: observer},
				fmt.Sprintf("%s: %s has %d, %s has %d", name, d.a.name, x, d.b.name, y)}, nil
		}
	}
	return nil, nil
}
