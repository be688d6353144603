package peer

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net"
	"testing"
	"time"
)

// authority signs certificates.
type authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	a := &authority{t: t}
	c := a.sign(&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	a.cert, a.key = c.Leaf, c.PrivateKey.(*ecdsa.PrivateKey)
	return a
}

// sign makes a certificate; one of itself if the authority has none yet.
func (a *authority) sign(template *x509.Certificate) tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(1)
	template.NotBefore, template.NotAfter = time.Unix(0, 0), time.Unix(1<<34, 0) // also in a bubble
	parent, by := a.cert, a.key
	if parent == nil {
		parent, by = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	if err != nil {
		a.t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// host makes a certificate for a host with that address.
func (a *authority) host(addr string) tls.Certificate {
	return a.sign(&x509.Certificate{IPAddresses: []net.IP{net.ParseIP(addr)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}})
}

func selfSigned(t testing.TB, addr string) tls.Certificate {
	return (&authority{t: t}).host(addr)
}

// auth is what a member with that certificate has, which trusts this authority.
func (a *authority) auth(cert tls.Certificate) Auth {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return Auth{TLS: &TLS{
		Certificates: true, VerifyHost: true,
		Client: func(host string) *tls.Config {
			return &tls.Config{ServerName: host, RootCAs: pool, Certificates: []tls.Certificate{cert}}
		},
		Server: func() *tls.Config {
			return &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, Certificates: []tls.Certificate{cert}}
		},
	}}
}

// TestMembersShowCertificates: whom two members with these certificates let in, in both directions.
func TestMembersShowCertificates(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	good := [2]tls.Certificate{ca.host("10.0.0.1"), ca.host("10.0.0.2")}
	with := func(a Auth, change func(*TLS)) Auth { change(a.TLS); return a }
	both := func(a Auth) Auth { a.Secrets = knows(oldSecret).Secrets; return a }
	plainDial := func(t *TLS) { t.Plain, t.PlainDial = true, true }
	anyHost := func(t *TLS) { t.VerifyHost = false } // of a member that dials
	forClients := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	acceptPlain := func(t *TLS) { t.Plain = true }
	for name, test := range map[string]struct {
		one, two Auth
		ok       [2]bool // member 1 dials member 2, and the other way round
	}{
		"both good":                     {ca.auth(good[0]), ca.auth(good[1]), [2]bool{true, true}},
		"both good, and a secret":       {both(ca.auth(good[0])), both(ca.auth(good[1])), [2]bool{true, true}},
		"one lacks the secret":          {both(ca.auth(good[0])), ca.auth(good[1]), [2]bool{false, false}},
		"of another authority":          {ca.auth(good[0]), ca.auth(other.host("10.0.0.2")), [2]bool{false, false}},
		"of itself":                     {ca.auth(good[0]), ca.auth(selfSigned(t, "10.0.0.2")), [2]bool{false, false}},
		"of the other member":           {ca.auth(good[0]), ca.auth(good[0]), [2]bool{false, false}},
		"good for clients only":         {ca.auth(good[0]), ca.auth(ca.sign(&x509.Certificate{IPAddresses: []net.IP{net.IPv4(10, 0, 0, 2)}, ExtKeyUsage: forClients})), [2]bool{false, false}},
		"for no host":                   {ca.auth(good[0]), ca.auth(ca.sign(&x509.Certificate{Subject: pkix.Name{CommonName: "10.0.0.2"}})), [2]bool{false, false}},
		"any host, for clients only":    {with(ca.auth(good[0]), anyHost), with(ca.auth(ca.sign(&x509.Certificate{ExtKeyUsage: forClients})), anyHost), [2]bool{false, false}},
		"any host, for no host":         {with(ca.auth(good[0]), anyHost), with(ca.auth(ca.sign(&x509.Certificate{})), anyHost), [2]bool{false, true}},
		"no TLS":                        {ca.auth(good[0]), Auth{}, [2]bool{false, false}},
		"no TLS, but the secret":        {both(ca.auth(good[0])), knows(oldSecret), [2]bool{false, false}},
		"none yet, and both are taken":  {Auth{}, with(ca.auth(good[1]), plainDial), [2]bool{true, true}},
		"both are taken, one has begun": {with(ca.auth(good[0]), plainDial), with(ca.auth(good[1]), acceptPlain), [2]bool{true, true}},
		"one has begun, one demands it": {with(ca.auth(good[0]), acceptPlain), ca.auth(good[1]), [2]bool{true, true}},
		"none yet, one demands it":      {with(ca.auth(good[0]), plainDial), ca.auth(good[1]), [2]bool{false, true}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				p := newPair(t, test.one, test.two)
				for from, ok := range test.ok {
					before := p.served[1-from].Load()
					if _, err := p.echoes(from, 1-from); (err == nil) != ok {
						t.Errorf("member %d dials: %v", from+1, err)
					}
					if got := p.served[1-from].Load() > before; got != ok {
						t.Errorf("member %d dials, and is served: %v", from+1, got)
					}
				}
			})
		})
	}
}

