package znode

import (
	"encoding/hex"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Identity is an authenticated identity of a connection: a scheme and a name within the scheme.
// The scheme "super" with any id passes every check.
type Identity struct{ Scheme, ID string }

// Schemes of authentication that have a meaning here (docs/protocol/semantics.md section 7).
const (
	schemeWorld  = "world"  // in ACLs only, with the id "anyone"
	schemeAuth   = "auth"   // in requests only: the identities of the sender
	schemeSuper  = "super"  // as identity only: passes every check
	schemeDigest = "digest" // user:hash of the password
	schemeIP     = "ip"     // an address, in ACLs also a network
	schemeSASL   = "sasl"
	schemeX509   = "x509"
	schemeKey    = "key" // ZooKeeper's example of a scheme

	idAnyone = "anyone"
)

// IsSuper reports whether a connection with the identities ids is a super user's.
func IsSuper(ids []Identity) bool {
	return slices.ContainsFunc(ids, func(id Identity) bool { return id.Scheme == schemeSuper })
}

// authenticated reports whether an identity of this scheme is one that the scheme "auth" in an ACL
// is replaced by: one that takes a proof to have.
func authenticated(scheme string, flags Flags) bool {
	return scheme == schemeDigest || scheme == schemeX509 || scheme == schemeSASL || scheme == schemeKey &&
		flags&KeyScheme != 0
}

// loaded reports whether there is a provider for the scheme, so that an ACL may have it. The
// providers of sasl, x509 and key must be configured, as with ZooKeeper.
func loaded(scheme string, flags Flags) bool {
	switch scheme {
	case schemeDigest:
		return flags&NoDigest == 0
	case schemeIP:
		return true
	case schemeX509:
		return flags&X509 != 0
	case schemeSASL:
		return flags&SASL != 0
	case schemeKey:
		return flags&KeyScheme != 0
	}
	return false
}

// validID reports whether an ACL may name this identity.
func validID(scheme, id string) bool {
	switch scheme {
	case schemeDigest:
		// Java's split drops empty parts at the end, and two parts must remain.
		return strings.Count(strings.TrimRight(id, ":"), ":") == 1
	case schemeIP:
		return validIPExpr(id)
	case schemeX509:
		return validX500Name(id)
	case schemeSASL:
		return validPrincipal(id)
	case schemeKey:
		return true
	}
	return false
}

// validIPExpr reports whether id is valid in an ACL of scheme "ip": an address, or a network as
// address/bits.
func validIPExpr(id string) bool {
	_, _, ok := parseIPExpr(id)
	return ok
}

func parseIPExpr(expr string) (addr netip.Addr, bits int, ok bool) {
	text, suffix, network := strings.Cut(expr, "/")
	addr, ok = parseIP(text)
	if !ok {
		return netip.Addr{}, 0, false
	}
	bits = addr.BitLen()
	if network {
		n, err := strconv.Atoi(suffix)
		if err != nil || n < 0 || n > bits {
			return netip.Addr{}, 0, false
		}
		bits = n
	}
	return addr, bits, true
}

// parseIP reads an address as ZooKeeper does: zeros in front of the numbers of an IPv4 address are
// fine; IPv6 has neither a zone (such an address matches nothing) nor an IPv4 address at its end.
func parseIP(text string) (addr netip.Addr, ok bool) {
	if strings.IndexByte(text, ':') >= 0 {
		if strings.ContainsAny(text, "%.") {
			return netip.Addr{}, false
		}
		addr, err := netip.ParseAddr(text)
		return addr, err == nil
	}
	var b [4]byte
	for i := range b {
		part := text
		if i < 3 {
			var dot bool
			if part, text, dot = strings.Cut(text, "."); !dot {
				return netip.Addr{}, false
			}
		}
		n, err := strconv.Atoi(part)
		if err != nil || n < 0 || n > 255 {
			return netip.Addr{}, false
		}
		b[i] = byte(n)
	}
	return netip.AddrFrom4(b), true
}

// AddrText returns an address as Java writes it, which is the id of scheme ip: an IPv6 address has
// all of its eight numbers, without leading zeros.
func AddrText(a netip.Addr) string {
	a = a.Unmap()
	if !a.Is6() {
		return a.String()
	}
	b := a.As16()
	var groups []string
	for i := 0; i < len(b); i += 2 {
		groups = append(groups, strconv.FormatUint(uint64(b[i])<<8|uint64(b[i+1]), 16))
	}
	text := strings.Join(groups, ":")
	if a.Zone() != "" {
		text += "%" + a.Zone()
	}
	return text
}

// validPrincipal reports whether a name can name a Kerberos principal, by ZooKeeper's rule:
// anything without a realm, or user@REALM, or user/host@REALM.
func validPrincipal(name string) bool {
	user, realm, ok := strings.Cut(name, "@")
	return !ok || !strings.ContainsAny(realm, "/@") && strings.Count(user, "/") <= 1
}

// x500Keywords are the attribute types that Java knows by name
// (javax.security.auth.x500.X500Principal). Others have to be given by number.
var x500Keywords = map[string]bool{
	"CN": true, "C": true, "L": true, "S": true, "ST": true, "O": true, "OU": true, "T": true, "IP": true,
	"STREET": true,
	"DC":     true, "DNQUALIFIER": true, "DNQ": true, "SURNAME": true, "GIVENNAME": true, "INITIALS": true,
	"GENERATION": true,
	"EMAIL":      true, "EMAILADDRESS": true, "UID": true, "SERIALNUMBER": true,
}

// validX500Name reports whether a text is a distinguished name (RFC 2253, and RFC 1779 with quotes
// and semicolons, as Java reads it): attribute=value pairs, joined by '+' to parts, which are
// separated by ',' or ';'. The empty name is one.
func validX500Name(name string) bool {
	if strings.TrimSpace(name) == "" {
		return name == ""
	}
	for rest := name; ; {
		attribute, after, ok := strings.Cut(rest, "=")
		if !ok || !validAttributeType(strings.TrimSpace(attribute)) {
			return false
		}
		length, ok := x500ValueLen(after)
		if !ok {
			return false
		}
		if length == len(after) {
			return true
		}
		rest = after[length+1:]
	}
}

func validAttributeType(t string) bool {
	if x500Keywords[strings.ToUpper(t)] {
		return true
	}
	if len(t) > 4 && strings.EqualFold(t[:4], "OID.") {
		t = t[4:]
	}
	arcs := strings.Split(t, ".")
	for _, arc := range arcs {
		if arc == "" || strings.Trim(arc, "0123456789") != "" {
			return false
		}
	}
	if len(arcs) < 2 || len(arcs[0]) > 1 || arcs[0] > "2" {
		return false
	}
	second := strings.TrimLeft(arcs[1], "0")
	return arcs[0] == "2" || len(second) < 2 || len(second) == 2 && second < "40"
}

// validDER reports whether digits are, in hexadecimal, one value of DER with a length of one byte.
func validDER(digits string) bool {
	b, err := hex.DecodeString(digits)
	return err == nil && len(b) >= 2 && b[1] < 0x80 && len(b) == 2+int(b[1])
}

// x500ValueLen measures the value at the beginning of a text, up to the separator behind it.
func x500ValueLen(text string) (length int, ok bool) {
	start := len(text) - len(strings.TrimLeft(text, " \n"))
	switch {
	case start == len(text):
		return len(text), true
	case text[start] == '#':
		end := start + 1
		for end < len(text) && strings.IndexByte(",;+", text[end]) < 0 {
			end++
		}
		return end, validDER(text[start+1 : end])
	case text[start] == '"':
		return x500QuotedLen(text, start+1)
	}
	for i := start; i < len(text); i++ {
		switch c := text[i]; c {
		case ',', ';', '+':
			return i, true
		case '\\':
			n := x500EscapeLen(text[i+1:])
			if n == 0 {
				return 0, false
			}
			i += n
		case '<', '>', '"':
			return 0, false
		}
	}
	return len(text), true
}

// x500QuotedLen is x500ValueLen for a value with its opening quote before start.
func x500QuotedLen(text string, start int) (length int, ok bool) {
	for i := start; i < len(text); i++ {
		switch text[i] {
		case '\\':
			n := x500EscapeLen(text[i+1:])
			if n == 0 {
				return 0, false
			}
			i += n
		case '"':
			end := i + 1
			for end < len(text) && (text[end] == ' ' || text[end] == '\n') {
				end++
			}
			return end, end == len(text) || strings.IndexByte(",;+", text[end]) >= 0
		}
	}
	return 0, false
}

// x500EscapeLen is the number of bytes behind a backslash that belong to it: a special character,
// or two hexadecimal digits; 0 if it is followed by something else.
func x500EscapeLen(text string) int {
	const digits = "0123456789abcdefABCDEF"
	switch {
	case text == "":
		return 0
	case len(text) >= 2 && strings.IndexByte(digits, text[0]) >= 0 && strings.IndexByte(digits, text[1]) >= 0:
		return 2
	case strings.IndexByte(",+=\n<>#;\\\" ", text[0]) >= 0:
		return 1
	}
	return 0
}
