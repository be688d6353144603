package recipes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/locknode"
)

// place is one contender's place in the queue of a path: an ephemeral
// sequential node, from before its creation until it is certain that it is
// gone. One goroutine at a time works on it.
//
// What makes this more than a create and a delete is that a reply can get lost.
// The rules:
//
//   - The node's name holds a UUID, so that it can be found again.
//   - Before we look for it, we make a barrier: a write that changes nothing
//     (writeNothing). The cluster orders it behind everything that it will ever
//     accept of the session's older connections; a plain read on a new connection
//     may come too early to see a create that is still on its way to the server
//     that answers.
//   - A node that another session owns is not ours, even if it has our UUID.
type place struct {
	s      *Session
	dir    string // the path that is fought for
	prefix string // of our node: everything but the sequence number
	data   []byte
	acl    []zk.ACL
	kind   Kind

	// What makes one recipe differ from another; all may be zero.
	// the queue to come through first; nil when there is none, or it was left
	gate *place
	// waits until it is our turn; nil stands for await
	turn   func(ctx context.Context, wait bool) error
	single bool   // the node has no number, see SimpleMutex
	delay  *delay // see delay.go

	lease *lease // of the session that we queue in
	node  string // full path of our node; "" if not known
	doubt bool   // there may be a node that we do not know of
	// the node has a name of its own, see ephemeral.go; nil: a sequence number
	named *named
	owned bool            // node belongs to lease's session, and so goes with it
	token int64           // czxid of node
	ctime int64           // when the cluster made node, in ms, by its clock
	made  time.Time       // a time at which node was there already
	own   <-chan zk.Event // watch on node
	first chan look       // the first look at the queue; nil once it was taken
	wants bool            // counted in lease.waiting

	// passed are nodes that need not be waited for: those that belong to no session,
	// writers in front of a reader whose owners only read by now, leases and nodes with
	// our number that came later.
	passed map[string]bool

	// what the place is waiting for, for error messages; read by the caller of
	// an acquire that ends. A gate shares it.
	doing *atomic.Pointer[string]
}

// newPlace is a place in the queue of dir, for a node called base.
func newPlace(s *Session, dir, base string, kind Kind, o MutexOptions) *place {
	p := &place{
		s:      s,
		dir:    dir,
		prefix: protect(base),
		data:   o.Data,
		acl:    s.aclOr(o.ACL),
		kind:   kind,
		doing:  new(atomic.Pointer[string]),
	}
	if p.data == nil {
		p.data = encodeInfo(newInfo(o.Note))
	}
	p.setDoing("starting")
	return p
}

func (p *place) setDoing(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	p.doing.Store(&text)
}

func (p *place) name() string {
	_, name := split(p.node)
	return name
}

// enter makes the node and watches it.
func (p *place) enter(ctx context.Context, wait bool) error {
	if p.lease == nil { // else it is that of the gate
		p.setDoing("waiting for a connection")
		lease, err := p.s.ready(ctx)
		if err != nil {
			return err
		}
		p.lease = lease
	}
	p.setDoing("joining the queue")
	if err := p.create(ctx, wait); err != nil {
		return err
	}
	if p.single {
		return p.watchOwn(ctx)
	}
	if n, ok := locknode.Sequence(p.name()); !ok {
		return fmt.Errorf("server made a node without a sequence number: %s", p.node)
	} else if n >= locknode.MaxSequence {
		return ErrExhausted
	}
	// Both requests at once: it is the round trips that an acquire takes its time
	// for. The list may be older than the watch; await looks again when the watch
	// fires, and watchOwn fails if the node has gone.
	if p.turn == nil {
		p.first = make(chan look, 1)
		if !p.s.spawn(func() { p.first <- p.look() }) {
			return p.s.closed()
		}
	}
	return p.watchOwn(ctx)
}

// create makes the node, once. The outcome of a lost request is settled before
// another is sent.
func (p *place) create(ctx context.Context, wait bool) error {
	for attempt := 1; ; attempt++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		sent := time.Now()
		node, err := p.make()
		switch fateOf(err) {
		case fateDone:
			p.node = node
			p.s.mu.Lock()
			p.lease.proveLocked(sent)
			p.s.mu.Unlock()
			return nil
		case fateRefused:
			if p.single && errors.Is(err, zk.ErrNodeExists) {
				if err := p.awaitFree(ctx, wait); err != nil {
					return err
				}
				continue
			}
			if !errors.Is(err, zk.ErrNoNode) {
				return err
			}
			if err := p.makeDir(ctx, p.parent()); err != nil {
				return err
			}
			continue
		case fateStrange:
			p.doubt = true
			return err
		}
		p.doubt = true
		if err := p.settle(ctx, attempt); err != nil {
			return err
		}
		if p.node != "" {
			return nil
		}
	}
}

