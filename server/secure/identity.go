package secure

import (
	"crypto/x509"
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Subject is the subject of a certificate in the format of RFC 2253, as Java's
// X500Principal.getName prints it: it is in ACLs, which are compared byte for byte. Java takes the
// bytes of every kind of string for UTF-8, so that two different names can look the same: "root"
// may be two Chinese characters in UTF-16 in the certificate. Here a value of a kind that is not
// UTF-8 is printed as a number.
func Subject(cert *x509.Certificate) string {
	name, err := distinguishedName(cert.RawSubject)
	if err != nil { // cannot be: crypto/x509 has parsed it
		return cert.Subject.String()
	}
	return name
}

// attribute is a part of a name, as "CN=a".
type attribute struct {
	Type  asn1.ObjectIdentifier
	Value asn1.RawValue
}

type attributeSET []attribute

// keywords are the attributes that have a name in RFC 2253. Others are printed as numbers.
var keywords = map[string]string{
	"2.5.4.3": "CN", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.9": "STREET", "2.5.4.10": "O",
	"2.5.4.11":                  "OU",
	"0.9.2342.19200300.100.1.1": "UID", "0.9.2342.19200300.100.1.25": "DC",
}

func distinguishedName(der []byte) (string, error) {
	var sets []attributeSET
	if rest, err := asn1.Unmarshal(der, &sets); err != nil || len(rest) > 0 {
		return "", errors.New("tls: not a distinguished name")
	}
	var b strings.Builder
	for i := len(sets) - 1; i >= 0; i-- {
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		for j, a := range sets[i] {
			if j > 0 {
				b.WriteByte('+')
			}
			a.appendTo(&b)
		}
	}
	return b.String(), nil
}

func (a attribute) appendTo(b *strings.Builder) {
	name, known := keywords[a.Type.String()]
	if !known || !isText(a.Value) {
		if !known {
			name = a.Type.String()
		}
		b.WriteString(name + "=#" + hex.EncodeToString(a.Value.FullBytes))
		return
	}
	b.WriteString(name + "=")
	text := []rune(string(a.Value.Bytes))
	blank := func(r rune) bool { return r == ' ' || r == '\r' }
	first, last := 0, len(text)-1
	for first < len(text) && blank(text[first]) {
		first++
	}
	for last >= 0 && blank(text[last]) {
		last--
	}
	for i, r := range text {
		switch {
		case r == 0:
			b.WriteString(`\00`)
			continue
		case i < first || i > last || strings.ContainsRune(`,=+<>#;"\`, r):
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
}

// isText reports whether the bytes of a value are its text in UTF-8.
func isText(v asn1.RawValue) bool {
	if v.Class != asn1.ClassUniversal {
		return false
	}
	switch v.Tag {
	case asn1.TagUTF8String:
		return utf8.Valid(v.Bytes)
	case asn1.TagPrintableString, asn1.TagT61String, asn1.TagIA5String, asn1.TagGeneralString:
		return !slices.ContainsFunc(v.Bytes, func(b byte) bool { return b >= utf8.RuneSelf })
	}
	return false
}

// Naming says which text of a certificate is the id of its holder, as the keys ssl.x509.* do. The
// zero value takes the subject.
type Naming struct {
	// SAN takes an alternative name of the subject instead, if exactly one has the type and matches
	// Match: the group Group of Extract's match in it.
	SAN            bool
	Type           int // as in CheckNameType
	Match, Extract *regexp.Regexp
	Group          int
}

// Types of alternative names.
const (
	sanEmail, sanDNS, sanURI, sanIP = 1, 2, 6, 7
)

// CheckNameType returns an error if no alternative name can have that type (RFC 5280, GeneralName).
func CheckNameType(t int) error {
	switch t {
	case sanEmail, sanDNS, sanURI, sanIP:
		return nil
	}
	return fmt.Errorf("must be 1 (e-mail address), 2 (DNS name), 6 (URI) or 7 (IP address), not %d", t)
}

// ID is the id of the holder of a certificate. When no alternative name can be chosen it is the
// subject, with an error that says why.
func (n *Naming) ID(cert *x509.Certificate) (string, error) {
	if !n.SAN {
		return Subject(cert), nil
	}
	var found []string
	for _, name := range n.names(cert) {
		if n.Match.MatchString(name) {
			found = append(found, name)
		}
	}
	if len(found) != 1 {
		return Subject(cert), fmt.Errorf("%d alternative names of type %d match, and not one", len(found), n.Type)
	}
	groups := n.Extract.FindStringSubmatch(found[0])
	if n.Group >= len(groups) {
		return Subject(cert), fmt.Errorf("%q does not match what is to be extracted", found[0])
	}
	return groups[n.Group], nil
}

func (n *Naming) names(cert *x509.Certificate) (names []string) {
	switch n.Type {
	case sanEmail:
		return cert.EmailAddresses
	case sanDNS:
		return cert.DNSNames
	case sanURI:
		for _, u := range cert.URIs {
			names = append(names, u.String())
		}
	case sanIP:
		for _, ip := range cert.IPAddresses {
			names = append(names, net.IP(ip).String())
		}
	}
	return names
}
