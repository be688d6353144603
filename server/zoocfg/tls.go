package zoocfg

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"lockkeeper/server/secure"
)

// TLSMode says how a port speaks TLS.
type TLSMode int

const (
	TLSOff  TLSMode = iota // not at all
	TLSAlso                // the first byte of a connection decides
	TLSOnly
)

// The sides of TLS, each with keys of its own.
const (
	clientSide = iota
	peerSide
)

var sslPrefixes = [...]string{clientSide: "ssl.", peerSide: "ssl.quorum."}

// tlsLoader collects what several keys decide together.
type tlsLoader struct {
	secure                 endpoint                 // secureClientPort, secureClientPortAddress
	minVersion, maxVersion [len(sslPrefixes)]uint16 // of ssl.protocol
	tls13                  [len(sslPrefixes)]bool   // ssl.ciphersuites has some of TLS 1.3
	cert, key, ca, crl     string                   // tls.*
	// x509 is authProvider.N with X509AuthenticationProvider.
	x509 property
}

// side is the part that the keys of a side fill.
func (c *TLS) side(side int) (*secure.Settings, *time.Duration) {
	if side == peerSide {
		return &c.Peers, &c.PeerDetectTimeout
	}
	return &c.Clients, &c.DetectTimeout
}

func (l *loader) side(side int) *secure.Settings {
	settings, _ := l.cfg.TLS.side(side)
	return settings
}

// tlsKeys are the keys that ssl.x and ssl.quorum.x have in common, and those of certificates.
func tlsKeys() map[string]keyDef {
	keys := map[string]keyDef{}
	for side := range sslPrefixes {
		maps.Copy(keys, sideKeys(side))
	}
	maps.Copy(keys, clientTLSKeys)
	return keys
}

