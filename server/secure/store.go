package secure

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"
)

// maxStoreBytes bounds a store. The store with all authorities of a system has a quarter of it.
const maxStoreBytes = 1 << 20

// FileError says which file cannot be used, which configuration key names it, and why.
type FileError struct {
	Key, File string
	Err       error
}

func (e *FileError) Error() string { return fmt.Sprintf("%s: %v", e.File, e.Err) }
func (e *FileError) Unwrap() error { return e.Err }

// errPassword is returned for a store that its password does not open.
var errPassword = errors.New("the password is wrong, or the store is damaged")

// contents are the contents of a store: keys and their certificates, or certificates.
type contents struct {
	keys  []crypto.PrivateKey
	certs []*x509.Certificate
}

// readFile reads a file of at most maxStoreBytes.
func readFile(key, file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		var pathErr *fs.PathError
		if errors.As(err, &pathErr) {
			err = pathErr.Err // FileError names the file already
		}
		return nil, &FileError{key, file, err}
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxStoreBytes+1))
	if err == nil && len(text) > maxStoreBytes {
		err = fmt.Errorf("has more than %d bytes: this is no key store", maxStoreBytes)
	}
	if err != nil {
		return nil, &FileError{key, file, err}
	}
	return text, nil
}

// password is the password of the store, without the end of the line if it comes from a file.
func (s *Store) password() (string, error) {
	if s.PasswordFile == "" {
		return s.Password, nil
	}
	text, err := readFile(s.PasswordKey, s.PasswordFile)
	return strings.TrimRight(string(text), "\r\n"), err
}

// read reads the store. withKey says whether it is one with a private key, or one of
// certificates that are trusted.
func (s *Store) read(withKey bool) (contents, error) {
	text, err := readFile(s.Key, s.File)
	if err != nil {
		return contents{}, err
	}
	password, err := s.password()
	if err != nil {
		return contents{}, err
	}
	c, err := s.decode(text, password, withKey)
	if err == nil && s.separateKey() {
		if err := s.readKey(&c, password); err != nil {
			return c, err
		}
	}
	switch {
	case errors.Is(err, errPassword):
		return c, &FileError{s.PasswordKey, s.File, err}
	case err != nil:
		return c, &FileError{s.Key, s.File, err}
	case len(c.certs) == 0:
		return c, &FileError{s.Key, s.File, errors.New("has no certificate")}
	case withKey && len(c.keys) == 0 && s.separateKey():
		return c, &FileError{s.KeyFileKey, s.KeyFile, errors.New("has no private key")}
	case withKey && len(c.keys) == 0:
		return c, &FileError{s.Key, s.File, errors.New("has no private key")}
	}
	return c, nil
}

// separateKey reports whether the private key is in another file than the certificates.
func (s *Store) separateKey() bool { return s.KeyFile != "" && s.KeyFile != s.File }

// readKey adds the contents of KeyFile to the contents of File.
func (s *Store) readKey(c *contents, password string) error {
	text, err := readFile(s.KeyFileKey, s.KeyFile)
	if err != nil {
		return err
	}
	more, err := decodePEM(text, password, true)
	if err == nil && len(c.keys) > 0 && len(more.keys) > 0 {
		err = fmt.Errorf("has a private key, and so has %s", s.File)
	}
	if err != nil {
		return &FileError{s.KeyFileKey, s.KeyFile, err}
	}
	c.keys, c.certs = append(c.keys, more.keys...), append(c.certs, more.certs...)
	return nil
}

func (s *Store) decode(text []byte, password string, withKey bool) (contents, error) {
	kind := s.Type
	if s.KeyFile != "" || strings.HasPrefix(s.Key, "tls.") {
		kind = PEM
	}
	if kind == "" {
		var err error
		if kind, err = storeTypeOf(s.File); err != nil {
			return contents{}, err
		}
	}
	if kind == PEM {
		return decodePEM(text, password, withKey)
	}
	// Order: not by the name. Since Java 9, keytool writes PKCS12 into files with any suffix, and
	// Java reads either under either name.
	if bytes.HasPrefix(text, jksMagic) {
		return decodeJKS(text, password, withKey)
	}
	return decodePKCS12(text, password, withKey)
}

// certificates makes the certificates that a side may show, of each private key that has one: the
// key's own first, then its issuers'. They are valid at the time. Of several keys the ones with
// invalid certificates are left out, as in Java; a single one must be valid.
func (c contents) certificates(now time.Time) (made []tls.Certificate, err error) {
	var faults []error
	for _, key := range c.keys {
		cert, err := c.certificate(key, now)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		made = append(made, *cert)
	}
	if len(made) > 0 {
		return made, nil
	}
	return nil, faults[0]
}

func (c contents) certificate(key crypto.PrivateKey, now time.Time) (*tls.Certificate, error) {
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("a private key of type %T cannot be used for TLS", key)
	}
	public, ok := signer.Public().(interface{ Equal(crypto.PublicKey) bool })
	if !ok {
		return nil, fmt.Errorf("a private key of type %T cannot be used for TLS", key)
	}
	var leaf *x509.Certificate
	for _, cert := range c.certs {
		if public.Equal(cert.PublicKey) {
			leaf = cert
			break
		}
	}
	if leaf == nil {
		return nil, errors.New("the private key belongs to none of the certificates")
	}
	if err := inTime(leaf, now); err != nil {
		return nil, err
	}
	made := &tls.Certificate{PrivateKey: key, Leaf: leaf}
	for cert, n := leaf, 0; cert != nil && n <= len(c.certs); n++ {
		made.Certificate = append(made.Certificate, cert.Raw)
		cert = c.issuerOf(cert)
	}
	return made, nil
}

// issuerOf is the certificate that issued another one, nil if it is not there, or is that one.
func (c contents) issuerOf(cert *x509.Certificate) *x509.Certificate {
	if bytes.Equal(cert.RawIssuer, cert.RawSubject) {
		return nil
	}
	for _, other := range c.certs {
		if bytes.Equal(other.RawSubject, cert.RawIssuer) && other != cert {
			return other
		}
	}
	return nil
}

func inTime(cert *x509.Certificate, now time.Time) error {
	switch {
	case now.After(cert.NotAfter):
		return fmt.Errorf("the certificate of %s expired on %s", Subject(cert),
			cert.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(cert.NotBefore):
		return fmt.Errorf("the certificate of %s is not valid before %s", Subject(cert),
			cert.NotBefore.UTC().Format(time.RFC3339))
	}
	return nil
}
