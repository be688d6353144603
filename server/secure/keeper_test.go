package secure

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/testcert"
)

// lab is a directory with certificates of a server, and of a client.
type lab struct {
	*testing.T
	dir string
	ca  *testcert.CA
}

func newLab(t *testing.T) *lab {
	l := &lab{T: t, dir: t.TempDir(), ca: testcert.NewCA(t, "authority")}
	l.issue("server", "localhost", "127.0.0.1")
	l.issue("client", "localhost", "127.0.0.1")
	return l
}

func (l *lab) issue(name string, hosts ...string) testcert.Pair {
	pair := l.ca.Issue(l, testcert.Request{Subject: pkix.Name{CommonName: name}, Hosts: hosts})
	pair.Write(l, l.dir, name)
	return pair
}

// settings are the settings of a certificate's holder.
func (l *lab) settings(name string) Settings {
	at := func(suffix string) string { return filepath.Join(l.dir, name+suffix) }
	return Settings{
		KeyStore:   Store{File: at(".pem"), KeyFile: at(".key"), Type: PEM, Key: "tls.cert", KeyFileKey: "tls.key"},
		TrustStore: Store{File: at(".ca"), Type: PEM, Key: "tls.ca"},
	}
}

func (l *lab) open(s Settings) *Keeper {
	l.Helper()
	k, err := Open(s)
	if err != nil {
		l.Fatal(err)
	}
	return k
}

// shake lets two sides shake hands over TCP. The server's error is why it refused.
func (l *lab) shake(server, client *tls.Config) (state tls.ConnectionState, serverErr, clientErr error) {
	l.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		l.Fatal(err)
	}
	defer listener.Close()
	done := make(chan error, 1)
	go func() {
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err == nil {
			defer conn.Close()
			c := tls.Client(conn, client)
			if err = c.HandshakeContext(context.Background()); err == nil {
				_, err = c.Read(make([]byte, 1)) // with TLS 1.3 this is where a refusal arrives
			}
		}
		done <- err
	}()
	conn, err := listener.Accept()
	if err != nil {
		l.Fatal(err)
	}
	s := tls.Server(conn, server)
	serverErr = s.HandshakeContext(context.Background())
	if serverErr == nil {
		_, serverErr = s.Write([]byte{1})
	}
	state = s.ConnectionState()
	_ = conn.(*net.TCPConn).CloseWrite()
	clientErr = <-done
	_ = conn.Close()
	return state, serverErr, clientErr
}