func sideKeys(side int) map[string]keyDef {
	prefix, who, reload := sslPrefixes[side], "clients", "client.certReload"
	if side == peerSide {
		who, reload = "members", "sslQuorumReloadCertFiles"
	}
	field := func(f func(*secure.Settings) *string) func(*loader) *string {
		return func(l *loader) *string { return f(l.side(side)) }
	}
	keys := map[string]keyDef{
		"clientAuth": {value: value{kind: "need, want or none", use: func(l *loader, p property) {
			var err error
			if l.side(side).ClientAuth, err = secure.ParseClientAuth(p.val); err != nil {
				l.fault(p, "%v", err)
			}
		}}, def: "need", effect: "Whether who connects with TLS must show a certificate of the trust store: need; " +
			"only if it has one: want; or never: none. Setting need while no port speaks TLS stops the start."},
		"protocol": {value: value{kind: "TLS, TLSv1.2 or TLSv1.3", use: func(l *loader, p property) {
			var err error
			if l.tls.minVersion[side], l.tls.maxVersion[side], err = secure.ParseProtocol(p.val); err != nil {
				l.fault(p, "%v", err)
			}
		}}, def: "TLS", effect: "The version of TLS, unless " + prefix + "enabledProtocols says which. TLS stands " +
			"for 1.2 and 1.3; nothing older is spoken."},
		"enabledProtocols": {value: value{kind: "TLSv1.2 and TLSv1.3 with a comma", use: func(l *loader, p property) {
			s := l.side(side)
			var ignored []string
			var err error
			if s.MinVersion, s.MaxVersion, ignored, err = secure.ParseProtocols(p.val); err != nil {
				l.fault(p, "%v", err)
			} else if len(ignored) > 0 {
				l.warn(p, "%s: not spoken, whatever this says; TLSv1.2 and TLSv1.3 are", strings.Join(ignored, ", "))
			}
		}}, def: "(" + prefix + "protocol)", effect: "The versions of TLS. Older ones beside these are ignored with " +
			"a warning; a list of older ones only stops the start."},
		"ciphersuites": {value: value{kind: "IANA names with commas", use: func(l *loader, p property) {
			suites, tls13, ignored, err := secure.ParseCipherSuites(p.val)
			if err != nil {
				l.fault(p, "%v", err)
				return
			}
			l.side(side).CipherSuites, l.tls.tls13[side] = suites, tls13
			if len(ignored) > 0 {
				l.warn(p, "%s: not there, or not secure: ignored", strings.Join(ignored, ", "))
			}
		}}, def: "(those of Go's crypto/tls)", effect: "The cipher suites. Those of TLS 1.3 are all on if one of " +
			"them is in the list, and none if none is. Suites that Go does not have or counts as insecure are " +
			"ignored with a warning; if no other is left, it stops the start."},
		"hostnameVerification": {value: booleanNot(func(l *loader) *bool { return &l.side(side).AnyHost }), def: "true",
			effect: "Whether a certificate must be for the host that was meant, at the side that connects. In a " +
				"server only connections between members have one."},
		"crl": {value: value{kind: kindBoolean, use: func(l *loader, p property) { _, _ = l.boolValue(p) }},
			def: "false",
			effect: "Whether certificates of " + who + " are looked up in revocation lists. lockkeeper downloads " +
				"none: true needs " + prefix + "crlFile, or it stops the start."},
		"crlFile": {own: true, value: directory(field(func(s *secure.Settings) *string { return &s.CRL })),
			def: "(none)",
			effect: "A file with revocation lists, in PEM. Each certificate of " + who + " then needs a current list " +
				"of its issuer, and must not be on it. It is read again as the stores are (" + reload + ")."},
		"handshakeDetectionTimeoutMillis": {value: millis(1, 5000,
			func(l *loader) *time.Duration { _, timeout := l.cfg.TLS.side(side); return timeout }), unit: "ms",
			effect: "How long a connection to a port for both may take until its first byte, which shows whether " +
				"it is TLS."},
		"ocsp": refuseTrue("lockkeeper asks no OCSP responder; use " + prefix + "crlFile"),
		"context.supplier.class": {class: KeyRefused,
			value: refuse("name of a Java class", "lockkeeper can load no class; remove the key, and name "+
				"stores with "+prefix+"keyStore.location"),
			def: "(none)", effect: "Stops the start: lockkeeper can load no class."},
	}
	for name, store := range map[string]struct {
		what string
		of   func(*secure.Settings) *secure.Store
	}{
		"keyStore.": {"the private key and the certificate of this server",
			func(s *secure.Settings) *secure.Store { return &s.KeyStore }},
		"trustStore.": {"the certificate authorities whose " + who + " are trusted",
			func(s *secure.Settings) *secure.Store { return &s.TrustStore }},
	} {
		maps.Copy(keys, map[string]keyDef{
			name + "location": {value: directory(field(func(s *secure.Settings) *string { return &store.of(s).File })),
				def:    "(none)",
				effect: "The file with " + store.what + ": PEM, PKCS12 or JKS."},
			name + "password": {value: value{kind: "text",
				use: func(l *loader, p property) { store.of(l.side(side)).Password = p.val }}, def: "(none)",
				effect: "The password of that file. " + prefix + name + "passwordPath keeps it out of this one."},
			name + "passwordPath": {
				value:  directory(field(func(s *secure.Settings) *string { return &store.of(s).PasswordFile })),
				def:    "(none)",
				effect: "A file with that password. It wins over " + prefix + name + "password."},
			name + "type": {value: value{kind: "PEM, PKCS12 or JKS", use: func(l *loader, p property) {
				var err error
				if store.of(l.side(side)).Type, err = secure.ParseStoreType(p.val); err != nil {
					l.fault(p, "%v", err)
				}
			}}, def: "(by the suffix: .pem, .p12, .pfx or .jks)",
				effect: "The format of the file. PKCS12 and JKS are told apart by the content, since keytool writes " +
					"PKCS12 under either name."},
		})
	}
	named := map[string]keyDef{}
	for name, def := range keys {
		if !def.own {
			def.property = true
		}
		named[prefix+name] = def
	}
	return named
}

