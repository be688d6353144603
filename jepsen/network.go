package jepsen

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Network is a set of hosts, one for each member of a cluster, which can be cut off from each
// other. Each host is a Linux network namespace with two links: one to a switch that joins all
// hosts, and one to this machine, where the clients run. A cut concerns the first only: a member
// that is cut off keeps its clients. To the member it looks like a broken switch: its own link is
// up, and nothing comes back.
//
//	        switch (bridge in a namespace of its own)
//	       /        |         \
//	  host 1      host 2      host 3       10.99.0.1 ... 10.99.0.7
//	       \        |         /
//	this machine: clients, tests           198.18.x.y, a /30 for each host
//
// A block in one direction is a routing rule at the receiver, applied before the kernel looks for a
// socket: packets from that host at that link fall into a black hole. The sender learns nothing,
// and neither does the receiver. (Rules of the sender would show: its system calls would fail.)
// Hosts know each other's link addresses from the start, for an address that nobody answers for
// shows too.
//
// There can be one Network at a time in a process. Its methods may be called from several
// goroutines.
//
// The namespaces have no names and live as long as the processes that keep them, which end with
// this process. The links to this machine would go with them, but the kernel takes its time: a
// namespace outlives its processes for as long as one of their connections has something to send.
// So there is a janitor for those. Nothing is left behind.
type Network struct {
	janitor *janitor
	hub     *Process
	hosts   []*Process
	base    netip.Addr // of the hosts' links to this machine

	mu      sync.Mutex
	blocked map[[2]int]bool // from, to
}

// MaxHosts bounds the hosts of a Network.
const MaxHosts = 7

// linkAddrs is the number of addresses that a Network has for its hosts' links to this machine: 4
// for each of up to 8.
const linkAddrs = 32

// FindNetwork names, as an error, the missing requirements for a Network.
func FindNetwork() error {
	for _, program := range []string{"ip", "unshare", "nsenter"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("jepsen: %s: %w (Linux: apt-get install iproute2 util-linux)", program, ErrMissing)
		}
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("jepsen: the right to make network namespaces: %w (run as root)", ErrMissing)
	}
	return nil
}

// FindNetem names, as an error, the missing requirements for Network.Shape. It tries it in a
// namespace of its own, with its log in dir.
func FindNetem(ctx context.Context, dir string) error {
	host, err := startNamespace(ctx, "netem", dir)
	if err != nil {
		return err
	}
	n := &Network{hosts: []*Process{host}}
	return errors.Join(ipInside(host, "link add peer type veth peer name other"),
		n.Shape(1, Shape{Delay: time.Millisecond}), host.Kill())
}

// NewNetwork makes a network of n hosts. Its processes' logs go to dir.
func NewNetwork(ctx context.Context, n int, dir string) (*Network, error) {
	if err := FindNetwork(); err != nil {
		return nil, err
	}
	base, err := networkBase()
	if err != nil {
		return nil, err
	}
	network := &Network{base: base, blocked: make(map[[2]int]bool)}
	if err := network.make(ctx, n, dir); err != nil {
		return nil, errors.Join(err, network.Close())
	}
	return network, nil
}

// networkBase is the first of linkAddrs addresses of 198.18.0.0/15 (RFC 2544, for tests) that no
// other process uses now, and is not likely to choose at the same moment.
func networkBase() (netip.Addr, error) {
	own, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("jepsen: network: %w", err)
	}
	const slots = 1 << 17 / linkAddrs
	for try := range slots {
		offset := (os.Getpid() + try) % slots * linkAddrs
		base := netip.AddrFrom4([4]byte{198, byte(18 + offset>>16), byte(offset >> 8), byte(offset)})
		slot := netip.PrefixFrom(base, 27)
		taken := slices.ContainsFunc(own, func(addr net.Addr) bool {
			prefix, err := netip.ParsePrefix(addr.String())
			return err == nil && slot.Contains(prefix.Addr())
		})
		if !taken {
			return base, nil
		}
	}
	return netip.Addr{}, errors.New("jepsen: network: every address of 198.18.0.0/15 is taken")
}

