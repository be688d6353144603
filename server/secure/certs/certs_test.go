package certs

import (
	"crypto/tls"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"lockkeeper/server/secure"
)

// newDir has an authority, two members and a client.
func newDir(t *testing.T) *Dir {
	t.Helper()
	d := &Dir{Path: filepath.Join(t.TempDir(), "certs")}
	if err := d.Init("first"); err != nil {
		t.Fatal(err)
	}
	_, err := d.Issue(Request{Name: "member-1", Hosts: []string{"one.example.com", "127.0.0.1"}, Member: true},
		Request{Name: "member-2", Hosts: []string{"two.example.com"}, Member: true}, Request{Name: "app"})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// keeper opens a copy of the files of a holder as a zoo.cfg would, as of now.
func keeper(t *testing.T, d *Dir, name string) *secure.Keeper {
	t.Helper()
	at := t.TempDir()
	if err := os.CopyFS(at, os.DirFS(d.at(name))); err != nil {
		t.Fatal(err)
	}
	k, err := secure.Open(secure.Settings{
		KeyStore:   secure.Store{File: filepath.Join(at, PairFile), Type: secure.PEM, Key: "tls.cert"},
		TrustStore: secure.Store{File: filepath.Join(at, AuthorityFile), Type: secure.PEM, Key: "tls.ca"}})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// meet has a client connect to a host of a server with TLS, both with certificates.
func meet(t *testing.T, client, server *secure.Keeper, host string) error {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	served := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			_ = c.SetDeadline(time.Now().Add(patience))
			err = tls.Server(c, server.Server()).Handshake()
			_ = c.Close()
		}
		served <- err
	}()
	c, err := net.DialTimeout("tcp", l.Addr().String(), patience)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	err = tls.Client(c, client.Client(host)).Handshake()
	if err != nil {
		_ = c.Close()
	}
	err = errors.Join(err, <-served) // with TLS 1.3 a server refuses after the client has finished
	_ = c.Close()
	return err
}

const patience = 10 * time.Second

