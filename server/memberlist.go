package server

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"lockkeeper/quorum"
)

// ListedMember is one member of a cluster as another one sees it.
type ListedMember struct {
	ID   uint8  `json:"id"`
	Role string `json:"role"` // as agreed: participant or observer
	// State is what the member says of itself: leader, follower, observer or looking; or "no answer".
	State string `json:"state"`
	Peers string `json:"peers"` // host:port for its peers
	// Clients is where clients connect, as the member says. If it does not answer, it is what it last said, or what its
	// server line says; empty if that is not known.
	Clients string `json:"clients"`
}

const noAnswer = "no answer"

// reportsKept is how long members are not asked again how they are, however many want to know.
const reportsKept = time.Second

// memberReports are what the other members have said of themselves.
type memberReports struct {
	turn    chan struct{} // capacity 1: full while somebody asks, or uses the fields below
	asked   time.Time
	answers map[quorum.MemberID]quorum.Report
	clients map[quorum.MemberID]string // the last that was said, without a wildcard
}

func newMemberReports() memberReports {
	return memberReports{turn: make(chan struct{}, 1), clients: map[quorum.MemberID]string{}}
}

// MemberList are the members of the cluster, in ascending order. It asks those that it has not asked in the last second.
func (s *Server) MemberList() []ListedMember {
	r := &s.reports
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	members := s.membership().members
	if time.Since(r.asked) > reportsKept {
		var others []quorum.MemberID
		for _, m := range members {
			if id := quorum.MemberID(m.ID); id != s.replica.ID() {
				others = append(others, id)
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), httpTimeout)
		r.answers = s.replica.Reports(ctx, others)
		cancel()
		r.asked = time.Now()
	}
	r.answers[s.replica.ID()] = quorum.Report{Role: s.mode(s.overview()), ClientAddr: s.ClientAddr().String()}
	var list []ListedMember
	for _, m := range members {
		id := quorum.MemberID(m.ID)
		l := ListedMember{ID: m.ID, Role: "participant", State: noAnswer, Peers: m.PeerAddr(), Clients: reachable(m, m.ClientAddr)}
		if m.Observer {
			l.Role = "observer"
		}
		if report, ok := r.answers[id]; ok {
			l.State = report.Role
			if addr := reachable(m, report.ClientAddr); addr != "" {
				r.clients[id] = addr
			}
		}
		if addr := r.clients[id]; addr != "" {
			l.Clients = addr
		}
		list = append(list, l)
	}
	return list
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

// membersText is the four-letter word mbrs: a line for each member, with tabs between the fields of ListedMember.
func (s *Server) membersText() string {
	var b strings.Builder
	for _, l := range s.MemberList() {
		fmt.Fprintf(&b, "%d\t%s\t%s\t%s\t%s\n", l.ID, l.Role, l.State, l.Peers, l.Clients)
	}
	return b.String()
}

// ParseMembersText reads the answer to the four-letter word mbrs; false if it is none, or of a member that stands alone.
func ParseMembersText(text string) (list []ListedMember, ok bool) {
	for line := range strings.Lines(text) {
		var l ListedMember
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 5 {
			return nil, false
		}
		if _, err := fmt.Sscan(f[0], &l.ID); err != nil {
			return nil, false
		}
		l.Role, l.State, l.Peers, l.Clients = f[1], f[2], f[3], f[4]
		list = append(list, l)
	}
	return list, len(list) > 0
}

// serveMembers answers GET /members with the list.
func (s *Server) serveMembers(w http.ResponseWriter, _ *http.Request) {
	list := s.MemberList()
	if list == nil {
		list = []ListedMember{} // a member that stands alone
	}
	writeJSON(w, http.StatusOK, list)
}