// TestHandshakes has the clients that are accepted, and the log lines about the others.
func TestHandshakes(t *testing.T) {
	for name, c := range map[string]struct {
		prepare                func(l *lab, server, client *Settings)
		host                   string
		serverWant, clientWant string
	}{
		"trusted": {},
		"without a certificate": {serverWant: "client didn't provide a certificate",
			prepare: func(_ *lab, _, client *Settings) { client.KeyStore = Store{} }},
		"without a certificate, wanted": {
			prepare: func(_ *lab, server, client *Settings) {
				client.KeyStore, server.ClientAuth = Store{}, ClientAuthWant
			}},
		"without a certificate, none asked for": {
			prepare: func(_ *lab, server, client *Settings) {
				client.KeyStore, server.TrustStore, server.ClientAuth = Store{}, Store{}, ClientAuthNone
			}},
		"wrong authority": {serverWant: "unknown authority",
			prepare: func(l *lab, _, client *Settings) {
				testcert.NewCA(l, "authority").Issue(l, testcert.Request{}).Write(l, l.dir, "other")
				client.KeyStore.File, client.KeyStore.KeyFile = filepath.Join(l.dir, "other.pem"), filepath.Join(l.dir, "other.key")
			}},
		"wrong authority, wanted": {serverWant: "unknown authority",
			prepare: func(l *lab, server, client *Settings) {
				server.ClientAuth = ClientAuthWant
				testcert.NewCA(l, "authority").Issue(l, testcert.Request{}).Write(l, l.dir, "other")
				client.KeyStore.File, client.KeyStore.KeyFile = filepath.Join(l.dir, "other.pem"), filepath.Join(l.dir, "other.key")
			}},
		"wrong authority of the server": {clientWant: "unknown authority", serverWant: "remote error",
			prepare: func(l *lab, _, client *Settings) {
				testcert.Write(l, client.TrustStore.File, testcert.NewCA(l, "other").PEM)
			}},
		"wrong host": {clientWant: "not elsewhere", host: "elsewhere", serverWant: "remote error"},
		"wrong host, any will do": {host: "elsewhere",
			prepare: func(_ *lab, _, client *Settings) { client.AnyHost = true }},
		"any host, but of the authority": {clientWant: "unknown authority", serverWant: "remote error",
			prepare: func(l *lab, _, client *Settings) {
				client.AnyHost = true
				testcert.Write(l, client.TrustStore.File, testcert.NewCA(l, "other").PEM)
			}},
		"client's host": {
			prepare: func(_ *lab, server, _ *Settings) { server.VerifyClientHost = true }},
		"client's wrong host": {serverWant: "the certificate of CN=client is not for where it comes from",
			prepare: func(l *lab, server, _ *Settings) {
				server.VerifyClientHost = true
				l.issue("client", "10.1.2.3")
			}},
		"revoked": {serverWant: "the certificate of CN=client has been revoked on",
			prepare: func(l *lab, server, _ *Settings) { l.revoke(server, time.Time{}, l.issue("client")) }},
		"revoked by the second of two lists": {serverWant: "the certificate of CN=client has been revoked on",
			prepare: func(l *lab, server, _ *Settings) {
				server.CRL = filepath.Join(l.dir, "crl.pem")
				testcert.Write(l, server.CRL, slices.Concat(l.ca.Revoke(l, time.Time{}), l.ca.Revoke(l, time.Time{}, l.issue("client").Cert)))
			}},
		"revoked by an old list": {serverWant: "the certificate of CN=client has been revoked on",
			prepare: func(l *lab, server, _ *Settings) {
				server.CRL = filepath.Join(l.dir, "crl.pem")
				old := l.ca.Revoke(l, time.Now().Add(-time.Hour), l.issue("client").Cert)
				testcert.Write(l, server.CRL, slices.Concat(l.ca.Revoke(l, time.Time{}), old))
			}},
		"an old list beside a current one": {
			prepare: func(l *lab, server, _ *Settings) {
				server.CRL = filepath.Join(l.dir, "crl.pem")
				testcert.Write(l, server.CRL, slices.Concat(l.ca.Revoke(l, time.Time{}), l.ca.Revoke(l, time.Now().Add(-time.Hour))))
			}},
		"not revoked": {
			prepare: func(l *lab, server, _ *Settings) { l.revoke(server, time.Time{}, l.issue("other")) }},
		"server revoked": {clientWant: "the certificate of CN=server has been revoked on", serverWant: "remote error",
			prepare: func(l *lab, _, client *Settings) {
				l.revoke(client, time.Time{}, l.issue("server", "localhost"))
			}},
		"server revoked, any host will do": {clientWant: "the certificate of CN=server has been revoked on", serverWant: "remote error",
			prepare: func(l *lab, _, client *Settings) {
				client.AnyHost = true
				l.revoke(client, time.Time{}, l.issue("server", "localhost"))
			}},
		"old list": {serverWant: "the revocation list of CN=authority expired on",
			prepare: func(l *lab, server, _ *Settings) { l.revoke(server, time.Now().Add(-time.Hour)) }},
		"list of another authority": {serverWant: "there is no revocation list of CN=authority",
			prepare: func(l *lab, server, _ *Settings) {
				server.CRL = filepath.Join(l.dir, "crl.pem")
				testcert.Write(l, server.CRL, testcert.NewCA(l, "other").Revoke(l, time.Time{}))
			}},
		"list that another authority signed": {serverWant: "is not signed by it",
			prepare: func(l *lab, server, _ *Settings) {
				server.CRL = filepath.Join(l.dir, "crl.pem")
				testcert.Write(l, server.CRL, testcert.NewCA(l, "authority").Revoke(l, time.Time{}))
			}},
		"versions apart": {serverWant: "version", clientWant: "remote error",
			prepare: func(_ *lab, server, client *Settings) {
				server.MinVersion, client.MaxVersion = tls.VersionTLS13, tls.VersionTLS12
			}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			server, client := l.settings("server"), l.settings("client")
			host := "localhost"
			if c.host != "" {
				host = c.host
			}
			if c.prepare != nil {
				c.prepare(l, &server, &client)
			}
			_, serverErr, clientErr := l.shake(l.open(server).Server(), l.open(client).Client(host))
			for _, side := range []struct {
				name, want string
				err        error
			}{{"server", c.serverWant, serverErr}, {"client", c.clientWant, clientErr}} {
				switch {
				case side.want == "" && side.err != nil && (side.name == "server" || c.serverWant == ""):
					t.Errorf("%s: %v", side.name, side.err)
				case side.want != "" && (side.err == nil || !strings.Contains(side.err.Error(), side.want)):
					t.Errorf("%s: error %v, want %q", side.name, side.err, side.want)
				}
			}
		})
	}
}

