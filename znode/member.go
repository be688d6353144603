package znode

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"lockkeeper/wire"
)

// MaxMemberID is the largest number that a member may have; the smallest is 0.
const MaxMemberID = math.MaxUint8

// Member is one machine of the cluster, as a server.N line describes it.
type Member struct {
	ID       uint8  // the N of server.N, 0 to MaxMemberID
	Host     string // a name or an address, without brackets
	PeerPort int    // raft and forwarded requests
	// ElectionPort is only repeated in /zookeeper/config: elections use the peer port, too.
	ElectionPort int
	Observer     bool   // replicates but does not vote
	ClientAddr   string // host:port where clients reach it; empty when the line does not say
}

// PeerAddr is the host:port for its peers.
func (m Member) PeerAddr() string { return hostPort(m.Host, m.PeerPort) }

// Key is the key of its line, server.N.
func (m Member) Key() string { return memberPrefix + strconv.Itoa(int(m.ID)) }

const memberPrefix = "server."

// Spec is the line without its key, as /zookeeper/config shows it: the role always, the client part
// only if the line had one, and then always with a host.
func (m Member) Spec() string {
	role := "participant"
	if m.Observer {
		role = "observer"
	}
	s := fmt.Sprintf("%s:%d:%s", asJava(m.PeerAddr()), m.ElectionPort, role)
	if m.ClientAddr != "" {
		s += ";" + asJava(m.ClientAddr)
	}
	return s
}

// asJava is host:port as Java prints it.
func asJava(addr string) string {
	at, err := netip.ParseAddrPort(addr)
	if err != nil || !at.Addr().Is6() {
		return addr
	}
	return hostPort(AddrText(at.Addr()), int(at.Port()))
}

// String is the whole line.
func (m Member) String() string { return m.Key() + "=" + m.Spec() }

// hostPort is net.JoinHostPort for a numeric port.
func hostPort(host string, port int) string {
	if strings.ContainsRune(host, ':') {
		host = "[" + host + "]"
	}
	return host + ":" + strconv.Itoa(port)
}

// SortMembers returns them in ascending order.
func SortMembers(ms []Member) []Member {
	return slices.SortedFunc(slices.Values(ms), func(a, b Member) int { return int(a.ID) - int(b.ID) })
}

// Voters returns the number of voters among ms.
func Voters(ms []Member) (n int) {
	for _, m := range ms {
		if !m.Observer {
			n++
		}
	}
	return n
}

// ConfigText is the content of /zookeeper/config: every member in ascending order, then the
// version. Curator, kazoo and the Java client parse this. It is empty when there are no members.
func ConfigText(ms []Member, version wire.Zxid) string {
	if len(ms) == 0 {
		return ""
	}
	var b strings.Builder
	for _, m := range SortMembers(ms) {
		b.WriteString(m.String())
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "version=%x", uint64(version))
	return b.String()
}

var errSpec = errors.New("must be host:peerPort:electionPort[:participant|observer][;[address:]clientPort]")

// errSecurePart says that a line names a port for TLS, as ZooKeeper has it from 3.10 on.
var errSecurePart = errors.New("a port for TLS after a second ';' is not supported: set secureClientPort in the " +
	"zoo.cfg of the member, " +
	"and leave the part out")

// numberError says that a text should be a number: ZooKeeper has another code for that.
type numberError string

func (e numberError) Error() string { return string(e) }

// rangeError is about a number that ZooKeeper would accept.
type rangeError string

func (e rangeError) Error() string { return string(e) }