func TestHolders(t *testing.T) {
	d := newDir(t)
	one, two, app := keeper(t, d, "member-1"), keeper(t, d, "member-2"), keeper(t, d, "app")
	for name, c := range map[string]struct {
		client, server *secure.Keeper
		host           string
		ok             bool
	}{
		"client":                   {app, one, "one.example.com", true},
		"client, by address":       {app, one, "127.0.0.1", true},
		"member":                   {two, one, "one.example.com", true},
		"a host that it is not":    {two, one, "two.example.com", false},
		"a client that is no host": {one, app, "app", false},
	} {
		if err := meet(t, c.client, c.server, c.host); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, holders, err := d.List()
	if err != nil || len(holders) != 3 || holders[0].Name != "app" || holders[0].Member || !holders[1].Member ||
		!slices.Equal(holders[1].Hosts, []string{"one.example.com", "127.0.0.1"}) {
		t.Errorf("%+v, %v", holders, err)
	}
	first, err := os.ReadFile(d.at("member-1", SecretFile))
	if err != nil {
		t.Fatal(err)
	}
	second, err := os.ReadFile(d.at("member-2", SecretFile))
	if err != nil || string(first) != string(second) || len(first) < 2*secretBytes {
		t.Errorf("secrets %q and %q, %v", first, second, err)
	}
	if _, err := os.Stat(d.at("app", SecretFile)); err == nil {
		t.Error("a client has the secret of the members")
	}
}

// TestModes: nobody else reads a private key or the secret.
func TestModes(t *testing.T) {
	d := newDir(t)
	err := filepath.WalkDir(d.Path, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		want := privateFile
		switch {
		case e.IsDir():
			want = privateDir
		case e.Name() == AuthorityFile:
			want = publicFile
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v", path, info.Mode(), want)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestNothingIsOverwritten: existing files stay, byte for byte, and nothing is made beside them.
func TestNothingIsOverwritten(t *testing.T) {
	d := newDir(t)
	before := content(t, d.Path)
	for name, act := range map[string]func() error{
		"init":         func() error { return d.Init("again") },
		"a holder":     func() error { _, err := d.Issue(Request{Name: "new"}, Request{Name: "app"}); return err },
		"twice":        func() error { _, err := d.Issue(Request{Name: "new"}, Request{Name: "new"}); return err },
		"authority":    func() error { _, err := d.Issue(Request{Name: "authority"}); return err },
		"a path":       func() error { _, err := d.Issue(Request{Name: "../app"}); return err },
		"no host":      func() error { _, err := d.Issue(Request{Name: "member-3", Member: true}); return err },
		"no name":      func() error { _, err := d.Issue(Request{Name: "m", Hosts: []string{"a b"}, Member: true}); return err },
		"renew":        func() error { _, err := d.Renew("nobody"); return err },
		"rotate":       func() error { return d.Rotate("first") },
		"retire":       d.Retire,
		"no directory": func() error { _, err := (&Dir{Path: d.Path + "x"}).Issue(Request{Name: "new"}); return err },
	} {
		if err := act(); err == nil {
			t.Errorf("%s: no error", name)
		}
		if after := content(t, d.Path); !slices.Equal(before, after) {
			t.Errorf("%s changes files", name)
		}
	}
}

// content is all that is in a directory.
func content(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			all = append(all, path)
			return err
		}
		text, err := os.ReadFile(path)
		all = append(all, path, string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestRotation: in each step those who have the files of the step before, and those who have the
// new ones, let each other in; after the last one nobody trusts the old authority.
func TestRotation(t *testing.T) {
	d := newDir(t)
	type state struct{ member, client *secure.Keeper }
	take := func() state { return state{keeper(t, d, "member-1"), keeper(t, d, "app")} }
	states := []state{take()}
	for _, step := range []func() error{
		func() error { return d.Rotate("second") },
		func() error {
			if err := d.Retire(); err == nil || !strings.Contains(err.Error(), "renew app, member-1, member-2 first") {
				t.Errorf("retired too early: %v", err)
			}
			_, err := d.Renew("app")
			return err
		},
		func() error { _, err := d.Renew(); return err },
		d.Retire,
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
		states = append(states, take())
		before, after := states[len(states)-2], states[len(states)-1]
		for _, pair := range [][2]*secure.Keeper{{before.client, after.member}, {after.client, before.member}, {after.client, after.member}} {
			if err := meet(t, pair[0], pair[1], "one.example.com"); err != nil {
				t.Errorf("step %d: %v", len(states)-1, err)
			}
		}
	}
	first, last := states[0], states[len(states)-1]
	if meet(t, first.client, last.member, "one.example.com") == nil || meet(t, last.client, first.member, "one.example.com") == nil {
		t.Error("the old authority is trusted still")
	}
}

// TestValidity: a certificate ends with its authority at the latest, and an authority that has
// expired issues none.
func TestValidity(t *testing.T) {
	now := time.Now()
	d := &Dir{Path: filepath.Join(t.TempDir(), "certs"), AuthorityValidity: 48 * time.Hour, Now: func() time.Time { return now }}
	if err := d.Init("first"); err != nil {
		t.Fatal(err)
	}
	made, err := d.Issue(Request{Name: "app"})
	if err != nil || made[0].Expires.Sub(now).Round(time.Hour) != 48*time.Hour {
		t.Fatalf("%+v, %v", made, err)
	}
	now = now.Add(49 * time.Hour)
	if _, err := d.Renew(); err == nil || !strings.Contains(err.Error(), "the authority first expired on") {
		t.Errorf("an authority that has expired: %v", err)
	}
	if err := d.Rotate("second"); err != nil {
		t.Error(err)
	}
	if _, err := d.Renew(); err != nil {
		t.Error(err)
	}
}
