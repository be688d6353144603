package door

import (
	"bytes"
	"errors"
	"strings"
	"sync/atomic"
)

// framing follows the heads of the requests on one HTTP connection. Where a request ends must not
// be a matter of opinion: a proxy in front that sees another end than this member does takes a
// hidden request's answer for the next client's (request smuggling). net/http tolerates some of the
// causes; framing refuses them, and net/http answers 400 and closes the connection. A request with
// a body is the last one of its connection, so that nothing behind it is ever taken for a request.
//
// take is called by whoever reads the connection, last by anybody.
type framing struct {
	last atomic.Bool // see isLast

	line    []byte // the beginning of the line that is arriving
	length  int    // of that line, so far
	cr      bool   // its last byte is a carriage return
	inHead  bool   // the request line has come
	lengths int    // headers of this head that say how long the body is
	body    bool   // there is one
}

// errFraming is the error of framing: net/http answers it with 400.
var errFraming = errors.New("door: the end of the HTTP request is ambiguous")

// lineKept is how much of a line framing looks at: a name, and a number.
const lineKept = 64

// isLast reports whether the connection has to end behind the answer to the present request.
func (f *framing) isLast() bool { return f.last.Load() }

// take looks at bytes that have arrived, and returns the number that net/http may see.
func (f *framing) take(p []byte) (n int, err error) {
	for n < len(p) && !f.last.Load() {
		part, rest, ended := bytes.Cut(p[n:], []byte{'\n'})
		f.line = append(f.line, part[:min(len(part), lineKept-len(f.line))]...)
		f.length += len(part)
		if len(part) > 0 {
			f.cr = part[len(part)-1] == '\r'
		}
		if !ended {
			return len(p), nil
		}
		if !f.cr || !f.endLine() {
			return n, errFraming
		}
		f.line, f.length, f.cr = f.line[:0], 0, false
		n = len(p) - len(rest)
	}
	return len(p), nil
}

// endLine looks at a whole line; false if it must not be.
func (f *framing) endLine() bool {
	switch {
	case f.length > 1 && !f.inHead:
		f.inHead = true
		return true
	case f.length > 1:
		return f.header(string(f.line))
	case f.inHead: // an empty line
		f.last.Store(f.body)
		f.inHead, f.lengths, f.body = false, 0, false
	}
	return true
}

// header looks at a line of a head behind the first; false if it continues the line before, or if
// it is the second one that says how long the body is.
func (f *framing) header(line string) bool {
	if line[0] == ' ' || line[0] == '\t' {
		return false
	}
	name, value, _ := strings.Cut(line, ":")
	switch name = strings.TrimSpace(name); {
	case strings.EqualFold(name, "Content-Length"):
		f.body = f.body || strings.TrimSpace(value) != "0"
	case strings.EqualFold(name, "Transfer-Encoding"):
		f.body = true
	default:
		return true
	}
	f.lengths++
	return f.lengths == 1
}
