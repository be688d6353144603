package httplock

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"lockkeeper/locknode"
	"lockkeeper/wire"
)

// contender is a place in the queue of a lock: a node with Curator's name, that waits for the
// nodes of all libraries (locknode.Predecessor), as package recipes does.
type contender struct {
	*client
	lock  string // the path of the lock
	dir   string // the parent of the node
	reads bool
	data  []byte
	turn  chan struct{} // Locks.turn
	rank  locknode.Rank // its Number is known when the node is made
	// yields is how often the contender may yet let a more urgent one go first.
	yields int
	report *report // shared with the gate of a semaphore; nil: the contender does not wait

	path  string // of the node
	token int64  // its czxid
	// passed are nodes that need not be waited for: without a session, downgraded, made later.
	passed map[string]bool
}

// queueMost is the number of children of a lock's path up to which this package serves it: each
// contender lists them.
const queueMost = 10_000

// newUUID returns a random UUID (version 4) as Curator writes it into the names of its nodes.
func newUUID() string {
	var u [16]byte
	_, _ = rand.Read(u[:])  // never fails
	u[6] = u[6]&0x0f | 0x40 // version 4
	u[8] = u[8]&0x3f | 0x80 // RFC 9562 variant
	h := hex.EncodeToString(u[:])
	return strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-")
}

// join makes the node, and the missing nodes above it.
func (k *contender) join(ctx context.Context, layout string) error {
	name := locknode.ProtectedStart + newUUID() + "-" + k.rank.First() + layout
	for {
		got, err := k.call(ctx, wire.OpCreate2, &wire.CreateRequest{Path: k.dir + "/" + name, Data: k.data,
			ACL: wire.OpenACL, Mode: wire.ModeEphemeralSequential})
		switch {
		case err != nil:
			return err
		case got.code == wire.CodeNoNode:
			if err := k.makeContainer(ctx, k.dir); err != nil {
				return err
			}
			continue
		case got.code != wire.CodeOK:
			return codeRefusal("CREATE at "+k.dir, got.code)
		}
		var made wire.Create2Response
		if err := wire.Decode(got.body, &made); err != nil {
			return err
		}
		if err := k.at(made.Path, &made.Stat); err != nil {
			return err
		}
		k.rank, _ = locknode.RankOf(k.name())
		return k.watchOwn(ctx)
	}
}

// at notes that the contender's node has been made.
func (k *contender) at(path string, st *wire.Stat) error {
	k.path, k.token = path, int64(st.Czxid)
	if n, ok := locknode.Sequence(k.name()); !ok || n >= locknode.MaxSequence {
		return &refusal{status: locked, text: "the counter of " + k.dir + " is used up"}
	}
	return nil
}

// yield moves the node to the end of the queue in one transaction, for the sake of a more urgent
// contender behind it: docs/decisions/021-priorities.md. If that is not permitted, the contender
// keeps its place.
func (k *contender) yield(ctx context.Context) error {
	path := k.dir + "/" + locknode.Protection(k.name()) + k.rank.Yielded() + locknode.Layout(k.name())
	got, err := k.call(ctx, wire.OpMulti, wire.MultiRequest{Ops: []wire.MultiOp{
		{Op: wire.OpDelete, Record: &wire.DeleteRequest{Path: k.path, Version: -1}},
		{Op: wire.OpCreate2, Record: &wire.CreateRequest{Path: path, Data: k.data, ACL: wire.OpenACL,
			Mode: wire.ModeEphemeralSequential}},
	}})
	if err != nil {
		return err
	}
	var made wire.MultiResponse
	if got.code == wire.CodeOK {
		if err := wire.Decode(got.body, &made); err != nil {
			return err
		}
	}
	switch {
	case len(made.Results) == 2 && made.Results[1].Stat != nil:
		k.yields--
		k.report.yielded()
		k.events = nil // the watches on the node that has gone, and on nothing else
		if err := k.at(made.Results[1].Path, made.Results[1].Stat); err != nil {
			return err
		}
	case len(made.Results) > 0 && made.Results[0].Err == wire.CodeNoNode:
		return errDeleted
	default:
		k.yields = 0
		return nil
	}
	return k.watchOwn(ctx)
}

// name is the name of the node.
func (k *contender) name() string {
	_, name := locknode.Split(k.path)
	return name
}

// makeContainer makes a node of the lock's path, as a container, and those above it.
func (k *contender) makeContainer(ctx context.Context, path string) error {
	for {
		got, err := k.call(ctx, wire.OpCreateContainer, &wire.CreateRequest{Path: path, ACL: wire.OpenACL,
			Mode: wire.ModeContainer})
		switch {
		case err != nil:
			return err
		case got.code == wire.CodeOK, got.code == wire.CodeNodeExists:
			return nil
		}
		parent, _ := locknode.Split(path)
		if got.code != wire.CodeNoNode || parent == "" {
			return codeRefusal("CREATE of "+path, got.code)
		}
		if err := k.makeContainer(ctx, parent); err != nil {
			return err
		}
	}
}