// revoke writes the list of the authority, and has s look it up.
func (l *lab) revoke(s *Settings, nextUpdate time.Time, pairs ...testcert.Pair) {
	s.CRL = filepath.Join(l.dir, "crl.pem")
	text := l.ca.Revoke(l, nextUpdate)
	for _, p := range pairs {
		text = l.ca.Revoke(l, nextUpdate, p.Cert)
	}
	testcert.Write(l, s.CRL, text)
}

// TestPartialRevocationLists: a list that has not all revoked certificates of its issuer is
// refused, in PEM and in DER.
func TestPartialRevocationLists(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	issuer := &x509.Certificate{KeyUsage: x509.KeyUsageCRLSign, SubjectKeyId: []byte{1}}
	deltaOf1 := pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 27}, Critical: true, Value: []byte{2, 1, 1}}
	for _, extensions := range [][]pkix.Extension{nil, {deltaOf1}} {
		der, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{Number: big.NewInt(2), ThisUpdate: time.Now(),
			NextUpdate: time.Now().Add(time.Hour), ExtraExtensions: extensions}, issuer, key)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range [][]byte{der, pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der})} {
			file := filepath.Join(t.TempDir(), "crl")
			testcert.Write(t, file, text)
			_, err := readRevocations("tls.crl", file)
			if partial := len(extensions) > 0; partial != errors.Is(err, errPartialList) || !partial && err != nil {
				t.Errorf("%d extensions: %v", len(extensions), err)
			}
		}
	}
}

// TestOldVersions: a client that speaks nothing newer than TLS 1.1 is refused.
func TestOldVersions(t *testing.T) {
	l := newLab(t)
	client := l.open(l.settings("client")).Client("localhost")
	client.MinVersion, client.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	if _, serverErr, _ := l.shake(l.open(l.settings("server")).Server(), client); serverErr == nil {
		t.Error("TLS 1.1 is spoken")
	}
}

// TestReload: changed files are read, and damaged ones leave everything as it was.
func TestReload(t *testing.T) {
	l := newLab(t)
	k := l.open(l.settings("server"))
	server, client := k.Server(), l.open(l.settings("client"))
	shown := func() string {
		t.Helper()
		config := client.Client("localhost")
		var subject string
		config.VerifyConnection = func(cs tls.ConnectionState) error {
			subject = Subject(cs.PeerCertificates[0])
			return nil
		}
		if _, serverErr, clientErr := l.shake(server, config); serverErr != nil || clientErr != nil {
			t.Fatal(serverErr, clientErr)
		}
		return subject
	}
	reload := func(wantChanged bool, want string) {
		t.Helper()
		changed, err := k.Reload()
		text := ""
		if err != nil {
			text = err.Error()
		}
		if changed != wantChanged || !strings.Contains(text, want) || want == "" && err != nil {
			t.Fatalf("changed: %v, %v; want %v, %q", changed, err, wantChanged, want)
		}
	}
	reload(false, "")
	next := l.ca.Issue(t, testcert.Request{Subject: pkix.Name{CommonName: "next"}, Hosts: []string{"localhost"}})
	testcert.Write(t, filepath.Join(l.dir, "server.key"), next.KeyPEM)
	reload(false, "belongs to none") // the certificate has still to follow
	reload(false, "")                // nothing has changed since
	if got := shown(); got != "CN=server" {
		t.Errorf("half of a new certificate was read: %s", got)
	}
	testcert.Write(t, filepath.Join(l.dir, "server.pem"), next.PEM)
	reload(true, "")
	if got := shown(); got != "CN=next" {
		t.Errorf("the server shows %s", got)
	}
	if n, bad := k.Reloads.Load(), k.ReloadFailures.Load(); n != 1 || bad != 1 {
		t.Errorf("%d reloads, %d failures", n, bad)
	}
	if at := k.Expires(); !at.Equal(next.Cert.NotAfter) {
		t.Errorf("expires %v", at)
	}
	// Certificates of the old authority are refused from now on.
	testcert.Write(t, filepath.Join(l.dir, "server.ca"), testcert.NewCA(t, "new").PEM)
	reload(true, "")
	if _, serverErr, _ := l.shake(server, client.Client("localhost")); serverErr == nil {
		t.Error("a client of the old authority is let in")
	}
}

