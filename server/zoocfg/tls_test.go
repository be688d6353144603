package zoocfg

import (
	"crypto/tls"
	"reflect"
	"regexp"
	"testing"
	"time"

	"lockkeeper/server/secure"
)

// TestTLSSettings has what the keys of TLS come to, several together.
func TestTLSSettings(t *testing.T) {
	pemStores := func(reload bool) secure.Settings {
		return secure.Settings{Reload: reload,
			KeyStore:   secure.Store{File: "/c", KeyFile: "/k", Type: secure.PEM, Key: "tls.cert", KeyFileKey: "tls.key", PasswordKey: "tls.cert"},
			TrustStore: secure.Store{File: "/a", Type: secure.PEM, Key: "tls.ca", PasswordKey: "tls.ca"}}
	}
	const ours = base + "tls.cert=/c\ntls.key=/k\ntls.ca=/a\n"
	for name, c := range map[string]struct {
		text string
		want func(*Config)
	}{
		"ours": {ours + "secureClientPort=2182\nsecureClientPortAddress=[::1]", func(c *Config) {
			c.TLS.Clients, c.TLS.Peers, c.Client.SecureAddr = pemStores(true), pemStores(true), "[::1]:2182"
		}},
		"no other port": {"dataDir=%D/data\ntls.cert=/c\ntls.key=/k\ntls.ca=/a\nsecureClientPort=2182", func(c *Config) {
			c.TLS.Clients, c.TLS.Peers, c.Client.Addr, c.Client.TLS = pemStores(true), pemStores(true), ":2182", TLSOnly
		}},
		"one port": {ours + "client.portUnification=true\nssl.handshakeDetectionTimeoutMillis=70\nssl.clientHostnameVerification=true", func(c *Config) {
			c.TLS.Clients, c.TLS.Peers, c.Client.TLS, c.TLS.DetectTimeout = pemStores(true), pemStores(true), TLSAlso, 70*time.Millisecond
			c.TLS.Clients.VerifyClientHost = true
		}},
		"ZooKeeper's": {base + "secureClientPort=2182\nzookeeper.ssl.keyStore.location=/k.jks\nssl.keyStore.password=secret\nssl.trustStore.location=/t\n" +
			"ssl.trustStore.type=pkcs12\nssl.trustStore.passwordPath=/p\nssl.clientAuth=WANT\nclient.certReload=true\nssl.protocol=TLSv1.2\nssl.crlFile=/r\nssl.crl=true", func(c *Config) {
			c.Client.SecureAddr = ":2182"
			c.TLS.Clients = secure.Settings{ClientAuth: secure.ClientAuthWant, Reload: true, MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS12,
				KeyStore:   secure.Store{File: "/k.jks", Password: "secret", Key: "ssl.keyStore.location", PasswordKey: "ssl.keyStore.password"},
				TrustStore: secure.Store{File: "/t", Type: secure.PKCS12, PasswordFile: "/p", Key: "ssl.trustStore.location", PasswordKey: "ssl.trustStore.passwordPath"},
				CRL:        "/r", CRLKey: "ssl.crlFile"}
		}},
		"members": {ours + "secureClientPort=2182\nssl.quorum.keyStore.location=/q.pem\nssl.quorum.hostnameVerification=false\nsslQuorumReloadCertFiles=true\ntls.crl=/r", func(c *Config) {
			c.Client.SecureAddr, c.TLS.Clients, c.TLS.Peers = ":2182", pemStores(true), pemStores(true)
			c.TLS.Peers.KeyStore = secure.Store{File: "/q.pem", Key: "ssl.quorum.keyStore.location", PasswordKey: "ssl.quorum.keyStore.password"}
			c.TLS.Peers.AnyHost = true
			c.TLS.Clients.CRL, c.TLS.Clients.CRLKey, c.TLS.Peers.CRL, c.TLS.Peers.CRLKey = "/r", "tls.crl", "/r", "tls.crl"
		}},
		"suites of TLS 1.2": {ours + "secureClientPort=2182\nssl.ciphersuites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", func(c *Config) {
			c.Client.SecureAddr, c.TLS.Clients, c.TLS.Peers = ":2182", pemStores(true), pemStores(true)
			c.TLS.Clients.MinVersion, c.TLS.Clients.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
			c.TLS.Clients.CipherSuites = []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}
		}},
		"suites of TLS 1.3": {ours + "secureClientPort=2182\nssl.ciphersuites=TLS_AES_128_GCM_SHA256", func(c *Config) {
			c.Client.SecureAddr, c.TLS.Clients, c.TLS.Peers = ":2182", pemStores(true), pemStores(true)
			c.TLS.Clients.MinVersion, c.TLS.Clients.MaxVersion = tls.VersionTLS13, tls.VersionTLS13
		}},
		"names": {ours + "secureClientPort=2182\nssl.x509.clientCertIdType=san\nX509AuthenticationProvider.superUser=CN=root", func(c *Config) {
			c.Client.SecureAddr, c.TLS.Clients, c.TLS.Peers, c.Auth.X509SuperUser = ":2182", pemStores(true), pemStores(true), "CN=root"
			c.Auth.X509Naming = secure.Naming{SAN: true, Type: 6, Match: regexp.MustCompile(".*"), Extract: regexp.MustCompile(".*")}
		}},
		"HTTP": {ours + "admin.serverPort=8080\nadmin.forceHttps=true\nadmin.portUnification=true\nadmin.needClientAuth=true", func(c *Config) {
			c.HTTP.Addr, c.HTTP.TLS, c.HTTP.NeedCert, c.TLS.Clients, c.TLS.Peers = ":8080", TLSOnly, true, pemStores(true), pemStores(true)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got, _ := load(t, c.text, "")
			want, _ := load(t, base, "")
			c.want(&want)
			for _, cfg := range []*Config{&got, &want} {
				cfg.File, cfg.Data.Dir, cfg.origin, cfg.notices = "", "", nil, nil
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}
