package pemfile

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"regexp"
	"strings"
)

// A Block is the text between a BEGIN line and its END line.
type Block struct {
	Type    string // as CERTIFICATE
	Headers map[string]string
	Bytes   []byte
	Line    int // of BEGIN; the first line of a file is 1
}

// Error says which line of a file is at fault.
type Error struct {
	Line int
	Text string
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Text) }

// Errorf makes an Error of a block, at its BEGIN line.
func (b Block) Errorf(format string, args ...any) error {
	return &Error{b.Line, fmt.Sprintf(format, args...)}
}

const (
	beginMark, endMark, markEnd = "-----BEGIN ", "-----END ", "-----"
	byteOrderMark               = "\ufeff"
)

// Parse returns the blocks of a file in their order. A file of comments has none.
func Parse(text []byte) ([]Block, error) {
	if bytes.HasPrefix(text, []byte{0xff, 0xfe}) || bytes.HasPrefix(text, []byte{0xfe, 0xff}) {
		return nil, &Error{1, "the file is in UTF-16: write it in UTF-8"}
	}
	var p parser
	for _, line := range lines(string(text)) {
		p.line++
		if err := p.take(line); err != nil {
			return nil, err
		}
	}
	if p.open != nil {
		return nil, p.open.Errorf("BEGIN %s has no END: the file is cut off", p.open.Type)
	}
	return p.blocks, nil
}

// lines splits a text at the ends of lines of Unix, Windows and old Macs.
func lines(text string) []string {
	return strings.Split(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text), "\n")
}

// parser reads a file line by line.
type parser struct {
	blocks []Block
	line   int

	open   *Block // between BEGIN and END
	base64 strings.Builder
	// inHeaders says that lines before an empty one are headers; header is the newest of them.
	inHeaders bool
	header    string
}

// take reads a line. A boundary may stand behind the end of another one, where a file without a
// newline at its end was joined with the next.
func (p *parser) take(line string) error {
	if i := strings.IndexByte(line, 0); i >= 0 {
		return &Error{p.line, "has a NUL byte: this is no file in PEM"}
	}
	rest := clean(line)
	if rest == "" && p.inHeaders && p.header != "" {
		p.inHeaders = false
	}
	for rest != "" {
		var err error
		if p.open == nil {
			rest, err = p.outside(rest)
		} else {
			rest, err = p.inside(rest)
		}
		if err != nil {
			return err
		}
		rest = clean(rest)
	}
	return nil
}

// clean removes white space at both ends, and byte order marks at the beginning.
func clean(line string) string {
	for {
		line = strings.TrimSpace(line)
		after, found := strings.CutPrefix(line, byteOrderMark)
		if !found {
			return line
		}
		line = after
	}
}

// outside reads a BEGIN, or a comment. It returns the rest.
func (p *parser) outside(text string) (rest string, err error) {
	after, found := strings.CutPrefix(text, beginMark)
	label, rest, closed := strings.Cut(after, markEnd)
	if !found || !closed || strings.TrimSpace(label) == "" {
		return "", p.comment(text)
	}
	if sharesDashes(rest) {
		return "", p.shared("two BEGINs")
	}
	p.open = &Block{Type: label, Headers: map[string]string{}, Line: p.line}
	p.inHeaders, p.header = true, ""
	p.base64.Reset()
	return rest, nil
}

