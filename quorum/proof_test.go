package quorum

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// What leases rely on (C6): a majority of the voters that the newest configuration has, and of nobody else.
func TestProofOfLeadershipCountsThoseWhoVoteNow(t *testing.T) {
	now := time.Now()
	ago := func(seconds int) time.Time { return now.Add(-time.Duration(seconds) * time.Second) }
	for _, tt := range []struct {
		about    string
		voters   string // their numbers; member 1 leads
		others   string
		contacts map[raft.ServerID]int // seconds ago
		want     time.Time
	}{
		{"alone", "1", "", nil, now},
		{"three, nobody has answered", "123", "", nil, time.Time{}},
		{"three", "123", "", map[raft.ServerID]int{"2": 5, "3": 9}, ago(5)},
		{"two more have just got their vote", "12345", "", map[raft.ServerID]int{"2": 5, "3": 9}, ago(9)},
		{"and half of them is no majority", "12345", "", map[raft.ServerID]int{"2": 5}, time.Time{}},
		{"four need three", "1234", "", map[raft.ServerID]int{"2": 1, "3": 2, "4": 3}, ago(2)},
		{"observers do not count", "123", "45", map[raft.ServerID]int{"4": 1, "5": 1, "3": 9}, ago(9)},
		{"nor who is no voter any more", "134", "2", map[raft.ServerID]int{"2": 1, "3": 9}, ago(9)},
		{"nor who has been removed", "134", "", map[raft.ServerID]int{"2": 1, "4": 9}, ago(9)},
		{"nor this member, when it votes no longer", "234", "1", map[raft.ServerID]int{"2": 1}, time.Time{}},
		{"which then needs two others", "234", "1", map[raft.ServerID]int{"2": 1, "4": 7}, ago(7)},
	} {
		tr := newTransport(nil, 1, func() (servers []raft.Server) {
			for _, id := range tt.voters {
				servers = append(servers, raft.Server{ID: raft.ServerID(id), Suffrage: raft.Voter})
			}
			for _, id := range tt.others {
				servers = append(servers, raft.Server{ID: raft.ServerID(id), Suffrage: raft.Nonvoter})
			}
			return servers
		})
		const term = 7
		for id, seconds := range tt.contacts {
			tr.answered(id, "", ago(seconds), &raft.AppendEntriesRequest{Term: term}, &raft.AppendEntriesResponse{Term: term, Success: true})
		}
		if got := tr.provenAt(term, now); !got.Equal(tt.want) {
			t.Errorf("%s: proven %v ago, want %v ago", tt.about, now.Sub(got), now.Sub(tt.want))
		}
		if len(tt.contacts) > 0 {
			if got := tr.provenAt(term+1, now); !got.IsZero() {
				t.Errorf("%s: what was answered in an earlier term proves the next one: %v", tt.about, got)
			}
		}
		tr.close()
	}
}
