package sasl

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// userOption begins the options of DigestLoginModule that name a user.
const userOption = "user_"

// ParseJAAS reads the users in one section of a JAAS file:
//
//	Server {
//	    org.apache.zookeeper.server.auth.DigestLoginModule required
//	    user_NAME="password"
//	    user_OTHER="password";
//	};
//
// found is false when the file has no such section. The whole file must be right by Java's rules.
// It is stricter than Java, which passes over some plain mistakes: a string that does not end, a
// single slash. An error, too, are a login module other than DigestLoginModule (Kerberos is one),
// and a password with ${...}, which Java replaces by a property. The error is a *SyntaxError.
func ParseJAAS(text, section string) (users Users, found bool, err error) {
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	p := jaasParser{text: text, line: 1, section: section, sections: map[string]bool{}, users: Users{}}
	if !utf8.ValidString(text) {
		return nil, false, &SyntaxError{Line: 1, Reason: "the file is no UTF-8"}
	}
	for p.next(); p.err == nil && p.kind != jaasEnd; {
		p.readSection()
	}
	if p.err != nil {
		return nil, false, p.err
	}
	return p.users, p.sections[section], nil
}

// jaasKind is a kind of token. The others are the characters themselves.
type jaasKind rune

const (
	jaasEnd  jaasKind = -1
	jaasWord jaasKind = 'a' // a word, or a string in quotes
)

// jaasParser reads a JAAS file. With the first error it is at the end.
type jaasParser struct {
	text     string // what is still to be read
	line     int
	kind     jaasKind // the present token
	value    string   // of a word
	at       int      // the line where the token begins
	section  string   // that is wanted
	sections map[string]bool
	users    Users
	err      error
}

// fault ends the parser with an error about the present token.
func (p *jaasParser) fault(format string, args ...any) { p.faultAt(p.at, format, args...) }

func (p *jaasParser) faultAt(line int, format string, args ...any) {
	if p.err == nil {
		p.err = &SyntaxError{Line: line, Reason: fmt.Sprintf(format, args...)}
	}
	p.kind, p.text = jaasEnd, ""
}

// word takes a word.
func (p *jaasParser) word(what string) string {
	value := p.value
	p.expect(jaasWord, what)
	return value
}

// expect takes a token of a kind.
func (p *jaasParser) expect(kind jaasKind, what string) {
	if p.kind != kind {
		p.fault("%s is expected", what)
		return
	}
	p.next()
}

// readSection reads name { modules };
func (p *jaasParser) readSection() {
	name := p.word("the name of a section, or the end of the file,")
	if p.err == nil && p.sections[name] {
		p.fault("section %q is there twice", name)
	}
	p.sections[name] = true
	p.expect('{', "{")
	for p.err == nil && p.kind != '}' {
		p.readModule(name == p.section)
	}
	p.expect('}', "}")
	p.expect(';', "; behind the } of a section")
}

// readModule reads class flag options;
func (p *jaasParser) readModule(wanted bool) {
	at, class := p.at, p.value
	p.expect(jaasWord, "the class of a login module")
	switch {
	case p.err != nil || !wanted:
	case strings.HasSuffix(class, ".Krb5LoginModule"):
		p.faultAt(at, "%s: there is no Kerberos (GSSAPI) here, only DIGEST-MD5", class)
	case class != "org.apache.zookeeper.server.auth.DigestLoginModule":
		p.faultAt(at, "lockkeeper cannot load %s; it has org.apache.zookeeper.server.auth.DigestLoginModule", class)
	}
	switch strings.ToLower(p.value) {
	case "required", "requisite", "sufficient", "optional":
		p.next()
	default:
		p.fault("behind the class must be required, requisite, sufficient or optional")
	}
	for p.err == nil && p.kind != ';' {
		key := p.word("an option, or ; behind the last one,")
		p.expect('=', "= behind the name of an option")
		at, value := p.at, p.value
		p.expect(jaasWord, "the value of an option, in quotes,")
		if p.err == nil && wanted && strings.HasPrefix(key, userOption) {
			p.addUser(at, strings.TrimPrefix(key, userOption), value)
		}
	}
	p.expect(';', "; behind the options")
}