// clientTLSKeys are those that have no counterpart between members.
var clientTLSKeys = map[string]keyDef{
	"secureClientPort": {value: integer(1, math.MaxUint16, 0, func(l *loader) *int { return &l.tls.secure.port }),
		def:    "(none)",
		effect: "The TCP port where clients connect with TLS. Without clientPort it is the only one."},
	"secureClientPortAddress": {value: host(func(l *loader) *string { return &l.tls.secure.host }),
		def: "(every address)", effect: "The address at which the port for TLS listens."},
	"client.portUnification": {property: true, value: value{kind: kindBoolean, use: func(l *loader, p property) {
		if on, _ := l.boolValue(p); on {
			l.cfg.Client.TLS = TLSAlso
		}
	}}, def: "false", effect: "With true the client port takes clients with TLS and without: the first byte decides."},
	"client.certReload": {property: true, value: boolean(func(l *loader) *bool { return &l.cfg.TLS.Clients.Reload }),
		def: "false",
		effect: "Whether the files of ssl.* are read again when they have changed. Connections are kept. Those of " +
			"tls.* always are."},
	"sslQuorum": {value: boolean(func(l *loader) *bool { return &l.cfg.Cluster.TLS }), def: "false",
		effect: "Whether members speak TLS with each other, with the stores of ssl.quorum.* or tls.*: both show a " +
			"certificate (ssl.quorum.clientAuth), which has to be for the host in the server line of its member " +
			"(ssl.quorum.hostnameVerification). See docs/security.md."},
	"portUnification": {value: boolean(func(l *loader) *bool { return &l.cfg.Cluster.TLSAlso }), def: "false",
		effect: "Whether the peer port takes members with TLS and without: the first byte decides. It is for turning " +
			"sslQuorum on or off in a running cluster. As long as it is set, strangers need no certificate."},
	"sslQuorumReloadCertFiles": {value: boolean(func(l *loader) *bool { return &l.cfg.TLS.Peers.Reload }), def: "false",
		effect: "The same for the files of ssl.quorum.*."},
	"ssl.clientHostnameVerification": {property: true,
		value: boolean(func(l *loader) *bool { return &l.cfg.TLS.Clients.VerifyClientHost }), def: "false",
		effect: "Whether the certificate of a client must be for the address that it comes from, or for a name that " +
			"this address has in the DNS and that has this address in turn."},
	"ssl.authProvider": {property: true, value: value{kind: "x509", use: func(l *loader, p property) {
		if p.val != "x509" {
			l.fault(p, "must be x509, not %q: there is no other provider for the holders of certificates", p.val)
		}
	}}, def: "x509", effect: "The provider that says who the holder of a certificate is, which is the scheme in ACLs."},
	"X509AuthenticationProvider.superUser": {property: true,
		value: value{kind: "distinguished name (RFC 2253)",
			use: func(l *loader, p property) { l.cfg.Auth.X509SuperUser = p.val }}, def: "(none)",
		effect: "The holder of a certificate that no ACL stops: the id as it would stand in an ACL, as " +
			"CN=root,O=example."},
	"netty.server.outstandingHandshake.limit": {property: true,
		value: integer(1, math.MaxInt32, 250, func(l *loader) *int { return &l.cfg.TLS.MaxHandshakes }),
		unit:  "connections",
		effect: "How many connections to the ports for clients may be in their TLS handshake at a time. One more " +
			"takes the place of the one that began first; in ZooKeeper it is closed."},
	"ssl.x509.clientCertIdType": {own: true, value: value{kind: "SAN or subject", use: func(l *loader, p property) {
		switch {
		case strings.EqualFold(p.val, "SAN"):
			l.cfg.Auth.X509Naming.SAN = true
		case !strings.EqualFold(p.val, "subject"):
			l.fault(p, "must be SAN or subject, not %q", p.val)
		}
	}}, def: "subject", effect: "Which text of a client's certificate is its id in ACLs: the subject, or an " +
		"alternative name (SAN) that the following keys choose. When they choose none, or more than one, it is " +
		"the subject."},
	"ssl.x509.clientCertIdSanMatchType": {own: true,
		value: value{kind: "1, 2, 6 or 7", use: func(l *loader, p property) {
			n, err := strconv.Atoi(p.val)
			if err == nil {
				err = secure.CheckNameType(n)
			}
			if l.cfg.Auth.X509Naming.Type = n; err != nil {
				l.fault(p, "%v", err)
			}
		}}, def: "(6)", effect: "The type of that name, as in RFC 5280: 1 e-mail address, 2 DNS name, 6 URI, 7 " +
			"IP address."},
	"ssl.x509.clientCertIdSanMatchRegex": {own: true,
		value: pattern(func(l *loader) **regexp.Regexp { return &l.cfg.Auth.X509Naming.Match }), def: "(.*)",
		effect: "What that name has to match, in the syntax of Go's package regexp."},
	"ssl.x509.clientCertIdSanExtractRegex": {own: true,
		value: pattern(func(l *loader) **regexp.Regexp { return &l.cfg.Auth.X509Naming.Extract }), def: "(.*)",
		effect: "Which part of that name is the id."},
	"ssl.x509.clientCertIdSanExtractMatcherGroupIndex": {own: true,
		value:  integer(0, 99, 0, func(l *loader) *int { return &l.cfg.Auth.X509Naming.Group }),
		effect: "Which group of ssl.x509.clientCertIdSanExtractRegex the id is; 0 is all of the match."},

	"tls.cert": {own: true, value: directory(func(l *loader) *string { return &l.tls.cert }), def: "(none)",
		effect: "A file in PEM with the certificate of this server and those of its issuers, for all ports that " +
			"speak TLS. Where ssl.keyStore.location or ssl.quorum.keyStore.location is set, that counts."},
	"tls.key": {own: true, value: directory(func(l *loader) *string { return &l.tls.key }), def: "(tls.cert)",
		effect: "A file in PEM with the private key of tls.cert."},
	"tls.ca": {own: true, value: directory(func(l *loader) *string { return &l.tls.ca }), def: "(none)",
		effect: "A file in PEM with the certificate authorities that are trusted, in the place of the trust stores."},
	"tls.crl": {own: true, value: directory(func(l *loader) *string { return &l.tls.crl }), def: "(none)",
		effect: "A file in PEM with revocation lists, in the place of ssl.crlFile and ssl.quorum.crlFile."},

	"admin.forceHttps": {property: true, value: value{kind: kindBoolean, use: func(l *loader, p property) {
		if on, _ := l.boolValue(p); on {
			l.cfg.HTTP.TLS = TLSOnly
		}
	}}, def: "false", effect: "With true the HTTP port speaks TLS only, with the stores for clients."},
	"admin.portUnification": {property: true, value: value{kind: kindBoolean, use: func(l *loader, p property) {
		if on, _ := l.boolValue(p); on && l.cfg.HTTP.TLS == TLSOff {
			l.cfg.HTTP.TLS = TLSAlso
		}
	}}, def: "false", effect: "With true the HTTP port takes requests with TLS and without, with the stores " +
		"for clients."},
	"admin.needClientAuth": {property: true, value: boolean(func(l *loader) *bool { return &l.cfg.HTTP.NeedCert }),
		def: "false",
		effect: "Whether a client of the HTTP port, or of the port for metrics, must show a certificate when it " +
			"speaks TLS. Otherwise it may, and has the identities of its holder."},
	"metricsProvider.forceHttps": {own: true, value: boolean(func(l *loader) *bool { return &l.cfg.Metrics.TLS }),
		def:    "false",
		effect: "With true the port for metrics speaks TLS only, with the stores for clients."},
}

