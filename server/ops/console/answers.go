package console

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"
	"unicode/utf8"

	"lockkeeper/locknode"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// head has the first fields of every answer.
type head struct {
	Member  int    `json:"member"`
	At      stamp  `json:"at"`
	Zxid    string `json:"zxid"`
	Serving bool   `json:"serving"`
	StaleMs int64  `json:"staleMs"`
}

// stamp is an instant as the API has it: UTC, with milliseconds. The zero stamp is null.
type stamp time.Time

// MarshalJSON implements json.Marshaler.
func (s stamp) MarshalJSON() ([]byte, error) {
	t := time.Time(s)
	if t.IsZero() {
		return []byte("null"), nil
	}
	return t.UTC().AppendFormat(nil, `"2006-01-02T15:04:05.000Z"`), nil
}

// failure is an error with the status of its answer.
type failure struct {
	status int
	text   string
}

func (f *failure) Error() string { return f.text }

func failf(status int, format string, args ...any) *failure {
	return &failure{status, fmt.Sprintf(format, args...)}
}

// blob are data as the API has them.
type blob struct {
	Bytes     int    `json:"bytes"`
	Is        string `json:"is"`
	Base64    []byte `json:"base64"`
	Truncated bool   `json:"truncated"`
}

func newBlob(data []byte, most int) *blob {
	b := &blob{Bytes: len(data), Is: sortOf(data), Base64: data[:min(len(data), most)], Truncated: len(data) > most}
	if b.Base64 == nil {
		b.Base64 = []byte{}
	}
	return b
}

// sortOf classifies data: json (an object or a list), text, binary or empty.
func sortOf(data []byte) string {
	switch {
	case len(data) == 0:
		return "empty"
	case !utf8.Valid(data):
		return "binary"
	case (data[0] == '{' || data[0] == '[') && validJSON(data):
		return "json"
	}
	for _, b := range data {
		if b < ' ' && b != '\n' && b != '\r' && b != '\t' || b == 0x7f {
			return "binary"
		}
	}
	return "text"
}

// lockRow is a lock in a table.
type lockRow struct {
	Path          string      `json:"path"`
	Kind          string      `json:"kind"`
	Libraries     []string    `json:"libraries"`
	Held          int         `json:"held"`
	Leases        *int        `json:"leases"`
	Waiting       int         `json:"waiting"`
	Holders       []holderRow `json:"holders"`
	SinceAt       stamp       `json:"sinceAt"`
	HeldMs        int64       `json:"heldMs"`
	LongestWaitMs int64       `json:"longestWaitMs"`
	Token         int64       `json:"token"`
	Trouble       []string    `json:"trouble"`
}

type holderRow struct {
	Node       string `json:"node"`
	Session    string `json:"session"`
	Address    string `json:"address"`
	Mode       string `json:"mode"`
	Token      int64  `json:"token"`
	SinceAt    stamp  `json:"sinceAt"`
	SinceExact bool   `json:"sinceExact"`
	Note       string `json:"note"`
	Who        string `json:"who"`
}

// ownerRow is a contender's node, and the session that owns it.
type ownerRow struct {
	Path      string `json:"path"`
	Node      string `json:"node"`
	Session   string `json:"session"`
	Address   string `json:"address"`
	TimeoutMs int32  `json:"timeoutMs"`
	Connected *bool  `json:"connected"`
}

// contenderRow is a contender in a queue.
type contenderRow struct {
	ownerRow
	Held       bool     `json:"held"`
	MayHold    bool     `json:"mayHold"`
	Mode       string   `json:"mode"`
	Token      int64    `json:"token"`
	Layout     string   `json:"layout"`
	Library    string   `json:"library"`
	CreatedAt  stamp    `json:"createdAt"`
	QueuedAt   stamp    `json:"queuedAt"`
	SinceAt    stamp    `json:"sinceAt"`
	SinceExact bool     `json:"sinceExact"`
	WaitMs     int64    `json:"waitMs"`
	Priority   int      `json:"priority"`
	Yielded    bool     `json:"yielded"`
	Orphan     bool     `json:"orphan"`
	Deadlock   bool     `json:"deadlock"`
	MayIgnore  []string `json:"mayIgnore"`
	Within     []string `json:"within"`
	Note       string   `json:"note"`
	Who        string   `json:"who"`
	Data       *blob    `json:"data"`
}

// viewer is who asks.
type viewer struct {
	ctx   context.Context // ends when nobody waits for the answer
	ids   []znode.Identity
	super bool
	// isClient: the answer is a report to a client. It is told from where another client is
	// connected if it may read that one's node.
	isClient bool
	remotes  map[wire.SessionID]netip.AddrPort // of the clients that are connected here
	// deadlocked has the contenders in the deadlocks that the viewer may see, since the last
	// showDeadlocks. The index's mu guards it.
	deadlocked places
}

func (v *viewer) may(a *znode.Access) bool { return v.super || a.Allows(v.ids, wire.PermRead) }

// address is the address of the client that owns a node, for those who may know it.
func (v *viewer) address(a *znode.Access, id int64, addr string) string {
	if v.isClient && !v.may(a) {
		return ""
	}
	return v.withPort(wire.SessionID(id), addr)
}

// withPort is a session's address, with the port if its client is connected to this member.
func (v *viewer) withPort(id wire.SessionID, addr string) string {
	if at, here := v.remotes[id]; here {
		return at.String()
	}
	return addr
}

// sees reports whether v may see that a node is there: READ on its parent.
func (v *viewer) sees(store *znode.Store, path string) bool {
	if v.super {
		return true
	}
	dir, _ := locknode.Split(path)
	a, ok := store.AccessOf(dir)
	return ok && v.may(a)
}

// says has a contender's own fields, for those who may read its node.
func says(c *locknode.Contender) (note, who string) {
	if c.Info == nil {
		return "", c.Identifier()
	}
	return c.Info.Note, c.Info.Who()
}

// warnings describes, once for each kind of node, which others its owners may not wait for.
func warnings(queue []locknode.Contender) []string {
	list := []string{}
	seen := map[string]bool{}
	for i := range queue {
		c := &queue[i]
		if len(c.MayIgnore) == 0 {
			continue
		}
		text := fmt.Sprintf("%s of %s may not wait for %s: there may be two holders", cmp.Or(c.Layout, "unknown"),
			cmp.Or(c.Library, "an unknown library"), strings.Join(c.MayIgnore, ", "))
		if !seen[text] {
			seen[text] = true
			list = append(list, text)
		}
	}
	return list
}

func orEmpty(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}