// A zone is a domain name system: the names of addresses, and the addresses of names.
type zone map[string][]string

// LookupAddr implements resolver.
func (z zone) LookupAddr(_ context.Context, addr string) ([]string, error) { return z.lookUp(addr) }

// LookupHost implements resolver.
func (z zone) LookupHost(_ context.Context, name string) ([]string, error) { return z.lookUp(name) }

func (z zone) lookUp(what string) ([]string, error) {
	if found, ok := z[what]; ok {
		return found, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: what, IsNotFound: true}
}

// CVE-2026-24281: whoever has an address can give it any name. A name of the certificate counts
// only if the address belongs to the name in turn.
func TestNamesOfAddressesCountInBothDirections(t *testing.T) {
	ca := testcert.NewCA(t, "ca")
	many := func(n int, last string) (names []string) {
		for i := range n {
			names = append(names, fmt.Sprintf("n%d.example.org.", i))
		}
		return append(names, last)
	}
	for name, c := range map[string]struct {
		hosts []string // of the certificate
		from  string
		zone  zone
		want  string // "": let in
	}{
		"its address": {hosts: []string{"10.0.0.1"}, from: "10.0.0.1"},
		"both directions": {hosts: []string{"a.example.org"}, from: "10.0.0.1",
			zone: zone{"10.0.0.1": {"a.example.org."}, "a.example.org": {"10.0.0.2", "10.0.0.1"}}},
		"both directions, IPv6": {hosts: []string{"a.example.org"}, from: "fd00::1",
			zone: zone{"fd00::1": {"a.example.org."}, "a.example.org": {"fd00:0::1"}}},
		"a wildcard": {hosts: []string{"*.example.org"}, from: "10.0.0.1",
			zone: zone{"10.0.0.1": {"a.example.org."}, "a.example.org": {"10.0.0.1"}}},
		"a name of somebody else": {hosts: []string{"a.example.org"}, from: "10.0.0.9",
			zone: zone{"10.0.0.9": {"a.example.org."}, "a.example.org": {"10.0.0.1"}},
			want: "10.0.0.9 has the name a.example.org, which has not that address"},
		"a name that nobody has": {hosts: []string{"a.example.org"}, from: "10.0.0.9",
			zone: zone{"10.0.0.9": {"a.example.org."}}, want: "which has not that address"},
		"another name": {hosts: []string{"a.example.org"}, from: "10.0.0.9",
			zone: zone{"10.0.0.9": {"b.example.org."}, "b.example.org": {"10.0.0.9"}}, want: "is not for where it comes from"},
		"no name": {hosts: []string{"a.example.org"}, from: "10.0.0.9",
			zone: zone{"a.example.org": {"10.0.0.9"}}, want: "is not for where it comes from"},
		"more names than are looked up": {hosts: []string{"a.example.org"}, from: "10.0.0.1",
			zone: zone{"10.0.0.1": many(maxNames, "a.example.org."), "a.example.org": {"10.0.0.1"}}, want: "is not for where it comes from"},
	} {
		cert := ca.Issue(t, testcert.Request{Subject: pkix.Name{CommonName: "client"}, Hosts: c.hosts}).Cert
		err := verifyAddr(t.Context(), c.zone, cert, &net.TCPAddr{IP: net.ParseIP(c.from), Port: 1})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