// pattern is a regular expression.
func pattern(field func(*loader) **regexp.Regexp) value {
	return value{kind: "regular expression", use: func(l *loader, p property) {
		r, err := regexp.Compile(p.val)
		if err != nil {
			l.fault(p, "%v", err)
		}
		*field(l) = r
	}}
}

// finishTLS decides what several keys of TLS say together.
func (l *loader) finishTLS() {
	for side, prefix := range sslPrefixes {
		l.finishSide(side, prefix)
	}
	l.finishNaming()
	l.finishX509()
	if l.cfg.HTTP.Addr == "" && l.cfg.HTTP.TLS != TLSOff {
		l.warn(l.at("admin.enableServer"), "is not true: there is no HTTP port, and nothing to have TLS")
		l.cfg.HTTP.TLS, l.cfg.HTTP.NeedCert = TLSOff, l.cfg.HTTP.NeedCert && l.cfg.Metrics.TLS
	}
	if l.cfg.HTTP.NeedCert && l.cfg.HTTP.TLS == TLSOff && !l.cfg.Metrics.TLS {
		l.fault(l.at("admin.needClientAuth"), "needs admin.forceHttps, admin.portUnification or "+
			"metricsProvider.forceHttps: "+
			"without TLS nobody shows a certificate")
	}
	for key, on := range map[string]bool{
		"secureClientPort":       l.tls.secure.port != 0,
		"client.portUnification": l.cfg.Client.TLS == TLSAlso,
		"admin.forceHttps":       l.cfg.HTTP.TLS == TLSOnly,
		"admin.portUnification":  l.cfg.HTTP.TLS == TLSAlso,

		"metricsProvider.forceHttps": l.cfg.Metrics.TLS,
	} {
		if on && !l.cfg.TLS.Clients.Enabled() && !l.faulty("ssl.keyStore.location") && !l.faulty("tls.cert") {
			l.fault(l.at(key), "needs the certificate of this server: tls.cert, or ssl.keyStore.location")
		}
	}
	client := &l.cfg.TLS.Clients
	if l.cfg.SpeaksTLS() && client.Enabled() && client.TrustStore.File == "" &&
		client.ClientAuth != secure.ClientAuthNone &&
		!l.faulty("ssl.clientAuth") && !l.faulty("ssl.trustStore.location") && !l.faulty("tls.ca") {
		l.fault(l.at("ssl.clientAuth"), "is %s, and there are no certificate authorities: set tls.ca or "+
			"ssl.trustStore.location, "+
			"or ssl.clientAuth=none to serve clients without certificates", clientAuthText(client.ClientAuth))
	}
	l.finishPeerTLS()
	l.unusedTLS()
}

