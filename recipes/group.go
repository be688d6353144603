package recipes

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// Group is a set of members that come and go, each with some data. A member is an ephemeral child
// of the group's path. Members made by Curator's GroupMember and by kazoo's Party and ShallowParty
// are members of the same group, and see those that are made here (kazoo's Party sees the ids that
// have "__party__" in them).
type Group struct {
	s    *Session
	path string
	acl  []zk.ACL
}

// Member is a member as the cluster knows it.
type Member struct {
	ID    string    // name of its node: the id in Curator
	Data  []byte    // kazoo's Party has its identifier here
	Token int64     // zxid with which it joined
	Since time.Time // when it joined, by the cluster's clock
}

// partyName is in the names that kazoo's Party takes for members.
const partyName = "__party__"

// NewGroup returns the group on a path. acl is for the nodes that are made; nil stands for
// [Config].ACL.
func NewGroup(s *Session, path string, acl []zk.ACL) *Group {
	return &Group{s: s, path: path, acl: s.aclOr(acl)}
}

// Join makes the program a member. id has to be unique in the group; "" stands for an id that is
// made up, and that kazoo's Party understands. If the id is in use the error is ErrTaken: also for
// a while after a member vanished without leaving, until its session times out.
//
// The membership ends with the session. To join again, in the next one, is another Join; see Again.
func (g *Group) Join(ctx context.Context, id string, data []byte) (*Membership, error) {
	if id == "" {
		id = newUUID() + partyName
	}
	if data == nil {
		data = []byte{}
	}
	grant, err := hold(ctx, holding{s: g.s, dir: g.path, name: id, data: data, acl: g.acl})
	if err != nil {
		return nil, fmt.Errorf("recipes: join %s as %s: %w", g.path, id, err)
	}
	return &Membership{g: g, grant: grant, id: id}, nil
}

// Membership is a place in a Group. Its methods may be called from any goroutine.
type Membership struct {
	g     *Group
	grant *Grant
	id    string
}

// ID returns the member's id.
func (m *Membership) ID() string { return m.id }

// Token returns the zxid with which the member joined: larger than any earlier member's with the
// same id.
func (m *Membership) Token() int64 { return m.grant.Token() }

// Lost returns a channel that is closed when the membership can no longer be relied on, as
// Grant.Lost does.
func (m *Membership) Lost() <-chan struct{} { return m.grant.Lost() }

// Err returns nil while the membership may be relied on, else why it may not; see Grant.Err.
func (m *Membership) Err() error { return m.grant.Err() }

// SetData changes the member's data. It may be written twice if a reply is lost.
func (m *Membership) SetData(ctx context.Context, data []byte) error {
	if err := setOwn(ctx, m.grant, data); err != nil {
		return fmt.Errorf("recipes: set data of %s: %w", m.grant.Node(), err)
	}
	return nil
}

// Leave ends the membership. It returns as Grant.Unlock does.
func (m *Membership) Leave(ctx context.Context) error {
	if err := m.grant.letGo(ctx); err != nil {
		return fmt.Errorf("recipes: leave %s: %w", m.g.path, err)
	}
	return nil
}

// setOwn changes the data of a grant's node.
func setOwn(ctx context.Context, g *Grant, data []byte) error {
	if data == nil {
		data = []byte{}
	}
	if err := g.Err(); err != nil {
		return err
	}
	return g.node.link.change(ctx, func(ctx context.Context, _ *lease) error {
		return g.node.link.again(ctx, g.node.lease, func() error {
			_, err := g.node.link.conn.Set(g.node.path, data, -1)
			if errors.Is(err, zk.ErrNoNode) {
				return ErrDeleted
			}
			return err
		})
	})
}

// Members returns the members, in the order in which they joined: those that had joined and not
// left when it was called, for certain.
func (g *Group) Members(ctx context.Context) ([]Member, error) {
	members, err := g.members(ctx)
	if err != nil {
		return nil, fmt.Errorf("recipes: members of %s: %w", g.path, err)
	}
	return members, nil
}

func (g *Group) members(ctx context.Context) ([]Member, error) {
	l, err := g.s.link.upToDate(ctx)
	if err != nil {
		return nil, err
	}
	return call(ctx, g.s.link, func(ctx context.Context) ([]Member, error) {
		members, _, err := g.look(ctx, l, nil)
		return members, err
	}, nil)
}

// Watch yields the members as they are, and again after every change of a member or of its data,
// until ctx or the session ends; the reason for the end is yielded last, with no members. A view
// that is yielded has been looked at after everything that came before it: no change that lasts is
// missed, a change between two looks that was undone may be.
func (g *Group) Watch(ctx context.Context) iter.Seq2[[]Member, error] {
	return func(yield func([]Member, error) bool) {
		err := g.watch(ctx, func(m []Member) bool { return yield(m, nil) })
		if err != nil {
			yield(nil, fmt.Errorf("recipes: watch %s: %w", g.path, err))
		}
	}
}

func (g *Group) watch(ctx context.Context, yield func([]Member) bool) error {
	type result struct {
		members []Member
		views   map[string]view
	}
	l, err := g.s.link.upToDate(ctx)
	if err != nil {
		return err
	}
	var last result
	for first := true; ; first = false {
		news := g.s.link.news()
		now, err := call(ctx, g.s.link, func(ctx context.Context) (r result, err error) {
			r.members, r.views, err = g.look(ctx, l, last.views)
			return r, err
		}, nil)
		if err != nil {
			return err
		}
		if first || !slices.EqualFunc(now.members, last.members, Member.equal) {
			if !yield(now.members) {
				return nil
			}
		}
		last = now
		if err := awaitAny(ctx, l, news, slices.Collect(maps.Values(now.views))...); err != nil {
			return err
		}
	}
}

func (m Member) equal(o Member) bool {
	return m.ID == o.ID && m.Token == o.Token && bytes.Equal(m.Data, o.Data)
}

// membersAtOnce is the number of members read at a time.
const membersAtOnce = 64

// look reads the group. Views of members in known that have not fired since are taken as they are.
// The view of the list itself has the key "".
func (g *Group) look(ctx context.Context, l *lease, known map[string]view) ([]Member, map[string]view, error) {
	var list view
	err := g.s.link.again(ctx, l, func() (err error) {
		list, err = g.s.watches.children(g.path)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	news := g.s.link.news()
	views := map[string]view{"": list}
	var mu sync.Mutex // guards views and failed
	var failed error
	var wg sync.WaitGroup
	room := make(chan struct{}, membersAtOnce)
	for _, id := range list.names {
		if v, ok := known[id]; ok && v.watch.stands(news) {
			mu.Lock()
			views[id] = v
			mu.Unlock()
			continue
		}
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			var v view
			err := g.s.link.again(ctx, l, func() (err error) {
				v, err = g.s.watches.whileThere(g.path + "/" + id)
				return err
			})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				failed = err
			case v.exists: // else the list is out of date, and its watch has fired
				views[id] = v
			}
		})
	}
	wg.Wait()
	if failed != nil {
		return nil, nil, failed
	}
	var members []Member
	for id, v := range views {
		if id != "" {
			members = append(members, Member{id, v.data, v.stat.Czxid, time.UnixMilli(v.stat.Ctime)})
		}
	}
	slices.SortFunc(members, func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.Token, b.Token), cmp.Compare(a.ID, b.ID))
	})
	return members, views, nil
}
