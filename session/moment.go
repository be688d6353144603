package session

import "time"

// moment is a time by one of the clocks that stand still while the machine is suspended, in
// nanoseconds since the base of its moments; never 0, which is no time. A time.Time takes three
// times the memory, and every connection and every lease has several.
type moment int64

// moments are the moments of one clock.
type moments struct{ base time.Time }

// now is the present moment of Go's monotonic clock.
func (m moments) now() moment { return m.of(time.Now()) }

// of is the moment of a time that the clock has returned, or that is derived from one.
func (m moments) of(t time.Time) moment { return moment(t.Sub(m.base)) + 1 }

// time is the reverse of of; the zero time of no moment.
func (m moments) time(at moment) time.Time {
	if at == 0 {
		return time.Time{}
	}
	return m.base.Add(time.Duration(at - 1))
}
