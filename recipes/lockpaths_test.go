package recipes

import (
	"errors"
	"net/url"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/go-zookeeper/zk"
)

func TestLockPaths(t *testing.T) {
	const hex = "b7bfcd3227404d3880a0eccd4e5100c1"
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		s, _ := newTestSession(c)
		defer s.Close()
		c.with(func() {
			for _, path := range []string{
				"/zookeeper", "/zookeeper/quota", "/a", "/a/m", "/a/m/x-lock-0000000001",
				"/sem", "/sem/leases", "/sem/leases/lease-0000000001", "/sem/locks",
				"/ksem", "/ksem/" + hex, "/ksem-__lock__", "/ksem-__lock__/" + hex + "__lock__0000000007",
				"/other-__lock__", "/other-__lock__/" + hex + "__lock__0000000008",
				// no lease is out
				"/ksem2", "/ksem2-__lock__", "/ksem2-__lock__/" + hex + "__lock__0000000009",
				"/sem/locks/more",   // a namespace that happens to look like a semaphore
				"/leases", "/locks", // the root is no semaphore
			} {
				if _, err := c.createLocked(path, nil, 0, 0); err != nil {
					t.Fatalf("%s: %v", path, err)
				}
			}
		})
		for _, tt := range []struct {
			root string
			want []string
		}{
			{"/", []string{"/a", "/a/m", "/ksem", "/ksem/" + hex, "/ksem2", "/leases", "/locks", "/other-__lock__", "/sem", "/sem/locks/more"}},
			{"/a", []string{"/a", "/a/m"}},
			{"/a/m/x-lock-0000000001", nil},
			{"/nowhere", nil},
		} {
			got, err := s.LockPaths(t.Context(), tt.root)
			if err != nil || !slices.Equal(got, tt.want) {
				t.Errorf("%s: %q %v, want %q", tt.root, got, err, tt.want)
			}
		}
		s.Close()
		if _, err := s.LockPaths(t.Context(), "/"); !errors.Is(err, ErrClosed) && !errors.Is(err, zk.ErrClosing) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// TestReport: a server that makes no reports is told from one that refuses, and from a lost
// session.
func TestReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		s, _ := newTestSession(c)
		defer s.Close()
		if _, err := s.Report(t.Context(), "queues", nil); !errors.Is(err, ErrNoReport) {
			t.Errorf("as ZooKeeper: %v", err)
		}
		c.with(func() {
			for _, path := range []string{"/zookeeper", "/zookeeper/api", "/zookeeper/api/v1", "/zookeeper/api/v1/queues?under=%2Fl"} {
				if _, err := c.createLocked(path, []byte("{}"), 0, 0); err != nil {
					t.Fatal(err)
				}
			}
		})
		if data, err := s.Report(t.Context(), "queues", url.Values{"under": {"/l"}}); err != nil || string(data) != "{}" {
			t.Errorf("%q, %v", data, err)
		}
		s.Close()
		if _, err := s.Report(t.Context(), "queues", nil); errors.Is(err, ErrNoReport) || err == nil {
			t.Errorf("after Close: %v", err)
		}
	})
}
