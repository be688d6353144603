package server

import (
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
)

// Member is one machine of the cluster, as a server.N line of the configuration describes it.
type Member struct {
	ID       uint8  // the N of server.N, 1 to 254
	Host     string // a name or an address, without brackets
	PeerPort int    // raft and forwarded requests
	// ElectionPort is only repeated in /zookeeper/config: elections use the peer port, too.
	ElectionPort int
	Observer     bool   // replicates but does not vote
	ClientAddr   string // host:port where clients reach it; empty when the line does not say
}

// PeerAddr is the host:port for its peers.
func (m Member) PeerAddr() string { return net.JoinHostPort(m.Host, strconv.Itoa(m.PeerPort)) }

func (m Member) key() string { return memberKey(int(m.ID)) }

func memberKey(id int) string { return "server." + strconv.Itoa(id) }

// String is the line as /zookeeper/config and conf show it: the role always, the client part only if the
// line had one, and then always with a host.
func (m Member) String() string {
	role := "participant"
	if m.Observer {
		role = "observer"
	}
	s := fmt.Sprintf("%s=%s:%d:%s", m.key(), m.PeerAddr(), m.ElectionPort, role)
	if m.ClientAddr != "" {
		s += ";" + m.ClientAddr
	}
	return s
}

// ConfigText is the content of /zookeeper/config: every member in ascending order, then the version, which
// stays 0 as long as the configuration cannot be changed at run time. It is empty for a member alone.
// Curator and kazoo parse this.
func (c *Config) ConfigText() string {
	if c.Standalone() {
		return ""
	}
	var b strings.Builder
	for _, m := range sortedMembers(c.Members) {
		b.WriteString(m.String())
		b.WriteByte('\n')
	}
	b.WriteString("version=0")
	return b.String()
}

func sortedMembers(ms []Member) []Member {
	return slices.SortedFunc(slices.Values(ms), func(a, b Member) int { return int(a.ID) - int(b.ID) })
}

// parseMember reads host:peerPort:electionPort[:role][;[addr:]clientPort].
func parseMember(id uint8, value string) (Member, error) {
	m := Member{ID: id}
	peers, client, hasClient := strings.Cut(value, ";")
	if strings.Contains(peers, "|") {
		return m, errors.New("several addresses for one member (multiAddress) are not supported; give the one that its peers should use")
	}
	host, rest, err := cutHost(peers)
	if err != nil {
		return m, err
	}
	m.Host = host
	parts := strings.Split(rest, ":")
	if len(parts) < 2 || len(parts) > 3 {
		return m, errors.New("must be host:peerPort:electionPort[:participant|observer][;[address:]clientPort]")
	}
	if m.PeerPort, err = parsePort(parts[0]); err != nil {
		return m, fmt.Errorf("peer port: %w", err)
	}
	if m.ElectionPort, err = parsePort(parts[1]); err != nil {
		return m, fmt.Errorf("election port: %w", err)
	}
	if m.PeerPort == m.ElectionPort {
		return m, errors.New("peer port and election port must differ")
	}
	if len(parts) == 3 {
		switch strings.ToLower(parts[2]) {
		case "participant":
		case "observer":
			m.Observer = true
		default:
			return m, fmt.Errorf("role must be participant or observer, not %q", parts[2])
		}
	}
	if hasClient {
		if m.ClientAddr, err = parseClientPart(client); err != nil {
			return m, fmt.Errorf("client part: %w", err)
		}
	}
	return m, nil
}

// parseClientPart reads [addr:]clientPort into addr:clientPort.
func parseClientPart(s string) (string, error) {
	if !strings.Contains(s, ":") {
		port, err := parsePort(s)
		if err != nil {
			return "", err
		}
		return net.JoinHostPort("0.0.0.0", strconv.Itoa(port)), nil
	}
	host, rest, err := cutHost(s)
	if err != nil {
		return "", err
	}
	port, err := parsePort(rest)
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(host, strconv.Itoa(port)), nil
}

// cutHost takes the host and the ':' behind it off s. An IPv6 address must be in brackets.
func cutHost(s string) (host, rest string, err error) {
	if inner, ok := strings.CutPrefix(s, "["); ok {
		host, rest, ok = strings.Cut(inner, "]:")
		if !ok {
			return "", "", errors.New("the bracket around the IPv6 address must be closed and followed by ':'")
		}
		if ip := net.ParseIP(strings.SplitN(host, "%", 2)[0]); ip == nil {
			return "", "", fmt.Errorf("%q is no IPv6 address", host)
		}
		return host, rest, nil
	}
	host, rest, _ = strings.Cut(s, ":")
	if host == "" {
		return "", "", errors.New("the host is missing")
	}
	if strings.ContainsAny(host, " \t/[]=,") {
		return "", "", fmt.Errorf("%q is no host", host)
	}
	return host, rest, nil
}

func parsePort(s string) (int, error) {
	port, err := strconv.Atoi(s)
	if err != nil || port < 1 || port > math.MaxUint16 {
		return 0, fmt.Errorf("%q is no port number (1 to 65535)", s)
	}
	return port, nil
}

// splitHostPort takes host:port apart; the host may be empty and the port 0.
func splitHostPort(addr string) (host string, port int, err error) {
	host, p, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, err
	}
	n, err := strconv.ParseUint(p, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("%q is no port number", p)
	}
	return host, int(n), nil
}
