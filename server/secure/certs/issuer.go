package certs

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"lockkeeper/server/secure/pemfile"
)

// clockSkew is how long before it is issued a certificate is valid: the clocks of other machines
// may be behind.
const clockSkew = time.Hour

// issuer is an authority with its private key.
type issuer struct {
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	keyPEM []byte
}

func (ca *issuer) pem() []byte { return encode("CERTIFICATE", ca.cert.Raw) }

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func commonName(name pkix.Name) string { return cmp.Or(name.CommonName, name.String()) }

// newKey makes a private key on the curve P-256, which Java, OpenSSL and Go take.
func newKey() (key *ecdsa.PrivateKey, text []byte, err error) {
	if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, nil, fmt.Errorf("certs: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("certs: %w", err)
	}
	return key, encode("PRIVATE KEY", der), nil
}

// newSerial draws a serial number: 127 random bits, so that nobody has to count.
func newSerial() (*big.Int, error) {
	const bits = 127
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), bits))
	if err != nil {
		return nil, fmt.Errorf("certs: %w", err)
	}
	return n.Add(n, big.NewInt(1)), nil
}

// newIssuer makes an authority. It can issue certificates of holders, and none of authorities.
func (d *Dir) newIssuer(name string) (*issuer, error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	now := d.now()
	template := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-clockSkew), NotAfter: now.Add(cmp.Or(d.AuthorityValidity, DefaultAuthorityValidity)),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("certs: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("certs: %w", err)
	}
	return &issuer{cert, key, keyPEM}, nil
}

// issuer reads the newest authority.
func (d *Dir) issuer() (*issuer, error) {
	if _, err := d.trusted(); err != nil {
		return nil, err
	}
	file := d.at(authorityDir, authorityKey)
	blocks, err := readPEM(file)
	if err != nil {
		return nil, err
	}
	if len(blocks) != 2 || blocks[0].Type != "PRIVATE KEY" || blocks[1].Type != "CERTIFICATE" {
		return nil, fmt.Errorf("certs: %s: has not a private key with its certificate", file)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(blocks[0].Bytes)
	if err != nil {
		return nil, fmt.Errorf("certs: %s: %w", file, err)
	}
	cert, err := x509.ParseCertificate(blocks[1].Bytes)
	if err != nil {
		return nil, fmt.Errorf("certs: %s: %w", file, err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || !key.PublicKey.Equal(cert.PublicKey) {
		return nil, fmt.Errorf("certs: %s: the private key belongs to another certificate", file)
	}
	if d.now().After(cert.NotAfter) {
		return nil, fmt.Errorf("certs: the authority %s expired on %s ('rotate' makes a new one)",
			commonName(cert.Subject), cert.NotAfter.UTC().Format(time.DateOnly))
	}
	return &issuer{cert: cert, key: key}, nil
}

// trusted reads the certificates of the authorities, the newest first; there is at least one.
func (d *Dir) trusted() ([]*x509.Certificate, error) {
	file := d.at(authorityDir, AuthorityFile)
	if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("certs: %s has no authority ('init' makes one)", d.Path)
	}
	certs, err := readCertificates(file)
	if err == nil && len(certs) == 0 {
		err = fmt.Errorf("certs: %s: has no certificate", file)
	}
	return certs, err
}

// issue makes a certificate with its key, both in PEM.
func (ca *issuer) issue(r Request, now time.Time,
	validity time.Duration) (pair []byte, cert *x509.Certificate, err error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: r.Name},
		NotBefore: now.Add(-clockSkew), NotAfter: now.Add(validity),
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if template.NotAfter.After(ca.cert.NotAfter) {
		template.NotAfter = ca.cert.NotAfter // a chain ends with its first certificate
	}
	if r.Member {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	for _, host := range r.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, &key.PublicKey, ca.key)
	if err == nil {
		cert, err = x509.ParseCertificate(der)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("certs: %s: %w", r.Name, err)
	}
	return append(keyPEM, encode("CERTIFICATE", der)...), cert, nil
}

func readPEM(file string) ([]pemfile.Block, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("certs: %w", err)
	}
	blocks, err := pemfile.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("certs: %s: %w", file, err)
	}
	return blocks, nil
}

// readCertificates reads the certificates of a file.
func readCertificates(file string) (certs []*x509.Certificate, err error) {
	blocks, err := readPEM(file)
	if err != nil {
		return nil, err
	}
	for _, block := range blocks {
		if block.Type != "CERTIFICATE" {
			continue // the private key of a holder
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certs: %s: %w", file, block.Errorf("%v", err))
		}
		certs = append(certs, cert)
	}
	return certs, nil
}

// readHolder reads the holder of the certificate in a file.
func readHolder(file string) (h Holder, err error) {
	certs, err := readCertificates(file)
	if err != nil {
		return h, err
	}
	if len(certs) == 0 {
		return h, fmt.Errorf("certs: %s: has no certificate", file)
	}
	cert, dir := certs[0], filepath.Dir(file)
	h = Holder{Request: Request{Name: filepath.Base(dir), Hosts: slices.Clone(cert.DNSNames)}, Dir: dir,
		Expires: cert.NotAfter, Issuer: commonName(cert.Issuer), cert: cert}
	for _, ip := range cert.IPAddresses {
		h.Hosts = append(h.Hosts, ip.String())
	}
	h.Member = slices.Contains(cert.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	return h, nil
}
