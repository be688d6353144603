package zoocfg

import (
	"fmt"
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

// value is how the text behind a key is read: the name of its type, for people, and what takes it.
type value struct {
	kind string
	use  func(*loader, property)
}

// What keys do with their values, for the tables in keys.go.

const (
	kindBoolean = "true or false"
	kindYesNo   = "yes or no"
)

// integer is a number between min and max.
func integer(min, max int, field func(*loader) *int) value {
	return value{rangeText(min, max), func(l *loader, p property) { *field(l), _ = l.intValue(p, min, max) }}
}

// rangeText is the type of a number between min and max.
func rangeText(min, max int) string {
	switch {
	case max < math.MaxInt32:
		return fmt.Sprintf("integer from %d to %d", min, max)
	case min > math.MinInt32:
		return fmt.Sprintf("integer, at least %d", min)
	}
	return "integer"
}

// millis is a number of milliseconds that is at least min.
func millis(min int, field func(*loader) *time.Duration) value {
	return value{rangeText(min, math.MaxInt32), func(l *loader, p property) {
		n, _ := l.intValue(p, min, math.MaxInt32)
		*field(l) = time.Duration(n) * time.Millisecond
	}}
}

// limit is a number of which everything below 1 means that there is no limit.
func limit(field func(*loader) *int) value {
	return value{"integer", func(l *loader, p property) {
		n, _ := l.intValue(p, math.MinInt32, math.MaxInt32)
		*field(l) = max(n, 0)
	}}
}

// orUnlimited is a number of which everything below 1 means that there is no limit, and of which nothing means the default.
func orUnlimited(field func(*loader) *int) value {
	return value{"integer", func(l *loader, p property) {
		if n, ok := l.intValue(p, math.MinInt32, math.MaxInt32); ok {
			if *field(l) = n; n <= 0 {
				*field(l) = Unlimited
			}
		}
	}}
}

// sessionTimeout accepts -1 for the default, as ZooKeeper does.
func sessionTimeout(field func(*loader) *time.Duration) value {
	timeout := millis(1, field)
	return value{"integer, at least 1; or -1", func(l *loader, p property) {
		if p.val != "-1" {
			timeout.use(l, p)
		}
	}}
}

func directory(field func(*loader) *string) value {
	return value{"path", func(l *loader, p property) {
		if p.val == "" {
			l.fault(p, "is empty")
			return
		}
		*field(l) = p.val
	}}
}

func boolean(field func(*loader) *bool) value {
	return value{kindBoolean, func(l *loader, p property) { *field(l), _ = l.boolValue(p) }}
}

// booleanNot sets its field to the opposite of the value.
func booleanNot(field func(*loader) *bool) value {
	return value{kindBoolean, func(l *loader, p property) {
		if on, ok := l.boolValue(p); ok {
			*field(l) = !on
		}
	}}
}

// useMaxBuffer takes jute.maxbuffer, which Java decodes: 0x and a leading 0 count.
func useMaxBuffer(l *loader, p property) {
	n, err := strconv.ParseInt(p.val, 0, 32)
	switch {
	case err != nil:
		l.fault(p, "must be a number of bytes, not %q", p.val)
	case n < handshakeBytes:
		// As in ZooKeeper: the four-letter words are answered, and no client gets a session.
		l.warn(p, "no client can connect: the first request alone has %d bytes", handshakeBytes)
		l.cfg.MaxBuffer = max(int(n), 1)
	case n > MaxMaxBuffer:
		// Usually meant for long replies.
		l.warn(p, "a request of more than %d bytes is refused, whatever this says; replies have another limit, maxResponseBytes", MaxMaxBuffer)
		l.cfg.MaxBuffer = MaxMaxBuffer
	default:
		l.cfg.MaxBuffer = int(n)
	}
}

func useAuthSchemes(l *loader, p property) {
	l.authSchemes = nil
	for scheme := range strings.SplitSeq(p.val, ",") {
		switch scheme = strings.TrimSpace(scheme); scheme {
		case "digest", "ip":
			l.authSchemes = append(l.authSchemes, scheme)
		default:
			l.fault(p, "this version cannot tell who somebody is by the scheme %q; it has digest and ip", scheme)
		}
	}
}

// authProvider refuses providers that are not there: without them nobody is whom an ACL of their scheme lets in, and clients
// that they would turn away are served.
func authProvider(l *loader, p property) {
	switch class := p.val[strings.LastIndexByte(p.val, '.')+1:]; class {
	case "DigestAuthenticationProvider", "IPAuthenticationProvider":
		l.ignore(unneeded, p)
	case "X509AuthenticationProvider":
		l.fault(p, "%s, so nobody can prove to be the holder of a certificate; remove the key to start without", noTLS)
	case "SASLAuthenticationProvider":
		l.fault(p, "%s, so nobody can prove to be a principal; remove the key to start without", noSASL)
	default:
		l.fault(p, "lockkeeper cannot load %s, so nobody can log in with its scheme; remove the key to start without", p.val)
	}
}

// Keys without effect, and keys that stop the start.

func (l *loader) ignore(c category, p property) {
	l.ineffective[c] = append(l.ineffective[c], p.key)
}

func ignored(c category) value {
	return value{"(not read)", func(l *loader, p property) { l.ignore(c, p) }}
}

// refuse stops the start whatever the value is.
func refuse(kind, why string) value {
	return value{kind, func(l *loader, p property) { l.fault(p, "%s", why) }}
}

// asProperty is def as a Java system property.
func (def keyDef) asProperty() keyDef {
	def.property = true
	return def
}

func refuseTrue(why string) keyDef {
	return keyDef{value: value{kindBoolean, func(l *loader, p property) {
		if on, _ := l.boolValue(p); on {
			l.fault(p, "%s; set it to false to start without", why)
		}
	}}, def: "false", effect: "With true it stops the start: " + why + "."}
}

// refuseNeed is for the keys that say whether a client's certificate is needed, wanted, or not asked for.
func refuseNeed(why string) keyDef {
	return keyDef{property: true, value: value{"need, want or none", func(l *loader, p property) {
		switch strings.ToLower(p.val) {
		case "need":
			l.fault(p, "%s; set it to none to start without", why)
		case "want", "none":
			l.ignore(tlsOnly, p)
		default:
			l.fault(p, "must be need, want or none, not %q", p.val)
		}
	}}, def: "(not used)", effect: "With need it stops the start: " + why + "."}
}

func warnTrue(text string) keyDef {
	return keyDef{value: value{kindBoolean, func(l *loader, p property) {
		if on, _ := l.boolValue(p); on {
			l.warn(p, "%s", text)
		}
	}}, def: "false", effect: "Without effect: " + text + "."}
}

// warnNo is a Java system property whose default is yes, and that nothing here can change.
func warnNo(text string) keyDef {
	return keyDef{property: true, value: value{kindYesNo, func(l *loader, p property) {
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

// memberID takes the N out of server.N.
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
