package main

import (
	"strings"
	"testing"

	"lockkeeper/server/zoocfg"
)

func TestHelpConfigOfAKey(t *testing.T) {
	t.Parallel()
	const want = "maxClientCnxns\n" +
		"\ttype       integer\n" +
		"\tunit       connections\n" +
		"\tdefault    60\n" +
		"\tZooKeeper  maxClientCnxns\n" +
		"\n" +
		"\tHow many connections one client address may have. 0 and less mean no limit.\n"
	if status, stdout, stderr := invoke("help", "config", "maxClientCnxns"); status != exitOK || stdout != want || stderr != "" {
		t.Errorf("status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
	for key, part := range map[string]string{
		"zookeeper.snapCount": "snapCount\n", "server.3": "server.N\n", "server.N": "server.N\n", "logStore": "it is lockkeeper's own\n",
		"sslQuorum": "Whether members speak TLS", "preAllocSize": "Without effect",
	} {
		if status, stdout, _ := invoke("help", "config", key); status != exitOK || !strings.Contains(stdout, part) {
			t.Errorf("%s: status %d, %q", key, status, stdout)
		}
	}
}

func TestHelpConfigSuggests(t *testing.T) {
	t.Parallel()
	const want = "lockkeeper: no configuration key \"maxclientcnxn\"\nDid you mean: lockkeeper help config maxClientCnxns\n'lockkeeper help config' lists the keys.\n"
	status, stdout, stderr := invoke("help", "config", "tickTime", "maxclientcnxn")
	if status != exitUsage || !strings.HasPrefix(stdout, "tickTime\n") || stderr != want {
		t.Errorf("status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
}

// TestHelpConfigLists: each key once, and each can be asked for.
func TestHelpConfigLists(t *testing.T) {
	t.Parallel()
	_, list, _ := invoke("help", "config")
	for _, k := range zoocfg.Keys() {
		if n := strings.Count(list, "\t"+k.Name+"\n"); n != 1 {
			t.Errorf("%s is listed %d times", k.Name, n)
		}
		if status, text, _ := invoke("help", "config", k.Name); status != exitOK || !strings.HasPrefix(text, k.Name+"\n") {
			t.Errorf("help config %s: status %d, %q", k.Name, status, text)
		}
	}
}

func TestWrap(t *testing.T) {
	got := strings.Join(wrap("one two three seventeen x", 9), "|")
	if got != "one two|three|seventeen|x" {
		t.Error(got)
	}
}