// finishPeerTLS checks that there is what TLS between members needs. Without authorities of its own
// a member would trust those of the system, who give certificates to everybody.
func (l *loader) finishPeerTLS() {
	if !l.cfg.PeersSpeakTLS() {
		return
	}
	key := "sslQuorum"
	if !l.cfg.Cluster.TLS {
		key = "portUnification"
	}
	s := &l.cfg.TLS.Peers
	if !s.Enabled() && !l.faulty("ssl.quorum.keyStore.location") && !l.faulty("tls.cert") {
		l.fault(l.at(key), "needs the certificate of this server: tls.cert, or ssl.quorum.keyStore.location")
	}
	if s.TrustStore.File == "" && !l.faulty("ssl.quorum.trustStore.location") && !l.faulty("tls.ca") {
		l.fault(l.at(key), "needs the certificate authorities of the members: tls.ca, or "+
			"ssl.quorum.trustStore.location")
	}
}

// PeersSpeakTLS reports whether members can connect with TLS.
func (c *Config) PeersSpeakTLS() bool { return c.Cluster.TLS || c.Cluster.TLSAlso }

func clientAuthText(a secure.ClientAuth) string {
	if a == secure.ClientAuthWant {
		return "want"
	}
	return "need (the default)"
}

// SpeaksTLS reports whether the port for clients, the HTTP port or that for metrics speaks TLS.
func (c *Config) SpeaksTLS() bool {
	return c.ClientsSpeakTLS() || c.HTTP.TLS != TLSOff || c.Metrics.TLS
}

