package locknode

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Info says who a contender is: the metadata that package recipes writes into a
// lock's node when MutexOptions.Data is not given. It is a small JSON object,
// for people, for the command lockkeeper locks, and for programs in any language:
//
//	{"by":"lockkeeper/recipes","host":"web-3","pid":4711,"program":"nightly",
//	 "note":"monthly report","since":"2026-11-21T14:00:00.25Z"}
type Info struct {
	// By tells these data from others'.
	By string `json:"by"`

	Host    string `json:"host,omitempty"`
	PID     int    `json:"pid,omitempty"`
	Program string `json:"program,omitempty"`

	// Note is MutexOptions.Note: why the lock is wanted.
	Note string `json:"note,omitempty"`

	// Within are the sessions that hold locks for as long as this process runs, outermost first:
	// the sessions of the commands lockkeeper lock and lockkeeper elect that have started it, as
	// ZooKeeper's tools write them (0x1234). Together with them the contender is one owner, and
	// they wait for the same contenders. They come from the environment variable LOCKKEEPER_WITHIN.
	Within []string `json:"within,omitempty"`

	// Since is when the contender asked for the lock, by its own clock.
	Since time.Time `json:"since"`

	// Downgraded: the node is a writer's, and its owner is content with reading
	// by now; see Grant.Downgrade.
	Downgraded bool `json:"downgraded,omitempty"`

	// Data is the node's data from the program itself, before it was downgraded.
	Data []byte `json:"data,omitempty"`

	// ID distinguishes the contenders of a SimpleMutex; their nodes have no names of their own.
	ID string `json:"id,omitempty"`
}

// Who is the contender's program, its process and its host, as in nightly[4711]@web-3; "" if its
// program is not known. A contender that came over HTTP has no process: billing@10.0.0.7.
func (i *Info) Who() string {
	switch {
	case i.Program == "":
		return ""
	case i.PID == 0 && i.Host != "":
		return i.Program + "@" + i.Host
	}
	return fmt.Sprintf("%s[%d]@%s", i.Program, i.PID, cmp.Or(i.Host, "?"))
}

// InfoBy is the value of Info.By.
const InfoBy = "lockkeeper/recipes"

// infoPrefix is the beginning of such data.
var infoPrefix = []byte(`{"by":"` + InfoBy + `"`)

// ParseInfo returns nil if data are not such metadata.
func ParseInfo(data []byte) *Info {
	if len(data) == 0 || data[0] != '{' {
		return nil
	}
	var i Info
	if json.Unmarshal(data, &i) != nil || i.By != InfoBy {
		return nil
	}
	return &i
}

// identifierMost is how long an identifier is at most, in bytes.
const identifierMost = 80

// Identifier is the name that a contender of another library has put into the data of its node,
// such as kazoo's argument identifier; "" if that is no short text, or an address, which Curator
// writes there unless its program has something to say.
func (c *Contender) Identifier() string {
	text := string(c.Data)
	if c.Library == LibraryKazoo && strings.HasPrefix(text, "b'") && strings.HasSuffix(text, "'") && len(text) > 2 {
		text = text[2 : len(text)-1] // as kazoo's Semaphore writes an identifier of bytes
	}
	isControl := func(r rune) bool { return r < ' ' || 0x7f <= r && r < 0xa0 }
	isAddress := strings.ContainsAny(text, ".:") && strings.Trim(text, "0123456789abcdef.:") == ""
	if c.Info != nil || text == "" || len(text) > identifierMost || strings.ToValidUTF8(text, "") != text ||
		isAddress ||
		strings.ContainsFunc(text, isControl) || text[0] == '{' || text[0] == '[' {
		return ""
	}
	return text
}

// maxWithin bounds the number of outer locks that are considered, because a client claims them.
const maxWithin = 32

// WithinSessions are the sessions that hold locks around a contender; none for nil.
func (i *Info) WithinSessions() (sessions []int64) {
	if i == nil {
		return nil
	}
	for _, s := range i.Within[:min(len(i.Within), maxWithin)] {
		if id, err := strconv.ParseUint(strings.TrimPrefix(s, "0x"), 16, 64); err == nil {
			sessions = append(sessions, int64(id))
		}
	}
	return sessions
}
