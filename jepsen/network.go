package jepsen

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// A Network is a set of hosts, one for each member of a cluster, which can be
// cut off from each other. Each host is a Linux network namespace with two
// links: one to a switch that joins all hosts, and one to this machine, where
// the clients run. A cut concerns the first only: a member that is cut off
// keeps its clients. To the member it looks like a broken switch: its own link
// is up, and nothing comes back.
//
//	        switch (bridge in a namespace of its own)
//	       /        |         \
//	  host 1      host 2      host 3       10.99.0.1 ... 10.99.0.3
//	       \        |         /
//	this machine: clients, tests           198.18.x.y, a /30 for each host
//
// There can be one Network at a time in a process.
//
// The namespaces have no names and live as long as the processes that keep
// them, which end with this process. Nothing of them is left behind then.
type Network struct {
	hub   *Process
	hosts []*Process
	base  netip.Addr // of the hosts' links to this machine
}

// FindNetwork says, with an error, what is missing to use a Network here.
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

// NewNetwork makes a network of n hosts. Its processes' logs go to dir.
func NewNetwork(ctx context.Context, n int, dir string) (*Network, error) {
	if err := FindNetwork(); err != nil {
		return nil, err
	}
	network := &Network{base: networkBase()}
	if err := network.make(ctx, n, dir); err != nil {
		return nil, errors.Join(err, network.Close())
	}
	return network, nil
}

// networkBase is the first of 16 addresses of 198.18.0.0/15 (RFC 2544, for
// tests) that another process is not likely to use at the same time.
func networkBase() netip.Addr {
	offset := os.Getpid() % (1 << 13) << 4
	return netip.AddrFrom4([4]byte{198, byte(18 + offset>>16), byte(offset >> 8), byte(offset)})
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
	if hosts > 4 {
		return fmt.Errorf("jepsen: a network of %d hosts: 4 are the most", hosts)
	}
	var err error
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
				fmt.Sprintf("addr add 10.99.0.%d/24 dev peer", i),
				"link set peer up"),
			ipInside(n.hub, fmt.Sprintf("link set p%d up", i)),
			n.Heal(i),
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
			PeerHost:   fmt.Sprintf("10.99.0.%d", i+1),
			enter:      enter(host),
		})
	}
	return places
}

// Cut takes host i, from 1, off the switch: what it sends to the others and
// they to it is lost without a word.
func (n *Network) Cut(i int) error {
	return ipInside(n.hub, fmt.Sprintf("link set p%d nomaster", i))
}

// Heal puts host i back.
func (n *Network) Heal(i int) error {
	return ipInside(n.hub, fmt.Sprintf("link set p%d master switch", i))
}

// outsideName is the name of this machine's end of the link to host i.
func outsideName(i int) string { return fmt.Sprintf("lk%d-%d", os.Getpid(), i) }

// Close ends the network. Processes that run in it go on without one.
func (n *Network) Close() error {
	var errs []error
	for i := range n.hosts {
		// The kernel would do it too, but some time after the last process of
		// the namespace has gone, and the next network needs the name.
		errs = append(errs, ip(nil, "link del "+outsideName(i+1)))
	}
	for _, p := range append(n.hosts, n.hub) {
		if p != nil {
			errs = append(errs, p.kill())
		}
	}
	return errors.Join(errs...)
}

// startNamespace starts a process that keeps a new network namespace.
func startNamespace(ctx context.Context, name, dir string) (*Process, error) {
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("jepsen: network: %w", err)
	}
	p, err := startProcess(name, exec.Command("unshare", "--net", "sleep", "infinity"), filepath.Join(dir, name+".log"))
	if err != nil {
		return nil, err
	}
	// Until unshare has done its work, the process is in our own namespace.
	var ended error
	err = poll(ctx, time.Millisecond, func() error {
		if !p.running() {
			ended = p.exitError()
			return nil
		}
		its, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", p.pid))
		if err == nil && its == own {
			err = fmt.Errorf("jepsen: network: %s is not in a namespace of its own", name)
		}
		return err
	})
	if err = errors.Join(err, ended); err != nil {
		return nil, errors.Join(err, p.kill())
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