// link are the two ends of host i's link to this machine.
func (n *Network) link(i int) (here, there netip.Addr) {
	here = n.base
	for range 4*(i-1) + 1 {
		here = here.Next()
	}
	return here, here.Next()
}

func (n *Network) make(ctx context.Context, hosts int, dir string) error {
	if hosts > MaxHosts {
		return fmt.Errorf("jepsen: a network of %d hosts: %d are the most", hosts, MaxHosts)
	}
	var err error
	var links []string
	for i := 1; i <= hosts; i++ {
		links = append(links, outsideName(i))
	}
	const deleteAll = `for link in "$@"; do ip link del "$link" 2>/dev/null; done; true`
	if n.janitor, err = startJanitor(deleteAll, links...); err != nil {
		return err
	}
	if n.hub, err = startNamespace(ctx, "switch", dir); err != nil {
		return err
	}
	if err := ipInside(n.hub, "link add name switch type bridge", "link set switch up"); err != nil {
		return err
	}
	for i := 1; i <= hosts; i++ {
		host, err := startNamespace(ctx, fmt.Sprintf("host%d", i), dir)
		if err != nil {
			return err
		}
		n.hosts = append(n.hosts, host)
		here, there := n.link(i)
		outside := outsideName(i)
		err = errors.Join(
			ip(nil,
				fmt.Sprintf("link add %s type veth peer name client netns %d", outside, host.pid),
				fmt.Sprintf("addr add %s/30 dev %s", here, outside),
				fmt.Sprintf("link set %s up", outside)),
			ipInside(host,
				"link set lo up",
				fmt.Sprintf("addr add %s/30 dev client", there),
				"link set client up",
				fmt.Sprintf("link add peer type veth peer name p%d netns %d", i, n.hub.pid),
				fmt.Sprintf("link set peer address %s", peerMAC(i)),
				fmt.Sprintf("addr add %s/24 dev peer", peerAddr(i)),
				"link set peer up",
				// Room for rules in front of "this packet is for me".
				"rule add pref 1000 table local",
				"rule del pref 0"),
			ipInside(host, neighbours(hosts)...),
			ipInside(n.hub, fmt.Sprintf("link set p%d up", i), fmt.Sprintf("link set p%d master switch", i)),
		)
		if err != nil {
			return err
		}
	}
	return nil
}

// Places are the hosts, for a ClusterConfig.
func (n *Network) Places() []Place {
	var places []Place
	for i, host := range n.hosts {
		_, there := n.link(i + 1)
		places = append(places, Place{
			ClientHost: there.String(),
			PeerHost:   peerAddr(i + 1),
			enter:      enter(host),
		})
	}
	return places
}

// peerAddr and peerMAC are host i's addresses at the switch.
func peerAddr(i int) string { return fmt.Sprintf("10.99.0.%d", i) }
func peerMAC(i int) string  { return fmt.Sprintf("02:00:00:99:00:%02x", i) }

// neighbours are the commands that tell a host the link addresses of all.
func neighbours(hosts int) []string {
	var commands []string
	for i := 1; i <= hosts; i++ {
		commands = append(commands, fmt.Sprintf("neigh replace %s lladdr %s nud permanent dev peer", peerAddr(i),
			peerMAC(i)))
	}
	return commands
}

// Size implements Links.
func (n *Network) Size() int { return len(n.hosts) }

// Block implements Links.
func (n *Network) Block(from, to int) error { return n.setBlocked(from, to, true) }

// Unblock implements Links.
func (n *Network) Unblock(from, to int) error { return n.setBlocked(from, to, false) }

func (n *Network) setBlocked(from, to int, block bool) error {
	if err := checkPair(n, from, to); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	pair := [2]int{from, to}
	if n.blocked[pair] == block {
		return nil
	}
	verb := "del"
	if block {
		verb = "add"
	}
	rule := fmt.Sprintf("rule %s pref %d from %s iif peer blackhole", verb, from, peerAddr(from))
	if err := ipInside(n.hosts[to-1], rule); err != nil {
		return err
	}
	n.blocked[pair] = block
	return nil
}

