package secure

import (
	"bytes"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"software.sslmate.com/src/go-pkcs12"

	"lockkeeper/internal/testcert"
)

// TestStores reads stores of keytool and openssl (testdata; the password is changeit).
func TestStores(t *testing.T) {
	for name, c := range map[string]struct {
		store   Store
		withKey bool
		want    string // a part of the error
		key     string // the configuration key of the error
	}{
		"JKS":                  {store: Store{File: "key.jks", Password: "changeit"}, withKey: true},
		"JKS, trusted":         {store: Store{File: "trust.jks", Password: "changeit"}},
		"PKCS12":               {store: Store{File: "key.p12", Password: "changeit"}, withKey: true},
		"PKCS12, trusted":      {store: Store{File: "trust.p12", Password: "changeit"}},
		"PKCS12 under JKS":     {store: Store{File: "key.p12", Type: JKS, Password: "changeit"}, withKey: true},
		"JKS under PKCS12":     {store: Store{File: "key.jks", Type: PKCS12, Password: "changeit"}, withKey: true},
		"PKCS12 of openssl":    {store: Store{File: "openssl.p12", Password: "changeit"}, withKey: true},
		"PEM, encrypted key":   {store: Store{File: "key.pem", Password: "changeit"}, withKey: true},
		"PEM, trusted":         {store: Store{File: "key.pem"}},
		"password from a file": {store: Store{File: "key.jks", Password: "not this", PasswordFile: "PASSWORD"}, withKey: true},

		"JKS, password":            {store: Store{File: "key.jks", Password: "guess"}, withKey: true, want: "the password is wrong", key: "p"},
		"PKCS12, password":         {store: Store{File: "key.p12", Password: "guess"}, withKey: true, want: "the password is wrong", key: "p"},
		"PKCS12, no password":      {store: Store{File: "trust.p12"}, want: "the password is wrong", key: "p"},
		"PEM, password":            {store: Store{File: "key.pem", Password: "guess"}, withKey: true, want: "the password is wrong", key: "p"},
		"PEM, old encryption":      {store: Store{File: "old.pem", Password: "changeit"}, withKey: true, want: "openssl pkcs8 -topk8", key: "k"},
		"missing":                  {store: Store{File: "nothing.pem"}, want: "no such file", key: "k"},
		"missing password":         {store: Store{File: "key.jks", PasswordFile: "nothing"}, want: "no such file", key: "p"},
		"no suffix":                {store: Store{File: "PASSWORD"}, want: "the type of the store must be set", key: "k"},
		"key in a trust store":     {store: Store{File: "key.p12", Password: "changeit"}, want: "PKCS12", key: "k"},
		"trust store for a key":    {store: Store{File: "trust.jks", Password: "changeit"}, withKey: true, want: "has no certificate", key: "k"},
		"JKS without certificates": {store: Store{File: "key.jks", Password: "changeit"}, want: "has no certificate", key: "k"},
		"PEM for JKS":              {store: Store{File: "key.pem", Type: JKS, Password: "changeit"}, want: "neither JKS nor PKCS12", key: "k"},
		"JKS for PEM":              {store: Store{File: "key.jks", Type: PEM, Password: "changeit"}, want: "is a Java key store and not in PEM", key: "k"},
	} {
		t.Run(name, func(t *testing.T) {
			password := filepath.Join(t.TempDir(), "password")
			if err := os.WriteFile(password, []byte("changeit\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			place := func(file string) string {
				switch file {
				case "":
					return ""
				case "PASSWORD":
					return password
				}
				return filepath.Join("testdata", file)
			}
			s := c.store
			s.File, s.PasswordFile, s.Key, s.PasswordKey = place(s.File), place(s.PasswordFile), "k", "p"
			got, err := s.read(c.withKey)
			if c.want != "" {
				var fileErr *FileError
				if !errors.As(err, &fileErr) || !strings.Contains(err.Error(), c.want) || fileErr.Key != c.key {
					t.Fatalf("error %v, want %q, of key %q", err, c.want, c.key)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if n := len(got.certs); n != 1 || Subject(got.certs[0]) != "CN=member,OU=Lab,O=Example" {
				t.Errorf("%d certificates: %v", n, got.certs)
			}
			if !c.withKey {
				return
			}
			if _, err := got.certificates(time.Now()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestCertificates: the chain that a server shows is complete, and valid.
func TestCertificates(t *testing.T) {
	ca := testcert.NewCA(t, "authority")
	pair := ca.Issue(t, testcert.Request{Subject: pkix.Name{CommonName: "member"}})
	other := ca.Issue(t, testcert.Request{Subject: pkix.Name{CommonName: "other"}})
	past := ca.Issue(t, testcert.Request{Subject: pkix.Name{CommonName: "past"}, NotAfter: time.Now().Add(-time.Minute)})
	future := ca.Issue(t, testcert.Request{Subject: pkix.Name{CommonName: "future"}, NotBefore: time.Now().Add(time.Hour)})
	for name, c := range map[string]struct {
		text []byte
		want string
	}{
		"in order":     {bytes.Join([][]byte{pair.PEM, pair.KeyPEM}, nil), ""},
		"out of order": {bytes.Join([][]byte{ca.PEM, other.PEM, pair.KeyPEM, pair.PEM}, nil), ""},
		"another key":  {bytes.Join([][]byte{pair.PEM, other.KeyPEM}, nil), "belongs to none"},
		"expired":      {bytes.Join([][]byte{past.PEM, past.KeyPEM}, nil), "the certificate of CN=past expired on"},
		"not yet":      {bytes.Join([][]byte{future.PEM, future.KeyPEM}, nil), "the certificate of CN=future is not valid before"},
	} {
		contents, err := decodePEM(c.text, "", true)
		if err != nil {
			t.Fatal(name, err)
		}
		certs, err := contents.certificates(time.Now())
		switch {
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		case c.want != "":
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case len(certs) != 1 || !slices.EqualFunc(certs[0].Certificate, [][]byte{pair.Cert.Raw, ca.Cert.Raw}, bytes.Equal):
			t.Errorf("%s: %d keys, or other certificates", name, len(certs))
		}
	}
	if _, err := decodePEM(append(pair.KeyPEM, pair.KeyPEM...), "", true); err == nil {
		t.Error("two private keys are read")
	}
}

// TestSeveralKeys: of a store with several keys, a member shows the one that Java's KeyManager
// chooses, as X509Util of ZooKeeper 3.8.0 makes it: the first in Java's order that is valid, and
// that the other side can use.
func TestSeveralKeys(t *testing.T) {
	for file, want := range map[string][]string{
		"several.p12": {"zeta", "alpha"}, // and before these "old", which has expired
		"several.jks": {"alpha", "j", "i", "h", "g", "f", "zeta", "e", "d", "mid"},
	} {
		s := Store{File: filepath.Join("testdata", file), Password: "changeit"}
		c, err := s.read(true)
		if err != nil {
			t.Fatal(file, err)
		}
		certs, err := c.certificates(time.Now())
		if err != nil {
			t.Fatal(file, err)
		}
		var got []string
		for _, cert := range certs {
			got = append(got, cert.Leaf.Subject.CommonName)
			if len(cert.Certificate) != 1 {
				t.Errorf("%s: %d certificates of %s", file, len(cert.Certificate), cert.Leaf.Subject)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", file, got, want)
		}
		s.Password = "guess"
		if _, err := s.read(true); !errors.Is(err, errPassword) {
			t.Errorf("%s with another password: %v", file, err)
		}
	}
}

// TestNoBlockIsLost: a block that is not read stops the start, with the line, in each file in PEM.
func TestNoBlockIsLost(t *testing.T) {
	ca := testcert.NewCA(t, "authority")
	pair := ca.Issue(t, testcert.Request{Subject: pkix.Name{CommonName: "member"}})
	crl := ca.Revoke(t, time.Time{})
	relabel := func(text []byte, to string) []byte {
		block, _ := pem.Decode(text)
		block.Type = to
		return pem.EncodeToMemory(block)
	}
	cut := ca.PEM[:len(ca.PEM)/2]
	damaged := bytes.Replace(ca.PEM, []byte("MII"), []byte("!!!"), 1)
	notDER := bytes.Replace(ca.PEM, []byte("MII"), []byte("AII"), 1)
	lines := bytes.Count(pair.PEM, []byte("\n"))
	for name, c := range map[string]struct {
		key  string // of the file that has more than it should
		more []byte
		want string
	}{
		"authority, cut off":      {"ca", cut, "has no END"},
		"authority, damaged":      {"ca", damaged, "it is damaged"},
		"authority, no DER":       {"ca", notDER, "certificate 3: "},
		"authority, TRUSTED":      {"ca", relabel(ca.PEM, "TRUSTED CERTIFICATE"), "restricts its uses"},
		"authority, PKCS7":        {"ca", relabel(ca.PEM, "PKCS7"), "openssl pkcs7 -print_certs"},
		"authority, request":      {"ca", relabel(ca.PEM, "CERTIFICATE REQUEST"), "which is none yet"},
		"authority, list":         {"ca", crl, "tls.crl"},
		"authority, other":        {"ca", relabel(ca.PEM, "SOMETHING"), "has a SOMETHING"},
		"authority and a key":     {"ca", pair.KeyPEM, ""},
		"authority after a mark":  {"ca", append([]byte("\ufeff"), ca.PEM...), ""},
		"certificate, cut off":    {"cert", cut, "has no END"},
		"key, damaged":            {"key", damaged, "it is damaged"},
		"key, as in tls.cert":     {"key", pair.PEM, ""},
		"key, another":            {"key", pair.KeyPEM, "has more than one private key"},
		"key, parameters":         {"key", relabel(ca.PEM, "EC PARAMETERS"), ""},
		"list, damaged":           {"crl", bytes.Replace(crl, []byte("MI"), []byte("!!"), 1), "it is damaged"},
		"list, cut off":           {"crl", crl[:len(crl)/2], "has no END"},
		"list, a certificate":     {"crl", ca.PEM, "has a CERTIFICATE, and this is a file of revocation lists"},
		"list, another":           {"crl", crl, ""},
		"list, comment in Arabic": {"crl", []byte("\u0645\n"), ""},
	} {
		dir := t.TempDir()
		for key, text := range map[string][]byte{"ca": pair.PEM, "cert": pair.PEM, "key": pair.KeyPEM, "crl": crl} {
			if key == c.key {
				text = append(bytes.Clone(text), c.more...)
			}
			testcert.Write(t, filepath.Join(dir, key), text)
		}
		at := func(name string) string { return filepath.Join(dir, name) }
		_, err := Open(Settings{
			KeyStore:   Store{File: at("cert"), KeyFile: at("key"), Type: PEM, Key: "cert", KeyFileKey: "key"},
			TrustStore: Store{File: at("ca"), Type: PEM, Key: "ca"}, CRL: at("crl"), CRLKey: "crl"})
		var fault *FileError
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want == "":
		case !errors.As(err, &fault) || fault.Key != c.key || fault.File != at(c.key) || !strings.Contains(err.Error(), c.want):
			t.Errorf("%s: error %v, want %q of %q", name, err, c.want, c.key)
		case c.key == "ca" && !strings.Contains(err.Error(), fmt.Sprintf("line %d: ", lines+1)) && name != "authority, damaged":
			t.Errorf("%s: %v, want line %d", name, err, lines+1)
		}
	}
}

// TestHugeStores: a length or a count in a store is checked before it is used.
func TestHugeStores(t *testing.T) {
	jks, err := os.ReadFile("testdata/key.jks")
	if err != nil {
		t.Fatal(err)
	}
	alias := int(binary.BigEndian.Uint16(jks[16:]))
	key := int(binary.BigEndian.Uint32(jks[26+alias:]))
	for name, at := range map[string]int{"entries": 8, "key": 26 + alias, "certificates": 30 + alias + key} {
		huge := bytes.Clone(jks)
		binary.BigEndian.PutUint32(huge[at:], 1<<32-1)
		if _, err := checkJKS(huge); err == nil {
			t.Errorf("%s: passes", name)
		}
	}
	if _, err := checkJKS(jks); err != nil {
		t.Error(err)
	}

	ca := testcert.NewCA(t, "authority")
	pair := ca.Issue(t, testcert.Request{})
	for iterations, ok := range map[int]bool{1000: true, maxIterations + 1: false} {
		p12, err := pkcs12.Modern.WithIterations(iterations).Encode(pair.Key, pair.Cert, nil, "secret")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodePKCS12(p12, "secret", true); (err == nil) != ok {
			t.Errorf("%d iterations: %v", iterations, err)
		}
	}

	large := filepath.Join(t.TempDir(), "large.pem")
	if err := os.WriteFile(large, make([]byte, maxStoreBytes+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := (&Store{File: large}).read(false); err == nil || !strings.Contains(err.Error(), "this is no key store") {
		t.Errorf("a large file: %v", err)
	}
}

// FuzzRevocations: no file makes the reader of revocation lists panic, and one that is taken has a
// list.
func FuzzRevocations(f *testing.F) {
	text := testcert.NewCA(f, "authority").Revoke(f, time.Time{})
	block, _ := pem.Decode(text)
	f.Add(text)
	f.Add(block.Bytes)
	f.Fuzz(func(t *testing.T, text []byte) {
		if r, err := parseRevocations(text); err == nil && len(r) == 0 {
			t.Error("nothing is taken for a list")
		}
	})
}

// FuzzStores: no store makes its reader panic, or allocate or compute for long.
func FuzzStores(f *testing.F) {
	files, err := filepath.Glob("testdata/*.*")
	if err != nil || len(files) < 7 {
		f.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, true)
		f.Add(text, false)
	}
	f.Fuzz(func(t *testing.T, text []byte, withKey bool) {
		for _, kind := range []StoreType{PEM, JKS} {
			c, err := (&Store{File: "x", Type: kind}).decode(text, "changeit", withKey)
			if err == nil && len(c.keys) > 0 {
				_, _ = c.certificates(time.Now())
			}
		}
	})
}
