package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"lockkeeper/recipes"
	"lockkeeper/server/ops"
)

// memberStatus is the answer of one server. Fields that are nil or empty are not known.
type memberStatus struct {
	Server string `json:"server"`
	ops.MemberFigures
	Error string `json:"error,omitempty"`
	// Lag is in updates, behind the newest that was seen, of the same term.
	Lag *uint64 `json:"lag,omitempty"`
	// Readiness is ops.ListedMember.Readiness.
	Readiness string `json:"readiness,omitempty"`

	zxid     uint64
	term     uint64 // 0 if it is not known
	observer bool   // the list of members has it as an observer
	list     []ops.ListedMember
}

// serves reports whether it is a voter that takes part in a quorum.
func (m *memberStatus) serves() bool {
	return m.Role == "leader" || m.Role == "follower" || m.Role == "standalone"
}

// counts reports whether another one may fail for it: it serves, and does not say that it is
// behind. ZooKeeper serves nobody before it has caught up.
func (m *memberStatus) counts() bool {
	return m.serves() && (m.Readiness == "" || m.Readiness == ops.ReadyText)
}

// leaderTerm is the term of the leader as this server reports it, 0 if it does not. ZooKeeper has
// epochs for terms.
func (m *memberStatus) leaderTerm() (term uint64) {
	if m.Version != "" && !strings.Contains(m.Version, "lockkeeper") {
		return m.zxid >> 32
	}
	if m.Role == "leader" || m.Role == "standalone" {
		term = m.term
	}
	for _, l := range m.list {
		if l.State == "leader" {
			term = max(term, l.Term)
		}
	}
	return term
}

func (m *memberStatus) isObserver() bool { return m.observer || m.Role == "observer" }

// identify finds the member in the list: by the number that it says it has, or by its addresses.
func (m *memberStatus) identify(list []ops.ListedMember, at [][]string, own []string) {
	for i, l := range list {
		same := m.ID != nil && *m.ID == l.ID || m.ID == nil &&
			slices.ContainsFunc(at[i], func(a string) bool { return slices.Contains(own, a) })
		if same {
			m.ID, m.observer, m.Readiness = &l.ID, l.Role == "observer", l.Readiness
			for _, own := range m.list { // its own report is newer
				if own.ID == l.ID {
					m.Readiness = own.Readiness
				}
			}
			return
		}
	}
	m.ID = nil // ZooKeeper says 0 where it stands alone
}

// query asks a server at its client port: a member of lockkeeper with the four-letter word mbrs,
// ZooKeeper with srvr, and with mntr and conf if its whitelist has them.
func (f *clientFlags) query(ctx context.Context, address string, patience time.Duration) *memberStatus {
	m := &memberStatus{Server: address}
	err := m.ask(func(word string) (string, error) { return f.word(ctx, address, word, patience) })
	if err != nil {
		m.Error = err.Error()
	}
	m.zxid, _ = strconv.ParseUint(strings.TrimPrefix(m.Zxid, "0x"), 16, 64)
	return m
}

func (m *memberStatus) ask(word func(string) (string, error)) error {
	var own ops.MemberStatus
	text, err := word("mbrs")
	switch {
	case err == nil && json.Unmarshal([]byte(text), &own) == nil:
		m.MemberFigures, m.term = own.MemberFigures, own.Term
		if len(own.Members) > 0 {
			m.list = own.Members
		}
		if m.Role == "" {
			return errNotServing
		}
		return nil
	case err != nil && !errors.Is(err, errNoAnswer):
		return err
	}
	if text, err = word("srvr"); err != nil {
		return err
	}
	if err := m.parse(text); err != nil {
		return err
	}
	if text, err = word("mntr"); err == nil {
		m.Sessions = number[int](text, "zk_global_sessions\t")
	}
	if text, err = word("conf"); err == nil {
		m.ID = number[uint8](text, "serverId=")
	}
	return nil
}

// number reads the number behind a prefix at the beginning of a line; nil without.
func number[T int | uint8](text, prefix string) *T {
	_, rest, found := strings.Cut("\n"+text, "\n"+prefix)
	digits, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseUint(strings.TrimSpace(digits), 10, 64)
	if !found || err != nil || uint64(T(n)) != n {
		return nil
	}
	v := T(n)
	return &v
}

// errNotServing says that a server serves no clients.
var errNotServing = errors.New("serves nobody: it knows no leader")