// ClientsSpeakTLS reports whether clients can connect with TLS.
func (c *Config) ClientsSpeakTLS() bool { return c.Client.TLS != TLSOff || c.Client.SecureAddr != "" }

// ProvesX509 reports whether clients can prove to be the holders of certificates.
func (c *Config) ProvesX509() bool {
	return c.ClientsSpeakTLS() && c.TLS.Clients.ClientAuth != secure.ClientAuthNone
}

// finishSide fills in the stores of tls.*, and the versions.
func (l *loader) finishSide(side int, prefix string) {
	s, t := l.side(side), &l.tls
	for _, store := range []struct {
		*secure.Store
		name, key, file string
	}{{&s.KeyStore, "keyStore", "tls.cert", t.cert}, {&s.TrustStore, "trustStore", "tls.ca", t.ca}} {
		switch {
		case store.File != "":
			store.Key, store.PasswordKey = prefix+store.name+".location", prefix+store.name+".password"
			if store.PasswordFile != "" {
				store.PasswordKey += "Path"
			}
		case store.file != "":
			*store.Store = secure.Store{File: store.file, Type: secure.PEM, Key: store.key, PasswordKey: store.key}
			if store.key == "tls.cert" {
				s.Reload = true
				store.KeyFile, store.KeyFileKey = t.key, "tls.key"
			}
		}
	}
	s.CRLKey = prefix + "crlFile"
	if s.CRL == "" && t.crl != "" {
		s.CRL, s.CRLKey = t.crl, "tls.crl"
	}
	if s.CRL == "" {
		s.CRLKey = ""
		if l.isTrue(prefix + "crl") {
			l.fault(l.at(prefix+"crl"), "needs %scrlFile or tls.crl: lockkeeper downloads no revocation lists", prefix)
		}
	}
	if s.MinVersion == 0 {
		s.MinVersion, s.MaxVersion = t.minVersion[side], t.maxVersion[side]
	}
	if l.has(prefix+"ciphersuites") && !l.faulty(prefix+"ciphersuites") {
		l.restrictVersions(side, prefix)
	}
}

// restrictVersions leaves out the versions for which there is no cipher suite.
func (l *loader) restrictVersions(side int, prefix string) {
	s := l.side(side)
	minVersion, maxVersion := cmp.Or(s.MinVersion, tls.VersionTLS12), cmp.Or(s.MaxVersion, tls.VersionTLS13)
	if len(s.CipherSuites) == 0 {
		minVersion = tls.VersionTLS13
	}
	if !l.tls.tls13[side] {
		maxVersion = tls.VersionTLS12
	}
	if minVersion > maxVersion {
		l.fault(l.at(prefix+"ciphersuites"), "has no cipher suite for the versions that %senabledProtocols and "+
			"%sprotocol allow", prefix, prefix)
	}
	s.MinVersion, s.MaxVersion = minVersion, maxVersion
}

// secureClientAddr decides where clients connect with TLS.
func (l *loader) secureClientAddr() {
	t := &l.tls
	if t.secure.port == 0 {
		if t.secure.host != "" && !l.faulty("secureClientPort") {
			l.fault(l.at("secureClientPortAddress"), "is set, but secureClientPort is not")
		}
		return
	}
	l.cfg.Client.SecureAddr = t.secure.addr()
	if l.client.port == t.secure.port && l.client.port != 0 {
		l.fault(l.at("secureClientPort"), "is the same as clientPort; client.portUnification=true has one "+
			"port for both")
	}
}

