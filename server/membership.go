package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"lockkeeper/quorum"
	"lockkeeper/quorum/peer"
	"lockkeeper/server/zoocfg"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// membership are the members of the cluster, as this member last learned.
type membership struct {
	members []Member
	version wire.Zxid
}

// membership are the members that have been agreed upon, or those of the configuration while this
// member has not learned of any.
func (s *Server) membership() membership {
	if m := s.agreed.Load(); m != nil {
		return *m
	}
	return membership{members: s.cfg.Members}
}

// present are the members as of what this member has applied, which membership follows a moment
// later; those of membership while it has applied none.
func (s *Server) present() membership {
	if members, version := s.replica.Members(); len(members) > 0 && !s.cfg.Standalone() {
		return membership{members: members, version: version}
	}
	return s.membership()
}

// member is the member with that number as it has been agreed upon; false if there is none.
func (m membership) member(id uint8) (Member, bool) {
	if i := slices.IndexFunc(m.members, func(m Member) bool { return m.ID == id }); i >= 0 {
		return m.members[i], true
	}
	return Member{}, false
}

// Replica is this member's replica, for tests and tools that change the members or the leader.
func (s *Server) Replica() *quorum.Replica { return s.replica }

// membersChanged is called, by one goroutine, when this member learns the members of the cluster
// and whenever they have changed.
func (s *Server) membersChanged(members []Member, version wire.Zxid) {
	first := s.agreed.Load() == nil
	before := s.membership()
	now := membership{members: members, version: version}
	s.agreed.Store(&now)
	s.sessions.SetOutstanding(s.limits().Outstanding)
	if first {
		for _, n := range differences(&s.cfg, now) {
			n.Log(s.log)
		}
	} else {
		s.log.Info("the members have changed", "version", fmt.Sprintf("%x", uint64(version)), "members", members)
	}
	if n := s.voters(); n > 1 && n != znode.Voters(before.members) {
		if text := quorum.NewMaj(n).EvenWarning(); text != "" {
			s.log.Warn(text)
		}
	}
	if version == 0 || !s.cfg.Reconfig {
		return // the addresses are those of the file
	}
	self, _ := now.member(s.cfg.ID)
	was, _ := before.member(s.cfg.ID)
	if self.ClientAddr != "" && self.ClientAddr != was.ClientAddr {
		s.moveClientPort(self.ClientAddr)
	}
}

// moveClientPort listens for clients at another address instead. Connections stay.
func (s *Server) moveClientPort(addr string) {
	l, err := s.listenAt(addr)
	if errors.Is(err, syscall.EADDRINUSE) && samePort(addr, s.port.addr().String()) {
		return // it listens there already, under another name or a wildcard
	}
	if err != nil {
		s.log.Error("cannot listen for clients at this member's new address; a restart may be needed",
			"address", addr, "err", err)
		return
	}
	if s.port.replace(s.clientTLS(l, s.cfg.ClientTLS)) {
		s.log.Info("listening for clients at a new address", "address", l.Addr())
	}
}

func samePort(a, b string) bool {
	_, portA, _ := net.SplitHostPort(a)
	_, portB, _ := net.SplitHostPort(b)
	return portA == portB
}

// listenPeers returns the port that Start has opened, and later others, when the member's address
// changes.
func (s *Server) listenPeers(opened net.Listener) func(network, addr string) (net.Listener, error) {
	return func(_, addr string) (net.Listener, error) {
		if l := opened; l != nil {
			opened = nil
			return l, nil
		}
		return s.listenAt(s.peerListenAddr(addr))
	}
}

// peerListenAddr is where to listen for peers that connect to addr.
func (s *Server) peerListenAddr(addr string) string {
	if !s.cfg.PeerListenAll {
		return addr
	}
	_, port, _ := net.SplitHostPort(addr)
	return net.JoinHostPort("", port)
}

