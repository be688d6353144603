package zoocfg

import (
	"strings"
	"testing"
)

func TestNearestKey(t *testing.T) {
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
		if got, _ := NearestKey(key); got != want {
			t.Errorf("NearestKey(%q) = %q, want %q", key, got, want)
		}
	}
	if got, _ := NearestKey(strings.Repeat("x", 1<<20)); got == "" {
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

func TestMisspeltKey(t *testing.T) {
	for key, want := range map[string]string{
		"clientport": "clientPort", "CLIENTPORT": "clientPort", "tickTim": "tickTime", "tickTimee": "tickTime", "tikcTime": "tickTime", "tickTome": "tickTime",
		"zookeeper.skipAcl": "skipACL", "zookeeper.dataDir": "dataDir", "ssl.clientauth": "ssl.clientAuth", "4lw.command.whitelist": "4lw.commands.whitelist",
		"server1": "server.1", "server,1": "server.1", "Server.12": "server.12", "sever.3": "server.3", "serevr.3": "server.3", "servers.3": "server.3",
		"authProviders.sasl": "authProvider.sasl", "authprovider.1": "authProvider.1",
		"tickTimeMs": "", "maxClientConnections": "", "serverId": "", "groups": "", "my.own.key": "", "": "", "x": "", "weightX": "",
	} {
		if got, ok := misspeltKey(key); ok != (want != "") || ok && got != want {
			t.Errorf("misspeltKey(%q) = %q, %v; want %q", key, got, ok, want)
		}
	}
}
