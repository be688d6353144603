package console

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/recipes"
)

const (
	manyLocks     = 10_000
	waitersOfEach = 5
	nodesAtOnce   = 250 // in one multi
	// bytesLimit bounds the bytes that a page receives in a second: as the stream's hello says, and
	// a little for the requests beside it.
	bytesLimit = 300 << 10
)

// TestMany: with ten thousand locks and fifty thousand waiters the page is as quick as with ten.
func TestMany(t *testing.T) {
	l := newLab(t)
	conns := make([]*zk.Conn, 1+waitersOfEach)
	for i := range conns {
		s := l.session()
		conns[i] = s.Conn().(*zk.Conn)
	}
	began := time.Now()
	l.fill(conns)
	t.Logf("figures: %d locks with %d waiters were made in %v", manyLocks, manyLocks*waitersOfEach, time.Since(began))

	l.b.resize(desktop)
	var views []time.Duration
	for range 5 {
		l.b.open(l.page(2), "locks")
		l.b.shows("#counts", "10,000 locks, 50,000 waiters")
		// By the browser's clock: from the start of the navigation to the first rows.
		ms := eval[float64](l.b, `performance.now()`)
		views = append(views, time.Duration(ms*float64(time.Millisecond)))
	}
	slices.Sort(views)
	t.Logf("figures: the first view of %d locks took %v (median), %v (longest)", manyLocks, views[len(views)/2], views[len(views)-1])
	began = time.Now()
	l.b.goTo("locks?search=t1234")
	l.b.shows("#counts", "1 of 10,000 locks")
	t.Logf("figures: a search took %v", time.Since(began))
	l.b.goTo("locks")
	l.b.shows("#counts", "10,000 locks, 50,000 waiters")

	// Updates: holders come and go all the time.
	stop := make(chan struct{})
	done := later(func() error { return churn(l.session().Conn(), stop) })
	// The first update comes when the page has had the seconds that its first view counts for.
	before := l.b.bytesReceived()
	for first := before; before == first; before = l.b.bytesReceived() {
		if l.ctx.Err() != nil {
			t.Fatal("the page receives nothing")
		}
		time.Sleep(100 * time.Millisecond)
	}
	from := time.Now()
	const measured = 5 * time.Second
	time.Sleep(measured) // this is the measurement
	perSecond := float64(l.b.bytesReceived()-before) / time.Since(from).Seconds()
	close(stop)
	l.must(<-done)
	t.Logf("figures: while locks change all the time the page receives %.0f KiB a second", perSecond/1024)
	if perSecond > bytesLimit {
		t.Errorf("the page receives %.0f bytes a second, want at most %d", perSecond, bytesLimit)
	}
	busy := eval[float64](l.b, `new Promise((done) => { let longest = 0, last = performance.now(), n = 0;
		const step = () => { const now = performance.now(); longest = Math.max(longest, now - last); last = now; ++n < 120 ? requestAnimationFrame(step) : done(longest) }; step() })`)
	t.Logf("figures: the longest time between two of 120 frames was %.0f ms", busy)
}

// fill makes the locks: the first session holds all of them, each of the others waits for all.
func (l *lab) fill(conns []*zk.Conn) {
	l.t.Helper()
	acl := zk.WorldACL(zk.PermAll)
	_, err := conns[0].Create("/tenants", nil, 0, acl)
	l.must(err)
	path := func(i int) string { return fmt.Sprintf("/tenants/t%04d", i) }
	batches := func(conn *zk.Conn, make func(i int) any) error {
		for from := 0; from < manyLocks; from += nodesAtOnce {
			ops := []any{}
			for i := from; i < from+nodesAtOnce; i++ {
				ops = append(ops, make(i))
			}
			if _, err := conn.Multi(ops...); err != nil {
				return err
			}
		}
		return nil
	}
	l.must(batches(conns[0], func(i int) any { return &zk.CreateRequest{Path: path(i), Acl: acl} }))
	for _, conn := range conns { // one after the other, so that the first one holds
		l.must(batches(conn, func(i int) any {
			return &zk.CreateRequest{Path: path(i) + "/_c_0f3c9a2b7d1e4b6f9f0e0f3c9a2b7d1e-lock-", Acl: acl, Flags: zk.FlagEphemeral | zk.FlagSequence}
		}))
	}
}

// churn has locks come and go.
func churn(conn recipes.Conn, stop <-chan struct{}) error {
	acl := zk.WorldACL(zk.PermAll)
	for i := 0; ; i++ {
		select {
		case <-stop:
			return nil
		case <-time.After(5 * time.Millisecond):
		}
		path := fmt.Sprintf("/tenants/t%04d", i%50)
		node, err := conn.Create(path+"/_c_0f3c9a2b7d1e4b6f9f0e0f3c9a2b7d1f-lock-", nil, zk.FlagEphemeral|zk.FlagSequence, acl)
		if err == nil {
			err = conn.Delete(node, -1)
		}
		if err != nil {
			return err
		}
	}
}
