package zoocfg

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"lockkeeper/znode"
)

func (r *report) boolValue(p property) (value, ok bool) {
	switch {
	case strings.EqualFold(p.val, "true"):
		return true, true
	case strings.EqualFold(p.val, "false"):
		return false, true
	}
	r.fault(p, "must be true or false, not %q", p.val)
	return false, false
}

func (r *report) yesNo(p property) (value, ok bool) {
	switch p.val {
	case "yes":
		return true, true
	case "no":
		return false, true
	}
	r.fault(p, "must be yes or no, not %q", p.val)
	return false, false
}

func (r *report) intValue(p property, min, max int) (int, bool) {
	n, err := strconv.Atoi(p.val)
	if err != nil {
		r.fault(p, "must be a number, not %q", p.val)
		return 0, false
	}
	if reason := outOfRange(n, min, max); reason != "" {
		r.fault(p, "%s", reason)
		return 0, false
	}
	return n, true
}

// outOfRange returns what is wrong with a number that is not between min and max.
func outOfRange(n, min, max int) string {
	switch {
	case n >= min && n <= max:
		return ""
	case min > math.MinInt32 && max < math.MaxInt32:
		return fmt.Sprintf("must be between %d and %d, not %d", min, max, n)
	case n < min:
		return fmt.Sprintf("must be at least %d, not %d", min, n)
	}
	return fmt.Sprintf("must be at most %d, not %d", max, n)
}

// value is how the text behind a key is read.
type value struct {
	kind string // the name of its type, for people
	use  func(*loader, property)
	// Of numbers: def is the default, settle replaces a field that is 0 by it, and check says what
	// is wrong with the field.
	def    string
	settle func(*loader)
	check  func(*loader) (reason string)
}

const (
	kindBoolean = "true or false"
	kindYesNo   = "yes or no"
)

// number is a number of units between min and max.
func number[T int | time.Duration](unit T, min, max, def int, field func(*loader) *T) value {
	return value{
		kind:   rangeText(min, max),
		use:    func(l *loader, p property) { n, _ := l.intValue(p, min, max); *field(l) = T(n) * unit },
		def:    strconv.Itoa(def),
		settle: func(l *loader) { *field(l) = cmp.Or(*field(l), T(def)*unit) },
		check: func(l *loader) string {
			switch v := *field(l); {
			case v == 0 || v == T(def)*unit:
				return ""
			case v%unit != 0:
				return "must be whole milliseconds"
			default:
				return outOfRange(int(v/unit), min, max)
			}
		},
	}
}

func integer(min, max, def int, field func(*loader) *int) value {
	return number(1, min, max, def, field)
}

// millis is a number of milliseconds that is at least min.
func millis(min, def int, field func(*loader) *time.Duration) value {
	return number(time.Millisecond, min, math.MaxInt32, def, field)
}

func rangeText(min, max int) string {
	switch {
	case max < math.MaxInt32:
		return fmt.Sprintf("integer from %d to %d", min, max)
	case min > math.MinInt32:
		return fmt.Sprintf("integer, at least %d", min)
	}
	return "integer"
}

// limit is a number of which everything below 1, which is the default, means that there is no
// limit.
func limit(field func(*loader) *int) value {
	v := integer(math.MinInt32, math.MaxInt32, 0, field)
	use := v.use
	v.use = func(l *loader, p property) {
		use(l, p)
		*field(l) = max(*field(l), 0)
	}
	return v
}

// orUnlimited is a number of which everything below 1 means that there is no limit.
func orUnlimited(def int, field func(*loader) *int) value {
	v := integer(math.MinInt, math.MaxInt, def, field)
	v.use = func(l *loader, p property) {
		if n, ok := l.intValue(p, math.MinInt, math.MaxInt); ok {
			if *field(l) = n; n <= 0 {
				*field(l) = Unlimited
			}
		}
	}
	return v
}

// sessionTimeout accepts -1 for the default, as ZooKeeper does.
func sessionTimeout(field func(*loader) *time.Duration) value {
	v := millis(1, 0, field)
	use := v.use
	v.kind = "integer, at least 1; or -1"
	v.use = func(l *loader, p property) {
		if p.val != "-1" {
			use(l, p)
		}
	}
	return v
}

func directory(field func(*loader) *string) value { return text("path", field) }

