package server

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"lockkeeper/internal/testcert"
	"lockkeeper/server/ops"
	"lockkeeper/server/zoocfg"
)

const (
	oldSecret = "0123456789abcdef0123456789abcdef"
	newSecret = "fedcba9876543210fedcba9876543210"
)

// writeSecret replaces the file of a secret, as an operator does.
func writeSecret(t *testing.T, path string, secrets ...string) {
	t.Helper()
	next := path + ".new"
	if err := os.WriteFile(next, []byte(strings.Join(secrets, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
}

// logged keeps the lines of a log.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// TestSecretFileFaults: a fault of the file stops the start, with its name and the line of the key,
// and without a word of the secret.
func TestSecretFileFaults(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		mode os.FileMode
		want string
	}{
		"missing":      {"", 0, "no such file"},
		"empty":        {"\n \n", 0o600, "has no secret in it"},
		"short":        {"\ntoo short\n", 0o600, "the secret in line 2 has 9 bytes, and must have at least 32"},
		"three":        {oldSecret + "\n" + newSecret + "\n" + oldSecret, 0o600, "has 3 secrets, and may have two"},
		"long":         {strings.Repeat("x", 4<<10+1), 0o600, "more than 4096 bytes"},
		"all may read": {oldSecret, 0o604, "others than its owner may read or change it (its mode is 0604)"},
		"group writes": {oldSecret, 0o660, "its mode is 0660"},
		"a directory":  {"", os.ModeDir, "is no regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "secret")
			switch test.mode {
			case 0:
			case os.ModeDir:
				if err := os.Mkdir(path, 0o700); err != nil {
					t.Fatal(err)
				}
			default:
				writeFile(t, path, test.text)
				if err := os.Chmod(path, test.mode); err != nil {
					t.Fatal(err)
				}
			}
			dir := t.TempDir()
			writeFile(t, filepath.Join(dir, "myid"), "1\n")
			cfg := mustLoad(t, filepath.Join(dir, "zoo.cfg"), "dataDir=%s\nclientPort=%d\nserver.1=127.0.0.1:%d:1\nserver.2=127.0.0.1:2:3\nserver.3=127.0.0.1:4:5\npeer.secretFile=%s\n",
				dir, freePort(t), freePort(t), path)
			_, err := Start(cfg)
			var fault zoocfg.Fault
			if !errors.As(err, &fault) || fault.Line != 6 || fault.Key != "peer.secretFile" ||
				!strings.Contains(fault.Reason, path) || !strings.Contains(fault.Reason, test.want) ||
				strings.Contains(err.Error(), "too short") || strings.Contains(err.Error(), oldSecret) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestOpenPeerPortIsLoud: a member with a peer port that takes other hosts without a proof starts,
// and says so in its log, its metrics and its list of members; others do not.
func TestOpenPeerPortIsLoud(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	writeSecret(t, secret, oldSecret)
	certs := t.TempDir()
	testcert.NewCA(t, "members").Issue(t, testcert.Request{Hosts: []string{"127.0.0.1"}}).Write(t, certs, "tls")
	withTLS := fmt.Sprintf("quorumListenOnAllIPs=true\ntls.cert=%[1]s/tls.pem\ntls.key=%[1]s/tls.key\ntls.ca=%[1]s/tls.ca\n", certs)
	for name, test := range map[string]struct {
		more string
		open string
		auth string
	}{
		"open":            {"quorumListenOnAllIPs=true\n", "1", "open"},
		"loopback":        {"", "0", "loopback"},
		"secret":          {"quorumListenOnAllIPs=true\npeer.secretFile=" + secret + "\n", "0", "secret"},
		"optional secret": {"quorumListenOnAllIPs=true\npeer.secretOptional=true\npeer.secretFile=" + secret + "\n", "1", "open"},
		"TLS":             {withTLS + "sslQuorum=true\n", "0", "tls"},
		"TLS and secret":  {withTLS + "sslQuorum=true\npeer.secretFile=" + secret + "\n", "0", "tls+secret"},
		"TLS, or not":     {withTLS + "sslQuorum=true\nportUnification=true\n", "1", "open"},
		"no certificates": {withTLS + "sslQuorum=true\nssl.quorum.clientAuth=want\n", "1", "open"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			writeFile(t, filepath.Join(dir, "myid"), "1\n")
			cfg := mustLoad(t, filepath.Join(dir, "zoo.cfg"), "dataDir=%s\nclientPort=%d\nclientPortAddress=127.0.0.1\nstandaloneEnabled=false\nserver.1=127.0.0.1:%d:1\n4lw.commands.whitelist=*\n%s",
				dir, freePort(t), freePort(t), test.more)
			var out logged
			cfg.Logger = out.logger()
			s, err := Start(cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			awaitServing(t, s)
			loud := strings.Count(out.String(), "THE PEER PORT IS OPEN")
			if want := strings.Count("1", test.open); loud != want {
				t.Errorf("said %d times, want %d", loud, want)
			}
			if text := dialReal(t, s).word("mntr"); !strings.Contains(text, "zk_peer_port_open\t"+test.open+"\n") {
				t.Errorf("mntr:\n%s", text)
			}
			if list := s.Ops().Cluster().Listed(); len(list) != 1 || list[0].PeerAuth != test.auth {
				t.Errorf("list: %+v", list)
			}
		})
	}
}

// TestClusterWithASecret: members with the same secret are a cluster.
func TestClusterWithASecret(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	writeSecret(t, secret, oldSecret)
	members, _ := startCluster(t, "peer.secretFile="+secret+"\n")
	await(t, "a leader", func() bool { return members[0].Serving() && members[1].Serving() && members[2].Serving() })
	for _, l := range members[0].Ops().Cluster().Listed() {
		if l.PeerAuth != "secret" || l.State == ops.NoAnswer {
			t.Errorf("%+v", l)
		}
	}
}
