package testcert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// CA is a certificate authority.
type CA struct {
	Cert *x509.Certificate
	PEM  []byte // of Cert
	key  *ecdsa.PrivateKey
	last int64 // serial number
}

// longAgo is before the time of a testing/synctest bubble.
var longAgo = time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)

// Request has the content of a certificate. Zero times mean since long ago, for another day.
type Request struct {
	Subject             pkix.Name
	RawSubject          []byte   // in DER, in the place of Subject
	Hosts               []string // names and addresses
	URI                 string
	NotBefore, NotAfter time.Time
}

// Pair is a certificate with its key.
type Pair struct {
	Cert      *x509.Certificate
	Key       *ecdsa.PrivateKey
	PEM       []byte // of Cert and of the authority's
	KeyPEM    []byte
	Authority *CA
}

// NewCA makes a certificate authority of that name.
func NewCA(t testing.TB, name string) *CA {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: longAgo, NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign}
	cert := sign(t, template, template, key, key)
	return &CA{Cert: cert, key: key, last: 1, PEM: encode("CERTIFICATE", cert.Raw)}
}

// Issue issues a certificate for servers and clients.
func (ca *CA) Issue(t testing.TB, r Request) Pair {
	t.Helper()
	ca.last++
	template := &x509.Certificate{SerialNumber: big.NewInt(ca.last), Subject: r.Subject, RawSubject: r.RawSubject,
		NotBefore: r.NotBefore, NotAfter: r.NotAfter, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	if r.NotBefore.IsZero() {
		template.NotBefore = longAgo
	}
	if r.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(24 * time.Hour)
	}
	for _, host := range r.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	if r.URI != "" {
		u, err := url.Parse(r.URI)
		if err != nil {
			t.Fatal(err)
		}
		template.URIs = []*url.URL{u}
	}
	key := newKey(t)
	cert := sign(t, template, ca.Cert, key, ca.key)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return Pair{Cert: cert, Key: key, Authority: ca, KeyPEM: encode("PRIVATE KEY", der),
		PEM: append(encode("CERTIFICATE", cert.Raw), ca.PEM...)}
}

// Revoke makes a revocation list in PEM that has these certificates. A zero time means that it is
// current for a day.
func (ca *CA) Revoke(t testing.TB, nextUpdate time.Time, revoked ...*x509.Certificate) []byte {
	t.Helper()
	if nextUpdate.IsZero() {
		nextUpdate = time.Now().Add(24 * time.Hour)
	}
	template := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: nextUpdate.Add(-48 * time.Hour),
		NextUpdate: nextUpdate}
	for _, cert := range revoked {
		template.RevokedCertificateEntries = append(template.RevokedCertificateEntries,
			x509.RevocationListEntry{SerialNumber: cert.SerialNumber, RevocationTime: time.Now().Add(-time.Minute)})
	}
	der, err := x509.CreateRevocationList(rand.Reader, template, ca.Cert, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	return encode("X509 CRL", der)
}

// Write writes certificate, key and the authority's certificate as NAME.pem, NAME.key and NAME.ca
// into a directory, one after the other as a certificate manager would: each by a rename.
func (p Pair) Write(t testing.TB, dir, name string) {
	t.Helper()
	for suffix, text := range map[string][]byte{".key": p.KeyPEM, ".pem": p.PEM, ".ca": p.Authority.PEM} {
		Write(t, filepath.Join(dir, name+suffix), text)
	}
}

// Write writes a file by a rename.
func Write(t testing.TB, file string, text []byte) {
	t.Helper()
	if err := os.WriteFile(file+".new", text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func sign(t testing.TB, template, parent *x509.Certificate, key, by *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
