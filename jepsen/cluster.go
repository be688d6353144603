package jepsen

import (
	"context"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"lockkeeper/internal/freeport"
)

// A ClusterConfig describes a cluster.
type ClusterConfig struct {
	// Target is the server software.
	Target Target
	// Members is their number; 1 is a standalone member without server.N lines.
	Members int
	// Observers is the number of the Members that do not vote: the last ones.
	Observers int
	// Dir is where every member gets a directory of its own: configuration, data and log. It must
	// exist. Close leaves it there, for the logs.
	Dir string
	// TickTime is tickTime of the configuration; 1 s if zero. A session's timeout is between 2 and
	// 20 ticks.
	TickTime time.Duration
	// Extra are more lines for every member's zoo.cfg. A key that is set here replaces the
	// cluster's own line for it; {dir} stands for the member's directory, mN in Dir.
	Extra []string
	// Descriptors is the limit of file descriptors of every member's process; 0 leaves it as it is.
	Descriptors int
	// Admin gives every member its HTTP port, and the right to change the members to AdminAuth.
	Admin bool
	// Metrics gives every member its port for metrics. lockkeeper only.
	Metrics bool
	// TestClocks gives every member a wall clock that Member.SetClock sets, and a monotonic one
	// that Member.Suspend stops. lockkeeper only.
	TestClocks bool
	// Env, unless nil, returns variables to add to the environment of a member's process, by its
	// ID.
	Env func(id int) []string
	// Places are where the members run, one for each; if nil, all of them run on this machine's
	// loopback.
	Places []Place
	// Disks are where the members have their data; nil means in Dir.
	Disks *Disks
	// Between is where member from finds the address addr at which member to serves its peers; nil
	// means at addr itself.
	Between func(from, to int, addr string) (string, error)
}

// A Place is a host for one member.
type Place struct {
	// ClientHost is its address for clients, PeerHost that for other members.
	ClientHost, PeerHost string

	enter []string // the command line that runs another one there
}

// Command is a command that runs there. In the zero Place it runs here.
func (p Place) Command(name string, args ...string) *exec.Cmd {
	line := append(append(slices.Clone(p.enter), name), args...)
	return exec.Command(line[0], line[1:]...)
}

// place is where member number id runs.
func (cfg ClusterConfig) place(id int) Place {
	if cfg.Places == nil {
		return Place{ClientHost: "127.0.0.1", PeerHost: "127.0.0.1"}
	}
	return cfg.Places[id-1]
}

// A Cluster is a set of members that were started together.
type Cluster struct {
	cfg     ClusterConfig
	members []*Member
}