// TestCertificatesOfUnknownMembers: a program that says that it is a member that this one does not
// know, as a new leader may, is served with the certificate of a host, and not with that of a
// client.
func TestCertificatesOfUnknownMembers(t *testing.T) {
	ca := newAuthority(t)
	forClients := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	for name, test := range map[string]struct {
		cert *x509.Certificate
		ok   bool
	}{
		"of a host":                   {&x509.Certificate{DNSNames: []string{"new.example"}}, true},
		"of a user":                   {&x509.Certificate{Subject: pkix.Name{CommonName: "bob"}}, false},
		"of a client with a host":     {&x509.Certificate{DNSNames: []string{"new.example"}, ExtKeyUsage: forClients}, false},
		"of somebody with an address": {&x509.Certificate{EmailAddresses: []string{"bob@example"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				p := newPair(t, ca.auth(ca.host("10.0.0.1")), ca.auth(ca.host("10.0.0.2")))
				config := ca.auth(ca.sign(test.cert)).TLS.Client("10.0.0.1")
				c := tls.Client(p.connect("10.0.0.9"), config)
				_, err := c.Write(preface{version: NewestVersion, kind: StreamRaft, from: 77, to: 1, cluster: pairCluster}.append(nil))
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.ReadAll(c) // until it is closed, be it after the stream
				if got := p.served[0].Load() > 0; got != test.ok {
					t.Errorf("served: %v", got)
				}
			})
		})
	}
}

// TestProofsAreNotPassedOn: a machine between two members, with a certificate that both take, has
// the proofs of one connection and cannot use them on the other.
func TestProofsAreNotPassedOn(t *testing.T) {
	ca := newAuthority(t)
	anyHost := func(addr string) Auth {
		a := ca.auth(ca.host(addr))
		a.Secrets = knows(oldSecret).Secrets
		client := a.TLS.Client
		a.TLS.VerifyHost = false
		a.TLS.Client = func(host string) *tls.Config {
			c := client(host)
			c.InsecureSkipVerify = true // as with ssl.quorum.hostnameVerification=false, and worse
			return c
		}
		return a
	}
	between := anyHost("10.0.0.9").TLS
	for name, decrypts := range map[string]bool{"bytes": false, "what is decrypted": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				p := newPair(t, anyHost("10.0.0.1"), anyHost("10.0.0.2"))
				dial := p.ports[1].cfg.Dial
				p.ports[1].cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
					onwards, err := dial(ctx, network, addr)
					if err != nil {
						return nil, err
					}
					near, far := net.Pipe()
					var to, from net.Conn = onwards, far
					if decrypts {
						to, from = tls.Client(onwards, between.Client("10.0.0.1")), tls.Server(far, between.Server())
					}
					pass := func(a, b net.Conn) {
						_, _ = io.Copy(a, b)
						_ = onwards.Close()
						_ = far.Close()
					}
					go pass(to, from)
					go pass(from, to)
					return near, nil
				}
				if _, err := p.echoes(1, 0); (err == nil) == decrypts {
					t.Errorf("passed on: %v", err)
				}
			})
		})
	}
}

// TestWithoutTLSIsNamed: the log of a member that uses TLS says so of one that does not.
func TestWithoutTLSIsNamed(t *testing.T) {
	for _, answer := range []string{"", "no TLS record"} {
		near, far := net.Pipe()
		go func() {
			_, _ = far.Read(make([]byte, 16<<10))
			_, _ = io.WriteString(far, answer)
			_ = far.Close()
		}()
		_ = near.SetDeadline(time.Now().Add(10 * time.Second))
		err := tls.Client(near, &tls.Config{ServerName: "m"}).Handshake()
		if !endsWithoutAlert(err) {
			t.Errorf("answer %q: %v", answer, err)
		}
		_ = near.Close()
	}
	if endsWithoutAlert(&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}) {
		t.Error("a certificate that is refused is taken for a port without TLS")
	}
}
