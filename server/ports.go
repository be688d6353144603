package server

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"syscall"

	"lockkeeper/server/zoocfg"
)

// opener opens the ports of a member, at its start and when its addresses change.
type opener struct {
	cfg *Config
	tcp func(network, addr string) (net.Listener, error) // Machine.Listen, or TCP
}

func newOpener(cfg *Config) *opener {
	if cfg.Machine.Listen != nil {
		return &opener{cfg, cfg.Machine.Listen}
	}
	lc := net.ListenConfig{KeepAlive: -1}
	if cfg.Client.KeepAlive {
		lc.KeepAlive = 0
	}
	return &opener{cfg, func(network, addr string) (net.Listener, error) {
		return lc.Listen(context.Background(), network, addr)
	}}
}

// listeners are the ports of a member; those that it does not need are nil.
type listeners struct{ clients, secure, peers, http, metrics net.Listener }

// listen opens the ports, so that a port in use stops the start before anything else has begun. It
// reports the faults of all of them.
func (o *opener) listen(opened *[]func()) (ports listeners, err error) {
	var faults zoocfg.Faults
	open := func(key, addr string) net.Listener {
		l, err := o.listenAt(addr)
		if err != nil {
			faults = append(faults, o.listenFault(key, addr, err))
			return nil
		}
		*opened = append(*opened, func() { _ = l.Close() })
		return l
	}
	ports.clients = open("clientPort", o.cfg.Client.Addr)
	if o.cfg.Client.SecureAddr != "" {
		ports.secure = open("secureClientPort", o.cfg.Client.SecureAddr)
	}
	if o.cfg.HTTP.Optional {
		ports.http = o.listenOptional(o.cfg.HTTP.Addr, opened)
	} else if o.cfg.HTTP.Addr != "" {
		ports.http = open("admin.serverPort", o.cfg.HTTP.Addr)
	}
	if o.cfg.Metrics.Addr != "" {
		ports.metrics = open("metricsProvider.httpPort", o.cfg.Metrics.Addr)
	}
	if !o.cfg.Standalone() {
		self := o.cfg.Self()
		ports.peers = open(self.Key(), o.peerListenAddr(self.PeerAddr()))
	}
	return ports, faults.Err()
}

// listenOptional opens a port at an address, or at another port of the same host if that is in use.
// It returns nil if there is none.
func (o *opener) listenOptional(addr string, opened *[]func()) net.Listener {
	l, err := o.listenAt(addr)
	if host, _, splitErr := net.SplitHostPort(addr); err != nil && splitErr == nil {
		l, err = o.listenAt(net.JoinHostPort(host, "0"))
	}
	if err != nil {
		o.cfg.Logger.Warn("this member has no console", "addr", addr, "err", err)
		return nil
	}
	*opened = append(*opened, func() { _ = l.Close() })
	return l
}

// listenAt opens a port at an address.
func (o *opener) listenAt(addr string) (net.Listener, error) {
	return o.tcp("tcp", everywhere(addr))
}

// everywhere turns 0.0.0.0 into the empty host: as in ZooKeeper, it means IPv6 as well.
func everywhere(addr string) string {
	if host, port, err := net.SplitHostPort(addr); err == nil && host == "0.0.0.0" {
		return net.JoinHostPort("", port)
	}
	return addr
}

// listenFault says why a port cannot be opened.
func (o *opener) listenFault(key, addr string, err error) zoocfg.Fault {
	cause := err
	var op *net.OpError
	if errors.As(err, &op) {
		cause = op.Err
	}
	var call *os.SyscallError
	if errors.As(err, &call) {
		cause = call.Err
	}
	advice := ""
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		advice = "; stop the program that uses the port, or choose another one"
	case errors.Is(err, syscall.EACCES):
		advice = "; ports below 1024 need a privilege"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		advice = "; this machine does not have that address"
		if strings.HasPrefix(key, "server.") {
			advice += " (quorumListenOnAllIPs=true listens on all)"
		}
	}
	f := o.cfg.Fault(key, "cannot listen on %s: %v%s", addr, cause, advice)
	f.Err = err
	return f
}

// listenPeers returns the port that Start has opened, and later others, when the member's address
// changes.
func (o *opener) listenPeers(opened net.Listener) func(network, addr string) (net.Listener, error) {
	return func(_, addr string) (net.Listener, error) {
		if l := opened; l != nil {
			opened = nil
			return l, nil
		}
		return o.listenAt(o.peerListenAddr(addr))
	}
}

// peerListenAddr is where to listen for peers that connect to addr.
func (o *opener) peerListenAddr(addr string) string {
	if !o.cfg.Cluster.ListenAll {
		return addr
	}
	_, port, _ := net.SplitHostPort(addr)
	return net.JoinHostPort("", port)
}
