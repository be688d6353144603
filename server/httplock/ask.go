package httplock

import (
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"lockkeeper/locknode"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// Headers of requests and answers.
const (
	// TokenHeader has the fencing token of a lock, in decimal, as "lockkeeper fence" checks it.
	TokenHeader = "Fencing-Token"
	// SecretHeader has the secret by which a lock is renewed and released.
	SecretHeader = "Lock-Secret"
)

// Bounds of the parameters.
const (
	waitMost       = time.Hour
	timeoutDefault = 10 * time.Second
	timeoutMost    = time.Hour // a session's is within minSessionTimeout and maxSessionTimeout
	pathMost       = 1024
	nameMost       = 80
	yieldsDefault  = 10 // as of package recipes
	yieldsMost     = 1000
	noteMost       = 1000
	leasesMost     = 10_000
)

// ask is a request, decoded.
type ask struct {
	path    string // of the lock
	mode    mode
	leases  int           // of a semaphore
	wait    time.Duration // for the lock
	timeout time.Duration // of the session
	stream  bool          // the lock lives as long as the answer; else it has to be renewed
	explain bool          // the answer begins with lines about the wait
	name    string        // of the contender, for people
	note    string
	// priority is how urgent it is, yields how often the contender lets more urgent ones go first.
	priority, yields int
	from             string // the address of the request
	secret           secret // of a lock that there is
}

// mode is the kind of lock that is requested.
type mode string

const (
	modeMutex     mode = "mutex"
	modeRead      mode = "read"
	modeWrite     mode = "write"
	modeSemaphore mode = "semaphore"
)

// layouts are the names of the nodes of the modes.
var layouts = map[mode]string{modeMutex: locknode.LayoutLock, modeRead: locknode.LayoutRead,
	modeWrite: locknode.LayoutWrite, modeSemaphore: locknode.LayoutLease}

// parameters are the parameters of the methods.
var parameters = map[string]map[string]func(*ask, string) error{
	http.MethodPut: {"wait": (*ask).setWait, "timeout": (*ask).setTimeout, "mode": (*ask).setMode,
		"leases": (*ask).setLeases, "hold": (*ask).setHold, "name": (*ask).setName, "note": (*ask).setNote,
		"priority": (*ask).setPriority, "yields": (*ask).setYields, "explain": (*ask).setExplain},
	http.MethodPost:   {},
	http.MethodDelete: {},
}

// Parameters are the names of the parameters of each method.
func Parameters() map[string][]string {
	names := map[string][]string{}
	for method, all := range parameters {
		names[method] = slices.Collect(maps.Keys(all))
	}
	return names
}

// decodeAsk decodes a request for the lock at path, without its first slash. The error is for the
// sender.
func decodeAsk(method, path, query string, header http.Header) (*ask, error) {
	a := &ask{path: "/" + path, mode: modeMutex, timeout: timeoutDefault, yields: yieldsDefault, stream: true}
	switch {
	case path == "" || len(path) > pathMost || !znode.ValidPath(a.path):
		return nil, fmt.Errorf("the address must be /v1/locks/ and the path of a lock, of at most %d bytes", pathMost)
	case a.path == "/zookeeper" || strings.HasPrefix(a.path, "/zookeeper/"):
		return nil, fmt.Errorf("there are no locks below /zookeeper")
	}
	q, err := url.ParseQuery(query)
	if err != nil {
		return nil, fmt.Errorf("the parameters cannot be decoded")
	}
	for name, values := range q {
		set := parameters[method][name]
		if set == nil || len(values) != 1 {
			return nil, fmt.Errorf("%s has no parameter %.40q, or it is there twice", method, name)
		}
		if err := set(a, values[0]); err != nil {
			return nil, err
		}
	}
	if (a.mode == modeSemaphore) != (a.leases > 0) {
		return nil, fmt.Errorf("leases and mode=semaphore belong together")
	}
	if method == http.MethodPut {
		return a, nil
	}
	if a.secret, err = parseSecret(header.Get(SecretHeader)); err != nil {
		return nil, err
	}
	return a, nil
}

func (a *ask) setWait(text string) (err error) {
	a.wait, err = duration("wait", text, 0, waitMost)
	return err
}

func (a *ask) setTimeout(text string) (err error) {
	a.timeout, err = duration("timeout", text, time.Millisecond, timeoutMost)
	return err
}

func duration(name, text string, least, most time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < least || d > most {
		return 0, fmt.Errorf("%s must be a duration such as 30s, of at most %v", name, most)
	}
	return d, nil
}

func (a *ask) setMode(text string) error {
	if a.mode = mode(text); layouts[a.mode] == "" {
		return fmt.Errorf("mode must be mutex, read, write or semaphore")
	}
	return nil
}

func (a *ask) setLeases(text string) (err error) {
	a.leases, err = number("leases", text, 1, leasesMost)
	return err
}

func (a *ask) setPriority(text string) (err error) {
	a.priority, err = number("priority", text, -locknode.MaxPriority, locknode.MaxPriority)
	return err
}

func (a *ask) setYields(text string) (err error) {
	a.yields, err = number("yields", text, 0, yieldsMost)
	return err
}

func number(name, text string, least, most int) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%s must be a number from %d to %d", name, least, most)
	}
	return n, nil
}

func (a *ask) setExplain(text string) error {
	if a.explain = text == "true"; !a.explain && text != "false" {
		return fmt.Errorf("explain must be true or false")
	}
	return nil
}

func (a *ask) setHold(text string) error {
	if a.stream = text == "stream"; !a.stream && text != "renew" {
		return fmt.Errorf("hold must be stream or renew")
	}
	return nil
}

func (a *ask) setName(text string) (err error) {
	a.name, err = words("name", text, nameMost)
	return err
}

func (a *ask) setNote(text string) (err error) {
	a.note, err = words("note", text, noteMost)
	return err
}

// words checks a text for people.
func words(name, text string, most int) (string, error) {
	bad := func(r rune) bool { return !unicode.IsPrint(r) }
	if len(text) > most || !utf8.ValidString(text) || strings.ContainsFunc(text, bad) {
		return "", fmt.Errorf("%s must be a text of at most %d bytes, in UTF-8, without control characters", name, most)
	}
	return text, nil
}

// secret is the right to renew and to release a lock: id and password of its session. It is as hard
// to guess as the password.
type secret struct {
	session  wire.SessionID
	password [wire.PasswordLen]byte
}

// secretBytes is the length of a secret before it is written in hexadecimal digits.
const secretBytes = 8 + wire.PasswordLen

// String is the secret as the header has it.
func (s secret) String() string { return fmt.Sprintf("%016x%x", uint64(s.session), s.password) }

func parseSecret(text string) (s secret, err error) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != secretBytes {
		return s, fmt.Errorf("the header %s must be the secret of the lock, as the answer to PUT has it", SecretHeader)
	}
	for _, c := range b[:8] {
		s.session = s.session<<8 | wire.SessionID(c)
	}
	s.password = [wire.PasswordLen]byte(b[8:])
	return s, nil
}
