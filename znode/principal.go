package znode

import (
	"encoding/hex"
	"strings"
)

// validPrincipal reports whether a name can name a Kerberos principal, by ZooKeeper's rule:
// anything without a realm, or user@REALM, or user/host@REALM.
func validPrincipal(name string) bool {
	user, realm, ok := strings.Cut(name, "@")
	return !ok || !strings.ContainsAny(realm, "/@") && strings.Count(user, "/") <= 1
}

// x500Keywords are the attribute types that Java knows by name
// (javax.security.auth.x500.X500Principal). Others have to be given by number.
var x500Keywords = map[string]bool{
	"CN": true, "C": true, "L": true, "S": true, "ST": true, "O": true, "OU": true, "T": true, "IP": true, "STREET": true,
	"DC": true, "DNQUALIFIER": true, "DNQ": true, "SURNAME": true, "GIVENNAME": true, "INITIALS": true, "GENERATION": true,
	"EMAIL": true, "EMAILADDRESS": true, "UID": true, "SERIALNUMBER": true,
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
