package judge

import (
	"cmp"
	"slices"
	"time"

	"lockkeeper/jepsen/locklab/play"
)

// A Grant is a lock from the point of view of its holder.
type Grant struct {
	Who   string
	Token uint64
	// From is when the library said that it is held. Until is when the holder stopped to believe
	// it: it began to unlock, was told, or died; at the latest the end of the history.
	From, Until time.Duration
	// Over is when it began to unlock or died, whatever it was told; zero if it did neither.
	Over time.Duration
	// Told is when the library said that the lock is lost; zero if it never did before Over.
	Told   time.Duration
	Killed bool
}

// Grants are the grants of a history, by From. A stopped client keeps its belief.
func Grants(events []play.Event) []Grant {
	var all []Grant
	open := make(map[string]int) // the grant of a client, as an index into all
	for _, e := range events {
		i, holds := open[e.Who]
		switch e.What {
		case play.Locked:
			open[e.Who] = len(all)
			all = append(all, Grant{Who: e.Who, Token: e.Token, From: e.At})
		case play.Lost, play.GaveUp:
			if holds && all[i].Told == 0 {
				all[i].Told, all[i].Until = e.At, e.At
			}
		case play.Unlock, play.Killed:
			if holds {
				all[i].Over, all[i].Killed = e.At, e.What == play.Killed
				all[i].Until = min(cmp.Or(all[i].Told, e.At), e.At)
				delete(open, e.Who)
			}
		}
	}
	for i := range all {
		if all[i].Until == 0 {
			all[i].Until = events[len(events)-1].At
		}
	}
	slices.SortStableFunc(all, func(a, b Grant) int { return cmp.Compare(a.From, b.From) })
	return all
}

// An Overlap is a time in which two clients held the lock.
type Overlap struct {
	First, Second Grant // by From
	From, To      time.Duration
}

// Slack is how long two may seem to hold a lock that one has just been told that it lost: events
// are printed one after the other.
const Slack = 5 * time.Millisecond

// Overlaps are all that are longer than Slack.
func Overlaps(grants []Grant) []Overlap {
	var all []Overlap
	for i, first := range grants {
		for _, second := range grants[i+1:] {
			if second.From >= first.Until {
				// Later grants begin later still.
				break
			}
			to := min(first.Until, second.Until)
			if to-second.From > Slack {
				all = append(all, Overlap{first, second, second.From, to})
			}
		}
	}
	return all
}
