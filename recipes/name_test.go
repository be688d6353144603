package recipes

import (
	"regexp"
	"testing"

	"lockkeeper/locknode"
)

func TestProtect(t *testing.T) {
	// What Curator's UUID.randomUUID().toString() and its prefix make.
	want := regexp.MustCompile(`^_c_[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}-lock-$`)
	seen := make(map[string]bool)
	for range 100 {
		name := protect(lockName)
		if !want.MatchString(name) {
			t.Fatalf("protect = %q, want a match of %s", name, want)
		}
		if seen[name] {
			t.Fatalf("%q came twice", name)
		}
		seen[name] = true
	}
}

func TestSequence(t *testing.T) {
	for _, tt := range []struct {
		name string
		want int64
		ok   bool
	}{
		{"_c_34c73d33-a364-4285-8dd6-8b05f149fed9-lock-0000000000", 0, true}, // Curator, and ours
		{"_c_34c73d33a36442858dd68b05f149fed9-lock-0000000012", 12, true},    // go-zookeeper
		{"b7bfcd3227404d3880a0eccd4e5100cf__lock__0000000003", 3, true},      // kazoo Lock
		{"b7bfcd3227404d3880a0eccd4e5100cf__rlock__0000000004", 4, true},     // kazoo ReadLock
		{"_c_34c73d33-a364-4285-8dd6-8b05f149fed9-__WRIT__0000000005", 5, true},
		{"x2147483647", 2147483647, true},
		{"0000000007", 7, true},
		{"lock-000000007", 0, false},
		{"lock-", 0, false},
		{"config", 0, false},
		{"", 0, false},
	} {
		if n, ok := locknode.Sequence(tt.name); n != tt.want || ok != tt.ok {
			t.Errorf("locknode.Sequence(%q) = %d, %v, want %d, %v", tt.name, n, ok, tt.want, tt.ok)
		}
	}
}

func TestPredecessor(t *testing.T) {
	const own = "_c_ffffffff-0000-4000-8000-000000000000-lock-0000000010"
	for _, tt := range []struct {
		about    string
		children []string
		want     string
		found    bool
	}{
		{"alone", []string{own}, "", true},
		{"not there", []string{"a-lock-0000000001"}, "a-lock-0000000001", false},
		{"the nearest in front", []string{"z-lock-0000000001", own, "b-lock-0000000009", "a-lock-0000000011", "y-lock-0000000008"}, "b-lock-0000000009", true},
		{"only behind", []string{"a-lock-0000000011", own}, "", true},
		{"kazoo in front", []string{own, "00__lock__0000000002"}, "00__lock__0000000002", true},
		{"a kazoo reader in front", []string{own, "00__rlock__0000000002"}, "00__rlock__0000000002", true},
		{"of the same number", []string{"b-lock-0000000009", own, "a-lock-0000000010"}, "a-lock-0000000010", true},
		{"not contenders", []string{own, "config", "0"}, "", true},
	} {
		if name, found := locknode.Predecessor(tt.children, own, false, nil); name != tt.want || found != tt.found {
			t.Errorf("%s: predecessor = %q, %v, want %q, %v", tt.about, name, found, tt.want, tt.found)
		}
	}
}

func TestKindOf(t *testing.T) {
	for _, tt := range []struct {
		name    string
		kind    Kind
		library string
	}{
		{"_c_34c73d33-a364-4285-8dd6-8b05f149fed9-lock-0000000000", KindWrite, "curator"},
		{"_c_34c73d33-a364-4285-8dd6-8b05f149fed9-__WRIT__0000000005", KindWrite, "curator"},
		{"_c_34c73d33-a364-4285-8dd6-8b05f149fed9-__READ__0000000005", KindRead, "curator"},
		{"_c_34c73d33-a364-4285-8dd6-8b05f149fed9-lease-0000000005", KindLease, "curator"},
		{"_c_34c73d33a36442858dd68b05f149fed9-lock-0000000012", KindWrite, "go-zookeeper"},
		{"b7bfcd3227404d3880a0eccd4e5100cf__lock__0000000003", KindWrite, "kazoo"},
		{"b7bfcd3227404d3880a0eccd4e5100cf__rlock__0000000004", KindRead, "kazoo"},
		{"b7bfcd3227404d3880a0eccd4e5100cf", KindLease, "kazoo"},
		{"b7bfcd3227404d3880a0eccd4e5100cf-lock-0000000004", KindWrite, "kazoo"},
		{"x-72057594037927937-0000000004", KindWrite, "zookeeper"},
		{"x-0100c0ffee-0000000004", KindWrite, "zookeeper"},
		{"x-0000000004", KindUnknown, ""},
		{"x--0000000004", KindUnknown, ""},
		{"n_0000000004", KindLead, "zookeeper"},
		{"__READ__", KindUnknown, ""},
		{"__READ__x0000000001", KindUnknown, ""},
		{"", KindUnknown, ""},
	} {
		if k := locknode.KindOf(tt.name); k != tt.kind {
			t.Errorf("locknode.KindOf(%q) = %v, want %v", tt.name, k, tt.kind)
		}
		if l := locknode.Library(tt.name, false); l != tt.library {
			t.Errorf("locknode.Library(%q) = %q, want %q", tt.name, l, tt.library)
		}
	}
}