// host is a host name or an address; an IPv6 address may be in brackets.
func host(field func(*loader) *string) value {
	return value{kind: "host name or IP address", use: func(l *loader, p property) {
		*field(l) = strings.TrimSuffix(strings.TrimPrefix(p.val, "["), "]")
	}}
}

// text is a text that is not empty.
func text(kind string, field func(*loader) *string) value {
	return value{kind: kind, use: func(l *loader, p property) {
		if p.val == "" {
			l.fault(p, "is empty")
			return
		}
		*field(l) = p.val
	}}
}

func boolean(field func(*loader) *bool) value {
	return value{kind: kindBoolean, use: func(l *loader, p property) { *field(l), _ = l.boolValue(p) }}
}

// booleanNot sets its field to the opposite of the value.
func booleanNot(field func(*loader) *bool) value {
	return value{kind: kindBoolean, use: func(l *loader, p property) {
		if on, ok := l.boolValue(p); ok {
			*field(l) = !on
		}
	}}
}

// useMaxBuffer reads jute.maxbuffer as Java does: 0x and a leading 0 count.
func useMaxBuffer(l *loader, p property) {
	n, err := strconv.ParseInt(p.val, 0, 32)
	switch {
	case err != nil:
		l.fault(p, "must be a number of bytes, not %q", p.val)
	case n < handshakeBytes:
		// As in ZooKeeper: the four-letter words are answered, and no client gets a session.
		l.warn(p, "no client can connect: the first request alone has %d bytes", handshakeBytes)
		l.cfg.Client.MaxBuffer = max(int(n), 1)
	case n > MaxMaxBuffer:
		// Usually meant for long replies.
		l.warn(p, "a request of more than %d bytes is refused, whatever this says; "+
			"replies have another limit, maxResponseBytes", MaxMaxBuffer)
		l.cfg.Client.MaxBuffer = MaxMaxBuffer
	default:
		l.cfg.Client.MaxBuffer = int(n)
	}
}

func useAuditClass(l *loader, p property) {
	if p.val != defaultAuditClass {
		l.fault(p, "lockkeeper cannot load %s; remove the key to have the lines of %s", p.val, defaultAuditClass)
	}
}

func (l *loader) ignore(c category, p property) {
	l.ineffective[c] = append(l.ineffective[c], p.key)
}

func ignored(c category) value {
	return value{kind: "(not read)", use: func(l *loader, p property) { l.ignore(c, p) }}
}

// refuse stops the start whatever the value is.
func refuse(kind, why string) value {
	return value{kind: kind, use: func(l *loader, p property) { l.fault(p, "%s", why) }}
}

// asProperty is def as a Java system property.
func (def keyDef) asProperty() keyDef {
	def.property = true
	return def
}

func refuseTrue(why string) keyDef {
	return keyDef{class: KeyRefused, value: value{kind: kindBoolean, use: func(l *loader, p property) {
		if on, _ := l.boolValue(p); on {
			l.fault(p, "%s; set it to false to start without", why)
		}
	}}, def: "false", effect: "With true it stops the start: " + why + "."}
}

// warnNo is a Java system property whose default is yes, and that nothing here can change.
func warnNo(text string) keyDef {
	return keyDef{class: KeyMissing, property: true, value: value{kind: kindYesNo, use: func(l *loader, p property) {
		if on, ok := l.yesNo(p); ok && !on {
			l.warn(p, "%s", text)
		}
	}}, def: "yes", effect: "Without effect: " + text + "."}
}

func useMember(l *loader, p property) {
	id, ok := memberID(p.key)
	if !ok {
		l.fault(p, "the number of a member must be between 0 and %d, without leading zeros", znode.MaxMemberID)
		return
	}
	m, err := znode.ParseMember(id, p.val)
	if err != nil {
		l.fault(p, "%v", err)
		return
	}
	l.members = append(l.members, m)
}

// memberID is the N of server.N.
func memberID(key string) (uint8, bool) {
	n, err := strconv.ParseUint(strings.TrimPrefix(key, "server."), 10, 8)
	if err != nil || (Member{ID: uint8(n)}).Key() != key {
		return 0, false
	}
	return uint8(n), true
}

func refuseHierarchy(l *loader, p property) {
	l.fault(p, "%s", noHierarchy)
}
