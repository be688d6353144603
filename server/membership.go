package server

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"syscall"

	"lockkeeper/quorum"
	"lockkeeper/server/ops"
	"lockkeeper/server/zoocfg"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// members are the members of the cluster, as this member last learned.
type members struct {
	cfg    *Config
	agreed atomic.Pointer[ops.Membership] // nil until this member has learned of one
}

// list returns the agreed members, or the configured ones while this member has not learned of any.
func (m *members) list() ops.Membership {
	if agreed := m.agreed.Load(); agreed != nil {
		return *agreed
	}
	return ops.Membership{Members: m.cfg.Cluster.Members}
}

func (m *members) voters() int { return znode.Voters(m.list().Members) }

// Replica is this member's replica, for tests and tools that change the members or the leader.
func (s *Server) Replica() *quorum.Replica { return s.replica }

// membersChanged is called, by one goroutine, when this member learns the members of the cluster
// and whenever they have changed.
func (s *Server) membersChanged(members []Member, version wire.Zxid) {
	first := s.members.agreed.Load() == nil
	before := s.members.list()
	now := ops.Membership{Members: members, Version: version}
	s.members.agreed.Store(&now)
	s.sessions.SetOutstanding(limitsOf(&s.cfg, s.members.voters()).Outstanding)
	if first {
		for _, n := range differences(&s.cfg, now) {
			n.Log(s.log)
		}
	} else {
		s.log.Info("the members have changed", "version", fmt.Sprintf("%x", uint64(version)), "members", members)
	}
	if n := s.members.voters(); n > 1 && n != znode.Voters(before.Members) {
		if text := quorum.NewMaj(n).EvenWarning(); text != "" {
			s.log.Warn(text)
		}
	}
	if version == 0 || !s.cfg.Cluster.Reconfig {
		return // the addresses come from the file
	}
	self, _ := now.Member(s.cfg.Cluster.ID)
	was, _ := before.Member(s.cfg.Cluster.ID)
	if self.ClientAddr != "" && self.ClientAddr != was.ClientAddr {
		s.moveClientPort(self.ClientAddr)
	}
}

// moveClientPort listens for clients at another address instead. Connections stay.
func (s *Server) moveClientPort(addr string) {
	l, err := s.opener.listenAt(addr)
	if errors.Is(err, syscall.EADDRINUSE) && samePort(addr, s.port.addr().String()) {
		return // it listens there already, under another name or a wildcard
	}
	if err != nil {
		s.log.Error("cannot listen for clients at this member's new address; a restart may be needed",
			"address", addr, "err", err)
		return
	}
	if s.port.replace(s.tls.clientListener(l, s.cfg.Client.TLS)) {
		s.log.Info("listening for clients at a new address", "address", l.Addr())
	}
}

func samePort(a, b string) bool {
	_, portA, _ := net.SplitHostPort(a)
	_, portB, _ := net.SplitHostPort(b)
	return portA == portB
}

// differences are warnings about where the configuration differs from the members that have been
// agreed upon, which count.
func differences(c *Config, now ops.Membership) (notices []zoocfg.Notice) {
	// Until reconfig is enabled the members change with the files (quorum/filemembers.go).
	counts, until := "which counts", ""
	if !c.Cluster.Reconfig && now.Version == 0 {
		counts = "which counts until a majority of the members and all new ones have the same server lines"
		until = ", until a majority of the members and all new ones have the same server lines"
	}
	note := func(key, format string, args ...any) {
		notices = append(notices, c.Warning(key, format, args...))
	}
	for _, m := range c.Cluster.Members {
		agreed, ok := now.Member(m.ID)
		switch {
		case !ok:
			note(m.Key(), "is no member of the cluster any more, or not yet: the members that have been agreed "+
				"upon count "+
				"(/zookeeper/config), not those of the file%s", until)
		case agreed.Observer != m.Observer:
			note(m.Key(), "has another role in the cluster, %s: %s", counts, agreed)
		case c.Cluster.Reconfig && agreed != m:
			note(m.Key(), "has other addresses in the cluster, which count: %s", agreed)
		}
	}
	for _, m := range now.Members {
		if !slices.ContainsFunc(c.Cluster.Members, func(o Member) bool { return o.ID == m.ID }) {
			note(m.Key(), "is missing in the file, and a member of the cluster%s: %s", until, m)
		}
	}
	return notices
}