// parse reads ZooKeeper's answer to srvr.
func (m *memberStatus) parse(text string) error {
	switch {
	case strings.Contains(text, "not currently serving"):
		return errNotServing
	case strings.Contains(text, "not in the whitelist"):
		return errors.New("does not answer the four-letter word srvr (4lw.commands.whitelist)")
	}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch key {
		case "Zookeeper version":
			m.Version, _, _ = strings.Cut(value, ",")
		case "Latency min/avg/max":
			var l ops.LatencyMs
			if n, _ := fmt.Sscanf(strings.ReplaceAll(value, "/", " "), "%d %g %d", &l.Min, &l.Avg, &l.Max); n == 3 {
				m.Latency = &l
			}
		case "Connections":
			m.Connections, _ = strconv.Atoi(value)
		case "Outstanding":
			m.Outstanding, _ = strconv.Atoi(value)
		case "Node count":
			m.Nodes, _ = strconv.Atoi(value)
		case "Zxid":
			m.Zxid = value
		case "Mode":
			m.Role = value
		}
	}
	if m.Role == "" {
		return errors.New("answers, but not as a client port does: is it the port of something else?")
	}
	return nil
}

// consLine is a line of the four-letter word cons: a connection that has a session.
var consLine = regexp.MustCompile(`(?m)^ /(\S+)\[[0-9a-f]+\]\(.*,sid=0x([0-9a-f]+),`)

// sessionAddresses reads the addresses of the clients from servers that make no reports: ZooKeeper
// has them in cons, and in no JSON of the client port. It leaves out a server that does not answer,
// or does not have cons in its whitelist.
func (f *clientFlags) sessionAddresses(ctx context.Context, servers []string) map[int64]string {
	found := map[int64]string{}
	for _, server := range servers {
		text, _ := f.word(ctx, server, "cons", wordPatience)
		for _, m := range consLine.FindAllStringSubmatch(text, -1) {
			if id, err := strconv.ParseUint(m[2], 16, 64); err == nil {
				found[int64(id)] = m[1]
			}
		}
	}
	return found
}

// wordPatience is how long a server has for the answer to a four-letter word.
const wordPatience = 2 * time.Second

// word sends a four-letter word to a server and returns the answer, which is not empty.
func (f *clientFlags) word(ctx context.Context, server, word string, patience time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := f.tls.dial(ctx, server)
	if err != nil {
		return "", f.unreached(err, server, patience)
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	text := []byte{}
	if _, err = io.WriteString(conn, word); err == nil {
		text, err = io.ReadAll(io.LimitReader(conn, 16<<20))
	}
	switch {
	case len(text) > 0:
		return string(text), nil
	case err != nil && !errors.Is(err, syscall.ECONNRESET):
		return "", f.unreached(err, server, patience)
	}
	return "", f.unreached(errNoAnswer, server, patience)
}

// errNoAnswer says that a server closes the connection instead of an answer.
var errNoAnswer = errors.New("it closes the connection without an answer: is it a client port?")

// unreached says in a few words why a server was not reached.
func (f *clientFlags) unreached(err error, server string, patience time.Duration) error {
	config, _ := f.tls.config()
	if _, ok := errors.AsType[*net.DNSError](err); !ok {
		if cause := recipes.Mismatch(context.Background(), server, config, min(patience, time.Second)); cause != nil {
			return shortCause(cause)
		}
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" {
		if config != nil && config.GetClientCertificate == nil {
			return shortCause(fmt.Errorf("%w: %w", recipes.ErrCertificateNeeded, op.Err))
		}
		return fmt.Errorf("refuses the certificate of this program: %w", op.Err)
	}
	if err == errNoAnswer {
		return err
	}
	var timeout net.Error
	var op *net.OpError
	var dns *net.DNSError
	switch {
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no answer within %v", patience)
	case errors.As(err, &dns):
		return fmt.Errorf("there is no host %s: %w", dns.Name, err)
	case errors.As(err, &op) && op.Op == "dial":
		var call *os.SyscallError
		if errors.As(err, &call) {
			return fmt.Errorf("cannot be reached: %w", call.Err)
		}
	}
	return fmt.Errorf("cannot be reached: %w", err)
}

// shortCause is a cause without the address and the package.
func shortCause(err error) error {
	for _, known := range []error{recipes.ErrTLSNeeded, recipes.ErrNoTLS, recipes.ErrCertificateNeeded,
		recipes.ErrHTTP} {
		if errors.Is(err, known) {
			return errors.New(strings.TrimPrefix(known.Error(), "recipes: ") + hintOf(known))
		}
	}
	return err
}
