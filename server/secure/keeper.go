package secure

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Keeper holds the contents of Settings' files, and makes configurations of crypto/tls from it. All
// methods but Reload may be called by several goroutines.
type Keeper struct {
	settings Settings
	current  atomic.Pointer[material]

	// Reloads and ReloadFailures count the results of Reload.
	Reloads, ReloadFailures atomic.Int64

	mu   sync.Mutex
	seen map[string]os.FileInfo // of the files as they were last read, also without success
}

// material is the result of one reading of the files. It never changes.
type material struct {
	certs   []tls.Certificate // none without a key store
	trusted *x509.CertPool    // nil without a trust store
	revoked revocations
	servers [ClientAuthNone + 1]*tls.Config // by the ClientAuth that clients need
}

// Open reads the files. The error joins a *FileError for each that cannot be used.
func Open(s Settings) (*Keeper, error) {
	k := &Keeper{settings: s}
	k.seen = k.look()
	m, err := k.read()
	if err != nil {
		return nil, err
	}
	k.current.Store(m)
	return k, nil
}

func (k *Keeper) read() (*material, error) {
	s := &k.settings
	var m material
	var faults []error
	if s.KeyStore.File != "" {
		c, err := s.KeyStore.read(true)
		if err == nil {
			if m.certs, err = c.certificates(time.Now()); err != nil {
				err = &FileError{s.KeyStore.Key, s.KeyStore.File, err}
			}
		}
		faults = append(faults, err)
	}
	if s.TrustStore.File != "" {
		c, err := s.TrustStore.read(false)
		m.trusted = x509.NewCertPool()
		for _, cert := range c.certs {
			m.trusted.AddCert(cert)
		}
		faults = append(faults, err)
	}
	if s.CRL != "" {
		var err error
		m.revoked, err = readRevocations(s.CRLKey, s.CRL)
		faults = append(faults, err)
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	for auth := range m.servers {
		m.servers[auth] = k.serverConfig(&m, ClientAuth(auth))
	}
	return &m, nil
}

// look returns the metadata of all files: nil for one that it cannot find.
func (k *Keeper) look() map[string]os.FileInfo {
	seen := map[string]os.FileInfo{}
	files := append(k.settings.KeyStore.files(), k.settings.TrustStore.files()...)
	if k.settings.CRL != "" {
		files = append(files, k.settings.CRL)
	}
	for _, file := range files {
		seen[file] = nil
		if info, err := os.Stat(file); err == nil {
			seen[file] = info
		}
	}
	return seen
}

// sameFile reports whether a file is still the one that it was.
func sameFile(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}

// Reload reads the files again if one of them has changed since it was last read. Existing
// connections keep their certificates; with an error everything stays as it was, and the same files
// are not read again.
func (k *Keeper) Reload() (changed bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	seen := k.look()
	if maps.EqualFunc(seen, k.seen, sameFile) {
		return false, nil
	}
	k.seen = seen
	m, err := k.read()
	if err != nil {
		k.ReloadFailures.Add(1)
		return false, err
	}
	k.current.Store(m)
	k.Reloads.Add(1)
	return true, nil
}

// Expires is when the certificate of the key store expires, of several the first one; zero without
// a key store.
func (k *Keeper) Expires() (first time.Time) {
	for _, cert := range k.current.Load().certs {
		if first.IsZero() || cert.Leaf.NotAfter.Before(first) {
			first = cert.Leaf.NotAfter
		}
	}
	return first
}

// Server is the configuration of the side that accepts. It follows Reload. There are no session
// tickets: each connection proves anew who it is, so that a certificate that is no longer trusted
// is of no use.
func (k *Keeper) Server() *tls.Config { return k.ServerAsking(k.settings.ClientAuth) }

// ServerAsking is Server for a port that asks something else of clients than the Settings say.
func (k *Keeper) ServerAsking(auth ClientAuth) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			return k.serverFor(hello, auth), nil
		},
	}
}

// serverFor is the configuration for one connection.
func (k *Keeper) serverFor(hello *tls.ClientHelloInfo, auth ClientAuth) *tls.Config {
	m := k.current.Load()
	if !k.settings.VerifyClientHost {
		return m.servers[auth]
	}
	c := m.servers[auth].Clone()
	ctx, from := hello.Context(), hello.Conn.RemoteAddr()
	c.VerifyConnection = func(cs tls.ConnectionState) error {
		if err := m.revoked.verify(cs); err != nil {
			return err
		}
		if len(cs.PeerCertificates) == 0 {
			return nil
		}
		return verifyAddr(ctx, net.DefaultResolver, cs.PeerCertificates[0], from)
	}
	return c
}

