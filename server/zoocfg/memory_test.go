package zoocfg

import (
	"os"
	"path/filepath"
	"testing"

	"lockkeeper/quorum/peer"
)

// bounds adds up what clients can make a member take with these limits, and what other programs at
// the peer port can, in bytes: the tables of docs/security.md.
func bounds(c *Config) (clients, peers int64) {
	const (
		sessionRow = 400      // in the state
		commands   = 48 << 20 // on their way to the leader, and waiting there
		process    = 64 << 20 // what a member takes that has no clients, garbage included
		listings   = 2        // at a time: server.listingsAtOnce
		watchRow   = 32       // in the list that a listing of watches is made of
		nodeRow    = 24       // in that of ephemeral nodes
		nodeBytes  = 512      // that a node counts for, at least
	)
	l := &c.Limits
	for _, n := range []int{
		l.DataBytes, l.DataBytes, // twice while a snapshot of the leader replaces the state
		l.Memory, l.Memory, // the limit, and the fair part of each connection
		l.WatchBytes, l.WatchBytes / 4,
		c.Client.MaxCnxns * ConnBytes,
		l.Sessions * sessionRow,
		l.SessionsPerAddr * l.IdentityBytes,
		c.Console.IndexBytes,
		c.HTTP.Locks * ConnBytes, 3 << 20, // locks over HTTP, of which one at a time lists
		listings * (2*l.Response + max(l.WatchBytes/400*watchRow, l.DataBytes/nodeBytes*nodeRow)),
	} {
		clients += int64(n)
	}
	return clients + commands + process, 2 * int64(c.Cluster.FrameBytes)
}

// With the defaults no client can make a member take more than maxMemory. With what the peer port
// takes besides, which clients cannot cause, it is not more than 300 MiB above that.
//
// Defends: C9.
func TestBoundsAddUp(t *testing.T) {
	for _, memory := range []int{1 << 30, 2 << 30, 4 << 30, 16 << 30, 64 << 30} {
		c := Config{MaxMemory: memory}.WithDefaults()
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		clients, peers := bounds(&c)
		t.Logf("maxMemory %d MB: clients %d MB, peers %d MB", memory>>20, clients>>20, peers>>20)
		if clients > int64(memory) || clients+peers > int64(memory)+300<<20 {
			t.Errorf("maxMemory=%d: clients can make a member take %d, and peers %d more", memory, clients, peers)
		}
	}
}

// The smallest maxMemory is a configuration that works.
func TestSmallestMemory(t *testing.T) {
	c := Config{MaxMemory: minMaxMemory}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	if c = c.WithDefaults(); c.Cluster.FrameBytes != peer.DefaultFrameBytes || c.Limits.Response < 2*MaxMaxBuffer {
		t.Errorf("%+v", c.Limits)
	}
	if n := defaultMemory(); n < minMaxMemory || n > maxMemoryByDefault {
		t.Errorf("by default it is %d", n)
	}
	unlimited := Config{Client: Client{MaxCnxnsPerAddr: Unlimited}}.WithDefaults()
	if n := unlimited.Limits.SessionsPerAddr; n != Unlimited {
		t.Errorf("without a limit of connections per address there are %d sessions per address", n)
	}
}

func TestReadNumber(t *testing.T) {
	for _, test := range []struct {
		text, prefix string
		want         int64
		ok           bool
	}{
		{"536870912\n", "", 536870912, true}, {"max\n", "", 0, false}, {"", "", 0, false}, {"\n", "", 0, false},
		{"MemFree: 1 kB\nMemTotal:       24689764 kB\n", "MemTotal:", 24689764, true},
	} {
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if n, ok := readNumber(file, test.prefix); n != test.want || ok != test.ok {
			t.Errorf("%q: %d, %v", test.text, n, ok)
		}
	}
	if _, ok := readNumber(filepath.Join(t.TempDir(), "none"), ""); ok {
		t.Error("a file that there is not")
	}
}