// stat reads the Stat of a node, and watches it; false if there is none.
func (k *contender) stat(ctx context.Context, path string, watch bool) (st wire.Stat, ok bool, err error) {
	got, err := k.call(ctx, wire.OpExists, &wire.PathWatchRequest{Path: path, Watch: watch})
	switch {
	case err != nil:
		return st, false, err
	case got.code == wire.CodeNoNode:
		return st, false, nil
	case got.code != wire.CodeOK:
		return st, false, codeRefusal("reading "+path, got.code)
	}
	var r wire.StatResponse
	err = wire.Decode(got.body, &r)
	return r.Stat, true, err
}

// errDeleted says that somebody has deleted the node.
var errDeleted = errors.New("somebody has deleted the lock's node")

// watchOwn watches the node. Its deletion by another session ends the lock.
func (k *contender) watchOwn(ctx context.Context) error {
	st, ok, err := k.stat(ctx, k.path, true)
	if err == nil && (!ok || int64(st.Czxid) != k.token || st.EphemeralOwner != k.id) {
		err = errDeleted
	}
	return err
}

// await returns nil when nobody is in front of the node any more, and no more urgent contender
// behind it. Without wait it returns a refusal if somebody is in front, and does not yield.
func (k *contender) await(ctx context.Context, wait bool) error {
	for {
		if err := k.checkOwn(ctx); err != nil {
			return err
		}
		front, better, err := k.front(ctx)
		switch {
		case err != nil:
			return err
		case front == "" && (better == "" || !wait):
			return nil
		case front == "":
			if err := k.yield(ctx); err != nil {
				return err
			}
			continue
		}
		st, ok, err := k.stat(ctx, k.dir+"/"+front, true)
		if err != nil {
			return err
		}
		if !ok {
			continue // it has gone
		}
		blocks, err := k.blocks(ctx, front, &st)
		switch {
		case err != nil:
			return err
		case !blocks:
			k.pass(front)
			continue
		case !wait:
			r := &refusal{status: locked, text: "the lock is held or awaited by another", behind: front}
			r.situation, err = k.behind(ctx, front, &st)
			return cmp.Or[error](err, r)
		}
		behind := func(ctx context.Context) (*situation, error) { return k.behind(ctx, front, &st) }
		if err := k.awaitEvent(ctx, front, behind); err != nil {
			return err
		}
	}
}

func (k *contender) pass(name string) {
	if k.passed == nil {
		k.passed = map[string]bool{}
	}
	k.passed[name] = true
}

// blocks reports whether the contender has to wait for a node in front of it.
func (k *contender) blocks(ctx context.Context, front string, st *wire.Stat) (bool, error) {
	var data []byte
	if k.reads { // a writer may be content with reading
		got, err := k.call(ctx, wire.OpGetData, &wire.PathWatchRequest{Path: k.dir + "/" + front})
		if err != nil {
			return false, err
		}
		var r wire.GetDataResponse
		if got.code == wire.CodeOK && wire.Decode(got.body, &r) == nil {
			data = r.Data
		}
	}
	c := locknode.New(k.dir, front, int64(st.EphemeralOwner), time.Time{}, int64(st.Czxid), data)
	if locknode.KindOf(front) == locknode.KindLease {
		return locknode.Ephemeral(int64(st.EphemeralOwner)) && c.Token < k.token, nil
	}
	return c.Blocks(k.name(), k.token, k.reads), nil
}