// Shape implements Links, with the packet scheduler netem of the kernel, which not every kernel
// has.
func (n *Network) Shape(host int, shape Shape) error {
	if err := checkHost(n, host); err != nil {
		return err
	}
	if _, err := exec.LookPath("tc"); err != nil {
		return fmt.Errorf("jepsen: tc: %w (Linux: apt-get install iproute2)", ErrMissing)
	}
	args := append(enter(n.hosts[host-1]), "tc", "qdisc", "del", "dev", "peer", "root")
	if shape != (Shape{}) {
		args = append(enter(n.hosts[host-1]), "tc", "qdisc", "replace", "dev", "peer", "root", "netem",
			"delay", fmt.Sprintf("%dus", shape.Delay.Microseconds()), fmt.Sprintf("%dus", shape.Jitter.Microseconds()),
			"loss", fmt.Sprintf("%f%%", 100*shape.Loss))
	}
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	switch {
	case err == nil:
		return nil
	case bytes.Contains(out, []byte("kind is unknown")):
		return fmt.Errorf("jepsen: the kernel's packet scheduler netem: %w", ErrMissing)
	case shape == (Shape{}) && bytes.Contains(out, []byte("handle of zero")):
		return nil // there was none to delete
	}
	return fmt.Errorf("jepsen: %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
}

// outsideName is the name of this machine's end of the link to host i.
func outsideName(i int) string { return fmt.Sprintf("lk%d-%d", os.Getpid(), i) }

// Close ends the network. Processes that run in it go on without one.
func (n *Network) Close() error {
	var errs []error
	if n.janitor != nil {
		errs = append(errs, n.janitor.clean())
	}
	for _, p := range append(n.hosts, n.hub) {
		if p != nil {
			errs = append(errs, p.Kill())
		}
	}
	return errors.Join(errs...)
}

// startNamespace starts a process that keeps a new network namespace.
func startNamespace(ctx context.Context, name, dir string) (*Process, error) {
	return keepNamespace(ctx, name, dir, "net", "--net")
}

// keepNamespace starts a process that keeps a new namespace of a kind, as /proc/PID/ns calls it.
// The flags are unshare's.
func keepNamespace(ctx context.Context, name, dir, kind string, flags ...string) (*Process, error) {
	own, err := os.Readlink("/proc/self/ns/" + kind)
	if err != nil {
		return nil, fmt.Errorf("jepsen: namespace: %w", err)
	}
	p, err := StartProcess(name, exec.Command("unshare", append(flags, "sleep", "infinity")...),
		filepath.Join(dir, name+".log"))
	if err != nil {
		return nil, err
	}
	// Until unshare has done its work, the process is in our own namespace; and until it has become
	// the other program, it still changes things there.
	var ended error
	err = Poll(ctx, time.Millisecond, func() error {
		if !p.Running() {
			ended = p.ExitError()
			return nil
		}
		its, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", p.pid, kind))
		if err == nil && its == own {
			err = fmt.Errorf("jepsen: namespace: %s is not in one of its own", name)
		}
		comm, err2 := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.pid))
		if err2 == nil && strings.TrimSpace(string(comm)) != "sleep" {
			err2 = fmt.Errorf("jepsen: namespace: %s has not begun to wait", name)
		}
		return errors.Join(err, err2)
	})
	if err = errors.Join(err, ended); err != nil {
		return nil, errors.Join(err, p.Kill())
	}
	return p, nil
}

// enter is the command line that runs another one in p's namespace.
func enter(p *Process) []string {
	return []string{"nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", p.pid)}
}

// ipInside runs commands of ip(8) in p's namespace.
func ipInside(p *Process, commands ...string) error { return ip(enter(p), commands...) }

// ip runs commands of ip(8), all or those up to the first that fails.
func ip(enter []string, commands ...string) error {
	args := append(enter, "ip", "-batch", "-")
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("jepsen: ip %s: %w: %s", strings.Join(commands, "; "), err, bytes.TrimSpace(out))
	}
	return nil
}
