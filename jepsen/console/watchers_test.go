package console

import (
	"bufio"
	"flag"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/recipes"
)

var watchersTime = flag.Duration("watchers", 0, "TestWatchersCost measures for so long, twice; 0: it is skipped")

// TestWatchersCost measures a member's share of a core while 1,000 locks change all the time and
// five watch it, or nobody.
func TestWatchersCost(t *testing.T) {
	if *watchersTime == 0 {
		t.Skip("measures for minutes; not without -watchers 20s")
	}
	l := startLab(t, 4*time.Minute+4**watchersTime, nil)
	conn := l.session().Conn().(*zk.Conn)
	acl := zk.WorldACL(zk.PermAll)
	if _, err := conn.Create("/tenants", nil, 0, acl); err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		path := fmt.Sprintf("/tenants/t%04d", i)
		if _, err := conn.Create(path, nil, 0, acl); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := conn.Create(path+"/_c_0f3c9a2b7d1e4b6f9f0e0f3c9a2b7d1e-lock-", nil, zk.FlagEphemeral|zk.FlagSequence, acl); err != nil {
				t.Fatal(err)
			}
		}
	}
	stop := make(chan struct{})
	var loads []<-chan error
	for range 2 {
		c := l.session().Conn()
		loads = append(loads, later(func() error { return change(c, stop) }))
	}
	watched := l.cluster.Members()[1]
	share := func() float64 {
		before, err := watched.CPU()
		l.must(err)
		from := time.Now()
		time.Sleep(*watchersTime) // this is the measurement
		after, err := watched.CPU()
		l.must(err)
		return 100 * (after - before).Seconds() / time.Since(from).Seconds()
	}
	for range 2 {
		alone := share()
		var closers []func()
		for _, view := range []string{"locks", "locks&sort=path", "lock&path=/tenants/t0007", "trouble", "history&path=/tenants/t0007"} {
			resp, err := http.Get(l.page(2) + "api/v1/events?view=" + view)
			l.must(err)
			go func() {
				for r := bufio.NewReader(resp.Body); ; {
					if _, err := r.ReadString('\n'); err != nil {
						return
					}
				}
			}()
			closers = append(closers, func() { _ = resp.Body.Close() })
		}
		five := share()
		for _, c := range closers {
			c()
		}
		t.Logf("figures: member 2 uses %.2f %% of a core with nobody watching, %.2f %% with five: %.2f %% more", alone, five, five-alone)
	}
	close(stop)
	for _, done := range loads {
		l.must(<-done)
	}
}

// change has contenders come and go in all locks, a hundred a second.
func change(conn recipes.Conn, stop <-chan struct{}) error {
	acl := zk.WorldACL(zk.PermAll)
	for i := 0; ; i++ {
		select {
		case <-stop:
			return nil
		case <-time.After(10 * time.Millisecond):
		}
		node, err := conn.Create(fmt.Sprintf("/tenants/t%04d/_c_0f3c9a2b7d1e4b6f9f0e0f3c9a2b7d1f-lock-", i%1000), nil, zk.FlagEphemeral|zk.FlagSequence, acl)
		if err == nil {
			err = conn.Delete(node, -1)
		}
		if err != nil {
			return err
		}
	}
}