var (
	boundary = regexp.MustCompile(`(?i)^\W*[-\x{2010}-\x{2015}\x{2212}]\s*(BEGIN|END)\b`)
	// mention is a boundary at another place of a line, or with other dashes.
	mention = regexp.MustCompile(`(?i)\b(BEGIN|END)\s.*(CERTIFICATE|CRL|KEY|PARAMETERS|PKCS7|CMS|REQUEST)`)
	dashes  = regexp.MustCompile(`[-\x{2010}-\x{2015}\x{2212}]{2}|[\x{2010}-\x{2015}\x{2212}]`)
	// content is a line of base64 that is too long for a word.
	content = regexp.MustCompile(`^[A-Za-z0-9+/]{40,}={0,2}$`)
	// headerName is a name in the headers of RFC 1421.
	headerName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9-]*$`)
)

// comment returns an error for a line outside of blocks that is no comment.
func (p *parser) comment(text string) error {
	switch {
	case strings.HasPrefix(text, "#"):
	case boundary.MatchString(text), mention.MatchString(text) && dashes.MatchString(text),
		hasBegin(text):
		return &Error{p.line, fmt.Sprintf("%s looks like the beginning or the end of a block, and is neither: "+
			"-----BEGIN LABEL----- and -----END LABEL----- are lines of their own", quote(text))}
	case content.MatchString(text):
		return &Error{p.line, fmt.Sprintf("%s looks like a part of a block that has no BEGIN line", quote(text))}
	}
	return nil
}

// inside reads the content of a block, or its END. It returns the rest.
func (p *parser) inside(text string) (rest string, err error) {
	body, after, ends := strings.Cut(text, endMark)
	if hasBegin(body) {
		return "", p.open.Errorf("BEGIN %s has no END before the next BEGIN, in line %d", p.open.Type, p.line)
	}
	if err := p.content(clean(body)); err != nil || !ends {
		return "", err
	}
	label, rest, closed := strings.Cut(after, markEnd)
	if !closed || label != p.open.Type {
		return "", &Error{p.line, fmt.Sprintf("%s is not the END of the %s that begins in line %d",
			quote(endMark+after), p.open.Type, p.open.Line)}
	}
	if sharesDashes(rest) {
		return "", p.shared("an END and a BEGIN")
	}
	return rest, p.close()
}

// hasBegin says whether a cleaned text has a BEGIN at any place. clean has removed the space behind
// a BEGIN at the end of a line.
func hasBegin(text string) bool { return strings.Contains(text+" ", beginMark) }

// sharesDashes says whether a BEGIN behind a boundary has fewer than five dashes of its own.
func sharesDashes(rest string) bool {
	after := strings.TrimLeft(rest, "-")
	return len(rest)-len(after) < len(markEnd) && strings.HasPrefix(after, "BEGIN")
}

// shared is the error for two boundaries with fewer than ten dashes between them.
func (p *parser) shared(boundaries string) error {
	return &Error{p.line, boundaries + " share their dashes: each has five of its own on both sides"}
}

// content takes a line between BEGIN and END.
func (p *parser) content(text string) error {
	if p.inHeaders {
		name, value, found := strings.Cut(text, ":")
		name = strings.TrimSpace(name)
		switch {
		case found && headerName.MatchString(name):
			p.header = name
			p.open.Headers[p.header] = strings.TrimSpace(value)
			return nil
		case p.header != "":
			p.open.Headers[p.header] += text
			return nil
		}
	}
	for _, r := range text {
		switch {
		case 'A' <= r && r <= 'Z', 'a' <= r && r <= 'z', '0' <= r && r <= '9', r == '+', r == '/', r == '=':
			p.inHeaders = false
			p.base64.WriteRune(r)
		case r == ' ', r == '\t':
		default:
			return &Error{p.line, fmt.Sprintf("%q in the %s that begins in line %d: it is damaged", r, p.open.Type,
				p.open.Line)}
		}
	}
	return nil
}

// close ends the block.
func (p *parser) close() (err error) {
	b := p.open
	if b.Bytes, err = base64.StdEncoding.DecodeString(p.base64.String()); err != nil {
		return b.Errorf("the %s is damaged: it is no base64", b.Type)
	}
	if len(b.Bytes) == 0 {
		return b.Errorf("the %s is empty", b.Type)
	}
	p.open = nil
	p.blocks = append(p.blocks, *b)
	return nil
}

// quote quotes the beginning of a text.
func quote(text string) string {
	const most = 40
	if r := []rune(text); len(r) > most {
		text = string(r[:most]) + "..."
	}
	return fmt.Sprintf("%q", text)
}
