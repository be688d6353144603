package audit

import (
	"fmt"
	"time"
	"unicode"
	"unicode/utf8"

	"lockkeeper/session"
	"lockkeeper/wire"
)

// A line has the prefix that ZooKeeper's logger writes by its configuration, then the fields of the
// record, separated by tabs:
//
//	2026-11-24 17:08:16,314 INFO audit.Slf4jAuditLogger: session=0x1\tuser=..\tresult=success\n
const prefixEnd = " audit.Slf4jAuditLogger: "

// maxValue bounds the bytes of a value in a line. The rest is left out, and a value that is not
// whole ends with cutMark, which no other can contain.
const (
	maxValue = 8 << 10
	cutMark  = `\...`
)

func appendPrefix(b []byte, now time.Time, result session.AuditResult) []byte {
	b = now.AppendFormat(b, "2006-01-02 15:04:05,000")
	if result == session.AuditFailure {
		b = append(b, " ERROR"...)
	} else {
		b = append(b, " INFO"...)
	}
	return append(b, prefixEnd...)
}

// appendField appends a field that is not the first.
func appendField(b []byte, key, val string) []byte {
	b = append(append(b, key...), '=')
	return appendEscaped(b, val, "")
}

// appendLine appends the line of a record. self is the user in lines about the member itself.
func appendLine(b []byte, now time.Time, r *session.AuditRecord, self string) []byte {
	b = appendPrefix(b, now, r.Result)
	if r.Session != 0 {
		b = fmt.Appendf(b, "session=0x%x\t", uint64(r.Session))
	}
	b = append(b, "user="...)
	if r.Users == nil {
		b = appendEscaped(b, self, ",")
	}
	end := len(b) + maxValue
	for i, user := range r.Users {
		if i > 0 {
			b = append(b, ',')
		}
		if len(b) > end {
			b = append(b, cutMark...)
			break
		}
		b = appendEscaped(b, user, ",")
	}
	if r.Addr != "" {
		b = appendField(append(b, '\t'), "ip", r.Addr)
	}
	b = appendField(append(b, '\t'), "operation", r.Operation)
	if r.Path != "" {
		b = appendField(append(b, '\t'), "znode", r.Path)
	}
	if r.Mode != "" {
		b = appendField(append(b, '\t'), "znode_type", r.Mode)
	}
	if r.ACL != nil {
		b = appendACL(append(b, "\tacl="...), r.ACL)
	}
	b = appendField(append(b, '\t'), "result", string(r.Result))
	b = appendSchemes(b, r.Schemes)
	return append(b, '\n')
}

// appendSchemes appends the schemes that have named the users, in their order. ZooKeeper's lines do
// not say that, so they are behind all of its fields.
func appendSchemes(b []byte, schemes []string) []byte {
	if len(schemes) == 0 {
		return b
	}
	b = append(b, "\tscheme="...)
	end := len(b) + maxValue
	for i, scheme := range schemes {
		if i > 0 {
			b = append(b, ',')
		}
		if len(b) > end {
			return append(b, cutMark...)
		}
		b = appendEscaped(b, scheme, ",")
	}
	return b
}

// appendACL appends scheme:id:perms for each entry, with commas between them. ZooKeeper has nothing
// between them.
func appendACL(b []byte, acl []wire.ACL) []byte {
	end := len(b) + maxValue
	for i, a := range acl {
		if i > 0 {
			b = append(b, ',')
		}
		if len(b) > end {
			return append(b, cutMark...)
		}
		b = append(appendEscaped(b, a.ID.Scheme, ",:"), ':')
		b = append(appendEscaped(b, a.ID.ID, ","), ':')
		for j, letter := range "cdrwa" {
			perms := [...]wire.Perm{wire.PermCreate, wire.PermDelete, wire.PermRead, wire.PermWrite, wire.PermAdmin}
			if a.Perms&perms[j] != 0 {
				b = append(b, byte(letter))
			}
		}
	}
	return b
}

// appendEscaped appends a value. A backslash is doubled; characters that do not print, the
// characters in also, and bytes that are no UTF-8 are written as \xNN or \uNNNN.
func appendEscaped(b []byte, val, also string) []byte {
	whole := len(val) <= maxValue
	if !whole {
		val = val[:maxValue]
	}
	for len(val) > 0 {
		r, size := utf8.DecodeRuneInString(val)
		switch {
		case r == utf8.RuneError && size == 1:
			b = fmt.Appendf(b, `\x%02x`, val[0])
		case r == '\\':
			b = append(b, `\\`...)
		case r > 0xFFFF && !unicode.IsPrint(r):
			b = fmt.Appendf(b, `\U%08x`, r)
		case r != ' ' && !unicode.IsPrint(r), isIn(also, r):
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			b = append(b, val[:size]...)
		}
		val = val[size:]
	}
	if !whole {
		b = append(b, cutMark...)
	}
	return b
}

func isIn(set string, r rune) bool {
	for _, c := range set {
		if c == r {
			return true
		}
	}
	return false
}
