package server

import (
	"math"
	"strconv"
	"strings"
	"time"

	"lockkeeper/znode"
)

// Values. Each reports a fault and returns false when the value is none.

func (l *loader) boolValue(p property) (value, ok bool) {
	switch {
	case strings.EqualFold(p.val, "true"):
		return true, true
	case strings.EqualFold(p.val, "false"):
		return false, true
	}
	l.fault(p, "must be true or false, not %q", p.val)
	return false, false
}

func (l *loader) yesNo(p property) (value, ok bool) {
	switch p.val {
	case "yes":
		return true, true
	case "no":
		return false, true
	}
	l.fault(p, "must be yes or no, not %q", p.val)
	return false, false
}

// intValue reads an int between min and max.
func (l *loader) intValue(p property, min, max int) (int, bool) {
	n, err := strconv.Atoi(p.val)
	if err != nil {
		l.fault(p, "must be a number, not %q", p.val)
		return 0, false
	}
	switch {
	case n >= min && n <= max:
		return n, true
	case min > math.MinInt32 && max < math.MaxInt32:
		l.fault(p, "must be between %d and %d, not %d", min, max, n)
	case n < min:
		l.fault(p, "must be at least %d, not %d", min, n)
	default:
		l.fault(p, "must be at most %d, not %d", max, n)
	}
	return 0, false
}

// millis reads a number of milliseconds that is at least min.
func (l *loader) millis(p property, min int) (time.Duration, bool) {
	n, ok := l.intValue(p, min, math.MaxInt32)
	return time.Duration(n) * time.Millisecond, ok
}

// What keys do with their values, for the tables in configkeys.go.

// limit takes a number of which everything below 1 means that there is no limit.
func limit(field func(*loader) *int) func(*loader, property) {
	return func(l *loader, p property) {
		n, _ := l.intValue(p, math.MinInt32, math.MaxInt32)
		*field(l) = max(n, 0)
	}
}

func throttledOpWait(l *loader, p property) {
	l.cfg.Limits.Wait, _ = l.millis(p, 0)
}

func (l *loader) ignore(c category, p property) {
	l.ineffective[c] = append(l.ineffective[c], p.key)
}

func ignored(c category) func(*loader, property) {
	return func(l *loader, p property) { l.ignore(c, p) }
}

func directory(field func(*loader) *string) func(*loader, property) {
	return func(l *loader, p property) {
		if p.val == "" {
			l.fault(p, "is empty")
			return
		}
		*field(l) = p.val
	}
}

func boolean(field func(*loader) *bool) func(*loader, property) {
	return func(l *loader, p property) { *field(l), _ = l.boolValue(p) }
}

// sessionTimeout accepts -1 for the default, as ZooKeeper does.
func sessionTimeout(use func(*loader, property)) func(*loader, property) {
	return func(l *loader, p property) {
		if p.val != "-1" {
			use(l, p)
		}
	}
}

func refuseTrue(why string) func(*loader, property) {
	return func(l *loader, p property) {
		if on, _ := l.boolValue(p); on {
			l.fault(p, "%s; set it to false to start without", why)
		}
	}
}

func warnTrue(text string) func(*loader, property) {
	return func(l *loader, p property) {
		if on, _ := l.boolValue(p); on {
			l.warn(p, "%s", text)
		}
	}
}

func warning(text string) func(*loader, property) {
	return func(l *loader, p property) { l.warn(p, "%s", text) }
}

func useMember(l *loader, p property) {
	id, ok := memberID(p.key)
	if !ok {
		l.fault(p, "the number of a member must be between %d and %d, without leading zeros", minMemberID, maxMemberID)
		return
	}
	m, err := znode.ParseMember(id, p.val)
	if err != nil {
		l.fault(p, "%v", err)
		return
	}
	l.members = append(l.members, m)
}

// memberID takes the N out of server.N.
func memberID(key string) (uint8, bool) {
	n, err := strconv.Atoi(strings.TrimPrefix(key, "server."))
	if err != nil || n < minMemberID || n > maxMemberID || (Member{ID: uint8(n)}).Key() != key {
		return 0, false
	}
	return uint8(n), true
}

func refuseHierarchy(l *loader, p property) {
	l.fault(p, "quorums by group and weight are not supported: a majority here is more than half of all participants, each counting once")
}