// differences are warnings about where the configuration differs from the members that have been
// agreed upon, which count.
func differences(c *Config, now membership) (notices []zoocfg.Notice) {
	// Until reconfig is enabled the members change with the files (quorum/filemembers.go).
	counts, until := "which counts", ""
	if !c.Reconfig && now.version == 0 {
		counts = "which counts until a majority of the members and all new ones have the same server lines"
		until = ", until a majority of the members and all new ones have the same server lines"
	}
	note := func(key, format string, args ...any) {
		notices = append(notices, c.Warning(key, format, args...))
	}
	for _, m := range c.Members {
		agreed, ok := now.member(m.ID)
		switch {
		case !ok:
			note(m.Key(), "is no member of the cluster any more, or not yet: the members that have been agreed upon count "+
				"(/zookeeper/config), not those of the file%s", until)
		case agreed.Observer != m.Observer:
			note(m.Key(), "has another role in the cluster, %s: %s", counts, agreed)
		case c.Reconfig && agreed != m:
			note(m.Key(), "has other addresses in the cluster, which count: %s", agreed)
		}
	}
	for _, m := range now.members {
		if !slices.ContainsFunc(c.Members, func(o Member) bool { return o.ID == m.ID }) {
			note(m.Key(), "is missing in the file, and a member of the cluster%s: %s", until, m)
		}
	}
	return notices
}

func (s *Server) voters() int { return znode.Voters(s.membership().members) }

// ListedMember is one member of a cluster as another one sees it.
type ListedMember struct {
	ID   uint8  `json:"id"`
	Role string `json:"role"` // as agreed: participant or observer
	// State is the role that the member reports: leader, follower, observer or looking; "no
	// answer"; or "incompatible", if it has no version of the protocol between members in common
	// with the one that reports.
	State string `json:"state"`
	Peers string `json:"peers"` // host:port for its peers
	// Clients is where clients connect, as the member reports it. If it does not answer, it is its
	// last report, or its server line; empty if that is not known.
	Clients string `json:"clients"`
	// Protocol is the newest version of the protocol between members that it speaks; 0 if that is
	// not known.
	Protocol uint8 `json:"protocol"`
	// PeerAuth is how others prove to the member who they are: tls, secret, tls+secret; loopback if
	// they need not and no other host reaches its peer port; open if they need not and may be
	// anybody. Empty if that is not known.
	PeerAuth string `json:"peerAuth"`
	// Readiness is ReadyText if the member counts, so that another one may be stopped; else
	// NotReadyText and the reason; empty if that is not known.
	Readiness string `json:"readiness"`
	// Term is the term that the member is in; 0 if that is not known.
	Term uint64 `json:"term"`
}

const noAnswer = "no answer"

// Answers reports whether the member has answered the one that reports.
func (l ListedMember) Answers() bool {
	switch l.State {
	case noAnswer, "unknown", quorum.RoleApart:
		return false
	}
	return true
}

// reportsKept is for how long a report is not requested again, however many clients query.
const reportsKept = time.Second

// memberReports are what the other members have reported.
type memberReports struct {
	turn    chan struct{} // capacity 1: full while the fields below are used
	asked   time.Time
	of      []Member // that were asked
	answers map[quorum.MemberID]quorum.Report
	details map[quorum.MemberID]*reported // of the answers
	clients map[quorum.MemberID]string    // the last that was reported, without a wildcard
}

func newMemberReports() memberReports {
	return memberReports{turn: make(chan struct{}, 1), clients: map[quorum.MemberID]string{}}
}

// MemberList are the members of the cluster, in ascending order. It requests reports that are older
// than a second, or of other members.
func (s *Server) MemberList() []ListedMember {
	list, _ := s.memberReports()
	return list
}