// checkOwn looks at the node again if its watch has fired, and at the nodes of others of the same
// session.
func (k *contender) checkOwn(ctx context.Context, others ...*contender) error {
	events := k.events
	k.events = nil
	for _, own := range append(others, k) {
		if slices.ContainsFunc(events, func(e wire.WatcherEvent) bool { return e.Path == own.path }) {
			if err := own.watchOwn(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// front returns the name of the node that the contender waits for, relative to the path; "" if
// there is none. Then better is the node of a contender behind it to which it yields, if there is
// one. It sees every contender that came before: its session's reads follow the making of its own
// node.
func (k *contender) front(ctx context.Context) (front, better string, err error) {
	var leases []string // of semaphores on the same path: they count by their czxids
	var found, curators bool
	err = k.list(ctx, k.dir, false, func(names []string) {
		front, found = locknode.Predecessor(names, k.name(), k.reads, k.passed)
		if front == "" && k.yields > 0 {
			better = strings.Clone(locknode.YieldsTo(names, k.name()))
		}
		curators = slices.Contains(names, locknode.CuratorLeases)
		leases = choose(names, "", locknode.IsKazooLease)
	})
	switch {
	case err != nil:
		return "", "", err
	case !found:
		return "", "", errDeleted
	case front != "":
		return front, "", nil
	}
	if curators {
		err = k.list(ctx, locknode.LeasesPath(k.dir), false, func(names []string) {
			isLease := func(n string) bool { return locknode.KindOf(n) == locknode.KindLease }
			leases = append(leases, choose(names, locknode.CuratorLeases+"/", isLease)...)
		})
		if err != nil {
			return "", "", err
		}
	}
	front, err = k.earlier(ctx, k.dir, leases)
	return front, better, err
}

// choose returns some of the names of children, below a directory.
func choose(names []string, dir string, which func(string) bool) (chosen []string) {
	for _, n := range names {
		if which(n) {
			chosen = append(chosen, dir+n)
		}
	}
	return chosen
}

// earlier returns the first of dir's children called names that was made before the contender's
// node and is ephemeral, "" if there is none.
func (k *contender) earlier(ctx context.Context, dir string, names []string) (string, error) {
	for _, n := range names {
		if k.passed[n] {
			continue
		}
		st, ok, err := k.stat(ctx, dir+"/"+n, false)
		if err != nil {
			return "", err
		}
		if ok && locknode.Ephemeral(int64(st.EphemeralOwner)) && int64(st.Czxid) < k.token {
			return n, nil
		}
		k.pass(n)
	}
	return "", nil
}

// list has use see the names of the children of a node, and watches them; none if it is not there.
// use must not keep the names: they are in memory for one contender at a time.
func (k *contender) list(ctx context.Context, path string, watch bool, use func(names []string)) error {
	st, ok, err := k.stat(ctx, path, false)
	if err != nil || !ok {
		return err
	}
	if st.NumChildren > queueMost {
		return &refusal{status: unavailable, text: fmt.Sprintf("%s has more than %d children", path, queueMost)}
	}
	got, over, err := k.callInTurn(ctx, k.turn, wire.OpGetChildren, &wire.PathWatchRequest{Path: path, Watch: watch})
	defer over()
	switch {
	case err != nil:
		return err
	case got.code == wire.CodeNoNode:
		return nil
	case got.code != wire.CodeOK:
		return codeRefusal("READ of "+path, got.code)
	case got.body == nil:
		return &refusal{status: unavailable, text: "the names of the children of " + path + " are too long"}
	}
	var r wire.GetChildrenResponse
	if err = wire.Decode(got.body, &r); err == nil {
		use(r.Children)
	}
	return err
}

// errYields says that a more urgent contender has come to the gate of a semaphore.
var errYields = errors.New("a more urgent contender waits for a lease")

// awaitLease returns nil when there are at most that many leases of the semaphore, the contender's
// among them, and no lock on the path itself is older than the contender's node. The gate is the
// first in the semaphore's queue, so that nobody else waits with a lease made. The error is
// errYields if a more urgent contender has come to the gate meanwhile.
func (k *contender) awaitLease(ctx context.Context, gate *contender, leases int, wait bool) error {
	for waited := false; ; waited = true {
		// Without its node at the gate another one would wait beside it, with a lease made.
		if err := k.checkOwn(ctx, gate); err != nil {
			return err
		}
		var own bool
		var held int
		var beside []string
		err := k.list(ctx, k.dir, true, func(names []string) {
			own, held = slices.Contains(names, k.name()), len(names)
		})
		if err != nil {
			return err
		}
		if !own {
			return errDeleted
		}
		err = k.list(ctx, k.lock, true, func(names []string) { beside = choose(names, "", locknode.Contends) })
		if err != nil {
			return err
		}
		before, err := k.earlier(ctx, k.lock, beside)
		switch {
		case err != nil:
			return err
		case before == "" && held <= leases && waited && gate.yields > 0:
			return gate.stillFirst(ctx)
		case before == "" && held <= leases:
			return nil
		case !wait:
			r := &refusal{status: locked, text: "all leases are held", behind: before}
			r.situation, err = k.withoutLease(ctx, before)
			return cmp.Or[error](err, r)
		}
		behind := func(ctx context.Context) (*situation, error) { return k.withoutLease(ctx, before) }
		if err := k.awaitEvent(ctx, before, behind); err != nil {
			return err
		}
	}
}

// stillFirst returns errYields if a more urgent contender has come to the gate behind this one.
func (k *contender) stillFirst(ctx context.Context) error {
	_, better, err := k.front(ctx)
	if err == nil && better != "" {
		err = errYields
	}
	return err
}

// remove deletes the node.
func (k *contender) remove(ctx context.Context) error {
	got, err := k.call(ctx, wire.OpDelete, &wire.DeleteRequest{Path: k.path, Version: -1})
	if err == nil && got.code != wire.CodeOK && got.code != wire.CodeNoNode {
		err = codeRefusal("DELETE of "+k.path, got.code)
	}
	return err
}