// make sends the request for the node.
func (p *place) make() (string, error) {
	if p.single {
		return p.s.conn.Create(p.dir, p.data, zk.FlagEphemeral, p.acl)
	}
	return p.s.conn.Create(p.dir+"/"+p.prefix, p.data, zk.FlagEphemeralSequential, p.acl)
}

// settle finds out, after a create whose outcome is unknown, whether there is a
// node now. It keeps asking until it knows.
func (p *place) settle(ctx context.Context, attempt int) error {
	for ; ; attempt++ {
		if err := p.s.pause(ctx, attempt); err != nil {
			return err
		}
		if err := p.over(); err != nil {
			return err
		}
		nodes, err := p.find()
		switch fateOf(err) {
		case fateDone:
			p.doubt = false
			if len(nodes) > 0 {
				p.node = nodes[0]
			}
			return nil
		case fateUnknown:
		default:
			return err
		}
	}
}

// parent is the node that has to exist for ours to be made.
func (p *place) parent() string {
	if !p.single {
		return p.dir
	}
	dir, _ := split(p.dir)
	return dir
}

// find lists the nodes that carry our UUID. What it does not find does not
// exist and will not come to exist, unless we make another create.
func (p *place) find() ([]string, error) {
	if p.named != nil {
		return p.seekOwn()
	}
	if err := p.s.writeNothing(); err != nil {
		return nil, err
	}
	if p.single {
		return p.findSingle()
	}
	names, _, err := p.s.conn.Children(p.dir)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var nodes []string
	for _, n := range names {
		if strings.HasPrefix(n, p.prefix) {
			nodes = append(nodes, p.dir+"/"+n)
		}
	}
	return nodes, nil
}

// makeDir makes a path and its parents, as containers: the cluster removes them
// some time after they have become empty. Curator does the same.
func (p *place) makeDir(ctx context.Context, dir string) error {
	for attempt := 1; ; attempt++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		_, err := p.s.conn.CreateContainer(dir, []byte{}, zk.FlagContainer, p.acl)
		parent, _ := split(dir)
		switch {
		case err == nil, errors.Is(err, zk.ErrNodeExists):
			return nil
		case errors.Is(err, zk.ErrNoNode) && parent != "":
			if err := p.makeDir(ctx, parent); err != nil {
				return err
			}
		case fateOf(err) == fateUnknown:
			if err := p.s.pause(ctx, attempt); err != nil {
				return err
			}
		default:
			return fmt.Errorf("create %s: %w", dir, err)
		}
	}
}

// watchOwn sets the watch on our node and reads its token.
func (p *place) watchOwn(ctx context.Context) error {
	for attempt := 1; ; attempt++ {
		data, stat, events, err := p.s.conn.GetW(p.node)
		switch fateOf(err) {
		case fateDone:
			if over := p.over(); over != nil {
				return over
			}
			if stat.EphemeralOwner != p.lease.id {
				// The create was carried out in the next session, or what we
				// found is left over from the one before.
				return ErrExpired
			}
			if i := locknode.ParseInfo(data); p.single && (i == nil || i.ID != p.prefix) {
				p.doubt = true
				return ErrDeleted // and made again, by another one of our session
			}
			p.owned, p.token, p.own = true, stat.Czxid, events
			p.ctime = stat.Ctime
			if p.made.IsZero() {
				p.made = time.Now()
			}
			return nil
		case fateUnknown:
			if err := p.s.pause(ctx, attempt); err != nil {
				return err
			}
		default:
			return p.gone(err)
		}
	}
}

// gone translates the error of a call that needs our node to exist.
func (p *place) gone(err error) error {
	if !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	if over := p.over(); over != nil {
		return over
	}
	return ErrDeleted
}

// over reports why the session that we queued in has ended, or nil.
func (p *place) over() error {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.s.observeLocked()
	return p.lease.endErr
}

