package sasl

import (
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// HA1 is the MD5 of user:realm:password, from which a server verifies a login. It is as good as the
// password for a login with DIGEST-MD5, and is not printed.
type HA1 [md5.Size]byte

// String implements fmt.Stringer.
func (HA1) String() string { return "(secret)" }

// GoString implements fmt.GoStringer.
func (h HA1) GoString() string { return h.String() }

// Users are the users that may log in, by name.
type Users map[string]HA1

// NewHA1 is the HA1 of a user. Each of the two texts is hashed in ISO 8859-1 if that has all of its
// characters, and in UTF-8 otherwise, as the RFC says and Java does.
func NewHA1(user, password string) HA1 {
	return md5.Sum([]byte(encode(user) + ":" + Realm + ":" + encode(password)))
}

// encode is NewHA1's encoding of a text.
func encode(text string) string {
	b := make([]byte, 0, len(text))
	for _, r := range text {
		if r > 0xff {
			return text
		}
		b = append(b, byte(r))
	}
	return string(b)
}

// Entry is the line of a users file for a user with a password: user:realm:HA1, as Apache's
// htdigest writes it.
func Entry(user, password string) (string, error) {
	if err := checkName(user); err != nil {
		return "", err
	}
	switch {
	case password == "":
		return "", errors.New("sasl: the password is empty")
	case !utf8.ValidString(password):
		return "", errors.New("sasl: the password must be UTF-8")
	}
	ha1 := NewHA1(user, password)
	return user + ":" + Realm + ":" + hex.EncodeToString(ha1[:]), nil
}

// checkName returns the fault of the name of a user in a users file.
func checkName(user string) error {
	switch {
	case user == "" || strings.ContainsAny(user, ":\r\n") || strings.HasPrefix(user, "#") ||
		strings.TrimSpace(user) != user:
		return fmt.Errorf("sasl: user %q must have a name without a colon, without blanks around it and without "+
			"# in front", user)
	case !utf8.ValidString(user):
		return errors.New("sasl: the name of a user must be UTF-8")
	}
	return nil
}

// SyntaxError is a fault of a file, and its line. It has no part of the file that may be a secret.
type SyntaxError struct {
	Line   int // from 1
	Reason string
}

// Error implements error.
func (e *SyntaxError) Error() string { return fmt.Sprintf("sasl: line %d: %s", e.Line, e.Reason) }

// ParseUsers reads the text of a users file: an Entry in each line. Empty lines, and those that
// begin with #, are left out. The error is a *SyntaxError.
func ParseUsers(text string) (Users, error) {
	users := Users{}
	number := 0
	for line := range strings.Lines(text) {
		number++
		fault := func(format string, args ...any) (Users, error) {
			return nil, &SyntaxError{Line: number, Reason: fmt.Sprintf(format, args...)}
		}
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		parts := strings.Split(line, ":")
		if len(parts) != 3 {
			return fault("must be user:%s:HA1, as 'lockkeeper digest -sasl USER' prints it", Realm)
		}
		user := parts[0]
		if err := checkName(user); err != nil {
			return fault("%s", strings.TrimPrefix(err.Error(), "sasl: "))
		}
		if parts[1] != Realm {
			return fault("the realm of user %q must be %s", user, Realm)
		}
		if _, twice := users[user]; twice {
			return fault("user %q is there twice", user)
		}
		sum, err := hex.DecodeString(parts[2])
		if err != nil || len(sum) != md5.Size {
			return fault("behind the realm of user %q must be %d hexadecimal digits", user, 2*md5.Size)
		}
		users[user] = HA1(sum)
	}
	return users, nil
}