// finishNaming fills in what ssl.x509.* leaves open.
func (l *loader) finishNaming() {
	n := &l.cfg.Auth.X509Naming
	if !n.SAN {
		*n = secure.Naming{}
		return
	}
	const uri = 6
	if n.Type == 0 {
		n.Type = uri
	}
	everything := regexp.MustCompile(".*")
	for _, r := range []**regexp.Regexp{&n.Match, &n.Extract} {
		if *r == nil {
			*r = everything
		}
	}
	if n.Group > n.Extract.NumSubexp() {
		l.fault(l.at("ssl.x509.clientCertIdSanExtractMatcherGroupIndex"), "is %d, and the expression has %d groups",
			n.Group, n.Extract.NumSubexp())
	}
}

// unusedTLS warns about keys that nothing uses, because no port for clients speaks TLS.
func (l *loader) unusedTLS() {
	if l.cfg.SpeaksTLS() {
		return
	}
	if l.has("ssl.clientAuth") && l.cfg.TLS.Clients.ClientAuth == secure.ClientAuthNeed && !l.faulty("ssl.clientAuth") {
		l.fault(l.at("ssl.clientAuth"), "is need, and no port for clients speaks TLS (secureClientPort, "+
			"client.portUnification): "+
			"clients would come in without a certificate; remove the key to start without TLS")
	}
	var unused []string
	for key := range l.origin {
		if strings.HasPrefix(key, "tls.") && !l.cfg.PeersSpeakTLS() ||
			strings.HasPrefix(key, "ssl.") && !strings.HasPrefix(key, sslPrefixes[peerSide]) ||
			key == "client.certReload" {
			unused = append(unused, key)
		}
	}
	if len(unused) > 0 {
		slices.Sort(unused)
		l.notices = append(l.notices, Notice{Level: slog.LevelWarn, File: l.cfg.File,
			Text: fmt.Sprintf("no port for clients speaks TLS (secureClientPort, client.portUnification): without "+
				"effect: %s", strings.Join(unused, ", "))})
	}
}

// finishX509 refuses settings that rely on certificates of clients when no client can show one.
func (l *loader) finishX509() {
	if l.cfg.ProvesX509() {
		return
	}
	const how = "nobody can prove to be the holder of a certificate: that takes secureClientPort or " +
		"client.portUnification, and ssl.clientAuth other than none"
	if l.tls.x509.key != "" {
		l.fault(l.tls.x509, "%s", how)
	}
	if slices.Contains(l.cfg.Auth.RequiredSchemes, "x509") && len(l.cfg.Auth.RequiredSchemes) == 1 {
		l.fault(l.at("enforce.auth.schemes"), "%s", how)
	}
}

// OpenTLS reads the certificates of the ports for clients and HTTP. Errors are Faults.
func (c *Config) OpenTLS() (*secure.Keeper, error) {
	keeper, err := c.openKeeper(c.TLS.Clients)
	if err == nil && !c.TLS.Clients.Enabled() {
		return nil, c.Fault("tls.cert", "is not set: a port that speaks TLS needs a certificate")
	}
	return keeper, err
}

// OpenPeerTLS reads the certificates of the port between members. Errors are Faults.
func (c *Config) OpenPeerTLS() (*secure.Keeper, error) { return c.openKeeper(c.TLS.Peers) }

// openKeeper is secure.Open; a file that cannot be used becomes a Fault of its key.
func (c *Config) openKeeper(settings secure.Settings) (*secure.Keeper, error) {
	keeper, err := secure.Open(settings)
	if err == nil {
		return keeper, nil
	}
	list := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		list = joined.Unwrap()
	}
	var faults Faults
	for _, e := range list {
		file, ok := errors.AsType[*secure.FileError](e)
		if !ok {
			return nil, e
		}
		f := c.Fault(file.Key, "%s: %v", file.File, file.Err)
		f.Err = file.Err
		faults = append(faults, f)
	}
	return nil, faults.Err()
}