// await returns nil when nobody is in front of us any more, or ErrLocked if
// somebody is and we are not to wait.
//
// It watches the node next before ours and no other, so that a release wakes one
// contender. When that node goes we look at the whole queue again, for it may
// have gone without having had the lock. We also look after a reconnect:
// go-zookeeper sets its watches again then, but does not say if that fails.
func (p *place) await(ctx context.Context, wait bool) error {
	waited, still := false, "" // still is who was in front, if that need not be found out again
	for attempt := 1; ; {
		changed := p.s.news()
		front, err := still, error(nil)
		if still = ""; front == "" {
			// A grant needs a fresh proof. There is one if the node was just created; after a wait
			// it is fetched while the queue is read.
			p.want(waited)
			front, err = p.front()
		}
		var v view
		if err == nil && front != "" {
			v, err = p.read(front, wait)
		}
		switch {
		case fateOf(err) == fateUnknown:
			if err := p.s.pause(ctx, attempt); err != nil {
				return err
			}
			attempt++
			continue
		case !wait && front != "" && errors.Is(err, zk.ErrNoAuth):
			return ErrLocked // by one whose node we may not read
		case err != nil:
			return err
		case front == "":
			return nil
		case !v.exists:
			continue // gone already
		case !ephemeral(v.stat.EphemeralOwner), twinBehind(front, p.name(), v.stat.Czxid, p.token),
			p.kind == KindRead && downgraded(v.data):
			p.pass(front)
			continue
		case !wait:
			return ErrLocked
		}
		attempt, waited = 1, true
		p.want(false)
		p.setDoing("waiting behind %s", front)
		select {
		case <-v.watch.fired:
		case <-p.s.recheck(v.watch, changed):
			still = front
		case ev := <-p.own:
			if err := p.ownEvent(ctx, ev); err != nil {
				return err
			}
		case <-changed:
		case <-p.lease.ended:
			return p.over()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// read reads a node of the queue, and watches it if we are to wait for it.
func (p *place) read(name string, watch bool) (v view, err error) {
	path := p.dir + "/" + name
	if watch {
		return p.s.lookUntilGone(path)
	}
	v.data, v.stat, err = p.s.conn.Get(path)
	if errors.Is(err, zk.ErrNoNode) {
		return view{}, nil
	}
	v.exists = true
	return v, err
}

// pass notes that a node need not be waited for.
func (p *place) pass(name string) {
	if p.passed == nil {
		p.passed = make(map[string]bool)
	}
	p.passed[name] = true
}

// want registers, or no longer registers, the place as one that needs the
// lease to be proved.
func (p *place) want(on bool) {
	if on == p.wants {
		return
	}
	p.wants = on
	p.lease.want(on)
}

// look is a look at the queue: the node that we wait for, "" if it is our turn.
type look struct {
	front  string
	leases []string // those of semaphores on the same path, see lookLeases
	err    error
}

func (p *place) look() look {
	names, _, err := p.s.conn.Children(p.dir)
	if err != nil {
		return look{err: p.gone(err)}
	}
	front, found := predecessor(names, p.name(), func(name string) bool {
		reads := p.kind == KindRead
		return p.passed[name] || reads && locknode.KindOf(name) == KindRead
	})
	if !found {
		return look{err: p.gone(zk.ErrNoNode)}
	}
	p.s.warnOfStrangers(p.dir, names)
	leases, err := p.s.lookLeases(p.dir, names)
	return look{front: front, leases: leases, err: err}
}

// front looks at the queue. The first look has been under way since enter.
func (p *place) front() (string, error) {
	var l look
	if p.first != nil {
		l = <-p.first
		p.first = nil
	} else {
		l = p.look()
	}
	if l.err != nil || l.front != "" {
		return l.front, l.err
	}
	return p.earlier(p.dir, l.leases)
}

// ownEvent deals with an event of the watch on our node, which it sets again if
// the node is still there.
func (p *place) ownEvent(ctx context.Context, ev zk.Event) error {
	p.own = nil
	if err := p.over(); err != nil {
		return err
	}
	if ev.Type == zk.EventNodeDeleted {
		p.doubt = p.doubt || p.single // there may be another's by now
		return ErrDeleted
	}
	token := p.token
	if err := p.watchOwn(ctx); err != nil {
		p.doubt = p.doubt || p.single
		return err
	}
	if p.token != token {
		p.doubt = p.doubt || p.single
		return ErrDeleted // and made again, by somebody who copies names
	}
	return nil
}

// leave deletes what the place has made, and returns nil when it is certain that
// nothing is left and nothing will appear: for as long as the outcome of a
// request is unknown it goes on. Only the end of the Session stops it.
//
// ErrDeleted means that the node had been gone before.
func (p *place) leave() error {
	ctx := context.Background() // leave has no deadline; see above
	// A name that others' nodes have too must be ours for certain.
	p.doubt = p.doubt || p.single && p.node != "" && !p.owned
	first := true
	for attempt := 1; ; attempt++ {
		if p.single && p.lease != nil && p.over() == nil {
			// go-zookeeper keeps a request until it has a connection, and be it that of
			// the next session, when the node of this name is somebody else's.
			if _, err := p.s.ready(ctx); err != nil {
				return err
			}
		}
		nodes := []string{p.node}
		var err error
		switch {
		case p.doubt, p.named != nil && p.node != "" && p.over() == nil:
			nodes, err = p.find()
		case p.node == "", p.owned && p.over() != nil:
			return p.closed() // never made, or gone with its session
		}
		for i := 0; err == nil && i < len(nodes); i++ {
			err = p.remove(nodes[i])
			if errors.Is(err, zk.ErrNoNode) {
				err = nil
				if first && !p.doubt && p.over() == nil {
					return ErrDeleted
				}
			}
		}
		first = false
		switch fateOf(err) {
		case fateDone:
			return nil
		case fateRefused:
			p.s.log.Error("lock node cannot be deleted, it stays until the session ends",
				"path", p.dir, "node", p.prefix, "err", err)
			return err
		case fateUnknown:
			p.doubt = p.doubt || p.single // by now it may be somebody else's
		case fateStrange:
			p.doubt = p.doubt || p.single
			p.s.log.Warn("lock node not deleted, trying again", "path", p.dir, "node", p.prefix, "err", err)
		}
		if err := p.s.pause(ctx, attempt); err != nil {
			return err
		}
	}
}

// remove deletes our node, and in the same moment what we have left beside it.
func (p *place) remove(node string) error {
	if p.delay != nil {
		return p.removeMarked(node)
	}
	return p.s.conn.Delete(node, -1)
}

// quit leaves all queues that the place is in.
func (p *place) quit() error {
	err := p.leave()
	if p.gate == nil {
		return err
	}
	gerr := p.gate.leave()
	if err == nil && !errors.Is(gerr, ErrDeleted) {
		err = gerr
	}
	return err
}

// closed is the error of a Session that has ended, else nil.
func (p *place) closed() error {
	select {
	case <-p.s.quit:
		return p.s.closed()
	default:
		return nil
	}
}

// A semaphore's leases are no part of a lock's queue: kazoo's, which are children
// of the path, have no sequence numbers, and Curator's, in the child leases, have
// those of another node. So that a lock on the path of a semaphore waits for who has
// a lease, it compares czxids: it waits for the leases that were made before its own
// node was. Our semaphore does the same with the locks on its path, so that the two
// never wait for each other. kazoo's semaphore counts a lock's node as a lease,
// Curator's does not see it.

// lookLeases lists, relative to dir, whose children are names, the leases of
// semaphores. In a path without semaphores, that costs nothing.
func (s *Session) lookLeases(dir string, names []string) ([]string, error) {
	var leases []string
	for _, n := range names {
		if locknode.IsKazooLease(n) {
			leases = append(leases, n)
		}
	}
	if !slices.Contains(names, locknode.CuratorLeases) {
		return leases, nil
	}
	children, _, err := s.conn.Children(dir + "/" + locknode.CuratorLeases)
	if errors.Is(err, zk.ErrNoNode) {
		return leases, nil
	}
	for _, n := range children {
		if locknode.KindOf(n) == KindLease {
			leases = append(leases, locknode.CuratorLeases+"/"+n)
		}
	}
	return leases, err
}

// earlier returns the first of dir's children called names that was made before our
// node and is ephemeral, "" if there is none. The others need not be looked at again.
func (p *place) earlier(dir string, names []string) (string, error) {
	for _, name := range names {
		if p.passed[name] {
			continue
		}
		exists, stat, err := p.s.conn.Exists(dir + "/" + name)
		switch {
		case err != nil:
			return "", err
		case exists && ephemeral(stat.EphemeralOwner) && stat.Czxid < p.token:
			return name, nil
		}
		p.pass(name)
	}
	return "", nil
}

// lookBeside looks for contenders of other locks on a semaphore's path that were
// there before the lease p was made.
func (s *Session) lookBeside(path string, p *place) (found bool, changed <-chan struct{}, err error) {
	v, err := s.lookChildren(path)
	if err != nil {
		return false, nil, err
	}
	var names []string
	for _, n := range v.names {
		if _, ok := locknode.Sequence(n); ok || locknode.IsKazooLease(n) {
			names = append(names, n)
		}
	}
	first, err := p.earlier(path, names)
	return first != "", v.watch.fired, err
}
