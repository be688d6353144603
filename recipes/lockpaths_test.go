package recipes

import (
	"errors"
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
