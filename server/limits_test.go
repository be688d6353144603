package server

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"lockkeeper/server/zoocfg"
)

// TestLimitsAreAsDocumented: each setting in the tables of limits of docs/security.md is a key of
// zoo.cfg, and each counter is in mntr, of a member of a cluster that speaks TLS or of one that has
// an HTTP port.
func TestLimitsAreAsDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, limits, ok := strings.Cut(string(text), "\n## Limits\n")
	if !ok {
		t.Fatal("docs/security.md has no limits")
	}
	keys := map[string]bool{"ulimit -n": true}
	for _, k := range zoocfg.Keys() {
		keys[k.Name] = true
	}
	l := newCertLab(t)
	at := filepath.Join(l.dir, "server")
	members, _ := startCluster(t, "client.portUnification=true\nssl.clientAuth=none\n"+
		"tls.cert="+at+".pem\ntls.key="+at+".key\n")
	await(t, "a leader", func() bool { return members[0].Serving() })
	alone := startReal(t, func(cfg *Config) {
		allWords(cfg)
		cfg.HTTP.Addr = "127.0.0.1:0"
	})
	mntr := dialReal(t, members[0]).word("mntr") + dialReal(t, alone).word("mntr")
	code := regexp.MustCompile("`([^`]+)`")
	rows := 0
	for line := range strings.Lines(limits) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 7 || strings.HasPrefix(cells[2], "---") {
			continue
		}
		rows++
		for _, key := range code.FindAllStringSubmatch(cells[4], -1) {
			if !keys[key[1]] {
				t.Errorf("no key %s, for %s", key[1], cells[1])
			}
		}
		for _, counter := range code.FindAllStringSubmatch(cells[5], -1) {
			if !strings.Contains(mntr, "zk_"+counter[1]+"\t") {
				t.Errorf("no counter %s, for %s", counter[1], cells[1])
			}
		}
	}
	if rows < 40 {
		t.Errorf("%d limits", rows)
	}
}
