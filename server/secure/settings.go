package secure

import (
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
)

// Settings describe one side of TLS: the ports for clients, or the port between members. The zero
// value has no key store: there is no TLS.
type Settings struct {
	KeyStore, TrustStore Store
	ClientAuth           ClientAuth
	// MinVersion and MaxVersion are tls.VersionTLS12 or tls.VersionTLS13; 0 means TLS 1.2 and the
	// newest version. CipherSuites are for TLS 1.2; nil means the default of crypto/tls.
	MinVersion, MaxVersion uint16
	CipherSuites           []uint16
	// AnyHost has the side that connects take a certificate of another host than it meant;
	// VerifyClientHost has the side that accepts compare the certificate with where it comes from.
	AnyHost, VerifyClientHost bool
	// CRL is a file in PEM with revocation lists. With it, each certificate of the other side needs
	// a current list of its issuer, and must not be on it. Empty: nothing is looked up.
	CRL    string
	CRLKey string // the configuration key of CRL, for messages
	// Reload says whether changed files are to be read again.
	Reload bool
}

// Enabled reports whether there is a key store, which every side needs that accepts connections.
func (s *Settings) Enabled() bool { return s.KeyStore.File != "" }

// Store is a file with a private key and its certificates, or with the certificates that
// are trusted.
type Store struct {
	File string
	// KeyFile has the private key, if it is not in File. Both are in PEM then.
	KeyFile string
	Type    StoreType // empty: by the suffix of the file
	// PasswordFile has the password; it wins over Password.
	Password, PasswordFile string
	// Key, KeyFileKey and PasswordKey are the configuration keys of File, KeyFile and of the
	// password, for messages.
	Key, KeyFileKey, PasswordKey string
}

// files are the files that the store is read from.
func (s *Store) files() (files []string) {
	for _, f := range []string{s.File, s.KeyFile, s.PasswordFile} {
		if f != "" {
			files = append(files, f)
		}
	}
	return files
}

// StoreType is the format of a Store.
type StoreType string

const (
	PEM    StoreType = "PEM"
	PKCS12 StoreType = "PKCS12"
	JKS    StoreType = "JKS"
)

// ParseStoreType reads the name of a format, in any case.
func ParseStoreType(name string) (StoreType, error) {
	t := StoreType(strings.ToUpper(name))
	switch t {
	case PEM, PKCS12, JKS:
		return t, nil
	case "BCFKS":
		return "", fmt.Errorf("BCFKS cannot be read; convert it to PEM, PKCS12 or JKS (keytool -importkeystore)")
	}
	return "", fmt.Errorf("must be PEM, PKCS12 or JKS, not %q", name)
}

// storeTypeOf finds the format by the suffix, as ZooKeeper does.
func storeTypeOf(file string) (StoreType, error) {
	for suffix, t := range map[string]StoreType{".pem": PEM, ".p12": PKCS12, ".pfx": PKCS12, ".jks": JKS} {
		if strings.HasSuffix(strings.ToLower(file), suffix) {
			return t, nil
		}
	}
	return "", fmt.Errorf("the suffix is none of .pem, .p12, .pfx and .jks, so the type of the store must be set")
}

// ClientAuth says whether a client has to have a certificate.
type ClientAuth int

const (
	ClientAuthNeed ClientAuth = iota // a certificate that is trusted
	ClientAuthWant                   // if there is one, it must be trusted
	ClientAuthNone                   // none is asked for
)

// ParseClientAuth reads need, want or none, in any case.
func ParseClientAuth(s string) (ClientAuth, error) {
	switch strings.ToLower(s) {
	case "need":
		return ClientAuthNeed, nil
	case "want":
		return ClientAuthWant, nil
	case "none":
		return ClientAuthNone, nil
	}
	return 0, fmt.Errorf("must be need, want or none, not %q", s)
}

// ParseProtocol reads the value of ssl.protocol, which ZooKeeper takes for the only protocol unless
// ssl.enabledProtocols has others. TLS stands for all that there are.
func ParseProtocol(name string) (minVersion, maxVersion uint16, err error) {
	switch name {
	case "TLS":
		return 0, 0, nil
	case "TLSv1.2":
		return tls.VersionTLS12, tls.VersionTLS12, nil
	case "TLSv1.3":
		return tls.VersionTLS13, tls.VersionTLS13, nil
	}
	return 0, 0, fmt.Errorf("must be TLSv1.2, TLSv1.3 or TLS, not %q: nothing older is spoken", name)
}

// ParseProtocols reads a list of protocols with commas, as "TLSv1.2,TLSv1.3". Older ones beside one
// of these are returned as ignored. A list of older ones only is an error, and so is a name that no
// protocol has.
func ParseProtocols(list string) (minVersion, maxVersion uint16, ignored []string, err error) {
	for name := range strings.SplitSeq(list, ",") {
		var v uint16
		switch name = strings.TrimSpace(name); name {
		case "TLSv1.2":
			v = tls.VersionTLS12
		case "TLSv1.3":
			v = tls.VersionTLS13
		case "TLSv1", "TLSv1.0", "TLSv1.1", "SSLv3", "SSLv2", "SSLv2Hello":
			ignored = append(ignored, name)
			continue
		default:
			return 0, 0, nil, fmt.Errorf("%q is no protocol: TLSv1.2 and TLSv1.3 are spoken", name)
		}
		if minVersion == 0 || v < minVersion {
			minVersion = v
		}
		maxVersion = max(maxVersion, v)
	}
	if maxVersion == 0 {
		return 0, 0, nil, fmt.Errorf("has neither TLSv1.2 nor TLSv1.3: nothing older is spoken, whatever the file says")
	}
	return minVersion, maxVersion, ignored, nil
}

// suites13 are the suites of TLS 1.3. crypto/tls always offers all of them.
var suites13 = []uint16{tls.TLS_AES_128_GCM_SHA256, tls.TLS_AES_256_GCM_SHA384, tls.TLS_CHACHA20_POLY1305_SHA256}

// ParseCipherSuites reads a list of cipher suites with commas, by their IANA names, which Java
// uses, too. It returns the suites of TLS 1.2, and whether the list has any of TLS 1.3. Suites that
// crypto/tls does not have, or counts as insecure, are returned as ignored; if no other is left,
// that is an error.
func ParseCipherSuites(list string) (suites []uint16, tls13 bool, ignored []string, err error) {
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		i := slices.IndexFunc(tls.CipherSuites(), func(c *tls.CipherSuite) bool { return c.Name == name })
		switch {
		case i < 0:
			ignored = append(ignored, name)
		case slices.Contains(suites13, tls.CipherSuites()[i].ID):
			tls13 = true
		default:
			suites = append(suites, tls.CipherSuites()[i].ID)
		}
	}
	if len(suites) == 0 && !tls13 {
		return nil, false, nil, fmt.Errorf("has no cipher suite that can be used; there are %s", suiteNames())
	}
	return suites, tls13, ignored, nil
}

func suiteNames() string {
	var names []string
	for _, c := range tls.CipherSuites() {
		names = append(names, c.Name)
	}
	return strings.Join(names, ", ")
}