// memberReports is MemberList, with the figures that the other members have reported.
func (s *Server) memberReports() ([]ListedMember, map[quorum.MemberID]*reported) {
	r := &s.reports
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	members := s.present().members
	if time.Since(r.asked) > reportsKept || !slices.Equal(r.of, members) {
		var others []quorum.MemberID
		for _, m := range members {
			if id := quorum.MemberID(m.ID); id != s.replica.ID() {
				others = append(others, id)
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), httpTimeout)
		r.answers = s.replica.Reports(ctx, others)
		cancel()
		r.details = map[quorum.MemberID]*reported{}
		for id, a := range r.answers {
			var d reported
			if len(a.Details) > 0 && json.Unmarshal(a.Details, &d) == nil && d.Health != nil {
				r.details[id] = &d
			}
		}
		r.asked, r.of = time.Now(), members
	}
	own := quorum.Report{Role: s.mode(s.overview()), ClientAddr: s.ClientAddr().String(),
		Protocol: s.replica.PeerStats().Version, PeerAuth: s.peerAuth.kind(), Ready: peer.IsNotReady}
	if ready, why := s.Ready(); ready {
		own.Ready = peer.IsReady
	} else {
		own.NotReady = why
	}
	r.answers[s.replica.ID()] = own
	var list []ListedMember
	for _, m := range members {
		id := quorum.MemberID(m.ID)
		l := Listed(m)
		if report, ok := r.answers[id]; ok {
			l.State, l.Protocol, l.PeerAuth = report.Role, report.Protocol, report.PeerAuth
			l.Readiness = readinessText(report)
			if addr := reachable(m, report.ClientAddr); addr != "" {
				r.clients[id] = addr
			}
		}
		if d := r.details[id]; d != nil {
			l.Term, _ = strconv.ParseUint(d.Term, 10, 64) // 0 if it says something else
		} else if id == s.replica.ID() {
			l.Term = s.replica.Status().Term
		}
		if addr := r.clients[id]; addr != "" {
			l.Clients = addr
		}
		list = append(list, l)
	}
	details := make(map[quorum.MemberID]*reported, len(r.details))
	for id, d := range r.details {
		health := *d.Health // the caller adds to it
		details[id] = &reported{HTTP: d.HTTP, Health: &health}
	}
	return list, details
}

// Listed is what the server line of a member says of it, with the state "no answer".
func Listed(m Member) ListedMember {
	l := ListedMember{ID: m.ID, Role: "participant", State: noAnswer, Peers: m.PeerAddr(),
		Clients: reachable(m, m.ClientAddr)}
	if m.Observer {
		l.Role = "observer"
	}
	return l
}

// reachable is an address of m; a wildcard in it is replaced by m's host.
func reachable(m Member, addr string) string {
	at, err := netip.ParseAddrPort(addr)
	if err != nil || !at.Addr().IsUnspecified() {
		return addr
	}
	_, port, _ := net.SplitHostPort(addr)
	return net.JoinHostPort(m.Host, port)
}

// membersText is the four-letter word mbrs: a line for each member, with tabs between the fields of
// ListedMember.
func (s *Server) membersText() string {
	var b strings.Builder
	for _, l := range s.MemberList() {
		fmt.Fprintf(&b, "%d\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%d\n", l.ID, l.Role, l.State, l.Peers, l.Clients, l.Protocol, l.PeerAuth,
			l.Readiness, l.Term)
	}
	return b.String()
}

// The ListedMember.Readiness of a member that counts, and the beginning of that of one that does
// not, before the reason.
const (
	ReadyText    = "ready"
	NotReadyText = "not ready: "
)

// readinessText is the readiness in a report, in one line.
func readinessText(r quorum.Report) string {
	switch r.Ready {
	case peer.IsReady:
		return ReadyText
	case peer.IsNotReady:
		return NotReadyText + strings.NewReplacer("\n", " ", "\t", " ").Replace(r.NotReady)
	}
	return ""
}

// ParseMembersText reads the answer to the four-letter word mbrs; false if it is none, or of a
// member that is alone. Earlier versions have no Protocol or what follows it; later ones may
// have more fields.
func ParseMembersText(text string) (list []ListedMember, ok bool) {
	for line := range strings.Lines(text) {
		var l ListedMember
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) < 5 {
			return nil, false
		}
		if _, err := fmt.Sscan(f[0], &l.ID); err != nil {
			return nil, false
		}
		l.Role, l.State, l.Peers, l.Clients = f[1], f[2], f[3], f[4]
		if len(f) > 5 {
			_, _ = fmt.Sscan(f[5], &l.Protocol) // 0 if it cannot be read
		}
		if len(f) > 6 {
			l.PeerAuth = f[6]
		}
		if len(f) > 7 {
			l.Readiness = f[7]
		}
		if len(f) > 8 {
			_, _ = fmt.Sscan(f[8], &l.Term)
		}
		list = append(list, l)
	}
	return list, len(list) > 0
}

// serveMembers answers GET /members with the list.
func (s *Server) serveMembers(w http.ResponseWriter, _ *http.Request) {
	list := s.MemberList()
	if list == nil {
		list = []ListedMember{} // a member that is alone
	}
	writeJSON(w, http.StatusOK, list)
}
