package server

import (
	"strings"
	"testing"
)

func TestNearestConfigKey(t *testing.T) {
	for key, want := range map[string]string{
		"clientport":               "clientPort",
		"tickTimes":                "tickTime",
		"tikcTime":                 "tickTime",
		"maxClientConnections":     "maxClientCnxns",
		"autopurge.purgeIntervall": "autopurge.purgeInterval",
		"zookeeper.skipAcl":        "skipACL",
		"servers.1":                "server.N",
		"sserver.12":               "server.N",
		"4lw.command.whitelist":    "4lw.commands.whitelist",
	} {
		if got, _ := NearestConfigKey(key); got != want {
			t.Errorf("NearestConfigKey(%q) = %q, want %q", key, got, want)
		}
	}
	if got, _ := NearestConfigKey(strings.Repeat("x", 1<<20)); got == "" {
		t.Error("no key is nearest to a very long one")
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0},
		{"abc", "abd", 1}, {"abc", "acb", 1}, {"abc", "ab", 1}, {"kitten", "sitting", 3},
		{"ca", "abc", 3}, // not 2: no part is edited twice
	} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