// ParseMember reads host:peerPort:electionPort[:role][;[addr:]clientPort].
func ParseMember(id uint8, value string) (Member, error) {
	m := Member{ID: id}
	peers, client, hasClient := strings.Cut(value, ";")
	if strings.Contains(peers, "|") {
		return m, errors.New("several addresses for one member (multiAddress) are not supported; " +
			"give the one that its peers should use")
	}
	host, rest, err := cutHost(peers)
	if err != nil {
		return m, err
	}
	m.Host = host
	parts := strings.Split(rest, ":")
	if len(parts) < 2 || len(parts) > 3 {
		return m, errSpec
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
	if strings.Contains(client, ";") {
		return m, errSecurePart
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
	host, rest := "0.0.0.0", s
	if strings.Contains(s, ":") {
		var err error
		if host, rest, err = cutHost(s); err != nil {
			return "", err
		}
	}
	port, err := parsePort(rest)
	if err != nil {
		return "", err
	}
	return hostPort(host, port), nil
}

// cutHost takes the host and the ':' behind it off s. An IPv6 address must be in brackets.
func cutHost(s string) (host, rest string, err error) {
	if inner, ok := strings.CutPrefix(s, "["); ok {
		host, rest, ok = strings.Cut(inner, "]:")
		if !ok {
			return "", "", errors.New("the bracket around the IPv6 address must be closed and followed by ':'")
		}
		ip, err := netip.ParseAddr(host)
		if err != nil || !ip.Is6() {
			return "", "", fmt.Errorf("%q is no IPv6 address", host)
		}
		return ip.String(), rest, nil
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
	port, err := strconv.ParseUint(s, 10, 16)
	if err != nil || port == 0 {
		return 0, numberError(fmt.Sprintf("%q is no port number (1 to 65535)", s))
	}
	return int(port), nil
}

// ParseConfigText parses the text of ConfigText. The version is 0 if there is none.
func ParseConfigText(text string) (ms []Member, version wire.Zxid, err error) {
	for line := range strings.SplitSeq(text, "\n") {
		key, value, _ := strings.Cut(line, "=")
		if key == "version" {
			v, err := strconv.ParseUint(value, 16, 64)
			if err != nil {
				return nil, 0, fmt.Errorf("znode: config: %q is no version", value)
			}
			version = wire.Zxid(v)
			continue
		}
		id, err := memberNumber(key)
		if err != nil {
			return nil, 0, fmt.Errorf("znode: config: %q: %w", key, err)
		}
		m, err := ParseMember(id, value)
		if err != nil {
			return nil, 0, fmt.Errorf("znode: config: %s: %w", key, err)
		}
		ms = append(ms, m)
	}
	return SortMembers(ms), version, nil
}

// memberNumber is the N of server.N.
func memberNumber(key string) (uint8, error) {
	n, err := strconv.ParseInt(key[strings.LastIndexByte(key, '.')+1:], 10, 64)
	if err != nil {
		return 0, numberError(fmt.Sprintf("%q does not end in the number of a member", key))
	}
	if n < 0 || n > MaxMemberID {
		return 0, rangeError(fmt.Sprintf("a member's number must be between 0 and %d, not %d", MaxMemberID, n))
	}
	return uint8(n), nil
}

// shareAddress reports whether two members have an address in common that only one can have. As in
// ZooKeeper, wildcards and loopback are not compared, except for peer ports, which must always
// differ because raft identifies members by them.
func shareAddress(a, b Member) bool {
	if a.PeerAddr() == b.PeerAddr() {
		return true
	}
	for _, x := range a.ownAddrs() {
		if x != "" && slices.Contains(b.ownAddrs(), x) {
			return true
		}
	}
	return false
}

// ownAddrs returns its three addresses, empty where it does not have one of its own.
func (m Member) ownAddrs() []string {
	addrs := []string{m.PeerAddr(), hostPort(m.Host, m.ElectionPort), m.ClientAddr}
	for i, addr := range addrs {
		host, _, err := cutHost(addr)
		ip, notIP := netip.ParseAddr(host)
		if err != nil || notIP == nil && (ip.IsLoopback() || ip.IsUnspecified()) || host == "localhost" {
			addrs[i] = ""
		}
	}
	return addrs
}