// addUser adds a user with the password in that line.
func (p *jaasParser) addUser(at int, name, password string) {
	_, twice := p.users[name]
	switch {
	case name == "":
		p.faultAt(at, "user_ must have a name behind it")
	case twice:
		p.faultAt(at, "user %q is there twice", name)
	case password == "":
		p.faultAt(at, "the password of user %q is empty", name)
	case strings.Contains(password, "${"):
		p.faultAt(at, "the password of user %q has ${, and lockkeeper replaces no properties", name)
	default:
		p.users[name] = NewHA1(name, password)
	}
}

// next reads the next token.
func (p *jaasParser) next() {
	p.skip()
	p.at, p.value = p.line, ""
	if p.text == "" {
		p.kind = jaasEnd
		return
	}
	r, size := utf8.DecodeRuneInString(p.text)
	switch {
	case r == '"':
		p.kind = jaasWord
		p.quoted()
	case strings.ContainsRune("{};=", r):
		p.kind, p.text = jaasKind(r), p.text[size:]
	case isJAASWord(r) && !strings.ContainsRune("0123456789.-", r):
		p.kind = jaasWord
		end := strings.IndexFunc(p.text, func(r rune) bool { return !isJAASWord(r) })
		if end < 0 {
			end = len(p.text)
		}
		p.value, p.text = p.text[:end], p.text[end:]
	default:
		p.fault("%q must be in quotes", r)
	}
}

// isJAASWord reports whether a word may have r without quotes. It may not begin with a digit, a dot
// or a hyphen.
func isJAASWord(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_$-*.", r) ||
		r >= 0xa0
}

// skip passes over blanks and comments.
func (p *jaasParser) skip() {
	for p.text != "" {
		switch {
		case p.text[0] <= ' ':
			p.drop(1)
		case strings.HasPrefix(p.text, "//"):
			end := strings.IndexByte(p.text, '\n')
			if end < 0 {
				end = len(p.text)
			}
			p.drop(end)
		case strings.HasPrefix(p.text, "/*"):
			end := strings.Index(p.text[2:], "*/")
			if end < 0 {
				p.faultAt(p.line, "the comment does not end")
				return
			}
			p.drop(2 + end + 2)
		default:
			return
		}
	}
}

// drop removes n bytes of the text and counts the lines in them.
func (p *jaasParser) drop(n int) {
	p.line += strings.Count(p.text[:n], "\n")
	p.text = p.text[n:]
}

// jaasEscapes are the letters that stand for a control character behind a backslash.
var jaasEscapes = map[byte]byte{'a': 7, 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t', 'v': 11}

// quoted reads a string in quotes. A backslash and up to three octal digits are the character of
// that number.
func (p *jaasParser) quoted() {
	var b strings.Builder
	for i := 1; i < len(p.text); i++ {
		switch c := p.text[i]; {
		case c == '"':
			p.value, p.text = b.String(), p.text[i+1:]
			return
		case c == '\n':
			p.fault("the string does not end")
			return
		case c == '\\' && i+1 < len(p.text) && p.text[i+1] != '\n':
			i++
			n := octalDigits(p.text[i:])
			switch {
			case n > 0:
				r := rune(0)
				for _, digit := range p.text[i : i+n] {
					r = r<<3 | (digit - '0')
				}
				b.WriteRune(r)
				i += n - 1
			case jaasEscapes[p.text[i]] != 0:
				b.WriteByte(jaasEscapes[p.text[i]])
			default:
				b.WriteByte(p.text[i]) // the first byte of a character, or all of it
			}
		default:
			b.WriteByte(c)
		}
	}
	p.fault("the string does not end")
}

// octalDigits is how many octal digits at the beginning of a text are one character: three if the
// first is 0 to 3, else two at the most.
func octalDigits(text string) (n int) {
	for n < len(text) && n < 3 && text[n] >= '0' && text[n] <= '7' {
		n++
	}
	if n == 3 && text[0] > '3' {
		n = 2
	}
	return n
}