func (k *Keeper) serverConfig(m *material, auth ClientAuth) *tls.Config {
	c := k.base(m)
	c.Certificates = m.certs
	if c.ClientCAs = m.trusted; m.trusted == nil {
		c.ClientCAs = x509.NewCertPool() // nobody; nil would be the authorities of the system
	}
	switch auth {
	case ClientAuthNeed:
		c.ClientAuth = tls.RequireAndVerifyClientCert
	case ClientAuthWant:
		c.ClientAuth = tls.VerifyClientCertIfGiven
	}
	return c
}

// base has the settings of both sides.
func (k *Keeper) base(m *material) *tls.Config {
	return &tls.Config{
		MinVersion:             cmp.Or(k.settings.MinVersion, tls.VersionTLS12),
		MaxVersion:             k.settings.MaxVersion,
		CipherSuites:           k.settings.CipherSuites,
		SessionTicketsDisabled: true,
		VerifyConnection:       m.revoked.verify,
	}
}

// Client is the configuration of the side that connects to host, as of now. Without a trust store
// it trusts the certificate authorities of the system. host is compared with the certificate unless
// the Settings say not to.
func (k *Keeper) Client(host string) *tls.Config {
	m := k.current.Load()
	c := k.base(m)
	c.ServerName = host
	c.RootCAs = m.trusted
	if len(m.certs) > 0 {
		c.GetClientCertificate = m.clientCertificate
	}
	if k.settings.AnyHost {
		c.InsecureSkipVerify = true // code below verifies the chain
		c.VerifyConnection = func(cs tls.ConnectionState) (err error) {
			if cs.VerifiedChains, err = verifyChain(cs.PeerCertificates, m.trusted); err != nil {
				return err
			}
			return m.revoked.verify(cs)
		}
	}
	return c
}

// clientCertificate chooses the certificate to show: the first one that the server can use, or else
// the first one, which the server refuses with a reason.
func (m *material) clientCertificate(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
	for i := range m.certs {
		if info.SupportsCertificate(&m.certs[i]) == nil {
			return &m.certs[i], nil
		}
	}
	return &m.certs[0], nil
}

// verifyChain verifies the certificates of a server, apart from its name.
func verifyChain(certs []*x509.Certificate, roots *x509.CertPool) ([][]*x509.Certificate, error) {
	if len(certs) == 0 {
		return nil, errors.New("tls: the server showed no certificate")
	}
	opts := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
	for _, cert := range certs[1:] {
		opts.Intermediates.AddCert(cert)
	}
	return certs[0].Verify(opts)
}

// A resolver asks the domain name system, as net.Resolver does.
type resolver interface {
	LookupAddr(ctx context.Context, addr string) (names []string, err error)
	LookupHost(ctx context.Context, name string) (addrs []string, err error)
}

// maxNames bounds the names of an address that are looked up: the owner of the address decides
// their number.
const maxNames = 8

// verifyAddr checks that a certificate is one of the address that its holder connects from: it has
// that address, or a name that the address has in the domain name system. A name counts only if it
// has the address in turn: whoever has an address chooses its names, and can choose somebody else's
// (CVE-2026-24281). It takes at most until the end of ctx.
func verifyAddr(ctx context.Context, dns resolver, cert *x509.Certificate, from net.Addr) error {
	host, _, err := net.SplitHostPort(from.String())
	if err != nil {
		return fmt.Errorf("tls: %v is no address: %w", from, err)
	}
	bad := cert.VerifyHostname(host)
	if bad == nil {
		return nil
	}
	names, _ := dns.LookupAddr(ctx, host) // without names, bad has the fault
	for _, name := range names[:min(len(names), maxNames)] {
		if len(name) > 1 && name[len(name)-1] == '.' {
			name = name[:len(name)-1]
		}
		if cert.VerifyHostname(name) != nil {
			continue
		}
		if hasAddr(ctx, dns, name, host) {
			return nil
		}
		bad = fmt.Errorf("%s has the name %s, which has not that address", host, name)
	}
	return fmt.Errorf("tls: the certificate of %s is not for where it comes from: %w", Subject(cert), bad)
}

// hasAddr reports whether addr is an address of a name.
func hasAddr(ctx context.Context, dns resolver, name, addr string) bool {
	want, err := netip.ParseAddr(addr)
	if err != nil {
		return false
	}
	found, _ := dns.LookupHost(ctx, name) // without an answer it has none
	return slices.ContainsFunc(found, func(text string) bool {
		a, err := netip.ParseAddr(text)
		return err == nil && a.Unmap().WithZone("") == want.Unmap().WithZone("")
	})
}
