package sasl

import (
	"crypto/md5"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

const (
	// Realm is the realm of every user, and the host in the digest-uri of every client: the name
	// that ZooKeeper's clients and servers have built in.
	Realm = "zk-sasl-md5"
	// Service is the service in the digest-uri of every client.
	Service = "zookeeper"

	// MaxTokenBytes is the longest token that a client may send, as in Java.
	MaxTokenBytes = 4096

	digestURI  = Service + "/" + Realm
	nonceBytes = 30
	firstCount = "00000001" // nc, whatever the client says: a nonce is used once
	qopAuth    = "auth"
)

// ErrRefused is behind the errors of Server.Step (errors.Is): the client has not proved who it
// is. The message says why; it is for the log and not for the client, and has no secret.
var ErrRefused = errors.New("sasl: refused")

func refused(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrRefused, fmt.Sprintf(format, args...))
}

// Server is the server's side of one exchange: two tokens of the client, each with an answer. It is
// used by one goroutine, and not a second time.
type Server struct {
	users    Users
	nonce    string
	step     int    // tokens that have been taken
	mistaken string // see Mistaken
}

// NewServer returns a Server that knows these users, which it does not change.
func NewServer(users Users) *Server { return &Server{users: users} }

// Step takes a token of the client and returns the answer to it. With the last answer it returns
// the name of the user that the client has proved to be. After that, and after an error, which is
// ErrRefused, every token is refused.
func (s *Server) Step(token []byte) (answer []byte, user string, err error) {
	s.step++
	switch {
	case len(token) > MaxTokenBytes:
		err = refused("a token of %d bytes", len(token))
	case s.step == 1: // Java's server, too, takes any first token
		random := make([]byte, nonceBytes)
		_, _ = rand.Read(random) // never fails
		s.nonce = base64.StdEncoding.EncodeToString(random)
		return fmt.Appendf(nil, `realm="%s",nonce="%s",charset=utf-8,algorithm=md5-sess`, Realm, s.nonce), "", nil
	case s.step == 2:
		answer, user, err = s.verify(token)
	default:
		err = refused("a token behind the last one")
	}
	if err != nil {
		s.step = 2 // nothing is taken any more
	}
	return answer, user, err
}

// verify judges the response of a client.
func (s *Server) verify(token []byte) (answer []byte, user string, err error) {
	d, err := parseDirectives(string(token))
	if err != nil {
		return nil, "", err
	}
	if user, err = d.user(); err != nil {
		return nil, "", err
	}
	qop, given := d["qop"]
	if !given {
		qop = qopAuth
	}
	switch {
	case d["realm"] != Realm:
		return nil, "", refused("realm %.100q, want %q", d["realm"], Realm)
	case d["nonce"] != s.nonce:
		return nil, "", refused("another nonce than that of the challenge")
	case d["cnonce"] == "":
		return nil, "", refused("no cnonce")
	case qop != qopAuth:
		return nil, "", refused("qop %.100q, want %s", qop, qopAuth)
	case !strings.EqualFold(d["digest-uri"], digestURI):
		return nil, "", refused("digest-uri %.100q, want %q", d["digest-uri"], digestURI)
	}
	ha1, known := s.users[user] // without an entry the same is computed, so that it takes as long
	a1 := string(ha1[:]) + ":" + s.nonce + ":" + d["cnonce"]
	if authzid, given := d["authzid"]; given {
		// The authorization id is part of the hash, and has no other use: a client that proves to
		// be a user is that user.
		a1 += ":" + authzid
	}
	response := func(a2 string) string {
		return hexMD5(strings.Join([]string{hexMD5(a1), s.nonce, firstCount, d["cnonce"], qop, hexMD5(a2)}, ":"))
	}
	want := response("AUTHENTICATE:" + d["digest-uri"])
	right := subtle.ConstantTimeCompare([]byte(want), []byte(d["response"])) == 1
	switch {
	case !known:
		return nil, "", refused("there is no user %.100q", user)
	case !right:
		s.mistaken = user
		return nil, "", refused("wrong password of user %.100q", user)
	}
	return []byte("rspauth=" + response(":"+d["digest-uri"])), user, nil
}

// Mistaken is the name that came with a wrong password; empty if none did.
func (s *Server) Mistaken() string { return s.mistaken }

func hexMD5(text string) string {
	sum := md5.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}

// directives are the directives of a client's response, by name.
type directives map[string]string

// user decodes the name of the user: UTF-8 if the client says so, otherwise ISO 8859-1.
func (d directives) user() (string, error) {
	user := d["username"]
	switch charset, given := d["charset"]; {
	case user == "":
		return "", refused("no username")
	case given && !strings.EqualFold(charset, "utf-8"):
		return "", refused("charset %.100q, want utf-8", charset)
	case given && !utf8.ValidString(user):
		return "", refused("the username is no UTF-8")
	case given:
		return user, nil
	}
	runes := make([]rune, len(user))
	for i := range len(user) {
		runes[i] = rune(user[i])
	}
	return string(runes), nil
}

// parseDirectives reads name=value pairs with commas between them. A value may be in quotes, with a
// backslash before a character that stands for itself. A name that is there twice is refused.
func parseDirectives(text string) (directives, error) {
	d := directives{}
	for {
		text = strings.TrimLeft(text, ", \t\r\n")
		if text == "" {
			return d, nil
		}
		name, rest, ok := strings.Cut(text, "=")
		name = strings.TrimRight(name, " \t\r\n")
		if !ok || name == "" || strings.ContainsAny(name, "\", \t\r\n") {
			return nil, refused("the response is not a list of name=value")
		}
		value, rest, ok := cutValue(strings.TrimLeft(rest, " \t\r\n"))
		if !ok {
			return nil, refused("the value of %.100q does not end", name)
		}
		if _, twice := d[name]; twice {
			return nil, refused("%.100q is there twice", name)
		}
		d[name], text = value, rest
	}
}

// cutValue splits a text behind the value that it begins with.
func cutValue(text string) (value, rest string, ok bool) {
	if !strings.HasPrefix(text, `"`) {
		end := strings.IndexByte(text, ',')
		if end < 0 {
			end = len(text)
		}
		return strings.TrimRight(text[:end], " \t\r\n"), text[end:], true
	}
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			rest = strings.TrimLeft(text[i+1:], " \t\r\n")
			return b.String(), rest, rest == "" || rest[0] == ','
		case c == '\\' && i+1 < len(text):
			i++
			b.WriteByte(text[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", "", false
}
