package simtest

import (
	"github.com/hashicorp/raft"

	"lockkeeper/quorum/model/trace"
)

// sight is what the events of a script have shown: the parts of the model's state that goals look
// at. The members' processes say the rest.
type sight struct {
	disks map[raft.ServerID]*sightDisk
	// begins has the first entry of each term that began in the script.
	begins map[uint64]trace.Place
	n      int // of events
}

// sightDisk is a disk, since the beginning of the script.
type sightDisk struct {
	term, voteTerm uint64
	vote           raft.ServerID
	votedAt        int                    // the number of the event
	stores         int                    // of entries
	removals       int                    // of entries
	log            map[uint64]trace.Place // the entries that were stored, by index
	asks           map[uint64]trace.Event
	answers        int                    // to requests with or without entries, that were positive
	acked          map[uint64]trace.Place // by term: the last acknowledged entry
	ackedAt        map[uint64]int
	applied        trace.Place
	change         trace.Place // the newest stored entry that names the members
}

func newSight() sight {
	return sight{disks: map[raft.ServerID]*sightDisk{}, begins: map[uint64]trace.Place{}}
}

// disk is a disk, with nothing known if no event has told of it.
func (s *sight) disk(id raft.ServerID) *sightDisk {
	d := s.disks[id]
	if d == nil {
		d = &sightDisk{log: map[uint64]trace.Place{}, asks: map[uint64]trace.Event{},
			acked: map[uint64]trace.Place{}, ackedAt: map[uint64]int{}}
		s.disks[id] = d
	}
	return d
}

// add takes the next event.
func (s *sight) add(e trace.Event) {
	s.n++
	d := s.disk(e.On)
	switch e.Kind {
	case trace.Started, trace.SavedTerm:
		d.term = e.Term
		if e.Kind == trace.Started {
			clear(d.asks)
		}
	case trace.SavedVote:
		d.term = max(d.term, e.Term)
		d.voteTerm, d.vote, d.votedAt = e.Term, e.Of, s.n
	case trace.Stored:
		d.stores++
		s.entries(e.Entries)
		for _, x := range e.Entries {
			d.log[x.Index] = x.Place
			if x.Voters != nil {
				d.change = x.Place
			}
		}
	case trace.Removed:
		d.removals++
		for i := e.First; i <= e.Last.Index; i++ {
			delete(d.log, i)
		}
		if e.First <= d.change.Index {
			d.change = trace.Place{}
		}
	case trace.Asked:
		d.asks[e.Number] = e
		s.entries(e.Entries)
	case trace.Answered:
		d.answered(e, s.n)
	case trace.Applied:
		d.applied = e.Last
	}
}

// entries notes the first of each term.
func (s *sight) entries(entries []trace.Entry) {
	for _, x := range entries {
		if at, ok := s.begins[x.Term]; !ok || x.Index < at.Index {
			s.begins[x.Term] = x.Place
		}
	}
}

func (d *sightDisk) answered(e trace.Event, n int) {
	q, ok := d.asks[e.Number]
	delete(d.asks, e.Number)
	if !ok || !e.OK {
		return
	}
	d.answers++
	if q.Request == trace.Append && len(q.Entries) > 0 {
		d.acked[q.Term], d.ackedAt[q.Term] = q.Entries[len(q.Entries)-1].Place, n
	}
}
