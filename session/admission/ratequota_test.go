package admission

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/wire"
)

// Tenants that have paid their debts are forgotten.
func TestRateQuotaForgetsTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Config{RateQuotas: []RateQuota{{Path: "/*", Writes: 1}}, MaxTimeout: time.Minute})
		a := new(Account)
		g.Open(a, nil)
		for i := range 10 * tenantsKept {
			g.Charge(a, &wire.DeleteRequest{Path: fmt.Sprintf("/%d", i), Version: -1}, nil, 50, true)
			time.Sleep(10 * time.Millisecond)
		}
		if n := len(g.rates.tenants); n > tenantsKept {
			t.Errorf("%d tenants are known", n)
		}
	})
}

func TestSubtree(t *testing.T) {
	for _, c := range []struct{ pattern, path, root string }{
		{"/a", "/a", "/a"}, {"/a", "/a/b", "/a"}, {"/a", "/ab", ""}, {"/a", "/", ""},
		{"/a/*", "/a/b", "/a/b"}, {"/a/*", "/a/b/c", "/a/b"}, {"/a/*", "/a", ""}, {"/a/*", "/ab/c", ""}, {"/a/*", "/a/", ""},
		{"/*", "/a/b", "/a"}, {"/*", "/", ""},
	} {
		if root, ok := subtree(c.pattern, c.path); root != c.root && ok || ok != (c.root != "") {
			t.Errorf("%s of %s: %q, %v", c.pattern, c.path, root, ok)
		}
	}
}
