package locknode

import (
	"fmt"
	"strings"
)

// MaxPriority is the largest [Rank].Priority; the smallest is -MaxPriority.
const MaxPriority = 99

// Rank is a contender's place in the order in which contenders let each other go first. The lock is
// granted by the sequence numbers and nothing else: a contender with a better one behind it may
// yield, that is, move to the end of the queue with a new node. See
// docs/decisions/021-priorities.md.
//
// A rank is in the name of the node, in front of the layout, where no library looks. A contender of
// priority 0 that has never yielded has the same name as in other libraries.
//
//	_c_<uuid>-lock-0000000012                   priority 0
//	_c_<uuid>-p+05-lock-0000000012              priority 5
//	_c_<uuid>-p+05n0000000007-lock-0000000012   the same, has yielded; its first node was number 7
type Rank struct {
	// Priority is larger for those that are more urgent.
	Priority int
	// Number is the sequence number of the contender's first node.
	Number int64
}

const (
	protectedDigits = 36 // of the UUID behind ProtectedStart, with its dashes
	priorityMark    = "p"
	priorityDigits  = 3 // with the sign
	numberMark      = "n"
)

// Before reports whether a contender of rank r should have the lock before one of rank other.
func (r Rank) Before(other Rank) bool {
	if r.Priority != other.Priority {
		return r.Priority > other.Priority
	}
	return r.Number < other.Number
}

// First is the part of a node's name that tells the priority of a contender which has not yielded;
// it precedes the layout.
func (r Rank) First() string {
	if r.Priority == 0 {
		return ""
	}
	return fmt.Sprintf("%s%+03d-", priorityMark, r.Priority)
}

// Yielded is the part of a node's name that tells the rank of a contender which has yielded; it
// precedes the layout.
func (r Rank) Yielded() string {
	return fmt.Sprintf("%s%+03d%s%0*d-", priorityMark, r.Priority, numberMark, SequenceDigits, r.Number)
}

// Protection returns the part of a node's name that no other contender's has, with the UUID of its
// protected create. A contender that yields keeps it.
func Protection(name string) string {
	return name[:min(len(name), len(ProtectedStart)+protectedDigits+len("-"))]
}

// RankOf returns the rank of a contender by the name of its node, and whether the node has a number
// and with it a place in the queue.
func RankOf(name string) (r Rank, ok bool) {
	r.Number, ok = Sequence(name)
	start, end := len(ProtectedStart)+protectedDigits+len("-"), strings.LastIndex(name, Layout(name))
	if !ok || !strings.HasPrefix(name, ProtectedStart) || end < start {
		return r, ok
	}
	mark, dashed := strings.CutSuffix(name[start:end], "-")
	mark, marked := strings.CutPrefix(mark, priorityMark)
	if !dashed || !marked || len(mark) < priorityDigits {
		return r, ok
	}
	priority, good := digits(mark[1:priorityDigits], priorityDigits-1)
	number, rest := r.Number, mark[priorityDigits:]
	if first, yielded := strings.CutPrefix(rest, numberMark); yielded && len(first) == SequenceDigits {
		number, _ = digits(first, SequenceDigits)
		rest = strings.TrimLeft(first, "0123456789")
	}
	switch {
	case !good || rest != "":
		return r, ok
	case mark[0] == '-':
		priority = -priority
	case mark[0] != '+':
		return r, ok
	}
	return Rank{Priority: int(priority), Number: number}, ok
}

// YieldsTo returns, of the nodes of a queue, the one for which the contender with the node own
// should move to the end of the queue: of those behind it that are before it in rank, and that
// cannot hold the lock beside it, the first in rank. It is "" if there is none.
func YieldsTo(names []string, own string) (to string) {
	mine, ok := RankOf(own)
	place, _ := Sequence(own)
	if !ok {
		return ""
	}
	best, reads := mine, KindOf(own) == KindRead
	for _, name := range names {
		at, _ := Sequence(name)
		if at <= place || reads && KindOf(name) == KindRead {
			continue
		}
		if r, _ := RankOf(name); r.Before(best) {
			best, to = r, name
		}
	}
	return to
}