// StartCluster starts all members and waits until each of them serves clients. On an error nothing
// is left running.
func StartCluster(ctx context.Context, cfg ClusterConfig) (*Cluster, error) {
	if cfg.TickTime == 0 {
		cfg.TickTime = time.Second
	}
	found, err := freeport.Take(portsEach * cfg.Members)
	if err != nil {
		return nil, err
	}
	c := &Cluster{cfg: cfg}
	for i := range cfg.Members {
		place := cfg.place(i + 1)
		m := &Member{
			ID:          i + 1,
			ClientAddr:  fmt.Sprintf("%s:%d", place.ClientHost, found[portsEach*i]),
			HTTPAddr:    fmt.Sprintf("%s:%d", place.ClientHost, found[portsEach*i+3]),
			MetricsAddr: fmt.Sprintf("%s:%d", place.ClientHost, found[portsEach*i+4]),
			target:      cfg.Target.at(place),
			dir:         filepath.Join(cfg.Dir, fmt.Sprintf("m%d", i+1)),
		}
		if cfg.Descriptors > 0 {
			m.target = m.target.at(Place{enter: withDescriptors(cfg.Descriptors)})
		}
		m.PeerAddr = fmt.Sprintf("%s:%d", place.PeerHost, found[portsEach*i+1])
		if cfg.Env != nil {
			m.env = cfg.Env(m.ID)
		}
		if cfg.TestClocks {
			m.clock, m.sleeps = filepath.Join(m.dir, "clock"), filepath.Join(m.dir, "suspends")
		}
		text, err := zooConfig(cfg, m, found)
		if err != nil {
			return nil, err
		}
		if cfg.Disks != nil {
			m.disks, m.target = cfg.Disks, m.target.at(Place{enter: cfg.Disks.enter(m.ID)})
		}
		if err := m.writeConfig(text, cfg.Members == 1); err != nil {
			return nil, err
		}
		c.members = append(c.members, m)
	}
	for _, m := range c.members {
		if err := m.Start(); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	if err := c.AwaitServing(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// portsEach is the number of ports of a member: client, peer, election, HTTP, metrics.
const portsEach = 5

// AdminAuth is the identity, of the scheme digest, that may change the members of a cluster with
// ClusterConfig.Admin.
const AdminAuth = "super:jepsen"

// superDigest is AdminAuth as a zoo.cfg has it.
func superDigest() string {
	user, _, _ := strings.Cut(AdminAuth, ":")
	sum := sha1.Sum([]byte(AdminAuth))
	return user + ":" + base64.StdEncoding.EncodeToString(sum[:])
}

// zooConfig is the text of one member's zoo.cfg.
func zooConfig(cfg ClusterConfig, m *Member, ports []int) (string, error) {
	var b strings.Builder
	line := func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		if key, _, _ := strings.Cut(text, "="); !cfg.setsKey(key) {
			b.WriteString(text + "\n")
		}
	}
	line("tickTime=%d", cfg.TickTime.Milliseconds())
	line("initLimit=20")
	line("syncLimit=10")
	line("dataDir=%s", filepath.Join(m.dir, "data"))
	line("clientPort=%d", ports[portsEach*(m.ID-1)])
	line("clientPortAddress=%s", cfg.place(m.ID).ClientHost)
	line("maxClientCnxns=0")
	line("4lw.commands.whitelist=*")
	line("admin.enableServer=%t", cfg.Admin)
	if cfg.Admin {
		line("admin.serverAddress=%s", cfg.place(m.ID).ClientHost)
		line("admin.serverPort=%d", ports[portsEach*(m.ID-1)+3])
		line("reconfigEnabled=true")
		line("DigestAuthenticationProvider.superDigest=%s", superDigest())
	}
	if cfg.Metrics {
		line("metricsProvider.className=org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider")
		line("metricsProvider.httpHost=%s", cfg.place(m.ID).ClientHost)
		line("metricsProvider.httpPort=%d", ports[portsEach*(m.ID-1)+4])
	}
	for _, extra := range cfg.Extra {
		b.WriteString(strings.ReplaceAll(extra, "{dir}", m.dir) + "\n")
	}
	if cfg.Members == 1 {
		return b.String(), nil
	}
	for i := range cfg.Members {
		place, own := cfg.place(i+1), ports[portsEach*i:]
		peer := net.JoinHostPort(place.PeerHost, strconv.Itoa(own[1]))
		if cfg.Between != nil && i+1 != m.ID {
			var err error
			if peer, err = cfg.Between(m.ID, i+1, peer); err != nil {
				return "", err
			}
		}
		server := fmt.Sprintf("server.%d=%s:%d:%s;%s:%d", i+1, peer, own[2], cfg.role(i+1), place.ClientHost, own[0])
		if i+1 == m.ID {
			m.line = server
		}
		line("%s", server)
	}
	line("peerType=%s", cfg.role(m.ID))
	return b.String(), nil
}

// setsKey says whether Extra has a line for that key.
func (cfg ClusterConfig) setsKey(key string) bool {
	return slices.ContainsFunc(cfg.Extra, func(line string) bool { return strings.HasPrefix(line, key+"=") })
}

// withDescriptors is the command line that runs another one with a limit of file descriptors, hard
// and soft.
func withDescriptors(n int) []string {
	return []string{"sh", "-c", fmt.Sprintf(`ulimit -n %d && exec "$@"`, n), "sh"}
}

// role is the role of member number id in its server line.
func (cfg ClusterConfig) role(id int) string {
	if id > cfg.Members-cfg.Observers {
		return "observer"
	}
	return "participant"
}

// Members are all members, in the order of their IDs.
func (c *Cluster) Members() []*Member { return c.members }

// Servers is the connection string for a client: all members' client addresses, separated by
// commas.
func (c *Cluster) Servers() string {
	addrs := make([]string, len(c.members))
	for i, m := range c.members {
		addrs[i] = m.ClientAddr
	}
	return strings.Join(addrs, ",")
}

// AwaitServing waits until every member serves clients.
func (c *Cluster) AwaitServing(ctx context.Context) error {
	for _, m := range c.members {
		if err := m.AwaitServing(ctx); err != nil {
			return err
		}
	}
	return nil
}

// AwaitLeader waits until exactly one member says that it leads (or that it is standalone), and
// returns it.
func (c *Cluster) AwaitLeader(ctx context.Context) (*Member, error) {
	var leader *Member
	err := Poll(ctx, 10*time.Millisecond, func() error {
		leader = nil
		for _, m := range c.members {
			if _, running := m.current(); !running {
				continue
			}
			mode, err := m.Mode(ctx)
			if err != nil || (mode != "leader" && mode != "standalone") {
				continue
			}
			if leader != nil {
				return fmt.Errorf("jepsen: both %s and %s say that they lead", leader, m)
			}
			leader = m
		}
		if leader == nil {
			return errors.New("jepsen: no member leads")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return leader, nil
}

// Complaints are faults inside of the members: data races and panics that their logs hold, and
// members that do not run although nobody ended them. A test that passes with one of these has not
// passed.
func (c *Cluster) Complaints() ([]string, error) {
	var all []string
	for _, m := range c.members {
		p, running := m.current()
		if p == nil {
			continue
		}
		found, err := p.complaints()
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
		if !running && !p.ended.Load() {
			all = append(all, p.ExitError().Error())
		}
	}
	return all, nil
}

// Logs is the end of every member's log, for the report of a failure.
func (c *Cluster) Logs() string {
	var b strings.Builder
	for _, m := range c.members {
		fmt.Fprintf(&b, "--- %s, %s (%s)\n%s\n", m, m.ClientAddr, m.LogPath(), m.LogTail())
	}
	return b.String()
}

// Close kills every member and waits until all have gone. The files stay.
func (c *Cluster) Close() error {
	var errs []error
	for _, m := range c.members {
		errs = append(errs, m.Kill())
	}
	return errors.Join(errs...)
}

// tempDir makes a directory for a cluster's or a build's files.
func tempDir(name string) (string, error) {
	dir, err := os.MkdirTemp("", "lockkeeper-"+name+"-")
	if err != nil {
		return "", fmt.Errorf("jepsen: %w", err)
	}
	return dir, nil
}

// ErrReplicasDiffer says that two members hold different trees at one zxid.
var ErrReplicasDiffer = errors.New("replicas differ")

// digests are the members' digests from the word hash: by zxid, the digest of the tree as it was
// then. lockkeeper has one, of its newest zxid; ZooKeeper has one for every 128th.
type digests map[string]int64

// AwaitAgreement waits until all members show the same digest for one zxid, and returns it. Nobody
// should write meanwhile. The error wraps ErrReplicasDiffer when they never will, or names at the
// end of ctx the missing members.
func (c *Cluster) AwaitAgreement(ctx context.Context) (zxid string, err error) {
	var differ error
	err = Poll(ctx, 100*time.Millisecond, func() error {
		all := make([]digests, len(c.members))
		for i, m := range c.members {
			text, err := FourLetter(ctx, m.ClientAddr, "hash")
			if err != nil {
				return fmt.Errorf("%s does not say what it holds: %w", m, err)
			}
			all[i] = parseDigests(text)
		}
		var how string
		if zxid, how = compareDigests(all); how != "" {
			differ = fmt.Errorf("%w: %s", ErrReplicasDiffer, how)
			return nil
		}
		if zxid == "" {
			return errors.New("the members did not come to one zxid")
		}
		return nil
	})
	return zxid, errors.Join(err, differ)
}

// parseDigests reads the answer to hash.
func parseDigests(text string) digests {
	found := make(digests)
	for line := range strings.Lines(text) {
		zxid, digest, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if n, err := strconv.ParseInt(digest, 10, 64); ok && err == nil {
			found[zxid] = n
		}
	}
	return found
}

// compareDigests finds a zxid that all have with one digest, and a zxid that two have with
// different ones.
func compareDigests(all []digests) (zxid, differ string) {
	for at, digest := range all[0] {
		everybody := true
		for _, other := range all[1:] {
			d, has := other[at]
			everybody = everybody && has && d == digest
		}
		if everybody {
			zxid = max(zxid, at)
		}
	}
	for i, one := range all {
		for j, other := range all[:i] {
			for at, digest := range one {
				if d, both := other[at]; both && d != digest {
					return "", fmt.Sprintf("at zxid 0x%s member %d holds something else than member %d "+
						"(digests %d and %d)", at, i+1, j+1, digest, d)
				}
			}
		}
	}
	return zxid, ""
}
